"""The life of a speech model: train, stop and go on, transcribe, measure, look, serve; and bad input refused."""

import base64
import io
import json
import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from listeners import StopAt, Told

import regard
from regard import make_config
from regard.cli import main
from regard.data.audio import SoundSamples, write_wav
from regard.data.audio.sound import clock
from regard.data.audio.transcripts import SoundFiles, SpecAugment, open_transcribed
from regard.data.images.augmentation import ImageRandom
from regard.data.synthetic.speech import RATE, speak, utterance
from regard.errors import ConfigError, DataError, TooLarge
from regard.look.document import Recurrence, Units
from regard.look.watch import attentions, recurrences
from regard.nn.attention import ACROSS
from regard.tasks.looking import LookOptions, document
from regard.tasks.looking.written_runs import at_positions
from regard.tasks.sound_attention import HeadPath, _path, _together, spoken_at
from regard.tasks.transcriber import Transcriber
from regard.tasks.verbs import VERBS, RequestLimits
from regard.tasks.verbs.transcribe import TimedWord, WrittenTranscript
from regard.trainer.trainer import Stopped

SMALL = [
    *("data.speech=10", "train.steps=4", "train.log_every=1", "train.warmup=2", "train.batch_tokens=700"),
    *("train.threads=1", "model.width=8", "model.bands=8", "train.validate_every=4", "train.save_every=2"),
    *("train.validate_sentences=4", "decode.max_len=12", "tokenizer.kind=character"),
]


