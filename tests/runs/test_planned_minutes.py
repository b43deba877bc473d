"""How many updates and validations the minutes of a planned run pay for, before it begins and in its course."""

import math
import time
from dataclasses import replace

import pytest
import torch
from planning_toys import (
    CPU,
    GPU,
    planned,
    write_every_kind,
)

from regard.trainer.time_budget import TimeBudget, Timing, seconds_per_update, steps_for, validations_for
from regard.training.config import TrainConfig
from regard.training.loop import Step
from regard.training.processes import ONE


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each kind."""
    return write_every_kind(tmp_path_factory.mktemp("data"))


def test_minutes_are_by_the_machine_and_updates_by_the_minutes(files):
    assert (planned(files, "pairs.tsv").minutes, planned(files, "pairs.tsv", machine=GPU).minutes) == (10, 5)
    plan = planned(files, "plain.txt", minutes=2)
    assert steps_for(plan, 100.0, Timing(update=0.1, epoch=100))[0] == 950
    steps, why = steps_for(plan, 1000.0, Timing(update=0.01, epoch=100))
    assert steps == 3600
    assert "more than 36 epochs of data of this size overfit" in why
    steps, why = steps_for(plan, 5.0, Timing(update=0.1, epoch=100))
    assert (steps, why.endswith("so few teach a model little: give more than --minutes 2")) == (47, True)


def test_validations_are_paid_for_and_fewer_where_they_take_long(files):
    plan = planned(files, "plain.txt", minutes=2)
    quick, slow = (Timing(update=0.1, epoch=100, validation=one) for one in (0.5, 4.0))
    assert (validations_for(100.0, 0.5), steps_for(plan, 100.0, quick)[0]) == (10, 900)
    assert (validations_for(100.0, 4.0), steps_for(plan, 100.0, slow)[0]) == (2, 870)
    assert "8 s of validation" in steps_for(plan, 100.0, slow)[1]


def test_a_budget_far_beyond_those_of_the_recipes_says_that_a_larger_model_may_learn_more(files):
    def said(minutes, *overrides):
        plan = planned(files, "pairs.tsv", overrides=overrides, minutes=minutes)
        return steps_for(plan, 60.0, Timing(update=0.1, epoch=100))[1]

    assert "--set model.width=256" in said(CPU.minutes * 3 + 1)
    assert "larger model" not in said(CPU.minutes * 3)
    assert "larger model" not in said(CPU.minutes * 4, "model.width=64", "model.heads=2")


def course(
    seconds_of, steps, monkeypatch, *, seconds=100.0, validation_of=lambda n: 0.5, loss_of=lambda n: 1.0, **options
):
    """A run of so many seconds whose updates and validations take so many, and whose validations have such a loss: how
    many updates it makes, when it ends, and after which updates it is validated."""
    now, validated = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    train = TrainConfig(steps=steps, validate_every=steps // 10)
    budget = TimeBudget(seconds, 0.0, validation=validation_of(0), **options)
    number = 0
    while number < train.steps:
        number += 1
        now[0] += seconds_of(number)
        if number % train.validate_every == 0 or number == train.steps:
            took = validation_of(number)
            validated.append(number)
            now[0] += took
            budget.paused += took
            budget.saw(took, loss_of(number))
        if number < train.steps and budget.due(number, train.steps):
            count, often = budget.steps(number, train), budget.validations(train)
            train = replace(train, steps=count, validate_every=max(1, math.ceil(count / often)))
    return train.steps, now[0], validated


def test_a_machine_that_gets_slower_makes_fewer_updates_and_keeps_to_its_minutes(monkeypatch):
    steps, end, _ = course(lambda number: 0.08 if number < 400 else 0.16, 1000, monkeypatch)
    assert 700 < steps < 800
    assert 90 < end < 103


def test_a_machine_that_is_faster_than_it_was_timed_makes_more_updates(monkeypatch):
    steps, end, _ = course(lambda number: 0.01, 1000, monkeypatch)
    assert 5000 < steps < 9000
    assert 85 < end < 103
    assert course(lambda number: 0.01, 1000, monkeypatch, most=3000)[0] == 3000


def test_a_machine_as_fast_as_it_was_timed_makes_all_its_updates(monkeypatch):
    assert course(lambda number: 0.091, 1000, monkeypatch)[0] == 1000
    assert course(lambda number: 0.5 if number == 300 else 0.089, 1000, monkeypatch)[0] == 1000


def test_a_machine_that_is_slow_only_at_first_uses_its_minutes(monkeypatch):
    for slow in (0.12, 0.16, 0.24):
        _, end, _ = course(lambda number, slow=slow: slow if number < 150 else 0.08, 1000, monkeypatch)
        assert 90 < end < 103, slow


def test_data_is_read_more_often_than_its_size_says_as_long_as_the_validation_loss_has_not_risen(monkeypatch):
    def made(loss_of, most=100, **options):
        return course(lambda number: 0.05, 100, monkeypatch, loss_of=loss_of, most=most, **options)[0]

    assert made(lambda number: 1.0) == 100, "unless its task says so"
    assert 1600 < made(lambda number: 1.0, more=True) < 2000, "as many as fit into 100 s"
    assert made(lambda number: 1.0, more=True, seconds=12.0) < 240, "there is no time for 400"
    assert made(lambda number: 1.019 if number > 30 else 1.0, more=True) > 100, "a loss that stands still has not risen"
    assert made(lambda number: 1.03 if number > 30 else 1.0, more=True) == 100
    assert made(lambda number: 1.03 if number > 60 else 1.0, more=True) == 200, "it rose before half of the second 100"
    assert made(lambda number: 1.03 if number > 150 else 1 / number, more=True) == 400


def test_validations_that_take_long_become_fewer_and_leave_the_updates_their_time(monkeypatch):
    steps, end, validated = course(
        lambda number: 0.1, 1500, monkeypatch, seconds=200.0, validation_of=lambda number: 20.0
    )
    assert 1200 < steps < 1500
    assert 180 < end < 206
    assert len(validated) == 3, "the first, and two that are paid for"


def test_of_a_model_that_learns_to_end_its_outputs_validations_become_more_again(monkeypatch):
    steps, end, validated = course(
        lambda number: 0.1, 1500, monkeypatch, seconds=200.0, validation_of=lambda number: 20.0 if number < 400 else 1.0
    )
    assert 1400 < steps < 1700
    assert 180 < end < 206
    assert len(validated) > 4


def test_the_first_validation_shows_how_many_are_paid_for():
    budget, options = TimeBudget(100.0, 0.0, validation=5.0), TrainConfig(steps=1000, validate_every=100)
    assert budget.validations(options) == 10, "what was timed was that of a model that had learnt nothing"
    budget.validated = True
    found = {}
    for budget.validation in (0.5, 0.8, 1.0, 5.0):
        found[budget.validation] = budget.validations(options)
    assert found == {0.5: 10, 0.8: 10, 1.0: 6, 5.0: 2}
    budget.validation = 1.0
    assert budget.validations(TrainConfig(steps=1000, validate_every=500)) == 6


def one_after_the_other(monkeypatch, *seconds):
    """Updates that take these seconds, by a clock that they alone move."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def updates():
        for one in seconds:
            now[0] += one
            yield Step(0, torch.tensor(1.0), torch.tensor(1.0), 1, 0.1)

    return updates()


