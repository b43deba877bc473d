"""Data that a first command meets: labels that occur once, sorted rows, many short files, folders of classes."""

import random

import pytest
from encoder_toys import SHAPE, SMALL
from hypothesis import given
from hypothesis import strategies as st
from listeners import StopAt, Told

import regard
from regard import make_config
from regard.data.mixing import even_places
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


def test_a_validation_decodes_rows_from_all_over_a_sorted_set(tmp_path):
    pairs = sorted(zip(sentences(400, most=14), sentences(400, seed=2), strict=True), key=lambda pair: len(pair[0]))
    train = write(tmp_path / "train.tsv", map("\t".join, pairs))
    valid = write(tmp_path / "valid.tsv", [*map("\t".join, pairs[:300]), " \tblank", *map("\t".join, pairs[300:])])
    extra = {"data": {"train": [str(train)], "valid": [str(valid)]}}
    small = [*SHORT, "train.validate_sentences=40", "tokenizer.vocab_size=300", "decode.max_len=3"]
    config = make_config(None, "tiny", [*small, "train.batch_tokens=2000"], extra)
    told = Told()
    run = regard.train(config, tmp_path / "run", told)
    assert "of 400 validation pairs 40, taken evenly, are also decoded" in told.lines
    shown = [line.strip().partition("\n")[0] for line in told.lines if "    reference  " in line]
    shown = [pairs.index(pair) for line in shown[:2] for pair in pairs if pair[0] == line]
    assert shown[0] < 200 < shown[1]
    _, prepared = run.task.prepare(run.config, run.directory, Told(), new=False)
    places = [pairs.index(pair) for pair in prepared.shown]
    assert len(places) == 40
    assert all(10 * part <= place < 10 * part + 10 for part, place in enumerate(places))
    assert len({place % 10 for place in places}) > 5  # not every tenth
    _, again = run.task.prepare(run.config, run.directory, Told(), new=False)
    assert again.shown == prepared.shown


@given(total=st.integers(0, 300), count=st.integers(0, 300))
def test_an_even_sample_has_one_row_of_each_of_as_many_equal_parts(total, count):
    places = even_places(total, count)
    assert places == even_places(total, count) == sorted({*places})
    assert len(places) == min(total, count)
    assert all(place * count // total in (part, part - 1) for part, place in enumerate(places) if count < total)