@pytest.fixture(scope="module", autouse=True)
def few_sounds():
    """Five hundred held-out utterances are more than a test needs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.tasks.transcribing.SPEECH_HELD_OUT", 6)
        patch.setattr("regard.tasks.transcribing.HEAD_SOUNDS", 3)
        yield


@pytest.fixture(scope="module", params=["speech-tiny", "listen-attend-spell"])
def run(request, tmp_path_factory):
    small = [*SMALL, *(["model.heads=2", "model.feed_forward=8"] if request.param == "speech-tiny" else [])]
    return regard.train(make_config(None, request.param, small), tmp_path_factory.mktemp("runs") / request.param)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files") / "spoken"
    assert main(["data", "speech", str(folder), "--train", "10", "--valid", "3", "--test", "4"]) == 0
    return folder


def sound(number=0):
    return speak(utterance(0, "test", number)).samples


def test_a_run_on_bundled_speech_is_measured_with_intervals_and_the_way_of_its_attention(run):
    result = regard.evaluate(run, limit=5)
    assert result["sounds"] == 5
    low, high = result["word_error_rate_interval"]
    assert low <= result["word_error_rate"] <= high
    path = result["attention"]
    assert path["chosen_on"] == "validation"
    assert 0 <= path["forward"] <= 1
    assert -1 <= path["correlation"] <= 1
    assert 0 < path["chance_in_word"] < 0.6
    shown = run.task.show(result)
    assert "word errors" in shown
    assert "does not go back" in shown


def test_a_resumed_run_equals_an_unbroken_one_byte_for_byte(run, tmp_path):
    more = ["model.dropout=0.1", "data.stretch=0.1", "data.time_masks=2", f"data.cache='{tmp_path / 'cache'}'"]
    made = make_config(None, run.directory.name, [*SMALL, *more])
    whole = regard.train(made, tmp_path / "whole")
    with pytest.raises(Stopped, match="stopped at step 2"):
        regard.train(made, tmp_path / "broken", StopAt(2))
    broken = regard.resume(tmp_path / "broken")
    one, other = ((found.directory / "model.safetensors").read_bytes() for found in (whole, broken))
    assert one == other


def test_paths_arrays_standard_input_and_the_command_give_the_same(run, tmp_path, capsys, monkeypatch):
    path = tmp_path / "one.wav"
    path.write_bytes(write_wav(sound(), RATE))
    rounded = SoundSamples((sound() * 32767).round().astype(np.float32) / 32768, RATE)
    (text,) = run.transcribe([rounded], beam=2)
    assert run.transcribe([str(path)], beam=2) == [text]
    assert run.transcribe([rounded.samples], beam=2) == [text]
    assert run.transcripts([path], beam=3, top_beams=2)[0][0].log_prob <= 0
    command = ["transcribe", str(run.directory), "--beam", "2", "--device", "cpu"]
    assert main([*command, str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == f"{path}\t{text}".strip()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(path.read_bytes()), isatty=lambda: False))
    assert main([*command, "-", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["sound"], said["transcripts"][0]["text"]) == ("standard input", text)
    (result,) = run.ask("transcribe", [rounded], beam=2)
    assert result.transcripts[0].text == text
    assert result.seconds == pytest.approx(len(sound()) / RATE, abs=1e-3)


def test_pieces_are_asked_for_alike_from_python_and_by_the_verb(run):
    whole = np.concatenate([sound(number) for number in range(2)])
    (asked,) = run.ask("transcribe", [whole], piece=1.5, overlap=0.5)
    assert run.transcripts([whole], piece=1.5, overlap=0.5)[0] == list(asked.transcripts)
    assert run.transcribe([whole], piece=1.5, overlap=0.5) == [asked.transcripts[0].text]
    assert len(run.transcripts([sound()], beam=2, top_beams=2)[0]) == 2
    for options, said in (
        ({"piece": 13.0}, "piece=13 is longer than the model reads at a time: 12 seconds"),
        ({"piece": 0.0}, r"piece=0 must be at least 0\.1 seconds"),
        ({"piece": 2.0, "overlap": -0.5}, r"overlap=-0\.5 must be at most half of piece=2, and not negative"),
        ({"piece": 1.5, "beam": 2, "top_beams": 2}, "is read in 4 pieces"),
    ):
        with pytest.raises(ConfigError, match=said):
            run.transcribe([whole], **options)


def test_tensors_and_bytes_are_sounds_and_what_is_none_is_refused_in_one_line(run, tmp_path):
    data = write_wav(sound(), RATE)
    (tmp_path / "one.wav").write_bytes(data)
    assert run.transcribe([data]) == run.transcribe([tmp_path / "one.wav"])
    assert run.transcribe([torch.from_numpy(sound())]) == run.transcribe([sound()])
    for wrong in (None, 3, [0.1, 0.2], (sound(), RATE), ("a.wav", "b.wav")):
        with pytest.raises(DataError, match=f"sound 2 is of the type {type(wrong).__name__}; must be a path"):
            run.transcribe([sound(), wrong])
    with pytest.raises(DataError, match="is a folder, not a sound"):
        run.transcribe([tmp_path])
    with pytest.raises(DataError, match="give a list of sounds, not one"):
        run.transcribe(data)
    assert run.transcribe(sound()) == run.transcribe([sound()])
    assert len(run.ask("transcribe", sound())) == len(run.ask("transcribe", data)) == 1
    for either in (np.stack((sound(), sound())), torch.zeros(2, RATE)):
        for ask in (run.transcribe, lambda one: run.ask("transcribe", one)):
            with pytest.raises(DataError, match=r"an array of shape \(2, \d+\) may be channels or several sounds"):
                ask(either)


def test_no_more_is_read_from_a_pipe_than_memory_is_given_to(run, monkeypatch, capsys):
    data = write_wav(sound(), RATE)
    monkeypatch.setattr("regard.tasks.transcriber.PIPED", len(data) - 1)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: False))
    assert main(["transcribe", str(run.directory), "-", "--device", "cpu"]) == 2
    assert f"standard input has more than {len(data) - 1:,} bytes" in capsys.readouterr().err


def test_sound_of_any_form_is_converted_or_refused_in_one_line(run, tmp_path):
    wide = np.repeat(sound()[:8000], 12)  # 192 kHz
    eight = bytearray(write_wav(wide, 192_000))
    assert run.transcriber.read([("a", bytes(eight))])[0].rate == 192_000
    assert len(run.transcribe([SoundSamples(wide, 192_000)])) == 1
    with pytest.raises(DataError, match="0 seconds"):
        run.transcribe([np.zeros(0, np.float32)])
    with pytest.raises(DataError, match="must have one channel"):
        run.transcribe([np.zeros((9, 2), np.float32)])
    (tmp_path / "cut.wav").write_bytes(write_wav(sound(), RATE)[:-50])
    with pytest.raises(DataError, match="is cut"):
        run.transcribe([tmp_path / "cut.wav"])
    with pytest.raises(DataError, match="give a list of sounds"):
        run.transcribe("one.wav")
    with pytest.raises(DataError, match="no such file"):
        run.transcribe(["none.wav"])
    assert main(["transcribe", str(run.directory), str(tmp_path / "cut.wav"), "--device", "cpu"]) == 2


def not_finite():
    """A WAV of floats whose header is right, so that only whoever reads its end finds what is wrong with it."""
    data = np.concatenate((np.zeros(RATE // 2, np.float32), np.full(9, np.nan, np.float32))).tobytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 3, 1, RATE, 4 * RATE, 4, 32)
    head = struct.pack("<4sI4s", b"RIFF", 36 + len(data), b"WAVE")
    return head + form + struct.pack("<4sI", b"data", len(data)) + data


def test_sounds_that_cannot_be_read_are_named_and_the_others_transcribed(run, tmp_path, capsys):
    whole, folder = write_wav(sound(), RATE), tmp_path / "calls"
    folder.mkdir()
    contents = {"1.wav": whole, "2.wav": whole[:-50], "3.wav": not_finite(), "4.wav": whole, "5.wav": b""}
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    command = ["transcribe", str(run.directory), "--device", "cpu"]
    assert main([*command, str(folder / "1.wav")]) == 0
    line = capsys.readouterr().out.replace("1.wav", "{}")
    for inputs in ([str(folder), "none.wav"], ["--input", str(tmp_path / "list.txt")]):
        names = [*(str(folder / name) for name in contents), "none.wav"]
        (tmp_path / "list.txt").write_text("".join(f"{one}\n\n" for one in names), encoding="utf-8")
        for output in ([], ["--output", str(tmp_path / "out.txt")]):
            assert main([*command, *inputs, *output]) == 1
            said = capsys.readouterr()
            printed = (tmp_path / "out.txt").read_text(encoding="utf-8") if output else said.out
            assert printed == line.format("1.wav") + "\n\n" + line.format("4.wav") + "\n\n"
            told = [one for one in said.err.splitlines() if one.startswith("regard: ") and "max_len" not in one]
            assert [any(name in one for one in told) for name in names] == [False, True, True, False, True, True]
            assert told[-1] == "regard: 4 of 6 sounds were refused; the others are answered"
            assert len(told) == 5
            assert main([*command, *inputs, *output, "--json"]) == 1
            out = capsys.readouterr().out
            out = (tmp_path / "out.txt").read_text(encoding="utf-8") if output else out
            records = [json.loads(one) for one in out.splitlines()]
            assert [one["sound"] for one in records] == names
            assert ["error" in one for one in records] == [False, True, True, False, True, True]
            assert "samples that are not finite" in records[2]["error"]


def test_a_single_sound_that_cannot_be_read_is_an_error_and_has_no_output(run, tmp_path, capsys):
    (tmp_path / "only.wav").write_bytes(not_finite())
    out = tmp_path / "out.txt"
    for inputs in ([str(tmp_path / "only.wav")], [str(tmp_path)], ["none.wav"], [""]):
        command = ["transcribe", str(run.directory), *inputs, "--device", "cpu"]
        for more in ([], ["--json"], ["--output", str(out)]):
            assert main([*command, *more]) == 2
            said = capsys.readouterr()
            assert (said.out, len(said.err.splitlines()), out.exists()) == ("", 1, False)
    with pytest.raises(DataError, match="not finite"):  # Python has exceptions
        run.transcribe([sound(), tmp_path / "only.wav"])
    with pytest.raises(DataError, match="not finite"):
        run.ask("transcribe", [sound(), tmp_path / "only.wav"])


def test_three_hours_are_read_piece_by_piece(run, tmp_path):
    path, seconds = tmp_path / "long.wav", 3 * 3600
    head = bytearray(write_wav(np.zeros(0, np.float32), RATE))
    head[40:44] = struct.pack("<I", 2 * seconds * RATE)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + 2 * seconds * RATE)  # a hole, which takes no room
    (opened,) = run.transcriber.read([path])
    assert run.transcriber.pieces(opened, 8.0, 1.6) == 1688
    first = next(run.transcriber.cut([opened], 8.0, 1.6))
    assert len(first.frames) == 800


def known_words(text_at):
    """A decoder that hears what is really there: the words whose middles lie in a piece."""

    def decode(self, frames, config, **more):
        return [[text_at.pop(0)] for _ in frames]

    return decode


def test_pieces_are_joined_where_it_is_quiet_and_no_word_is_heard_twice(run, monkeypatch):
    spoken = [speak(utterance(0, "test", number)) for number in range(4)]
    starts = np.cumsum([0, *(len(one.samples) for one in spoken)]) / RATE
    whole = SoundSamples(np.concatenate([one.samples for one in spoken]), RATE)
    gold = [
        TimedWord(word, start + begin, start + end)
        for number, (one, start) in enumerate(zip(spoken, starts, strict=False))
        for word, (begin, end) in zip(utterance(0, "test", number).words, one.times, strict=True)
    ]
    piece, overlap = 3.0, 1.0
    heard = []
    for place in range(run.transcriber.pieces(whole, piece, overlap)):
        begin = place * (piece - overlap)
        inside = [one for one in gold if begin <= (one.start + one.end) / 2 < begin + piece]
        words = tuple(TimedWord(one.word, one.start - begin, one.end - begin) for one in inside)
        heard.append(WrittenTranscript("", 0.0, 0.0, (), words=words))
    monkeypatch.setattr(Transcriber, "decode", known_words(heard))
    ((found,),) = run.transcriber.transcribe([whole], piece=piece, overlap=overlap)
    assert found.text.split() == [one.word for one in gold]
    assert [word.start for word in found.words] == pytest.approx([one.start for one in gold], abs=2e-3)


def test_a_server_is_sent_the_sound_itself_and_bounds_it(run):
    verb, limits = VERBS["transcribe"], RequestLimits()
    request = verb.without_inputs(max_len=6, beam=1)
    data = base64.b64encode(write_wav(sound(), RATE)).decode()
    checked = verb.check(run, request, [data, f"data:audio/wav;base64,{data}"], limits)
    assert [one.name for one in checked] == ["sound 1", "sound 2"]
    with pytest.raises(DataError, match="sound 1 is not base64"):
        verb.check(run, request, ["/etc/passwd"], limits)
    with pytest.raises(DataError, match="sound 1 is cut"):
        verb.check(run, request, [base64.b64encode(write_wav(sound(), RATE)[:-50]).decode()], limits)
    long = base64.b64encode(write_wav(np.zeros(601 * 1000, np.float32), 1000)).decode()
    with pytest.raises(TooLarge, match="601 seconds long; this server takes 600"):
        verb.check(run, request, [long], limits)
    with pytest.raises(TooLarge, match="has 3 sounds"):
        verb.check(run, request, [data] * 3, RequestLimits(texts=2))
    with pytest.raises(ConfigError, match="is read in 2 pieces"):
        verb.check(run, verb.without_inputs(piece=2.0, beam=2, top_beams=2), [np.zeros(3 * RATE, np.float32)])
    with pytest.raises(ConfigError, match="overlap=2 must be at most half"):
        verb.check(run, verb.without_inputs(piece=2.0, overlap=2.0), [sound()])
    with pytest.raises(ConfigError, match="longer than the model reads at a time: 12 seconds"):
        verb.check(run, verb.without_inputs(piece=13.0), [sound()])


def test_the_page_has_the_sound_and_where_each_piece_listened(run):
    found = document(run, [sound(), sound(1)], LookOptions(targets=("one two", "nine")), beam=1)
    first = found.sentences[0]
    positions = -(-(len(sound()) // 160) // 4)
    assert len(first.source.pieces) == positions
    assert len(first.sound.words) == 2
    assert len(first.sound.aligned) == len(first.target.pieces) == len("one two") + 1
    assert 0 <= first.sound.aligned[0][0] < first.sound.aligned[-2][1] <= first.sound.seconds
    cross = [one for one in first.attentions if (one.rows, one.columns) == ("target", "source")]
    assert cross[0].array().shape[1:] == (8, positions)
    with pytest.raises(DataError, match="look at a part of it"):
        document(run, [np.zeros(13 * RATE, np.float32)])


def test_a_part_of_a_long_recording_can_be_looked_at(run, tmp_path, capsys):
    whole = np.concatenate([np.zeros(20 * RATE, np.float32), sound(), np.zeros(20 * RATE, np.float32)])
    path, end = tmp_path / "long.wav", 20 + len(sound()) / RATE
    path.write_bytes(write_wav(whole, RATE))
    with pytest.raises(
        DataError, match=r"is 0:4\d.* long, and 0:12 are read at a time: look at a part of it, from start"
    ):
        run.look(path)
    (part,) = run.look(path, start=20, end=end, layers="decoder*").sentences
    rounded = (sound() * 32767).round().astype(np.float32) / 32768
    (alone,) = run.look(rounded, layers="decoder*").sentences
    assert part.sound == alone.sound
    assert part.target == alone.target
    assert part.source.text == f"{path} from 0:20 to {clock(end)}"
    look = ["look", str(run.directory), str(path), "--out", str(tmp_path / "page.html"), "--device", "cpu"]
    assert main([*look, "--start", "20", "--end", str(end), "--layers", "decoder*"]) == 0
    capsys.readouterr()
    for start, end, said in (
        ("50", "60", "long and has nothing from 50 s on"),
        ("5", "5", "end=5.0 must be after start=5.0"),
        ("-1", "5", "start=-1.0 must not be negative"),
        ("nan", "5", "start=nan must not be negative"),
    ):
        assert main([*look, "--start", start, "--end", end]) == 2
        assert said in capsys.readouterr().err


def test_the_page_has_the_gates_and_states_of_recurrent_parts(run):
    found = document(run, [sound()], LookOptions(targets=("one two",)))
    cells = {one.name: one for one in found.sentences[0].recurrences}
    recurrent = run.config.model_config().decoder == "recurrent"
    assert set(cells) == set(recurrences(run.model))
    assert bool(cells) == recurrent
    if recurrent:
        pieces = len(found.sentences[0].source.pieces)
        assert {one.steps for name, one in cells.items() if name.startswith("encoder")} == {"source"}
        assert {len(one.parts[0].array()) for one in cells.values() if one.steps == "source"} == {pieces}
        assert {len(one.parts[0].array()) for name, one in cells.items() if name.startswith("decoder")} == {8}
        assert {(one.name, one.side) for one in found.sentences[0].features} >= {("loudness", "source")}
        below = [name for name in cells if name.startswith("encoder.layers.0")]
        assert f"Of {', '.join(below)}, with several steps per position" in found.note
        only = document(run, [sound()], LookOptions(targets=("one two",), names=("decoder.cells*",))).sentences[0]
        assert not only.attentions
        assert [one.name for one in only.recurrences] == [name for name in cells if name.startswith("decoder")]


@pytest.mark.parametrize(("backward", "chosen"), [(False, [3, 7, 8]), (True, [0, 4, 8])])
def test_a_pyramids_lower_layer_is_shown_after_the_last_step_of_each_position(backward, chosen):
    steps = Units(name="h", values=np.arange(9.0)[:, None])
    cell = Recurrence(name="cell", steps="source", parts=(steps,), backward=backward)
    assert at_positions(cell, 3).parts[0].array()[:, 0].tolist() == chosen
    assert at_positions(cell, 9) is cell


def test_what_does_not_apply_is_refused_by_name(run):
    with pytest.raises(ConfigError, match="mbr does not apply"):
        run.transcribe([sound()], mbr=4)
    with pytest.raises(ConfigError, match="two sources of training sounds"):
        make_config(None, "speech-tiny", ["data.train=['x']"])
    with pytest.raises(ConfigError, match=r"data\.max_seconds=20 must be at most 12"):
        make_config(None, "speech-tiny", ["data.max_seconds=20.0"])
    with pytest.raises(ConfigError, match=r"data\.warp=1\.5"):
        make_config(None, "speech-tiny", ["data.warp=1.5"])


def test_a_path_that_goes_forward_is_told_from_one_that_stays_or_jumps():
    steps = np.eye(6)
    gold = steps.astype(bool)
    forward = _together([_path(steps, gold)])
    assert forward == HeadPath(forward=1.0, correlation=forward.correlation, inside=1.0, steps=5)
    assert forward.correlation == pytest.approx(1.0)
    still = _together([_path(steps[[2] * 6], gold)])
    assert (still.forward, still.correlation) == (1.0, 0.0)
    back = _together([_path(steps[::-1], None)])
    assert (back.forward, back.correlation, back.inside) == (0.0, pytest.approx(-1.0), None)


def test_gold_is_where_the_words_of_bundled_speech_are_said(run):
    from regard.tasks.transcribing import speech_of

    sounds = speech_of(run.config.data, "test")
    text = sounds.texts[0]
    gold = spoken_at(run, sounds, 0, 100)
    first, last = speak(sounds.utterance(0)).times[0], speak(sounds.utterance(0)).times[-1]
    assert gold[0].argmax() == int(first[0] / 0.04)
    assert 100 - gold[-1][::-1].argmax() == int(np.ceil(last[1] / 0.04))
    assert not gold[text.index(" ")].any()


def test_files_are_trained_on_and_measured(files, tmp_path, capsys):
    small = [one for one in SMALL if not one.startswith("data.speech")]
    small += ["model.heads=2", "model.feed_forward=8", "data.max_seconds=2.3"]
    made = make_config(None, "speech-tiny", small, {"data": {"train": [str(files)]}})
    assert made.data.speech == 0
    run = regard.train(made, tmp_path / "run")
    result = regard.evaluate(run)
    assert result["sounds"] == 4
    assert "in_word" not in result["attention"]
    assert regard.evaluate(run, [str(files / "valid.tsv")])["sounds"] == 3


def test_sounds_that_are_too_long_are_left_out_with_a_word_or_refused(files, tmp_path):
    small = [one for one in SMALL if not one.startswith("data.speech")]
    small += ["model.heads=2", "model.feed_forward=8", "data.max_seconds=2.3"]
    for part, lasts in (("train", (1, 1, 9)), ("valid", (1, 9))):
        rows = [f"{part}{number}.wav\tone two" for number in range(len(lasts))]
        for number, seconds in enumerate(lasts):
            (tmp_path / f"{part}{number}.wav").write_bytes(write_wav(np.resize(sound(), seconds * RATE), RATE))
        (tmp_path / f"{part}.tsv").write_text("\n".join(["sound\ttext", *rows]), encoding="utf-8")
    told = Told()
    regard.train(make_config(None, "speech-tiny", small, {"data": {"train": [str(tmp_path)]}}), tmp_path / "run", told)
    assert [line for line in told.lines if "left out" in line] == [
        "1 sounds of more than data.max_seconds=2.3 (0:02.3) are left out",
        "1 validation sounds of more than data.max_seconds=2.3 (0:02.3) are left out",
    ]
    (tmp_path / "valid.tsv").write_text("sound\ttext\nvalid1.wav\tone", encoding="utf-8")
    made = make_config(None, "speech-tiny", small, {"data": {"train": [str(tmp_path)]}})
    with pytest.raises(DataError, match=r"none of the validation sounds is as short as data\.max_seconds=2\.3"):
        regard.train(made, tmp_path / "none")
    made = make_config(None, "speech-tiny", [*small, "data.overlong='refuse'"], {"data": {"train": [str(tmp_path)]}})
    with pytest.raises(DataError, match=r"1 sounds of .* are too long"):
        regard.train(made, tmp_path / "refused")


def test_recordings_of_any_length_are_measured(run, tmp_path):
    (tmp_path / "long.wav").write_bytes(write_wav(np.zeros(601 * 1000, np.float32), 1000))
    (tmp_path / "test.tsv").write_text("sound\ttext\nlong.wav\tone two", encoding="utf-8")
    assert regard.evaluate(run, [str(tmp_path / "test.tsv")], max_len=1)["words"] == 2


def test_tables_and_folders_are_read_and_what_is_left_out_is_said(files, tmp_path):
    assert len(open_transcribed(files, "train").paths) == 10
    assert open_transcribed(files, "valid").texts[0] == utterance(0, "valid", 0).text
    gold = json.loads((files / "test.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert gold["times"] == [list(one) for one in speak(utterance(0, "test", 0)).times]
    (tmp_path / "a.wav").write_bytes(write_wav(sound(), RATE))
    (tmp_path / "b.wav").write_bytes(write_wav(sound(), RATE))
    (tmp_path / "a.txt").write_text("one two\nthree\n", encoding="utf-8")
    found = open_transcribed(tmp_path)
    assert found.texts == ("one two three",)
    assert "1 sounds without a text are left out" in found.notes[0]
    assert open_transcribed(tmp_path, "test") is None
    with pytest.raises(DataError, match="2 sounds and 1 texts"):
        SoundFiles((tmp_path / "a.wav", tmp_path / "b.wav"), ("one",))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("sound\ttext\nmissing.wav\ta word\n", "missing.wav, which is no file"),
        ("sound\ttext\nmissing.wav\t \n", "has no sound with a text"),
        ("audio\twords\tmore\na.wav\tb\tc\n", "sound"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_in_a_sentence(rows, said, tmp_path):
    (tmp_path / "train.tsv").write_text(rows, encoding="utf-8")
    with pytest.raises(DataError, match=said):
        open_transcribed(tmp_path)


def test_augmentation_is_a_function_of_seed_epoch_and_row():
    frames = [np.random.default_rng(number).normal(size=(40, 8)).astype(np.float32) for number in range(3)]
    augment = SpecAugment(band_masks=2, band_width=3, time_masks=2, time_share=0.2, warp=0.2, stretch=0.2)
    rows = np.arange(3)
    first = augment(frames, ImageRandom(1, 0, rows))
    for one, other in zip(first, augment(frames, ImageRandom(1, 0, rows)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert any(len(one) != 40 for one in first)
    assert max(map(len, first)) <= augment.frames_at_most(np.array([40]))[0]
    assert not np.array_equal(first[0], augment(frames, ImageRandom(1, 1, rows))[0])
    masked = SpecAugment(time_masks=1, time_share=0.5)(frames, ImageRandom(2, 0, rows))
    assert [one.shape for one in masked] == [(40, 8)] * 3
    assert any((one == 0).all(1).any() for one in masked)
    assert SpecAugment()(frames, ImageRandom(1, 0, rows))[0].tolist() == frames[0].tolist()


def test_heads_can_be_pruned_or_are_scored_by_words(run):
    held = run.task.held_out_data(run, None, 5)
    assert held.count == 5
    assert held.score(run) <= 100
    assert held.nll(run.model) > 0


def test_heads_are_given_roles_and_listening_to_the_word_is_one(run, monkeypatch, capsys):
    monkeypatch.setattr("regard.analysis.head_roles.SCALING", 1)
    monkeypatch.setattr("regard.analysis.head_roles.JUDGING", 1)
    monkeypatch.setattr("regard.analysis.head_roles.WEIGHTS", 3 * 75 * 75)  # so that some go alone
    assert main(["heads", str(run.directory), "--limit", "8", "--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sentences"] == 6
    best = {one["role"]: one["attention"] for one in found["best"]}
    crossing = [name for name, one in attentions(run.model).items() if one.sides == ACROSS]
    assert best["alignment"] in crossing
    if run.config.model_config().encoder == "transformer":
        assert best["next"].startswith("encoder.blocks")
    (probe, *_) = run.task.probes(run, None, 2)
    first = next(one for one in probe.questions["cross"] if one.role == "alignment")
    assert first.answers == frozenset(np.flatnonzero(spoken_at(run, run.task.part_of(run.config, "test"), 0, 400)[0]))


def test_words_have_times_in_order(run):
    torch.manual_seed(0)
    frames = run.transcriber.frames(run.transcriber.read([sound()])[0])
    words = run.transcriber.words(frames, run.transcriber.given("one two"))
    assert [word.word for word in words] == ["one", "two"]
    assert words[0].start <= words[1].start <= words[1].end <= len(sound()) / RATE + 0.2
