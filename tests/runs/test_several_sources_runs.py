"""The life of a run of several sources: train, stop and go on, combine, measure, look, serve; and bad input refused."""

import base64
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from listeners import StopAt, Told
from torch.testing import assert_close

import regard
from regard import make_config
from regard.cli import main
from regard.data.audio import write_wav
from regard.data.batches import epoch_order
from regard.data.synthetic.scenes import _RGB
from regard.data.synthetic.several_sources import COLOURS, SENSES, SMUDGE, sourced_rows
from regard.data.synthetic.speech import RATE, VOICES_OF, Utterance, speak
from regard.errors import ConfigError, DataError, TooLarge
from regard.look.packed_arrays import png_bytes
from regard.tasks.looking import LookOptions, document
from regard.tasks.several_sources import SourceReader, alike, plain_name
from regard.trainer.trainer import Stopped

sys.path.append(str(Path(__file__).parents[1] / "serve"))
from serve_toys import serving

pytest.importorskip("PIL.Image")

SMALL = [
    *("data.examples=40", "train.steps=4", "train.warmup=2", "train.batch_tokens=400", "train.threads=1"),
    *("model.width=8", "model.heads=2", "model.feed_forward=8", "train.validate_every=4", "train.save_every=2"),
    *("train.validate_sentences=3", "decode.max_len=6", "train.log_every=1"),
]


@pytest.fixture(scope="module", autouse=True)
def few_rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.tasks.several_sources.HELD_OUT", 8)
        yield


@pytest.fixture(scope="module", params=["sources-paraphrases", "sources-ambiguous", "sources-spoken"])
def run(request, tmp_path_factory):
    return regard.train(make_config(None, request.param, SMALL), tmp_path_factory.mktemp("runs") / request.param)


def given(run, count=2):
    kind = run.config.data.bundled
    return [row.sources for row in sourced_rows(kind, count, seed=0, part="test")]


def test_a_report_says_what_each_source_is_worth_and_whose_attention_did_what(run):
    result = regard.evaluate(run, limit=5)
    assert result["rows"] == 5
    assert sum(one["share"] for one in result["sources"]) == pytest.approx(1.0, abs=1e-3)
    for one in result["sources"]:
        assert one["missing"] == 0
        assert one["left_out"]["cost"] == pytest.approx(result["exact_match"] - one["left_out"]["exact_match"])
    # With two sources, one left out is the other alone.
    assert result["sources"][0]["left_out"] == result["sources"][1]["alone"]
    shown = run.task.show(result)
    assert "left out" in shown
    assert "missing in 0 rows" in shown


def test_a_resumed_run_equals_an_unbroken_one_byte_for_byte(run, tmp_path):
    with pytest.raises(Stopped, match="stopped at step 2"):
        regard.train(make_config(None, run.directory.name, SMALL), tmp_path / "broken", StopAt(2))
    broken = regard.resume(tmp_path / "broken")
    one, other = ((found.directory / "model.safetensors").read_bytes() for found in (run, broken))
    assert one == other


