"""What a planned run counts in updates, how many its minutes pay for, and what it changes by itself."""

import itertools
import math
import re
import time
from dataclasses import replace

import pytest
import torch
from listeners import Told

import regard
from regard.cli import main
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError
from regard.runs.log import read_log
from regard.tasks.planning import Machine
from regard.tasks.run import load_config
from regard.trainer import time_budget, training_run
from regard.trainer.time_budget import Minutes, TimeBudget, Timing, in_updates, steps_for
from regard.trainer.training_run import TrainingRun
from regard.training.loop import even_part

CPU = Machine(cores=2)
SMALL = ("model.width=16", "model.heads=2", "model.feed_forward=32", "train.threads=1", "train.validate_sentences=2")
PAIRS = (*SMALL, "model.encoder_layers=1", "model.decoder_layers=1")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    pairs = [f"{'abc'[n % 3]} {'de'[n % 2]} x{n % 71}\t{'fgh'[n % 3]} y{n % 71}" for n in range(426)]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    return folder


def planned(files, *overrides, name="pairs.tsv", **options):
    return regard.plan(files / name, machine=CPU, overrides=overrides, **options)


@pytest.mark.parametrize(("steps", "log_every"), [(4, 1), (79, 1), (100, 2), (800, 20), (2000, 50), (100_000, 50)])
def test_a_short_run_is_logged_often_enough_for_its_guard_rails(files, steps, log_every):
    plan = planned(files)
    assert in_updates(plan, plan.config, steps).train.log_every == log_every
    asked = planned(files, "train.log_every=7")
    assert in_updates(asked, asked.config, steps).train.log_every == 7


