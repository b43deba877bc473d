"""Data that a first command meets: labels that occur once, sorted rows, many short files, folders of classes."""

import random

import pytest
from encoder_toys import SHAPE, SMALL
from listeners import StopAt, Told

import regard
from regard import make_config
from regard.errors import DataError
from regard.tasks.classification import TASK as CLASSES
from regard.tasks.planning import Machine
from regard.tasks.tagging import TASK as TAGS
from regard.trainer.training_run import Stopped

CPU = Machine(cores=2)
CLASSIFIED = ("task=classification", "data.held_out=0.3")
SHORT = ("train.steps=4", "model.width=16", "model.heads=2", "model.feed_forward=32", "train.threads=1")


def sentences(count, seed=1, most=9):
    """Sentences of made-up words, no two alike in the long run."""
    dice = random.Random(seed)
    known = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(3, 8))) for _ in range(3000)]
    return [" ".join(dice.choices(known, k=dice.randint(4, most))) for _ in range(count)]


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def rare(tmp_path_factory):
    """Texts of two labels, of which some have one of their own, and one such text stands there twice."""
    texts = sentences(400)
    rows = [f"{text}\t{('good', 'bad')[n % 2] if n < 340 else f'rare {n:03}'}" for n, text in enumerate(texts)]
    return write(tmp_path_factory.mktemp("rare") / "rare.tsv", [*rows, *rows[340:345]])


def test_rows_with_a_label_of_their_own_are_trained_on_wherever_a_split_would_have_them(rare, tmp_path):
    plan = regard.plan(rare, machine=CPU, overrides=(*CLASSIFIED, *SHORT))
    split = CLASSES.split(plan.config)
    assert {one.label for one in split.valid} == {"good", "bad"}
    assert len({one.label for one in split.train}) == 62
    assert 10 < split.kept < 35
    assert len(split.train) + len(split.valid) == 405
    assert not {one.texts for one in split.train} & {one.texts for one in split.valid}
    told = Told()
    run = regard.train(plan, tmp_path / "run", told)
    assert len(run.config.model["labels"]) == 62
    assert f"{split.kept} rows of the share to validate on are trained on: no others have their labels" in told.lines
    assert regard.evaluate(run)["texts"] == len(split.valid)


def test_a_stopped_run_with_rare_labels_ends_with_the_same_bytes(rare, tmp_path):
    plan = regard.plan(rare, machine=CPU, overrides=(*CLASSIFIED, *SHORT, "train.log_every=1"))
    whole = regard.train(plan, tmp_path / "whole")
    with pytest.raises(Stopped):
        regard.train(plan, tmp_path / "stopped", StopAt(2))
    again = Told()
    regard.resume(tmp_path / "stopped", report=again)
    first, second = (path / "model.safetensors" for path in (whole.directory, tmp_path / "stopped"))
    assert first.read_bytes() == second.read_bytes()
    assert not any("no others have their labels" in line for line in again.lines)


def test_a_tag_that_one_sentence_has_is_trained_on(tmp_path):
    lines = [line for n in range(60) for line in (f"word{n}\tN", f"runs{n}\tTAG{n}" if n > 40 else f"runs{n}\tV", "")]
    config = make_config(
        None,
        "bert-tag",
        [*SMALL, *SHAPE, "train.steps=2", "data.held_out=0.3"],
        {"data": {"train": [str(write(tmp_path / "tags.tsv", lines))]}},
    )
    split = TAGS.split(config)
    assert {tag for one in split.valid for tag in one.tags} == {"N", "V"}
    assert split.kept
    assert len(regard.train(config, tmp_path / "run").config.model["labels"]) == 21


def test_where_each_row_has_a_label_of_its_own_nothing_is_validated_on_and_that_is_said(tmp_path):
    path = write(tmp_path / "all.tsv", (f"{text}\tlabel {n}" for n, text in enumerate(sentences(40))))
    config = make_config(
        None,
        "bert-classify",
        [*SMALL, *SHAPE, "train.steps=2", "data.held_out=0.3"],
        {"data": {"train": [str(path)]}},
    )
    told = Told()
    regard.train(config, tmp_path / "run", told)
    assert any(line.startswith("there is nothing to validate on: data.held_out=0.3 of 40 rows") for line in told.lines)


def test_rows_that_are_all_held_out_are_refused_with_the_reason(tmp_path):
    path = write(tmp_path / "same.tsv", ["the same text\t0", "The same  text\t0"])
    config = make_config(None, "bert-classify", ["data.held_out=0.9999"], {"data": {"train": [str(path)]}})
    rows = CLASSES.read_all(config, config.data.train)
    assert len(CLASSES.split(config).train) == len(rows) == 2  # no others have their label


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_labels_of_validation_files_alone_are_left_out_and_said(task, tmp_path):
    if task == "classify":
        rows = [f"{text}\t{('good', 'bad')[n % 2]}" for n, text in enumerate(sentences(60))]
        odd, most = [*rows[:9], "a text\tfair"], "1 of 10 texts have a label that is not trained for (fair)"
    else:
        rows = [line for n in range(40) for line in (f"word{n}\tN", f"runs{n}\tV", "")]
        odd, most = [*rows[:9], "most\tODD", ""], "1 of 7 words have a label that is not trained for (ODD)"
    parts = {"train": [str(write(tmp_path / "train.tsv", rows))], "valid": [str(write(tmp_path / "valid.tsv", odd))]}
    config = make_config(None, f"bert-{task}", [*SMALL, *SHAPE, "train.steps=2"], {"data": parts})
    told = Told()
    run = regard.train(config, tmp_path / "run", told)
    assert any(most in line and "regard evaluate counts them as wrong" in line for line in told.lines)
    (name,) = regard.evaluate(run, parts["valid"])["unknown_labels"]
    assert name in most
    write(tmp_path / "valid.tsv", ["a text\tfair"] if task == "classify" else ["most\tODD"])
    refused = Told()
    with pytest.raises(DataError, match=r"are none of those of the (texts|words) to validate on \((fair|ODD)\)"):
        regard.train(config, tmp_path / "other", refused)
    assert not any("tokenizer" in line for line in refused.lines)
