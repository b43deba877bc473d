"""A student learns what its teacher makes of the teacher's own training sources, with the teacher's tokenizer."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import regard
from regard.errors import ConfigError, DataError, RunError
from regard.runs.checkpoint import weights_of
from regard.runs.files import read_json
from regard.tasks.fine_tuning import kept_layers
from regard.tasks.verbs.translate import Translation
from regard.trainer import distillation
from regard.trainer.distillation import write_distilled
from regard.trainer.initialize import initialize_model
from regard.trainer.trainer import Stopped

WORDS = ["the", "a", "cat", "dog", "sees", "hears", "big", "small", "red", "house", "runs", "sleeps"]
SMALL = [
    *("model.width=16", "model.heads=2", "model.feed_forward=24", "model.max_len=24", "data.max_len=24"),
    *("train.batch_tokens=200", "train.steps=4", "train.save_every=2", "train.validate_every=2", "train.warmup=2"),
    *("train.validate_sentences=2", "train.threads=1", "train.device=cpu", "train.seed=3"),
]
TEACHER = [*SMALL, "model.encoder_layers=1", "model.decoder_layers=2", "tokenizer.kind=word", "decode.max_len=24"]
SOURCES = 30


class Heard:
    """Everything that was said."""

    def __init__(self):
        self.said, self.counts = [], []

    def say(self, text):
        self.said.append(text)

    def counted(self, what, done, total):
        self.counts.append((done, total))

    def progress(self, what, pairs): ...

    def step(self, values, total): ...

    def validation(self, values): ...


def written(path):
    return [tuple(json.loads(line).values()) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, dice = tmp_path_factory.mktemp("data"), random.Random(0)
    for name, count in (("train", SOURCES), ("valid", 4)):
        rows = [" ".join(dice.choices(WORDS, k=dice.randint(2, 8))) for _ in range(count)]
        if name == "train":
            rows[7] = " "  # whose target is blank too
        (folder / f"{name}.en").write_text("\n".join(rows) + "\n", encoding="utf-8")
        (folder / f"{name}.fr").write_text("\n".join(row.upper() for row in rows) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def teacher(files, tmp_path_factory):
    data = {part: [str(files / f"{part}.{side}") for side in ("en", "fr")] for part in ("train", "valid")}
    return regard.train(
        regard.make_config(None, "tiny", TEACHER, {"data": data}), tmp_path_factory.mktemp("runs") / "teacher"
    )


@pytest.fixture
def few_at_once(monkeypatch):
    monkeypatch.setattr(distillation, "AT_ONCE", {"cpu": 8})


def test_a_student_is_trained_on_what_its_teacher_writes(teacher, files, tmp_path, few_at_once):
    heard, out = Heard(), tmp_path / "student"
    small = [*SMALL, "model.encoder_layers=2"]
    student = regard.distill(teacher.directory, out, "tiny-deep-shallow", small, heard, beam=3, device="cpu")
    assert (student.config.model["encoder_layers"], student.config.model["decoder_layers"]) == (2, 1)
    sources = (files / "train.en").read_text(encoding="utf-8").splitlines()
    best = [found[0] for found in teacher.translations(sources, beam=3)]
    expected = [
        (source, one.text)
        for source, one in zip(sources, best, strict=True)
        if source.strip() and one.text.strip() and one.finished
    ]
    assert 0 < len(expected) < SOURCES
    assert written(out / "distilled/train.jsonl") == expected  # in the order of the sources
    assert student.vocabularies.digest() == teacher.vocabularies.digest()
    assert heard.counts == [(0, 30), (8, 30), (16, 30), (24, 30), (30, 30)]
    config = read_json(out / "config.json")
    assert config["data"]["train"] == [str((out / "distilled/train.jsonl").resolve())]
    assert config["data"]["valid"] == [str((files / f"valid.{side}").resolve()) for side in ("en", "fr")]
    assert config["tokenizer"]["taken_from"] == str(teacher.directory.resolve())
    assert config["tokenizer"]["kind"] == "word"
    manifest = read_json(out / "distilled/distillation.json")
    assert manifest["teacher"] == str(teacher.directory.resolve())
    assert manifest["decode"]["beam"] == 3
    assert manifest["counts"]["blank_sources"] == 1
    assert manifest["counts"]["sources"] == SOURCES
    assert sorted(path.name for path in (out / "distilled").iterdir()) == ["distillation.json", "train.jsonl"]
    assert any('"validation"' in line for line in (out / "log.jsonl").read_text(encoding="utf-8").splitlines())
    assert regard.resume(out, ("train.steps=6",)).config.train.steps == 6


def test_what_is_left_out_is_counted_and_said(teacher, tmp_path, monkeypatch):
    """Blank translations, and those that were cut at their greatest length."""
    translate = type(teacher.translator).translate

    def some_bad(self, sentences, config):
        found = translate(self, sentences, config)
        return [
            [replace(one, text="" if place == 1 else "x y", finished=place != 2) for one in best]
            for place, best in enumerate(found)
        ]

    monkeypatch.setattr(type(teacher.translator), "translate", some_bad)
    heard = Heard()
    pairs = write_distilled(teacher, tmp_path / "out", heard)
    assert len(written(pairs)) == SOURCES - 3
    assert heard.said[-1] == (
        "27 of 30 sources have a translation to learn from; left out: 1 with a blank source, "
        "1 with a blank translation, 1 with one cut at its greatest length"
    )


def test_after_a_kill_what_was_translated_is_kept(teacher, tmp_path, few_at_once, monkeypatch):
    whole = write_distilled(teacher, tmp_path / "whole").read_bytes()
    translate, asked = type(teacher.translator).translate, []

    def killed(self, sentences, config):
        asked.append(len(sentences))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return translate(self, sentences, config)

    monkeypatch.setattr(type(teacher.translator), "translate", killed)
    out, heard = tmp_path / "out", Heard()
    with pytest.raises(Stopped, match="stopped after 16 of 30 sources; the same command goes on from there"):
        write_distilled(teacher, out)
    pairs = write_distilled(teacher, out, heard)
    assert asked == [8, 8, 8, 8, 6]  # of the first two nothing again
    assert "16 of 30 sources are translated already" in heard.said
    assert pairs.read_bytes() == whole
    assert not (out / "distilled/parts").exists()
    assert write_distilled(teacher, out, heard) == pairs  # nothing is asked for a third time
    assert len(asked) == 5


def test_after_a_kill_at_the_very_end_it_is_finished(teacher, tmp_path, monkeypatch):
    def killed(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(distillation, "remove_directory", killed)
        with pytest.raises(KeyboardInterrupt):
            write_distilled(teacher, tmp_path / "out")
    assert (tmp_path / "out/distilled/train.jsonl").exists()
    write_distilled(teacher, tmp_path / "out")
    assert read_json(tmp_path / "out/distilled/distillation.json")["counts"]["sources"] == SOURCES
    assert not (tmp_path / "out/distilled/parts").exists()


def test_parts_of_another_search_or_teacher_are_not_gone_on_with(teacher, tmp_path):
    write_distilled(teacher, tmp_path / "out", beam=2)
    with pytest.raises(RunError, match="was begun with another decode"):
        write_distilled(teacher, tmp_path / "out", beam=3)
    other = tmp_path / "other"
    shutil.copytree(teacher.directory, other)
    with pytest.raises(RunError, match="was begun with another teacher"):
        write_distilled(other, tmp_path / "out", beam=2, device="cpu")


def test_a_missing_part_is_refused(teacher, tmp_path, few_at_once):
    write_distilled(teacher, tmp_path / "out")
    parts = tmp_path / "out/distilled/parts"
    (tmp_path / "out/distilled/train.jsonl").unlink()
    parts.mkdir()
    (parts / f"{8:012}.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(RunError, match="is missing the part from source 0 on"):
        write_distilled(teacher, tmp_path / "out")


def test_references_are_kept_beside_the_translations(teacher, files, tmp_path):
    alone = written(write_distilled(teacher, tmp_path / "alone"))
    heard = Heard()
    both = written(write_distilled(teacher, tmp_path / "both", heard, keep_references=True))
    lines = [(files / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "fr")]
    assert both == alone + [pair for pair in zip(*lines, strict=True) if pair[0].strip()]
    assert "beside them 29 pairs of the teacher's own data" in heard.said[-1]


def test_without_a_preset_the_student_has_its_teachers_recipe(teacher, tmp_path):
    student = regard.distill(teacher, tmp_path / "student", overrides=["model.decoder_layers=1"])
    assert student.config.model["decoder_layers"] == 1
    assert student.config.train == teacher.config.train
    assert student.config.decode == teacher.config.decode
    assert {**student.config.model, "decoder_layers": 2} == teacher.config.model


def test_a_student_begins_as_some_of_its_teachers_layers(teacher, tmp_path):
    heard = Heard()
    student = regard.distill(
        teacher, tmp_path / "student", overrides=["model.decoder_layers=1"], report=heard, from_teacher=True
    )
    assert "of 2 layers of the decoder 1 kept, from the first: 1" in "".join(heard.said)
    assert student.config.model == {**teacher.config.model, "decoder_layers": 1}
    begun = weights_of(initialize_model(student.config, tmp_path / "fresh", heard))
    whole = weights_of(teacher.model)
    assert begun.keys() == {name for name in whole if not name.startswith("decoder.1.")}
    assert all(torch.equal(value, whole[name]) for name, value in begun.items())
    with pytest.raises(ConfigError, match=r"model.decoder_layers=3 must be 1 to 2 in a run that starts from"):
        regard.distill(teacher, tmp_path / "more", overrides=["model.decoder_layers=3"], from_teacher=True)
    with pytest.raises(ConfigError, match=r"'model.width=\d+' cannot change in a run that starts from"):
        regard.distill(teacher, tmp_path / "wide", "tiny-deep-shallow", from_teacher=True)
    assert not (tmp_path / "more").exists()


def test_layers_are_kept_from_first_to_last_and_evenly():
    assert kept_layers(2, 6, "decoder_layers", Path("x")) == [0, 5]
    assert kept_layers(3, 12, "decoder_layers", Path("x")) == [0, 6, 11]
    assert kept_layers(6, 6, "decoder_layers", Path("x")) == [*range(6)]


def test_bundled_pairs_to_validate_on_are_written_beside_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.tasks.corpora.WORLD_HELD_OUT", 6)
    config = regard.make_config(None, "tiny", [*TEACHER, "data.world=20"])
    teacher = regard.train(config, tmp_path / "teacher")
    with pytest.raises(DataError, match=r"nothing to train on: 0 of 20 sources .* 20 with one cut"):
        regard.distill(teacher, tmp_path / "none", beam=1)  # it has learnt nothing yet
    known = Translation(text="le chat", score=0.0, log_prob=0.0, tokens=(), pieces=())
    monkeypatch.setattr(teacher.translator, "translate", lambda some, config: [[known]] * len(some))
    student = regard.distill(teacher, tmp_path / "student", overrides=["train.steps=2"], beam=1)
    data = student.config.data
    assert data.world == 0
    assert len(written(tmp_path / "student/distilled/valid.jsonl")) == 6
    assert data.test == (str((tmp_path / "student/distilled/test.jsonl").resolve()),)


def test_columns_by_number_are_read_where_they_are(files, tmp_path):
    for part in ("train", "valid"):
        lines = [(files / f"{part}.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "fr")]
        rows = [f"x\t{target}\t{source}\n" for source, target in zip(*lines, strict=True)]
        (tmp_path / f"{part}.tsv").write_text("".join(rows), encoding="utf-8")
    data = {part: [str(tmp_path / f"{part}.tsv")] for part in ("train", "valid")} | {"source": 3, "target": 2}
    teacher = regard.train(regard.make_config(None, "tiny", TEACHER, {"data": data}), tmp_path / "teacher")
    student = regard.distill(teacher, tmp_path / "student", overrides=["train.steps=2"], beam=1)
    assert (student.config.data.source, student.config.data.target) == ("source", "target")
    source = (files / "valid.en").read_text(encoding="utf-8").splitlines()[0]
    assert written(tmp_path / "student/distilled/valid.jsonl")[0] == (source, source.upper())


def test_what_cannot_be_is_refused_before_anything_is_translated(teacher, tmp_path, files, monkeypatch):
    monkeypatch.setattr(type(teacher.translator), "translate", lambda *rest, **more: pytest.fail("translated"))
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match=r"preset 'gpt-tiny' is for language, and .* is a run for translation"):
        regard.distill(teacher, out, "gpt-tiny")
    with pytest.raises(ConfigError, match=r"'data.train=x' cannot be set: it follows from the teacher"):
        regard.distill(teacher, out, overrides=["data.train=x"])
    with pytest.raises(ConfigError, match=r"'tokenizer.kind=bpe' cannot change: the tokenizer is taken from"):
        regard.distill(teacher, out, overrides=["tokenizer.kind=bpe"])
    with pytest.raises(ConfigError, match=r"unknown setting 'tokenizer.kinds'"):
        regard.distill(teacher, out, overrides=["tokenizer.kinds=bpe"])
    with pytest.raises(ConfigError, match="must be a multiple of heads=3"):
        regard.distill(teacher, out, overrides=["model.heads=3"])
    with pytest.raises(ConfigError, match="beam"):
        regard.distill(teacher, out, beam=0)
    with pytest.raises(RunError, match="already holds a run"):
        regard.distill(teacher, teacher.directory)
    with pytest.raises(RunError, match="no such run"):
        regard.distill(tmp_path / "none", out)
    with pytest.raises(RunError, match=r"is not empty, it holds train\.en"):
        regard.distill(teacher, files)
    assert not out.exists()


def test_teachers_that_do_not_translate_or_have_no_data_are_refused(teacher, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sees the dog\n" * 40, encoding="utf-8")
    tiny = ["model.width=16", "model.heads=2", "model.layers=1", "data.max_len=8", "train.steps=1", "train.threads=1"]
    config = regard.make_config(None, "gpt-tiny", tiny, {"data": {"train": [str(text)]}})
    language = regard.train(config, tmp_path / "language")
    with pytest.raises(RunError, match="is a run for language: only one that translates can be distilled"):
        regard.distill(language, tmp_path / "out")
    gone = tmp_path / "gone"
    shutil.copytree(teacher.directory, gone)
    mapping = read_json(gone / "config.json")
    del mapping["sha256"]
    for train, match in (
        (["/nowhere/train.tsv"], "no such file or folder: /nowhere/train.tsv"),
        ([], "names no training data"),
    ):
        mapping["data"]["train"] = train
        (gone / "config.json").write_text(json.dumps(mapping), encoding="utf-8")
        with pytest.raises(DataError, match=match):
            regard.distill(gone, tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_a_new_run_can_take_the_tokenizer_of_another(teacher, files, tmp_path):
    """`tokenizer.taken_from` alone: the weights are new, and a later run that starts from this one takes it on."""
    data = {"train": [str(files / f"train.{side}") for side in ("en", "fr")]}
    taken = [*SMALL, f"tokenizer.taken_from={teacher.directory}"]
    run = regard.train(regard.make_config(None, "tiny", taken, {"data": data}), tmp_path / "run")
    assert (run.directory / "tokenizer.json").read_bytes() == (teacher.directory / "tokenizer.json").read_bytes()
    assert run.config.model["encoder_layers"] == 3
    with pytest.raises(ConfigError, match=r"tokenizer\.taken_from.* does not apply to task='language'"):
        regard.make_config(None, "gpt-tiny", taken[-1:])
    later = [f"train.start_from={run.directory}", "train.steps=2", "train.threads=1"]
    started = regard.train(regard.make_config(None, "tiny", later, {"data": data}), tmp_path / "later")
    assert started.vocabularies.digest() == teacher.vocabularies.digest()
