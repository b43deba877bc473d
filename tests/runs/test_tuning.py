"""Tuning an encoder: what it starts from, what may change, two passes, rates by layer."""

import json
import math
from functools import partial

import pytest
from encoder_toys import SMALL, config, same_bytes, write_texts
from listeners import StopAt, Told

import regard
from regard import make_config
from regard.analysis import head_roles
from regard.cli import main
from regard.errors import ConfigError, DataError
from regard.runs.checkpoint import checkpoints
from regard.runs.files import write_json
from regard.runs.log import read_log
from regard.tasks.encoder_tasks import LabelledLayout, labelled_rows, texts_of
from regard.tasks.run import load_config
from regard.trainer.trainer import Stopped


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def base(files, tmp_path_factory):
    return regard.train(config(files, "bert-tiny", ".txt"), tmp_path_factory.mktemp("runs") / "base")


TUNED = ("train.steps=12", "train.r_drop=2", "train.layer_decay=0.7", "train.log_every=5")


def test_tuning_with_two_passes_and_rates_by_layer_ends_with_the_same_bytes(files, base, tmp_path):
    made = config(files, "bert-tune", ".tsv", *TUNED, start=base.directory)
    whole = regard.train(made, tmp_path / "whole")
    with pytest.raises(Stopped):
        regard.train(made, tmp_path / "run", StopAt(5))
    regard.resume(tmp_path / "run")
    assert same_bytes(whole.directory, tmp_path / "run")
    records = read_log(whole.directory / "log.jsonl")
    assert {record["kind"] for record in records if "divergence" in record} == {"train"}
    assert all(record.get("divergence", 1) > 0 and 0 <= record["accuracy"] <= 1 for record in records)


@pytest.mark.parametrize("preset", ["bert-tag", "bert-answer"])
def test_tags_and_answers_are_read_twice_too(files, base, tmp_path, preset):
    suffix = "-tags.tsv" if preset == "bert-tag" else "-asked.jsonl"
    made = config(files, preset, suffix, "train.steps=3", "train.log_every=1", "train.r_drop=1", start=base.directory)
    run = regard.train(made, tmp_path / "run")
    losses = [record for record in read_log(run.directory / "log.jsonl") if record["kind"] == "train"]
    for record in losses:
        assert record["loss"] == pytest.approx(2 * record["nll"] + record["divergence"], rel=1e-4)


def test_two_passes_are_not_for_hidden_words(files):
    with pytest.raises(ConfigError, match=r"train.r_drop=1.0 does not apply to task='masking'"):
        config(files, "bert-tiny", ".txt", "train.r_drop=1")


def test_a_tuned_run_is_judged_by_its_mean_where_that_is_asked_for(files, base):
    made = config(files, "bert-classify", ".tsv", "model.pooler=none", start=base.directory)
    assert made.model["pooler"] == "none"
    unasked = config(files, "bert-classify", ".tsv", start=base.directory)
    assert unasked.model.get("pooler", "tanh") == "tanh"


def test_labels_that_are_named_keep_their_order_and_must_hold_all(files, base, tmp_path):
    named = 'model.labels=["unsure", "good", "bad"]'
    run = regard.train(
        config(files, "bert-classify", ".tsv", named, "train.steps=1", start=base.directory), tmp_path / "a"
    )
    assert run.config.model["labels"] == ["unsure", "good", "bad"]
    assert {choice.label for choice in run.classify(["a warm day"])[0]} == {"unsure", "good", "bad"}
    for labels, message in (('["good", "poor"]', "'bad' is not among model.labels"), ('["good"]', "two names or more")):
        wrong = config(files, "bert-classify", ".tsv", f"model.labels={labels}", start=base.directory)
        with pytest.raises((ConfigError, DataError), match=message):
            regard.train(wrong, tmp_path / "b")
        assert not (tmp_path / "b").exists()


def test_a_file_of_ones_own_cannot_ask_for_another_model_than_it_starts_from(files, base, tmp_path):
    own, data = tmp_path / "own.toml", {"data": {"train": [str(files / "train.tsv")]}}
    start = {**data, "train": {"start_from": str(base.directory)}}
    own.write_text(
        "[model]\nwidth = 16\nlayers = 2\ndropout = 0.3\n[tokenizer]\nkind = 'wordpiece'\n", encoding="utf-8"
    )
    assert make_config(own, "bert-classify", (), start).model["dropout"] == 0.3
    for written in ("[model]\nwidth = 32\n", "[tokenizer]\nkind = 'bpe'\n"):
        own.write_text(written, encoding="utf-8")
        with pytest.raises(
            ConfigError, match=r"'(model.width=32|tokenizer.kind=bpe)' cannot change in a run that starts"
        ):
            make_config(own, "bert-classify", (), start)


@pytest.mark.parametrize("preset", ["bert-tune", "vit-tune"])
def test_a_preset_for_tuning_asks_for_a_run_to_start_from(files, tmp_path, preset):
    with pytest.raises(ConfigError, match="name it with --from"):
        regard.train(make_config(None, preset, (), {"data": {"train": [str(files / "train.tsv")]}}), tmp_path / "run")


def test_an_answer_is_not_smoothed(files):
    with pytest.raises(ConfigError, match=r"train\.smoothing=0\.1 must be 0"):
        config(files, "bert-answer", "-asked.jsonl", "train.smoothing=0.1")