def test_updates_are_timed_until_two_stretches_took_the_same(monkeypatch):
    updates = one_after_the_other(monkeypatch, 9.0, 2.0, 2.0, 2.0, 2.0)
    assert seconds_per_update(updates, 1.0, ONE, least=1) == 2.0
    assert next(updates, None) is not None, "two that took the same are enough"
    assert seconds_per_update(one_after_the_other(monkeypatch, *[2.0] * 6), 1.0, ONE, least=3) == 2.0


def test_threads_that_wait_for_one_another_are_timed_by_two_updates(monkeypatch):
    slow = one_after_the_other(monkeypatch, 9.0, 9.0, 9.0)
    assert seconds_per_update(slow, 1.0, ONE, least=1, most=3.0) == 9.0
    assert len([*slow]) == 1
    once = one_after_the_other(monkeypatch, 9.0, 1.0, 1.0, 1.0)
    assert seconds_per_update(once, 0.5, ONE, least=1, most=3.0) == 1.0, "the first starts threads"


def test_minutes_that_are_used_up_before_training_are_said(files):
    plan = planned(files, "pairs.tsv", minutes=0.01)
    steps, why = steps_for(plan, 0.0, Timing(update=0.2, epoch=100, validation=3.0))
    assert (steps, why) == (
        1,
        "1 update: the minutes are used up before training, as an update takes 200.0 ms and a validation 3.0 s here; "
        "give more than --minutes 0.01",
    )
    assert steps_for(plan, 1.0, Timing(update=0.2, epoch=100))[0] == 4


def test_updates_are_made_fewer_only_where_that_wins_more_time_than_the_checkpoint_takes(monkeypatch):
    def made(saving):
        return course(lambda number: 0.1, 120, monkeypatch, seconds=11.5, validation_of=lambda n: 0.0, saving=saving)[0]

    assert made(0.0) < 115
    assert made(1.0) == 120, "12 s rather than 11.5 s"