@pytest.mark.parametrize("asked", ["train.steps=40", "train.epochs=4"])
def test_what_is_counted_in_updates_follows_those_that_were_asked_for(files, tmp_path, asked):
    run = regard.train(planned(files, *PAIRS, asked, "train.save_every=13"), tmp_path / "run")
    options = load_config(run.directory).train
    every = -(-options.steps // 10)
    assert (options.validate_every, options.save_every, options.log_every) == (every, 13, 1)
    assert options.epochs == (4.0 if "epochs" in asked else 0.0)
    validated = [one["step"] for one in read_log(run.directory / "log.jsonl") if one["kind"] == "validation"]
    assert validated == sorted({*range(every, options.steps + 1, every), options.steps})


@pytest.mark.parametrize("minutes", [math.inf, math.nan, -1.0, 1e308])
def test_minutes_that_are_no_time_are_refused_by_name(files, minutes):
    with pytest.raises(ConfigError, match=f"minutes={re.escape(str(minutes))} must be above 0 and finite"):
        planned(files, minutes=minutes)


def test_few_updates_are_said_by_what_limits_them(files):
    plan = planned(files, minutes=2)
    steps, why = steps_for(plan, 600.0, Timing(update=0.01, epoch=0.1))
    assert (steps, plan.most_epochs) == (40, 400)
    assert "more than 400 epochs of data of this size overfit; so few teach a model little: give more data" in why
    assert why.endswith("or start from a trained run (--from)")
    steps, why = steps_for(plan, 600.0, Timing(update=0.01, epoch=100))
    assert steps > 100
    assert why.endswith("overfit")
    assert steps_for(plan, 5.0, Timing(update=0.1, epoch=100))[1] == (
        "47 updates, 0.5 epochs: as many as fit into the remaining 5 s (100.0 ms per update); so few teach a model "
        "little: give more than --minutes 2"
    )


def test_validations_as_often_as_asked_are_paid_for(files):
    often = planned(files, "train.validate_every=10", minutes=2)
    steps, why = steps_for(often, 100.0, Timing(update=0.1, epoch=100, validation=1.0))
    assert 460 <= steps <= 475, "each ten updates take a second, and their validation another"
    assert "(100.0 ms per update, 47 s of validation)" in why
    minutes = Minutes.of(often, 2, Timing(update=0.1, epoch=100, validation=1.0), 0.0)
    assert minutes.budget.every == 10


def test_a_run_that_is_validated_as_often_as_asked_keeps_to_its_minutes(files, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    plan = planned(files, "train.validate_every=10", minutes=2)
    minutes = Minutes.of(plan, 2, Timing(update=0.1, epoch=1000, validation=1.0), now[0])
    config, _ = minutes.first(plan.config, Timing(update=0.1, epoch=1000, validation=1.0))
    assert config.train.validate_every == 10
    number, said = 0, []
    while number < config.train.steps:
        number += 1
        now[0] += 0.2 if number > 100 else 0.1
        if number % 10 == 0:
            now[0] += 1.0
            minutes.budget.paused += 1.0
            minutes.budget.saw(1.0, 1.0)
        if minutes.budget.due(number, config.train.steps) and (other := minutes.other(number, config)) is not None:
            said.append(minutes.note(number, config.train, other.train))
            config = other
    assert 110 < now[0] < 124
    assert said
    assert all(
        re.match(r"updates are slower than timed \(1\d\d\.\d ms\): \d+ updates instead of \d+, to end", one)
        for one in said
    )
    assert not any("from here on" in one for one in said), "there is one every 10 updates as before"


def test_a_large_validation_set_is_read_in_part_and_that_is_frozen(files, tmp_path, monkeypatch):
    """What its loss would take is told from some batches: validations take a share of the minutes."""
    taken = []

    def counted(self, batches):
        found = [*batches]
        taken.append(len(found))
        return {"loss": 1.0, "nll": 1.0}

    monkeypatch.setattr(TrainingRun, "_loss_of", counted)
    monkeypatch.setattr(training_run, "seconds_to_validate", lambda minutes: -1.0)
    plan = planned(
        files,
        *PAIRS,
        "train.batch_tokens=64",
        "data.max_len=16",
        "model.max_len=16",
        valid=files / "pairs.tsv",
        minutes=0.05,
    )
    told = Told()
    monkeypatch.setattr(TimeBudget, "due", lambda self, number, steps: False)
    monkeypatch.setattr(training_run, "seconds_per_update", lambda steps, seconds, processes, **limits: 0.1)
    run = regard.train(plan, tmp_path / "run", told)
    count = len([*run.config.kind.prepare(run.config, run.directory, Told(), new=False)[1].validation()])
    assert count > 4 * time_budget.SAMPLED
    share = load_config(run.directory).train.validate_share
    assert (
        f"| `train.validate_share` | `{share}` | the validation loss is of " in (tmp_path / "run/plan.md").read_text()
    )
    assert share == time_budget.SAMPLED / count
    assert taken[0] == 1
    assert time_budget.SAMPLED <= taken[1] <= 2 * time_budget.SAMPLED
    assert {*taken[2:]} == {time_budget.SAMPLED}
    said = f"of the batches, as that of all {count:,} would take "
    assert sum(said in line for line in told.lines) == 1
    taken.clear()
    whole = (*PAIRS, "train.batch_tokens=64", "data.max_len=16", "model.max_len=16", "train.validate_share=1.0")
    plan = planned(files, *whole, valid=files / "pairs.tsv", minutes=0.05)
    assert regard.train(plan, tmp_path / "whole").config.train.validate_share == 1.0
    assert {*taken} == {count}, "as asked"


def test_an_even_part_of_batches_and_a_sample_of_them():
    for count in (1, 7, 100, 1001):
        for share in (1.0, 0.5, 0.3, 0.013):
            taken = [*even_part(range(count), share)]
            assert len(taken) == math.ceil(count * share)
            assert taken[0] == 0
            assert all(abs(one - number / share) <= 1 / share for number, one in enumerate(taken))
        kept, found = time_budget.batches_to_time(range(count))
        assert found == count
        assert min(count, time_budget.SAMPLED) <= len(kept) <= 2 * time_budget.SAMPLED
        assert len({b - a for a, b in itertools.pairwise(kept)}) <= 1
        assert count - kept[-1] <= (kept[1] if len(kept) > 1 else 1)


def test_streams_whose_state_is_carried_are_validated_whole():
    carried = {"data": {"carry": True}, "train": {"validate_share": 0.5}}
    with pytest.raises(ConfigError, match=r"train.validate_share=0.5 is not possible: with data.carry=true"):
        regard.make_config(None, "lstm-tiny", (), carried).check()
    with pytest.raises(ConfigError, match=r"train.validate_share=0.0 must be above 0 and at most 1"):
        regard.make_config(None, "tiny", ["train.validate_share=0.0"])


def test_the_plan_of_a_run_says_what_the_run_changed_by_itself(files, tmp_path, monkeypatch):
    (tmp_path / "long.tsv").write_text("".join(f"go x{n}\t{'W ' * 60}x{n}\n" for n in range(100)))
    times = iter([0.1, 0.2])
    before = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(TrainingRun, "_timed_updates", lambda self, seconds, **most: (next(times), 10.0))
    monkeypatch.setattr(time_budget, "steps_for", lambda plan, seconds, timing: (10, "10 updates"))
    monkeypatch.setattr(TimeBudget, "steps", lambda self, number, options: 6 if number >= 3 else options.steps)
    monkeypatch.setattr(TimeBudget, "due", lambda self, number, steps: True)
    try:
        plan = regard.plan(
            tmp_path / "long.tsv",
            machine=CPU,
            minutes=1,
            overrides=[one for one in PAIRS if "threads" not in one] + ["train.log_every=1"],
        )
        run = regard.train(plan, tmp_path / "run")
    finally:
        torch.set_num_threads(before)
    page = (run.directory / "plan.md").read_text()
    extra = load_config(run.directory).decode.max_extra
    assert extra > DecodeConfig().max_extra
    assert f"| `decode.max_extra` | `{extra}` | raised to what the longest training targets need |" in page
    assert "| `train.threads` | `1` | one thread is faster here than 2 |" in page
    assert "| `train.steps` | `6` | see Updates below |" in page
    assert "| `train.log_every` | `1` | as asked |" in page
    assert page.count("At update 3: ") == 1
    assert page.count("`train.threads`") == 1


def test_a_validation_is_not_passed_over_where_the_number_of_updates_changes(files, tmp_path, monkeypatch):
    monkeypatch.setattr(time_budget, "steps_for", lambda plan, seconds, timing: (20, "20 updates"))
    monkeypatch.setattr(TimeBudget, "steps", lambda self, number, options: 16 if number >= 9 else options.steps)
    monkeypatch.setattr(TimeBudget, "validations", lambda self, options: 2)
    monkeypatch.setattr(TimeBudget, "due", lambda self, number, steps: True)
    run = regard.train(planned(files, *PAIRS, minutes=0.05), tmp_path / "run")
    validated = [one["step"] for one in read_log(run.directory / "log.jsonl") if one["kind"] == "validation"]
    assert validated == [9, 16], "one every 10 updates became one every 8, of which the first was over"


def test_the_threads_of_a_run_are_its_own(files, tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        regard.train(planned(files, *PAIRS, "train.steps=2"), tmp_path / "run")  # with train.threads=1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_of_many_labels_a_plan_shows_the_beginning(files):
    plan = planned(files)
    labels = [f"{n}|{n}" for n in range(300)]
    config = replace(plan.config, model={**plan.config.model, "labels": labels})
    (row,) = [line for line in plan.carried_out(config).page().splitlines() if "`model.labels`" in line]
    assert row.endswith("...` | follows from the data |")
    assert len(re.findall(r"(?<!\\)\|", row)) == 4


def test_nothing_to_train_on_says_what_to_give(tmp_path, capsys):
    assert main(["train", "--out", str(tmp_path / "run")]) == 2
    assert "nothing to train on: give --data FILES, or --preset NAME" in capsys.readouterr().err