def test_without_a_preset_a_run_does_what_the_one_it_starts_from_did(files, base, tmp_path):
    start = {"data": {"train": [str(files / "train.txt")]}, "train": {"start_from": str(base.directory)}}
    again = make_config(None, None, SMALL, start)
    assert (again.task, again.data.max_len) == ("masking", base.config.data.max_len)
    write_json(tmp_path / "config.json", {"model": dict(base.config.model), "task": "embedding"})
    with pytest.raises(ConfigError, match="embeds texts, which is not trained: name a preset"):
        make_config(None, None, SMALL, {**start, "train": {"start_from": str(tmp_path)}})


def test_a_run_counted_in_epochs_takes_as_many_steps_as_its_data_has(files, base, tmp_path):
    """Whatever the size of the data; a number of steps that is given later counts instead."""
    told = Told()
    start = {"train": {"start_from": str(base.directory)}, "data": {"train": [str(files / "train.tsv")]}}
    small = ["train.batch_tokens=64", "train.threads=1", "data.max_len=32", "train.epochs=2.5"]
    made = make_config(None, "bert-tune", small, start)
    assert (made.train.epochs, made.train.warmup_share) == (2.5, 0.02)
    run = regard.train(made, tmp_path / "run", told)
    rows = labelled_rows(run.config, run.task.read_all(run.config, run.config.data.train), run.vocabularies.target)
    batches = len(LabelledLayout(rows, 64).order(run.config.train.seed, 0))
    assert batches > 2
    steps = math.ceil(2.5 * batches)
    assert f"training for {steps} steps, 2.5 epochs" in told.lines
    assert checkpoints(run.directory / "checkpoints")[-1].name == f"step-{steps}"
    assert run.config.train.steps == steps
    regard.resume(run.directory, ("train.epochs=3",), told)
    assert load_config(run.directory).train.steps == 3 * batches
    regard.resume(run.directory, (f"train.steps={3 * batches + 1}",), told)
    after = load_config(run.directory).train
    assert (after.steps, after.epochs) == (3 * batches + 1, 0.0)


def test_steps_and_epochs_of_one_layer_are_refused_and_the_later_of_two_counts(files, base, tmp_path):
    for given in (["train.steps=5", "train.epochs=2"], ["train.epochs=2", "train.steps=5"]):
        with pytest.raises(ConfigError, match=r"train\.steps and train\.epochs both say how long"):
            make_config(None, "tiny", given)
    with pytest.raises(ConfigError, match=r"train\.epochs=-1\.0 must not be negative"):
        make_config(None, "tiny", ["train.epochs=-1"])
    with pytest.raises(ConfigError, match="sampled problems never"):
        make_config(None, "pointer-sort", ["train.epochs=1"])
    path = tmp_path / "mine.toml"
    path.write_text("[train]\nsteps = 7\n")
    start = {"train": {"start_from": str(base.directory)}, "data": {"train": [str(files / "train.tsv")]}}
    assert make_config(None, "bert-tune", [], start).train.epochs == 3
    made = make_config(path, "bert-tune", [], start).train
    assert (made.steps, made.epochs, made.warmup_steps) == (7, 0.0, 0)
    assert make_config(path, "bert-tune", ["train.warmup=3"], start).train.warmup_steps == 3
    assert make_config(path, "bert-tune", ["train.epochs=2"], start).train.epochs == 2


@pytest.mark.parametrize(
    ("preset", "suffix", "data", "first"),
    [
        ("bert-tune", ".tsv", {}, [0]),
        ("bert-tune", "-pairs.jsonl", {"text": "one", "pair": "two", "label": "same"}, [0, 1]),
        ("bert-tag", "-tags.tsv", {}, [0]),
        ("bert-answer", "-asked.jsonl", {}, [0, 1]),
    ],
)
def test_heads_are_looked_at_in_the_labelled_texts_as_the_run_reads_them(
    files, base, tmp_path, monkeypatch, capsys, preset, suffix, data, first
):
    made = config(files, preset, suffix, "train.steps=1", start=base.directory, **data)
    run = regard.train(made, tmp_path / "run")
    looked, whole = [], head_roles._items
    monkeypatch.setattr(head_roles, "_items", lambda *given: looked.append(whole(*given)) or looked[-1])
    own = head_roles.head_roles(run, limit=8, judging=1)
    assert own["sentences"] == 8
    tokenizer, items = run.vocabularies.target, run.task.read_all(run.config, [files / f"valid{suffix}"])
    texts = texts_of(items[0])
    for text in texts if "answer" not in preset else texts[1:]:
        ids = tokenizer.encode(text)
        row = looked[0][0].rows[0]
        assert any(row[place : place + len(ids)] == ids for place in range(len(row))), "a row is one text, or a pair"
    assert len(set(looked[0][0].rows[1])) == len(first)
    # The labelled file itself is read as labelled.
    asked = ["heads", str(run.directory), "--data", str(files / f"valid{suffix}"), "--limit", "8", "--json"]
    monkeypatch.setattr(head_roles, "SCALING", 1)
    monkeypatch.setattr(head_roles, "head_roles", partial(head_roles.head_roles, judging=1))
    assert main(asked) == 0
    assert json.loads(capsys.readouterr().out)["sentences"] == 8
    assert [item.rows for item in looked[1]] == [item.rows for item in looked[0]]
    if preset != "bert-tag":  # whose words and tags may be in a .txt
        assert main([*asked[:3], str(files / "valid.txt"), *asked[4:]]) == 0
