"""Planned runs trained to their end: what is timed, which weights are kept, and that resuming is exact."""

import json
import time
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from listeners import StopAt, Told
from planning_toys import CPU, SHORT, planned, write_every_kind

import regard
from regard.cli import main
from regard.errors import ConfigError, NotWritten, RegardError
from regard.runs.log import read_log
from regard.tasks.run import load_config
from regard.trainer import checkpointing, doctor, time_budget, training_run
from regard.trainer.time_budget import TimeBudget
from regard.trainer.training_run import Stopped, TrainingRun
from regard.training.optim import ExponentialAverage


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each kind."""
    return write_every_kind(tmp_path_factory.mktemp("data"))


def test_entities_and_answers_are_chosen_by_their_f1(tmp_path, files):
    lines = [f"{word}\t{tag}" for word, tag in (("Anna", "B-PER"), ("saw", "O"), ("New", "B-LOC"), ("York", "I-LOC"))]
    (tmp_path / "entities.txt").write_text("\n".join([*lines, ""] * 20))
    small = (*SHORT, "model.layers=1", "train.validate_every=2", "data.held_out=0.3", "tokenizer.vocab_size=100")
    for name, data in (("entities", tmp_path / "entities.txt"), ("asked", files / "asked.jsonl")):
        valid = data if name == "entities" else ()  # all its sentences are one
        plan = regard.plan(data, machine=CPU, valid=valid, overrides=small[: -2 if name == "entities" else None])
        assert plan.config.train.select_by == "f1"
        told = Told()
        run = regard.train(plan, tmp_path / name, told)
        figures = [one["f1"] for one in read_log(run.directory / "log.jsonl") if one["kind"] == "validation"]
        assert len(figures) == 2
        assert all(0 <= figure <= 100 for figure in figures)
    assert planned(files, "tagged.txt").config.train.select_by == "accuracy"


def test_what_is_timed_has_validation_and_average_in_it_and_tells_no_outputs(files, tmp_path, monkeypatch):
    validated, averaged = [], []
    validate, update = TrainingRun._validate, ExponentialAverage.update
    monkeypatch.setattr(TrainingRun, "_validate", lambda self, batches: validated.append(1) or validate(self, batches))
    monkeypatch.setattr(ExponentialAverage, "update", lambda self, step: averaged.append(step) or update(self, step))
    monkeypatch.setattr(TrainingRun, "go", lambda self: None)
    told = Told()
    plan = planned(files, "commands.tsv", minutes=0.01, overrides=SHORT[1:])
    with suppress(RegardError):  # nothing was trained that could be loaded
        regard.train(plan, tmp_path / "run", told)
    assert len(validated) == 1
    assert len(averaged) >= 2
    assert not any("reference" in line or "cut at" in line for line in told.lines)


def test_updates_are_timed_until_they_take_the_same(files, tmp_path, monkeypatch):
    now, made = [0.0], []

    def slow_at_first(self, step):
        made.append(step)
        now[0] += 10.0 if len(made) < 2 else 0.1

    monkeypatch.setattr(ExponentialAverage, "update", slow_at_first)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    found = []
    timed = TrainingRun.timed
    monkeypatch.setattr(TrainingRun, "timed", lambda self, *given: found.append(timed(self, 12.0)) or found[0])
    monkeypatch.setattr(TrainingRun, "go", lambda self: None)
    with suppress(RegardError):
        regard.train(planned(files, "commands.tsv", minutes=0.01, overrides=SHORT[1:]), tmp_path / "run")
    assert found[0].update == pytest.approx(0.1)


@pytest.mark.parametrize(("alone", "threads"), [(0.1, 1), (0.3, 0)])
def test_one_thread_is_taken_where_several_wait_for_one_another(files, tmp_path, monkeypatch, alone, threads):
    before = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    times = iter([alone, 0.2])
    monkeypatch.setattr(TrainingRun, "_timed_updates", lambda self, seconds, **most: (next(times), 10.0))
    monkeypatch.setattr(TrainingRun, "go", lambda self: None)
    overrides = [one for one in SHORT[1:] if not one.startswith("train.threads")]
    try:
        with suppress(RegardError):
            regard.train(planned(files, "commands.tsv", minutes=0.01, overrides=overrides), tmp_path / "run")
        assert load_config(tmp_path / "run").train.threads == threads
    finally:
        torch.set_num_threads(before)


def validations(monkeypatch, *figures):
    """Have each validation say these, beside what it says."""
    validate, said = TrainingRun._validate, iter(figures)
    monkeypatch.setattr(TrainingRun, "_validate", lambda self, batches: {**validate(self, batches), **next(said)})


def test_of_equal_scores_the_later_weights_are_chosen(files, tmp_path, monkeypatch):
    validations(monkeypatch, *[{"accuracy": 0.5}] * 4)
    plan = planned(files, "films.tsv", overrides=(*SHORT, "train.validate_every=1", "model.layers=1"))
    told = Told()
    regard.train(plan, tmp_path / "run", told)
    assert any("step 4" in line for line in told.lines), told.lines


def test_of_exact_matches_that_differ_by_chance_the_later_weights_are_chosen(files, tmp_path, monkeypatch):
    validations(
        monkeypatch,
        {"exact_match": 0.9, "outputs": 200, "nll": 0.3},
        {"exact_match": 0.98, "outputs": 200, "nll": 0.05},
        {"exact_match": 0.975, "outputs": 200, "nll": 0.1},  # as a model that is surer pays more for what is wrong
        {"exact_match": 0.9, "outputs": 200, "nll": 0.04},
    )
    plan = planned(
        files,
        "films.tsv",
        overrides=(*SHORT, "train.validate_every=1", "model.layers=1", "train.select_by=exact_match"),
    )
    told = Told()
    run = regard.train(plan, tmp_path / "run", told)
    assert any("step 3, the best validated" in line for line in told.lines), told.lines
    assert any("by exact_match is that of step 3" in line for line in doctor.diagnose(run.directory).facts)


def test_fewer_updates_are_in_the_run_and_its_plan_so_that_resuming_is_exact(files, tmp_path, monkeypatch):
    monkeypatch.setattr(time_budget, "steps_for", lambda plan, seconds, timing: (10, "10 updates"))
    monkeypatch.setattr(TimeBudget, "steps", lambda self, number, options: 6 if number >= 3 else options.steps)
    monkeypatch.setattr(TimeBudget, "due", lambda self, number, steps: True)
    plan = planned(files, "commands.tsv", minutes=1, overrides=(*SHORT[1:], "train.log_every=1"))
    with pytest.raises(Stopped):
        regard.train(plan, tmp_path / "run", StopAt(4))
    assert load_config(tmp_path / "run").train.steps == 6
    assert "At update 3: " in (tmp_path / "run" / "plan.md").read_text()
    regard.resume(tmp_path / "run")
    assert load_config(tmp_path / "run").train.steps == 6
    regard.train(plan, tmp_path / "whole")
    ends = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert ends[0] == ends[1]


def test_fewer_validations_are_in_the_run_and_its_plan_so_that_resuming_is_exact(files, tmp_path, monkeypatch):
    validations(monkeypatch, *[{"seconds": 100.0}] * 20)
    timed = TrainingRun.timed
    monkeypatch.setattr(TrainingRun, "timed", lambda self, *given: replace(timed(self, *given), validation=0.1))
    monkeypatch.setattr(time_budget, "steps_for", lambda plan, seconds, timing: (20, "20 updates"))
    monkeypatch.setattr(TimeBudget, "steps", lambda self, number, options: options.steps)
    monkeypatch.setattr(TimeBudget, "due", lambda self, number, steps: True)
    plan = planned(files, "commands.tsv", minutes=1, overrides=(*SHORT[1:], "train.log_every=1"))
    with pytest.raises(Stopped):
        regard.train(plan, tmp_path / "run", StopAt(4))
    assert load_config(tmp_path / "run").train.validate_every == 10
    page = (tmp_path / "run" / "plan.md").read_text()
    assert "At update 2: a validation takes 100.0 s: from here on there is one every 10 updates." in page
    regard.resume(tmp_path / "run")
    regard.train(plan, tmp_path / "whole")
    assert [one["step"] for one in read_log(tmp_path / "whole/log.jsonl") if one["kind"] == "validation"] == [2, 10, 20]
    ends = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("full", ["write_checkpoint", "write_config"])
def test_minutes_change_no_updates_while_what_these_go_on_from_cannot_be_written(files, tmp_path, monkeypatch, full):
    """The disk takes neither the checkpoint nor the settings at first: training goes on as planned, and tries again."""
    room = {"write_checkpoint": checkpointing, "write_config": training_run}[full]
    written, refused = getattr(room, full), []

    def fails_once(path, *given):
        if not refused:
            refused.append(path)
            raise NotWritten(f"the disk is full: {path} was not written")
        return written(path, *given)

    monkeypatch.setattr(room, full, fails_once)
    monkeypatch.setattr(time_budget, "steps_for", lambda plan, seconds, timing: (10, "10 updates"))
    monkeypatch.setattr(TimeBudget, "steps", lambda self, number, options: 6 if number >= 3 else options.steps)
    monkeypatch.setattr(TimeBudget, "due", lambda self, number, steps: True)
    told = Told()
    # Validations may save too, and how many there are is timed: here none comes before the updates are changed.
    rarely = ("train.log_every=1", "train.save_every=9", "train.validate_every=9")
    plan = planned(files, "commands.tsv", minutes=1, overrides=(*SHORT[1:], *rarely))
    regard.train(plan, tmp_path / "run", told)
    assert len(refused) == 1
    assert sum("the disk is full" in line for line in told.lines) == 1, told.lines
    page = (tmp_path / "run" / "plan.md").read_text()
    assert "At update 3: " not in page
    assert "At update 4: " in page
    assert [one["step"] for one in read_log(tmp_path / "run/log.jsonl") if one["kind"] == "train"][-1] == 6


def test_a_budget_is_frozen_in_updates_so_that_resuming_is_exact(files, tmp_path, monkeypatch):
    timed = TrainingRun.timed
    # Updates are timed as ever, but however slow the machine is, some are paid for.
    monkeypatch.setattr(
        TrainingRun, "timed", lambda self, *given: replace(timed(self, *given), update=1.0, validation=0.0)
    )
    shape = (
        "model.width=16",
        "model.heads=2",
        "model.feed_forward=32",
        "train.threads=1",
        "train.validate_sentences=4",
        "train.log_every=1",
    )
    plan = planned(
        files, "commands.tsv", minutes=1, overrides=(*shape, "model.encoder_layers=1", "model.decoder_layers=1")
    )
    with pytest.raises(Stopped):
        regard.train(plan, tmp_path / "run", StopAt(2))
    frozen = load_config(tmp_path / "run")
    assert frozen.train.steps > 2
    assert f"{frozen.train.steps:,} updates" in (tmp_path / "run" / "plan.md").read_text()
    regard.resume(tmp_path / "run")
    made = regard.make_config(tmp_path / "run" / "config.json")
    whole = regard.train(made, tmp_path / "whole")
    ends = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert ends[0] == ends[1]
    assert whole.config.data.held_out == 0.1


def test_the_best_weights_are_those_of_the_best_score(files, tmp_path):
    plan = planned(
        files, "films.tsv", overrides=(*SHORT, "train.validate_every=1", "model.layers=1", "train.learning_rate=0.03")
    )
    run = regard.train(plan, tmp_path / "run")
    scores = {
        one["step"]: one["accuracy"] for one in read_log(run.directory / "log.jsonl") if one["kind"] == "validation"
    }
    best = max(step for step, score in scores.items() if score == max(scores.values()))
    assert json.loads((run.directory / "checkpoints" / "step-4" / "progress.json").read_text())["best_step"] == best
    told = Told()
    with pytest.raises(ConfigError, match="select_by='f1' is none of"):
        regard.train(
            regard.make_config(run.directory / "config.json", overrides=["train.select_by=f1"]),
            tmp_path / "other",
            told,
        )


@pytest.mark.parametrize(("name", "best"), [("word_error_rate", 2), ("f1", 4)])
def test_of_errors_the_fewest_are_best_and_of_scores_the_highest(files, tmp_path, monkeypatch, name, best):
    validations(monkeypatch, *({name: figure} for figure in (0.5, 0.25, 0.75, 1.0)))
    plan = planned(
        files, "films.tsv", overrides=(*SHORT, "train.validate_every=1", "model.layers=1", f"train.select_by={name}")
    )
    run = regard.train(plan, tmp_path / "run")
    assert json.loads((run.directory / "checkpoints" / "step-4" / "progress.json").read_text())["best_step"] == best


def test_the_first_command_prints_its_plan(files, tmp_path, capsys):
    asked = [
        "train",
        "--data",
        str(files / "commands.tsv"),
        "--out",
        str(tmp_path / "run"),
        *(f"--set={one}" for one in SHORT),
    ]
    assert main(asked) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(tmp_path / "run")
    assert "plan: translation, spaced to spaced tokens" in said.err
    assert (tmp_path / "run" / "plan.md").read_text().startswith("# How this run was planned")
    assert main(["train", "--preset", "tiny", "--minutes", "1", "--out", str(tmp_path / "other")]) != 0
    assert "--minutes is for training without a preset" in capsys.readouterr().err


def test_a_run_starts_from_another_with_a_vocabulary_of_its_own(tmp_path):
    from regard.tasks.run import load_vocabularies

    for name, word in (("one", "cat"), ("two", "owl")):
        lines = [
            f"the {word} sees number {chr(97 + n % 26)}\tle {word} voit numero {chr(97 + n % 26)}" for n in range(60)
        ]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    shape = ("tokenizer.kind=word", "tokenizer.joint=false", *SHORT, "model.encoder_layers=1", "model.decoder_layers=1")
    shape = (*shape, "model.share=output", "train.steps=2", "data.max_len=64", "model.max_len=64")
    first = regard.train(
        regard.make_config(None, "tiny", shape, {"data": {"train": [str(tmp_path / "one.tsv")]}}), tmp_path / "first"
    )
    told = Told()
    made = regard.make_config(
        None,
        None,
        ("tokenizer.retrain=true", "train.steps=1", "train.learning_rate=1e-12", "train.schedule=constant"),
        {"data": {"train": [str(tmp_path / "two.tsv")]}, "train": {"start_from": str(tmp_path / "first")}},
    )
    second = regard.train(made, tmp_path / "second", told)
    size = second.vocabularies.source.vocab_size
    assert any(f"source.tokens.weight: {size - 1} of {size} rows kept, 1 new" in line for line in told.lines)
    ours, theirs = (load_vocabularies(run.directory, run.config.tokenizer).source for run in (second, first))
    rows = [table.model.state_dict()["source.tokens.weight"] for table in (second, first)]
    assert ours.encode("owl") != [ours.unk]
    assert (rows[0][ours.encode("sees")[0]] - rows[1][theirs.encode("sees")[0]]).abs().max() < 1e-6
    with pytest.raises(ConfigError, match="cannot change in a run that starts from"):
        regard.make_config(None, None, ("tokenizer.vocab_size=50",), {"train": {"start_from": str(tmp_path / "first")}})


def test_labelled_texts_pairs_tags_and_answers_start_from_a_trained_encoder(files, tmp_path):
    shape = ("model.width=16", "model.heads=2", "model.layers=2", "model.feed_forward=32", "train.steps=1")
    shape = (*shape, "model.head=words", "tokenizer.vocab_size=300", "train.threads=1")
    base = regard.make_config(None, "bert-tiny", shape, {"data": {"train": [str(files / "plain.txt")]}})
    regard.train(base, tmp_path / "base")
    heads = {"films.tsv": "classes", "entailed.tsv": "classes", "tagged.txt": "tags", "asked.jsonl": "spans"}
    for name, head in heads.items():
        plan = planned(files, name, start=tmp_path / "base", overrides=["train.steps=1", "train.threads=1"])
        assert (plan.config.model["head"], plan.config.model["width"]) == (head, 16)
        assert plan.config.train.layer_decay == 0.7
        if name == "entailed.tsv":
            run = regard.train(plan, tmp_path / "run")
            assert len(run.classify([("one text", "another")])[0]) == 2


def test_a_dry_run_prints_the_plan_and_trains_nothing(files, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = ["train", "--data", str(files / "pairs.tsv"), "--dry-run"]
    assert main([*data, "--minutes", "3"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("# How this run was planned")
    assert "Budget: 3 minutes in all" in page
    assert "updates are timed when training begins" in page
    assert "| `model.width` |" in page
    assert main([*data, "--out", "run", "--set", "train.epochs=3"]) == 0
    assert "Budget: 3 epochs as asked" in capsys.readouterr().out
    assert [*tmp_path.iterdir()] == []
    for option in (["--fit"], ["--report", "tensorboard"], ["--processes", "2"]):
        assert main([*data, *option]) == 2
        assert f"{option[0]} is for training" in capsys.readouterr().err
    assert main(["train", "--preset", "tiny", "--dry-run"]) == 2
    assert "`regard presets NAME --all`" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["pairs.tsv", "rule.tsv", "films.tsv", "plain.txt", "grey.npz"])
def test_every_row_of_the_plan_of_a_run_is_true_of_its_settings(files, tmp_path, monkeypatch, name):
    monkeypatch.chdir(files)
    layers = "encoder_layers=1|decoder_layers=1" if name in ("pairs.tsv", "rule.tsv") else "layers=1"
    small = (*SHORT[1:], *(f"model.{one}" for one in layers.split("|")), "train.steps=1", "train.validate_sentences=2")
    if name == "rule.tsv":
        small += ("data.swaps=0",)
    plan = regard.plan(name, machine=CPU, overrides=small)
    regard.train(plan, tmp_path / "run")
    settings = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    rows = [line for line in (tmp_path / "run" / "plan.md").read_text().splitlines() if line.startswith("| `")]
    told = {}
    for row in rows:
        key, value, why = (cell.strip() for cell in row.strip("| ").split(" | ", 2))
        told[key.strip("`")] = value.strip("`"), why
    assert {one.name for one in plan.decisions} <= told.keys()
    assert len(told) == len(rows)
    for key, (value, why) in told.items():
        section, _, field = key.partition(".")
        held = settings[section][field] if field else settings[section]
        shown = str(held).lower() if isinstance(held, bool) else str(held)
        assert value == shown, key
        assert why
    assert told["data.train"][1] == "as given, with the whole path"
    assert told["train.steps"] == ("1", "as asked")
