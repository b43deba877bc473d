"""Hugging Face's Whisper, imported and exported: the same frames, logits, tokens with all rules, and word times."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from whisper_toys import EOS, FRAMES, NO_TIMESTAMPS, SPECIAL, START, TIMES, their_features, their_whisper, tones

import regard
from regard.analysis.head_roles import head_roles
from regard.data.audio import write_wav
from regard.decode.config import DecodeConfig
from regard.decode.fallback import Fallback
from regard.decode.stepper import Hypothesis
from regard.errors import ConfigError, DataError, RegardError
from regard.interop.huggingface import export_run, import_directory
from regard.interop.parity import check_huggingface
from regard.look.time_warping import median_filtered, step_starts, warping_path
from regard.look.watch import watch
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.whisper import plain_words
from regard.tasks.whisper_transcriber import split_at_timestamps

transformers = pytest.importorskip("transformers")
SEEDS = (4, 6, 11)
pytestmark = pytest.mark.filterwarnings("ignore:.*generation.*")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A multilingual and an English model: as transformers saves them, and the runs they were imported to."""
    made = {}
    for kind in ("multilingual", "english"):
        folder = tmp_path_factory.mktemp("whisper")
        model = their_whisper(folder / "theirs", multilingual=kind == "multilingual", seed=14)
        made[kind] = model, import_directory(folder / "theirs", folder / "run"), folder
    return made


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Multilingual models with other weights."""
    made = []
    for seed in SEEDS:
        folder = tmp_path_factory.mktemp("whisper")
        made.append((their_whisper(folder / "theirs", seed=seed), import_directory(folder / "theirs", folder / "run")))
    return made


def batch(run, count=3, length=9):
    generator = torch.Generator().manual_seed(1)
    frames = torch.randn(count, FRAMES, 16, generator=generator)
    ids = torch.randint(0, 256, (count, length + 1), generator=generator)
    return run.transcriber.batch(frames, ids.tolist())


@torch.no_grad()
@pytest.mark.parametrize("kind", ["multilingual", "english"])
def test_logits_are_those_of_transformers_and_so_are_those_of_the_export(saved, kind, tmp_path):
    model, run, _ = saved[kind]
    given = batch(run)
    inputs = {"input_features": given.source.values.mT, "decoder_input_ids": given.inputs.ids}
    wanted = model(**inputs).logits
    assert wanted.std() > 0.1
    assert_close(run.model.logits(given), wanted, atol=1e-5, rtol=1e-5)
    out = export_run(run, tmp_path / "out")
    again = transformers.WhisperForConditionalGeneration.from_pretrained(out).eval()
    assert_close(again(**inputs).logits, wanted, atol=1e-5, rtol=1e-5)
    report, _ = check_huggingface(run, out, ["Well said.", "And heard."])
    assert report["passed"]
    assert report["positions"] > 20


@pytest.mark.parametrize("kind", ["multilingual", "english"])
def test_an_export_read_again_is_the_same_run(saved, kind, tmp_path):
    _, run, _ = saved[kind]
    again = import_directory(export_run(run, tmp_path / "out"), tmp_path / "again")
    assert again.config.to_mapping() == run.config.to_mapping()
    assert again.vocabularies.target.digest() == run.vocabularies.target.digest()
    said = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert said["alignment_heads"] == [[1, 0], [2, 1]]
    assert ("lang_to_id" in said) == (kind == "multilingual")
    processor = transformers.AutoProcessor.from_pretrained(tmp_path / "out")
    assert processor.tokenizer.convert_tokens_to_ids("<|notimestamps|>") == NO_TIMESTAMPS
    assert processor.feature_extractor.nb_max_frames == FRAMES


@torch.no_grad()
def test_the_step_by_step_decoder_says_what_the_whole_one_says(saved):
    _, run, _ = saved["english"]
    given = batch(run)
    wanted, state, found = run.model.logits(given).log_softmax(-1), run.model.start(given), []
    for column in given.inputs.ids.T:
        log_probs, state = run.model.step(column, state)
        found.append(log_probs)
    assert_close(torch.stack(found, 1), wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("seconds", [0.3, 1.0])
def test_a_window_has_the_frames_of_their_feature_extractor(saved, seconds):
    transcriber, sound = saved["english"][1].transcriber, tones(seconds)
    wanted = their_features(sound).input_features[0].T
    assert wanted.std() > 0.1
    assert_close(transcriber.windows(transcriber.read([sound])[0]).window(0), wanted, atol=1e-5, rtol=1e-5)


def test_windows_of_a_long_recording_are_cut_from_the_frames_of_the_whole(saved):
    transcriber, sound = saved["english"][1].transcriber, tones(3.4)
    wanted = their_features(sound, truncation=False, padding="longest").input_features[0].T
    windows = transcriber.windows(transcriber.read([sound])[0])
    assert windows.long
    assert windows.length == len(wanted) == 340
    for start in (0, 1, 57, 239, 241, 339):
        part = wanted[start : start + FRAMES]
        found = windows.window(start)
        assert_close(found[: len(part)], part, atol=1e-5, rtol=1e-5)
        assert not found[len(part) :].any()


@pytest.mark.parametrize(
    ("language", "translate", "timed"), [("en", False, True), ("fr", True, True), ("fr", False, False)]
)
def test_a_window_has_the_tokens_that_transformers_writes(several, language, translate, timed):
    ended, kinds, task = 0, set(), "translate" if translate else "transcribe"
    prompt = [START, 258 if language == "en" else 259, 260 if translate else 261, *([] if timed else [NO_TIMESTAMPS])]
    for number, (model, run) in enumerate(several):
        transcriber, sound = run.transcriber, tones(0.8, number)
        assert transcriber.prompt(language, translate=translate, timed=timed) == prompt
        wanted = model.generate(
            their_features(sound).input_features, language=language, task=task, return_timestamps=timed,
            force_unique_generate_call=True,
        )[0].tolist()  # fmt: skip
        how = {"language": language, "translate": translate, "timed": timed}
        found = transcriber.window_tokens(transcriber.windows(transcriber.read([sound])[0]).window(0), **how)
        ended, kinds = ended + (EOS in wanted), kinds | set(found)
        assert wanted == [*prompt, *found, *([EOS] if EOS in wanted else [])]
    assert len(kinds) > 5
    assert not timed or ended, "no output came to an end by the rules of timestamps"


def test_a_language_is_found_out_as_transformers_does(saved):
    model, run, _ = saved["multilingual"]
    sounds = [tones(0.7, seed) for seed in range(3)]
    wanted = [int(model.detect_language(their_features(sound).input_features)[0]) for sound in sounds]
    found = [{"en": 258, "fr": 259}[best[0].language] for best in run.transcripts(sounds)]
    assert found == wanted
    assert set(found) == {258, 259}


def test_a_long_recording_goes_on_from_its_last_whole_segment_as_transformers_does(several):
    segments = 0
    for number, (model, run) in enumerate(several):
        sound = tones(1.9, number)
        features = their_features(sound, truncation=False, padding="longest").input_features
        how = {"language": "en", "task": "transcribe"}
        wanted = model.generate(features, return_timestamps=True, return_segments=True, **how)["segments"][0]
        found = run.transcripts([sound], timestamps=True, language="en")[0][0]
        target = run.vocabularies.target
        texts = [[token for token in one["tokens"].tolist() if token not in target.specials()] for one in wanted]
        starts = [round(float(one["start"]), 2) for one in wanted]
        said = [(start, text) for start, text in zip(starts, texts, strict=True) if target.decode(text).strip()]
        assert list(found.tokens) == [token for _, text in said for token in text]
        assert [one.start for one in found.segments] == pytest.approx([min(start, 1.9) for start, _ in said])
        segments += len(said)
    assert segments > 2 * len(several)


def test_recordings_together_have_the_transcripts_that_each_has_alone(saved):
    _, run, _ = saved["multilingual"]
    sounds = [tones(0.5, 1), tones(1.3, 2)]
    assert run.transcribe(sounds) == [run.transcribe([one])[0] for one in sounds]
    timed = run.transcripts([sounds[1]], timestamps=True)[0][0]
    assert timed.segments == tuple(sorted(timed.segments, key=lambda one: one.start))
    assert timed.text == "".join(run.vocabularies.target.decode(timed.tokens)).strip()


def test_a_recording_that_cannot_be_read_to_its_end_costs_itself_alone(saved):
    _, run, _ = saved["multilingual"]
    broken = tones(1.3, 3)
    broken[-5:] = np.nan  # in its second window
    sounds, refused = run.transcriber.read([tones(0.5, 1), broken, tones(1.3, 2)]), {}
    found = run.transcriber.transcribe(sounds, refused=refused)
    assert list(refused) == [1]
    assert "not finite numbers" in str(refused[1])
    for place in (0, 2):
        assert found[place][0].text == run.transcriber.transcribe([sounds[place]])[0][0].text
    with pytest.raises(DataError, match="not finite numbers"):
        run.transcriber.transcribe(sounds)


def test_the_first_timestamp_is_no_later_than_allowed_and_text_stands_between_pairs(saved):
    _, run, _ = saved["english"]
    transcriber = run.transcriber
    known = transcriber.known
    tokens = transcriber.window_tokens(transcriber.windows(transcriber.read([tones(1.0, 4)])[0]).window(0), timed=True)
    stamps = [token for token in tokens if known.is_timestamp(token)]
    assert known.first_timestamp <= tokens[0] <= known.first_timestamp + 10
    assert stamps == sorted(stamps)
    assert not known.is_timestamp(tokens[1])


def test_segments_are_cut_where_two_timestamps_meet(saved):
    known = saved["english"][1].transcriber.known
    at = known.first_timestamp
    open_end = [at, 5, 6, at + 10, at + 12, 7, at + 20, at + 20, 8, 9]
    assert split_at_timestamps(open_end, known, 100) == (
        [(0.0, 0.2, open_end[:4]), (0.24, 0.4, open_end[4:7])],
        40,
    )
    closed = open_end[:7]
    assert split_at_timestamps(closed, known, 100) == ([(0.0, 0.2, closed[:4]), (0.24, 0.4, closed[4:])], 100)
    assert split_at_timestamps([at, 5, 6], known, 90) == ([(0.0, 0.9, [at, 5, 6])], 90)
    assert split_at_timestamps([at + 3, 5, at + 9], known, 90)[0][0][:2] == pytest.approx((0.0, 0.18))
    # A pair at the very beginning would never move on.
    assert split_at_timestamps([at, at, 5, 6], known, 100)[1] == 100


def test_time_warping_is_theirs():
    whisper = pytest.importorskip("transformers.models.whisper.generation_whisper")
    random = np.random.default_rng(0)
    for T, S in ((1, 1), (1, 6), (7, 20), (12, 5)):
        cost = random.normal(size=(T, S))
        for ours, theirs in zip(warping_path(cost), whisper._dynamic_time_warping(cost), strict=True):
            assert ours.tolist() == theirs.tolist()
    weights = torch.randn(2, 3, 30, generator=torch.Generator().manual_seed(0))
    assert torch.equal(median_filtered(weights), whisper._median_filter(weights[None], 7)[0])


def test_words_begin_where_the_heads_that_align_look():
    steps = torch.full((2, 4, 40), 0.01)
    for step, place in enumerate((0, 9, 20, 31)):
        steps[:, step, place : place + 9] = 0.2
    assert step_starts(steps).tolist() == pytest.approx([0, 9, 20, 31], abs=4)


def test_every_word_has_a_time_within_the_recording_and_after_the_last(saved):
    _, run, _ = saved["english"]
    for sound in (tones(0.9, 1), tones(2.5, 2)):
        found = run.transcripts([sound], timestamps=True)[0][0]
        assert [one.word for one in found.words] == [word for one in found.segments for word in one.text.split()]
        times = [time for one in found.words for time in (one.start, one.end)]
        assert all(one.start <= one.end for one in found.words)
        assert 0 <= min(times) <= max(times) <= len(sound) / 16_000 + 1e-6
    assert run.transcriber.aligning_heads() == {"decoder.1.cross_attention": [0], "decoder.2.cross_attention": [1]}


def test_a_directory_without_timestamps_or_tokenizer_json_is_read(saved, tmp_path):
    model = their_whisper(tmp_path / "short", times=False, multilingual=False, seed=7)
    run = import_directory(tmp_path / "short", tmp_path / "run")
    assert run.vocabularies.target.inner.token_to_id(TIMES[-1]) == NO_TIMESTAMPS + len(TIMES)
    state = json.loads((tmp_path / "short" / "tokenizer.json").read_text())
    (tmp_path / "short" / "tokenizer.json").unlink()
    (tmp_path / "short" / "vocab.json").write_text(json.dumps(state["model"]["vocab"]))
    (tmp_path / "short" / "merges.txt").write_text("#version: 0.2\n")
    added = {name: EOS + place for place, name in enumerate(SPECIAL)}
    (tmp_path / "short" / "added_tokens.json").write_text(json.dumps(added))
    again = import_directory(tmp_path / "short", tmp_path / "again")
    sound = tones(0.6)
    assert again.transcribe([sound]) == run.transcribe([sound])
    assert model.config.vocab_size == again.vocabularies.target.vocab_size


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        ("config.json", {"decoder_attention_heads": 3}, "decoder_attention_heads=3 is not supported"),
        ("config.json", {"tie_word_embeddings": False}, "tie_word_embeddings=False is not supported"),
        ("config.json", {"max_source_positions": 49}, "chunk_length=1 is not supported, only 0.98"),
        ("config.json", {"max_target_positions": 25}, r"model.decoder.embed_positions.weight is \(24, 12\)"),
        ("generation_config.json", {"alignment_heads": [[9, 0]]}, "layer 9, head 0"),
        ("generation_config.json", {"alignment_heads": "all"}, "must be pairs of a layer and a head"),
        ("generation_config.json", {"begin_suppress_tokens": ["a"]}, "must be a list of tokens"),
        ("generation_config.json", {"max_initial_timestamp_index": -1}, "max_initial_timestamp_index=-1"),
        ("preprocessor_config.json", {"hop_length": 100}, "hop_length=100 is not supported, only 160"),
        ("preprocessor_config.json", {"feature_size": 80}, "feature_size=80 is not supported, only 16"),
    ],
)
def test_what_would_change_outputs_is_refused_by_name(tmp_path, file, change, says):
    their_whisper(tmp_path / "theirs")
    path = tmp_path / "theirs" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(RegardError, match=says):
        import_directory(tmp_path / "theirs", tmp_path / "run")


def test_what_a_model_cannot_do_is_refused_in_one_line(saved):
    english, multilingual = saved["english"][1], saved["multilingual"][1]
    with pytest.raises(ConfigError, match="translate needs a multilingual model"):
        english.transcripts([tones(0.2)], translate=True)
    with pytest.raises(ConfigError, match="language='fr' needs a multilingual model"):
        english.transcripts([tones(0.2)], language="fr")
    with pytest.raises(ConfigError, match="language='xx' is not one that this model knows"):
        multilingual.transcripts([tones(0.2)], language="xx")
    with pytest.raises(ConfigError, match="have one transcript"):
        english.transcripts([tones(1.5)], beam=2, top_beams=2)
    with pytest.raises(ConfigError, match="piece does not apply"):
        english.ask("transcribe", [tones(0.2)], piece=1.0)
    with pytest.raises(DataError, match="0 seconds long"):
        english.transcripts([tones(0.0)])
    with pytest.raises(DataError, match="a window of 5 x 16"):
        english.model.encode(torch.zeros(1, 5, 16))


def test_the_verb_and_the_run_say_the_same_and_a_beam_gives_several(saved):
    _, run, _ = saved["english"]
    sound = tones(0.8, 5)
    found = run.ask("transcribe", [sound], beam=3, top_beams=2)[0]
    assert [one.text for one in found.transcripts] == [
        one.text for one in run.transcripts([sound], beam=3, top_beams=2)[0]
    ]
    assert len(found.transcripts) == 2
    assert found.seconds == pytest.approx(0.8)
    segments = run.ask("transcribe", [sound], timestamps=True)[0].transcripts[0].segments
    assert segments is not None
    assert regard.load(run.directory, "cpu").transcribe([sound]) == run.transcribe([sound])


def test_the_page_shows_cross_attention_against_the_time_of_the_sound(saved):
    _, run, _ = saved["english"]
    sound = tones(0.61, 3)
    shown = run.task.look(run, [sound], LookOptions(targets=("so it goes",))).sentences[0]
    assert shown.source.pieces[:3] == ("0.00", "0.02", "0.04")
    assert len(shown.source.pieces) == 31
    assert shown.target is not None
    assert shown.prefix is not None
    assert shown.target.words == ("so", "it", "goes")
    assert shown.prefix.pieces[:2] == ("<|startoftranscript|>", "<|notimestamps|>")
    assert shown.sound is not None
    assert len(shown.sound.words) == 3
    assert shown.sound.seconds == pytest.approx(0.61)
    maps = {one.name: one for one in shown.attentions}
    weights = maps["decoder.2.cross_attention"].array()
    assert weights.shape == (2, len(shown.target.pieces), 31)
    row = [START, NO_TIMESTAMPS, *run.vocabularies.target.encode(" so it goes"), EOS]
    transcriber = run.transcriber
    batch = transcriber.batch(transcriber.windows(transcriber.read([sound])[0]).window(0)[None], [row])
    with torch.inference_mode(), watch(run.model, "decoder.2.cross_attention") as trace:
        run.model(batch)
    assert_close(torch.from_numpy(weights), trace.weights("decoder.2.cross_attention")[0, ..., :31], atol=1e-2, rtol=0)
    with pytest.raises(DataError, match="look at a part of it"):
        run.task.look(run, [tones(1.2)], LookOptions())


def test_runs_are_measured_and_lose_heads_on_sounds_with_texts(saved, tmp_path):
    _, run, _ = saved["english"]
    for number, text in enumerate(("So it goes.", "And on")):
        (tmp_path / f"{number}.wav").write_bytes(write_wav(tones(0.5, number), 16_000))
        (tmp_path / f"{number}.txt").write_text(text)
    scores = regard.evaluate(run, [tmp_path])
    assert scores["sounds"] == 2
    assert scores["words"] == 5
    assert scores["plain_word_error_rate"] > 0.5
    assert "without punctuation" in run.task.show(scores)
    assert plain_words("Don't stop, Émile -- 7 times!") == ["don't", "stop", "émile", "7", "times"]
    data = run.task.held_out_data(run, [str(tmp_path)], 2)
    assert data.nll(run.model) > 0
    with pytest.raises(ConfigError, match="has no data of its own"):
        regard.evaluate(run)


def test_heads_are_given_roles_on_sounds_with_texts(saved, tmp_path, monkeypatch):
    _, run, _ = saved["multilingual"]
    monkeypatch.setattr("regard.analysis.head_roles.SCALING", 1)
    for number in range(6):
        (tmp_path / f"{number}.wav").write_bytes(write_wav(tones(0.5, number), 16_000))
        (tmp_path / f"{number}.txt").write_text("so it goes")
    found = head_roles(run, [str(tmp_path)], judging=1)
    assert found["sentences"] == 6
    best = {one["role"]: one for one in found["best"]}
    assert best["next"]["attention"].startswith("encoder.")
    assert best["first"]["attention"].startswith("decoder.")
    probe = run.task.probes(run, [str(tmp_path)], 1)[0]
    assert {(one.query < 25, one.visible) for one in probe.questions["encoder"]} == {(True, 50)}, "silence is not asked"
    (tmp_path / "long").mkdir()
    (tmp_path / "long" / "a.wav").write_bytes(write_wav(tones(1.2), 16_000))
    (tmp_path / "long" / "a.txt").write_text("so it goes")
    with pytest.raises(DataError, match="none of the sounds is as short as a window"):
        run.task.probes(run, [str(tmp_path / "long")], 1)


def test_sounds_that_are_sent_are_transcribed_in_the_language_that_is_said(saved, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "serve")
    from serve_toys import serving  # pyright: ignore[reportMissingImports]

    _, run, _ = saved["multilingual"]
    sound = tones(0.4, 2)
    sent = base64.b64encode(write_wav(sound, 16_000)).decode()
    with serving(run) as client:
        plain = client.post("/v1/transcribe", {"sound": sent, "language": "fr"})
        timed = client.post("/v1/transcribe", {"sound": sent, "language": "fr", "timestamps": True})
        wrong = client.post("/v1/transcribe", {"sound": sent, "language": "xx"})
        looked = client.post("/v1/look", {"text": sent, "target": "so it goes"})
        path = client.post("/v1/look", {"text": "/etc/passwd"})
        long = client.post("/v1/look", {"text": base64.b64encode(write_wav(tones(1.2), 16_000)).decode()})
    assert plain.status == 200, plain.text
    found = plain.json["results"][0]["transcripts"][0]
    assert found["language"] == "fr"
    assert "segments" not in found
    assert timed.json["results"][0]["transcripts"][0]["segments"][0]["start"] >= 0
    assert wrong.status == 400
    assert "is not one that this model knows" in wrong.json["error"]["message"]
    assert looked.status == 200, looked.text
    assert looked.json["document"]["sentences"][0]["sound"]["seconds"] == pytest.approx(0.4)
    assert path.status == 422
    assert "is not base64" in path.json["error"]["message"]
    assert "0:01.2 long; at most 0:01 are read" in long.json["error"]["message"]


def hypothesis(tokens, log_prob):
    return Hypothesis(tokens=tokens, log_prob=log_prob, score=log_prob, token_log_probs=[], finished=True, rows=[])


def test_texts_fail_by_the_thresholds_of_the_published_decoder():
    sure, unsure = hypothesis([1, 2, 3], -2.0), hypothesis([1, 2, 3], -6.0)  # means of -0.5 and -1.5, the end counted
    both = Fallback(compression_ratio_threshold=2.4, logprob_threshold=-1.0, no_speech_threshold=0.6)
    assert not both.failed(sure, "a text of its own")
    assert both.failed(sure, "again and " * 20)
    assert both.failed(unsure, "a text of its own")
    assert not Fallback(compression_ratio_threshold=2.4).failed(unsure, "a text of its own")
    assert [both.silent(one, likely) for one, likely in ((unsure, 0.7), (sure, 0.7), (unsure, 0.5))] == [True, 0, 0]
    assert Fallback(no_speech_threshold=0.6).silent(sure, 0.7)
    tried = list(both.attempts(DecodeConfig(beam=5)))
    assert [one.beam for one in tried] == [5, 1, 1, 1, 1, 1]
    assert [one.temperature for one in tried[1:]] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert len({one.seed for one in tried}) == 6
    assert len(list(Fallback(no_speech_threshold=0.6).attempts(DecodeConfig()))) == 1
    by_half = Fallback(logprob_threshold=-1.0, temperature_increment=0.5).attempts(DecodeConfig(temperature=0.5))
    assert [one.temperature for one in by_half] == [0.5, 1.0]


def test_a_failed_text_is_sampled_anew_and_one_that_has_not_failed_stays(saved):
    _, run, _ = saved["english"]
    sounds = [tones(0.5, 1), tones(1.1, 2)]
    plain = run.transcripts(sounds)
    assert plain[0][0].retried is None
    easy = run.transcripts(sounds, compression_ratio_threshold=1e3, logprob_threshold=-1e3)
    assert [one[0].text for one in easy] == [one[0].text for one in plain]
    assert [one[0].retried for one in easy] == [0, 0]
    never = run.transcripts(sounds, logprob_threshold=0.0, temperature_increment=0.5)
    assert never[0][0].retried == 2
    assert never[1][0].retried >= 4  # of two windows at least
    assert never[0][0].text != plain[0][0].text
    last = run.transcripts(sounds[:1], temperature=1.0, seed=2)
    assert last[0][0].tokens == never[0][0].tokens, "the last try is at temperature 1, whatever is read beside it"


@torch.no_grad()
@pytest.mark.parametrize("kind", ["multilingual", "english"])
def test_windows_are_taken_for_silence_as_transformers_does(saved, kind):
    model, run, _ = saved[kind]
    sounds = [tones(0.8, seed) for seed in range(4)]
    features = torch.cat([their_features(one).input_features for one in sounds])
    first = torch.full((len(sounds), 1), START)
    wanted = model(input_features=features, decoder_input_ids=first).logits[:, 0].softmax(-1)[:, NO_TIMESTAMPS - 1]
    state = run.model.begin(run.model.encode(features.mT))
    assert run.transcriber._no_speech(state, len(sounds)) == pytest.approx(wanted.tolist(), rel=1e-4)
    middle = float(wanted.sort().values[1:3].mean())
    found = run.transcripts(sounds, no_speech_threshold=middle)
    assert [bool(one[0].silences) for one in found] == (wanted > middle).tolist()
    assert {bool(one[0].text) for one in found} == {True, False}
    assert found[int(wanted.argmax())][0].silences == ((0.0, 0.8),)
    how = {"language": "en", "task": "transcribe"} if kind == "multilingual" else {}
    for number, sound in enumerate(sounds):
        theirs = model.generate(
            their_features(sound).input_features, return_timestamps=True, temperature=(0.0,), logprob_threshold=0.0,
            no_speech_threshold=middle, return_segments=True, **how,
        )["segments"][0]  # fmt: skip
        assert (not theirs) == bool(found[number][0].silences)


def test_thresholds_that_cannot_be_are_refused_by_name(saved):
    _, run, _ = saved["english"]
    for given, said in (
        ({"temperature_increment": 0.1}, "temperature_increment=0.1 is for texts that failed"),
        ({"no_speech_threshold": 1.5}, "no_speech_threshold=1.5 is a probability"),
        ({"logprob_threshold": -1.0, "temperature_increment": 0.0}, "temperature_increment=0 must be above 0"),
        ({"logprob_threshold": -1.0, "beam": 2, "top_beams": 2}, "have one transcript"),
    ):
        with pytest.raises(ConfigError, match=said):
            run.transcripts([tones(0.2)], **given)
    asked = run.ask("transcribe", [tones(0.4)], logprob_threshold=-0.001, temperature_increment=0.5)
    assert asked[0].transcripts[0].retried == 2