def test_python_command_and_server_write_alike_with_a_source_missing_too(run, tmp_path, capsys):
    rows = [list(row) for row in given(run)]
    rows.append([rows[0][0], None])
    for number, row in enumerate(rows):
        if isinstance(row[1], np.ndarray):
            (tmp_path / f"{number}.png").write_bytes(png_bytes(row[1]))
            row[1] = str(tmp_path / f"{number}.png")
        if isinstance(row[1], Utterance):
            (tmp_path / f"{number}.wav").write_bytes(write_wav(speak(row[1]).samples, RATE))
            row[1] = str(tmp_path / f"{number}.wav")
    found = run.combine(rows, beam=2)
    assert len(found) == 3
    words = [json.dumps(row) for row in rows]
    assert main(["combine", str(run.directory), *words, "--beam", "2", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.splitlines() == [" ".join(text.split()) for text in found]
    names = [plain_name(name) for name in run.config.data.names]
    assert run.combine([dict(zip(names, rows[0], strict=True))], beam=2) == found[:1]
    sent = [["" if one is None else one for one in row] for row in rows]
    for row in sent:
        if row[1].endswith((".png", ".wav")):
            row[1] = base64.b64encode(Path(row[1]).read_bytes()).decode()
    with serving(run) as client:
        answer = client.post("/v1/combine", {"rows": sent, "beam": 2})
        wrong = client.post("/v1/combine", {"rows": [["one"]]})
        nothing = client.post("/v1/combine", {"rows": [["", ""]]})
        listed = client.get("/v1/models").json["data"][0]["does"]
        looked = client.post("/v1/look", {"text": sent[0]})
    assert looked.status == 200, looked.text
    assert len(looked.json["document"]["sentences"]) == 1
    assert [one["texts"][0]["text"] for one in answer.json["results"]] == found
    assert wrong.status == 422
    assert "row 1 must be a list of 2 sources" in wrong.json["error"]["message"]
    assert nothing.status == 422
    assert "row 1 has no source at all" in nothing.json["error"]["message"]
    assert {"combine", "look"} <= set(listed)


def test_rows_that_are_no_rows_are_refused_in_a_line(run):
    for row, message in (
        (["a", "b", "c"], "row 1 has 3 sources; this run reads 2"),
        ("a", "row 1 has 1 sources"),
        (["", None], "row 1 has no source at all"),
        ({"other": "a"}, "row 1 has 'other'; the sources of this run are"),
        ([" ".join(["word"] * 100_000), None], "has 100,001 tokens; the model reads 64"),
        ([3, None], "must be a text"),
    ):
        with pytest.raises(DataError, match=message):
            run.combine([row])


def test_the_page_shows_all_sources_side_by_side(run):
    found = document(run, given(run), LookOptions())
    assert len(found.sentences) == 2
    first = found.sentences[0]
    for one in (one for one in first.attentions if one.kind == "cross"):
        assert np.asarray(one.weights).shape[-1] == len(first.source.pieces)
    with pytest.raises(ConfigError, match="only weights can be shown"):
        document(run, given(run), LookOptions(edits=True))


def test_tables_with_missing_sources_are_trained_on_and_bad_ones_refused(tmp_path, capsys):
    assert main(["data", "sources", str(tmp_path / "rows"), "--train", "20", "--valid", "4", "--test", "4"]) == 0
    lines = (tmp_path / "rows" / "train.tsv").read_text(encoding="utf-8").splitlines()
    lines[2] = "\t".join(["", *lines[2].split("\t")[1:]])
    (tmp_path / "rows" / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = {"train": [str(tmp_path / "rows" / "train.tsv")], "sources": ["first", "second"]}
    own = [one for one in SMALL if not one.startswith("data.examples")]
    made = make_config(None, "sources-paraphrases", [*own, "model.combine=turn"], {"data": data})
    mine = regard.train(made, tmp_path / "mine")
    result = regard.evaluate(mine, data["train"])
    assert [one["missing"] for one in result["sources"]] == [1, 0]
    assert result["sources"][1]["left_out"]["rows"] == 19  # of one row nothing would be left
    for text, message in (
        ("first\tsecond\toutput\na\tb\n", "line 2: 2 columns where 3 columns should be"),
        ("first\tsecond\toutput\n\t\tsomething\n", "no row with a source and a text"),
    ):
        (tmp_path / "bad.tsv").write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=message):
            regard.evaluate(mine, [str(tmp_path / "bad.tsv")])
    with pytest.raises(ConfigError, match=r"must say what data\.sources are"):
        make_config(None, "sources-paraphrases", own, {"data": {**data, "sources": ["first", "image:second"]}})
    with pytest.raises(ConfigError, match=r"'audio:second' is of no known kind; .* a sound as sound:COLUMN"):
        make_config(None, "sources-paraphrases", own, {"data": {**data, "sources": ["first", "audio:second"]}})
    with pytest.raises(ConfigError, match="'image:' must name a column"):
        make_config(None, "sources-paraphrases", own, {"data": {**data, "sources": ["first", "image:"]}})
    with pytest.raises(ConfigError, match="must be different columns"):
        make_config(None, "sources-paraphrases", own, {"data": {**data, "sources": ["first", "first"]}})


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A table of sentences and sounds, of which a row has none and another no sentence."""
    folder = tmp_path_factory.mktemp("files") / "words"
    assert (
        main(["data", "sources", str(folder), "--kind", "spoken", "--train", "12", "--valid", "3", "--test", "3"]) == 0
    )
    rows = [line.split("\t") for line in (folder / "train.tsv").read_text(encoding="utf-8").splitlines()]
    rows[2][1], rows[3][0] = "", ""
    (folder / "train.tsv").write_text("\n".join("\t".join(row) for row in rows) + "\n", encoding="utf-8")
    return folder


OF_WORDS = [
    *(one for one in SMALL if not one.startswith("data.examples")),
    *('data.sources=["sentence", "sound:word"]', "model.bands=8"),
]


def spoken(words, out, changes=(), train="train.tsv", told=None):
    data = {"train": [str(words / train)], "valid": [str(words / "valid.tsv")]}
    made = make_config(None, "sources-spoken", [*OF_WORDS, *changes], {"data": data})
    return regard.train(made, out, told or Told())


def test_a_table_of_sounds_is_trained_on_and_each_source_counts(words, tmp_path):
    told = Told()
    mine = spoken(words, tmp_path / "mine", told=told)
    assert any("1 without sentence; 1 without word" in line for line in told.lines)
    result = regard.evaluate(mine, [str(words / "train.tsv")])
    assert [one["missing"] for one in result["sources"]] == [1, 1]
    assert [one["left_out"]["rows"] for one in result["sources"]] == [11, 11]
    sentence, word = next(sourced_rows("spoken", 1, seed=0, part="test")).sources
    reader = mine.combiner.reader
    whole = reader.batch([(sentence, word), (sentence, None)])
    assert whole.frame_lengths.tolist() == [[len(reader.frames(word))], [0]]
    mine.model.eval()
    first, other = mine.model.start(whole).present.tolist()
    assert (first, other) == ([True, True], [True, False])
    # A table's WAV files are the bundled utterances, to 16 bits: what a model hears is the same.
    (row, *_), bundled = (words / "test.tsv").read_text(encoding="utf-8").splitlines()[1:], reader.frames(word)
    read = reader.frames(words / row.split("\t")[1])
    assert_close(read.astype(np.float32), bundled.astype(np.float32), atol=0.05, rtol=0.0)


def test_sounds_are_changed_in_training_as_a_transcriber_changes_them(words, tmp_path):
    changes = ["data.band_masks=1", "data.time_masks=1", "data.warp=0.1", "data.stretch=0.1"]
    jobs = []
    for name, asked in (("plain", []), ("changed", changes)):
        data = {"train": [str(words / "train.tsv")], "valid": [str(words / "valid.tsv")]}
        made = make_config(None, "sources-spoken", [*OF_WORDS, "model.max_frames=600", *asked], {"data": data})
        (tmp_path / name).mkdir()
        jobs.append(made.kind.prepare(made, tmp_path / name, Told(), new=True)[1])
    plain, changed = (job.layout(10_000) for job in jobs)
    first, later = (changed.order(1, epoch)[0] for epoch in (0, 1))
    rows = first[np.argsort(first[:, 0])]
    as_read, heard, again = plain.batch(rows), changed.batch(rows), changed.batch(rows)
    assert not as_read.frame_lengths.equal(heard.frame_lengths)
    assert as_read.frame_lengths.eq(0).equal(heard.frame_lengths.eq(0)), "what is missing stays so"
    assert_close(heard.frames, again.frames)
    assert len({tuple(epoch[:, 1]) for epoch in (first, later)}) == 2
    other = changed.batch(np.stack((rows[:, 0], np.ones_like(rows[:, 1])), axis=1))
    assert other.frames.shape != heard.frames.shape or not other.frames.equal(heard.frames)
    assert (jobs[1].sizes >= jobs[0].sizes).all()
    assert heard.frame_lengths.max() <= np.ceil(1.1 * float(as_read.frame_lengths.max()))
    valid = [next(iter(job.validation())).frames for job in jobs]
    assert valid[0].equal(valid[1])
    for asked, message in (
        (
            ["data.stretch=0.9", "data.max_seconds=1", "model.max_frames=105"],
            r"with data.stretch=0.9 up to \d+; the model reads model.max_frames=\d+",
        ),
        (["data.band_masks=1", "model.sources=['text', 'text']", "data.sources=['sentence', 'word']"], "no source is"),
    ):
        with pytest.raises(ConfigError, match=message):
            spoken(words, tmp_path / "refused", asked)


def test_sounds_that_are_too_long_empty_or_broken_are_refused_in_a_line(words, tmp_path):
    mine, told = spoken(words, tmp_path / "mine"), Told()
    (tmp_path / "empty.wav").write_bytes(write_wav(np.zeros(0, np.float32), RATE))
    (tmp_path / "long.wav").write_bytes(write_wav(np.zeros(5 * RATE, np.float32), RATE))
    (tmp_path / "broken.wav").write_bytes((words / "train" / "000000.wav").read_bytes()[:300])
    for sound, kind, message in (
        (tmp_path / "empty.wav", DataError, "row 1: .*empty.wav has no sound: it is 0 seconds long"),
        (tmp_path / "long.wav", TooLarge, "row 1: .*long.wav is 0:05 long; the model reads 0:04 of a source"),
        (tmp_path / "broken.wav", DataError, "row 1: .*broken.wav is cut"),
        (tmp_path / "none.wav", DataError, "row 1: no such file"),
        (np.zeros(3 * 3600 * 100, np.float32), TooLarge, "the model reads 0:04 of a source"),
        (3, DataError, "row 1: sound:word must be the path of a file, or an array"),
    ):
        with pytest.raises(kind, match=message):
            mine.combine([["a", sound]])
    with serving(mine) as client:
        sent = [
            base64.b64encode((tmp_path / f"{name}.wav").read_bytes()).decode() for name in ("empty", "long", "broken")
        ]
        answers = [client.post("/v1/combine", {"rows": [["a", one]]}) for one in (*sent, str(tmp_path / "long.wav"))]
    assert [one.status for one in answers] == [422, 413, 422, 422]
    assert "is not base64" in answers[3].json["error"]["message"]
    lines = (words / "train.tsv").read_text(encoding="utf-8").splitlines()
    mixed = [*lines[:5], f"a\t{tmp_path / 'long.wav'}\tb"]
    (words / "mixed.tsv").write_text("\n".join(mixed) + "\n", encoding="utf-8")
    spoken(words, tmp_path / "short", train="mixed.tsv", told=told)
    assert "train: 1 sounds of more than data.max_seconds=4 (0:04) are left out, with their rows" in told.lines
    for changes, message in (
        (["data.overlong=refuse"], "1 sounds of more than data.max_seconds=4 .* are too long"),
        (["data.max_seconds=5"], r"data\.max_seconds=5 must be at most 4, which the model reads of a sound"),
    ):
        with pytest.raises((DataError, ConfigError), match=message):
            spoken(words, tmp_path / "refused", changes, train="mixed.tsv")


def test_a_word_that_is_spoken_is_not_in_the_sentence_and_its_voice_is_not_in_training():
    for row in sourced_rows("spoken", 50, seed=0, part="test"):
        sentence, said = row.sources
        assert sentence.replace(SMUDGE, said.text) == row.output
        assert said.voice in VOICES_OF["test"]
    train = {row.output for row in sourced_rows("spoken", 200, seed=3)}
    assert not train & {row.output for row in sourced_rows("spoken", 50, seed=0, part="test")}


def test_each_smudged_word_can_be_read_in_the_other_paraphrase_and_both_have_one():
    kinds = set()
    for row in sourced_rows("paraphrases", 50, seed=0, part="test"):
        first, second = row.sources
        assert SMUDGE in first
        assert SMUDGE in second
        for word in row.output.split():
            assert word in first or word in second
        kinds.add(row.output)
    train = {row.output for row in sourced_rows("paraphrases", 200, seed=3)}
    assert not kinds & train


def test_a_sentence_alone_never_says_which_sense_is_meant():
    answers: dict[str, set[str]] = {}
    for row in sourced_rows("ambiguous", 1500, seed=0, part="test"):
        answers.setdefault(row.sources[0], set()).add(row.output)
    senses = {said: found for said, found in answers.items() if " . it is " not in said}
    assert len(senses) == 8 * len(SENSES)
    assert all(len(found) == 2 for found in senses.values())
    first = next(sourced_rows("ambiguous", 1, seed=0, part="test"))
    again = next(sourced_rows("ambiguous", 1, seed=0, part="test"))
    assert np.array_equal(first.sources[1], again.sources[1])


def test_rows_to_train_on_also_describe_scenes_and_those_to_test_on_always_have_a_sentence():
    train = list(sourced_rows("ambiguous", 200, seed=2))
    described = [row for row in train if row.sources[0] is None]
    assert 45 < len(described) < 90
    for row in described:
        words = row.output.split()
        assert words[:1] + words[3:5] == ["un", "et", "un"]
        left, right = (_seen(half) for half in np.split(row.sources[1], 2, axis=1))
        assert (COLOURS[left], COLOURS[right]) == (words[2], words[6])
    assert all(row.sources[0] for part in ("valid", "test") for row in sourced_rows("ambiguous", 50, seed=0, part=part))


def _seen(half):
    """The colour of most bright pixels."""
    bright = half[half.max(-1) > 150].astype(float)
    return min(COLOURS, key=lambda name: np.abs(np.median(bright, axis=0) - _RGB[name]).sum())


def test_pixels_are_read_less_a_mean_and_over_a_spread(run):
    row = next(sourced_rows("ambiguous", 1, seed=0, part="test"))
    read = []
    for settings in ([], ["model.image_mean=0.5", "model.image_std=0.25"]):
        config = make_config(None, "sources-ambiguous", settings).with_stand_ins()
        read.append(SourceReader(run.vocabularies, config).batch([(None, row.sources[1])]).pixels[0, 0])
    pixels = row.sources[1].transpose(2, 0, 1) / 255
    assert_close(read[0].numpy(), ((pixels - 0.2) / 0.17).astype(np.float32), atol=1e-5, rtol=1e-5)
    assert_close(read[1].numpy(), ((pixels - 0.5) / 0.25).astype(np.float32), atol=1e-5, rtol=1e-5)


def test_a_batch_holds_rows_of_all_kinds_though_their_lengths_differ():
    sizes, targets = np.array([16, 28, 25] * 300, np.int32), np.array([9, 6, 10] * 300, np.int32)
    batches = epoch_order(alike(sizes), alike(targets), budget=2800, seed=1, epoch=0)
    assert all(set(sizes[rows]) == {16, 25, 28} for rows in batches)
    assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(900))
    assert alike(np.array([3, 40, 70])).tolist() == [32, 64, 70]
