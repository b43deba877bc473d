"""The minutes that a planned run may take: what updates and validations take, and how many of them fit into the rest.

What was decided before a run begins (`steps_for`) is looked at again in its course (`TimeBudget`), and both change the
run's configuration (`in_updates`), so that resuming is exact.
"""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from regard.tasks.config import RunConfig
from regard.tasks.planning import Plan, updates_in_words
from regard.training.config import TrainConfig
from regard.training.loop import Step
from regard.training.processes import Processes

VALIDATIONS, FEWEST_VALIDATIONS = 10, 2
"""How often a planned run is validated, and how often at the least where that takes long."""

LEAST_VALIDATIONS = 4
"""How many validations must be paid for, by what their loss takes alone; else it is of a part of the validation set."""

RECORDS = 40
"""How often a short planned run is logged at the least, so that its guard rails have enough to go by."""

VALIDATING, RESERVED = 0.06, 0.05
"""The share of a budget that validations may take before they are made fewer, and what saving and the end of a run
take, about."""

FEW_UPDATES = 100
"""Updates below which it is said that a budget is too small."""

OTHERWISE = 1.5
"""How many times as many validations must be paid for as are planned, or the other way round, for others."""

HALF_WAY, RISEN = 0.5, 1.02
"""After what share of its updates data may be read twice as often as its size says, and how far above its lowest the
validation loss may be then: some data, such as texts to be compared, is learnt late."""

CHECKS, LATE, EARLY, SETTLED = 20, 0.03, 0.05, 0.7
"""How often a run looks in its course whether it will end in time; by what share of its budget it may be late in the
end, three times as much at first, when what updates will take is still a guess, before it makes fewer updates; by
what share early before it makes more; and after what share of its updates there are no more, as the rate has fallen."""

SAVINGS = 2
"""How many times the seconds of a checkpoint another number of updates must win, for which one is saved."""

FAR_LONGER = 3.0
"""By how many times the minutes that recipes were measured with a budget is exceeded before that is said."""

SAMPLED = 8
"""How many validation batches are timed at the least, and how many the loss of a validation is of at the least."""

LEAST_UPDATES, LEAST_SHARE, MOST_SECONDS, MOST_TIMES = 3, 0.015, 7.5, 4
"""Updates are timed to turn minutes into updates: so many at the least, on a CPU one, for this share of the minutes and
at the most so long, until two stretches on end took the same within `SAME`, as the first updates load and compile what
later ones have; or so many times as long."""
SAME = 0.15

FAR_SLOWER = 3.0
"""By what factor an update with several threads is slower than one with a single thread where threads wait for one
another, so that no more need to be timed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Seconds that an update and a validation take here, and the updates of one epoch."""

    update: float
    epoch: float | int
    validation: float = 0.0


def seconds_to_time(minutes: float | int) -> float:
    """For how long updates are timed where a run may take so many minutes."""
    return min(MOST_SECONDS, LEAST_SHARE * 60 * minutes)


def seconds_to_validate(minutes: float | int) -> float:
    """What the loss of one validation may take where a run may take so many minutes."""
    return VALIDATING / LEAST_VALIDATIONS * 60 * minutes


def batches_to_time(batches: Iterable[Any]) -> tuple[list[Any], int]:
    """Some of the batches, evenly spread, and how many there are; all where they are few."""
    kept, every, count = list[Any](), 1, 0
    for batch in batches:
        if count % every == 0:
            kept.append(batch)
        if len(kept) > 2 * SAMPLED:
            kept, every = kept[::2], 2 * every
        count += 1
    return kept, count


def seconds_per_update(
    steps: Iterator[Step], seconds: float, processes: Processes, *, least: int, most: float = math.inf
) -> float:
    """What an update takes, once updates have come to take the same; timed for some times as many seconds.

    Stretches have so many updates at the `least`. A second update that takes longer than `most` is enough.
    """
    if most < math.inf:
        _stretch(steps, 0.0, processes, 1)
        if (second := _stretch(steps, 0.0, processes, 1)) > most:
            return second
    update, began = _stretch(steps, seconds, processes, least), time.perf_counter()
    while True:
        before, update = update, _stretch(steps, seconds, processes, least)
        late = time.perf_counter() - began > MOST_TIMES * seconds
        if _first_says(processes, late or abs(update / before - 1) < SAME):
            return update


def _stretch(steps: Iterator[Step], seconds: float, processes: Processes, least: int) -> float:
    """What an update takes, of those of so many seconds."""
    began, made = time.perf_counter(), 0
    while True:
        step, made = next(steps), made + 1
        if _first_says(processes, made >= least and time.perf_counter() - began > seconds):
            float(step.loss)  # a GPU has done it only when someone has read it
            return (time.perf_counter() - began) / made


def _first_says(processes: Processes, yes: bool) -> bool:
    """What the first process decides by its clock, so that all do the same."""
    return any(processes.total(yes and processes.rank == 0))


def validations_for(seconds: float, validation: float) -> int:
    """How often to validate in so many seconds, of which one validation takes some."""
    if not validation:
        return VALIDATIONS
    return max(FEWEST_VALIDATIONS, min(VALIDATIONS, int(VALIDATING * seconds / validation)))


def most_updates(plan: Plan, epoch: float | int) -> float:
    """What data of this size may have, of which an epoch has so many: more would only overfit."""
    return math.inf if math.isinf(plan.most_epochs) else float(max(1, math.ceil(plan.most_epochs * epoch)))


def steps_for(plan: Plan, seconds: float, timing: Timing) -> tuple[int, str]:
    """How many updates to make in the seconds that are left of the budget, and a sentence that says why."""
    rate, epoch = timing.update, timing.epoch
    afford, validating = _afforded(seconds * (1 - RESERVED), seconds, timing, plan.validates_every)
    steps = int(min(max(1, afford), most_updates(plan, epoch)))
    said = f"{updates_in_words(steps)}, {steps / epoch:.1f} epochs"
    if afford < 1:
        return 1, (
            f"1 update: the minutes are used up before training, as an update takes {1000 * rate:.1f} ms and a "
            f"validation {timing.validation:.1f} s here; give more than --minutes {plan.minutes:g}"
        )
    took = f"{1000 * rate:.1f} ms per update"
    took += f", {validating:.0f} s of validation" if timing.validation else ""
    if steps < afford:
        others = "" if plan.config.train.start_from else ", or start from a trained run (--from)"
        more = ": there will be twice as many if the validation loss has not risen half-way"
        epochs = f"{plan.most_epochs:g} epochs of data of this size {'often ' * plan.more_epochs}overfit"
        epochs += more * plan.more_epochs
        return steps, (
            f"{said}, about {steps * rate:.0f} s: {afford:,} would fit into the remaining {seconds:.0f} s ({took}), "
            f"but more than {epochs}{_few(steps, f'more data{others}')}"
        )
    few = _few(steps, f"more than --minutes {plan.minutes:g}")
    return steps, f"{said}: as many as fit into the remaining {seconds:.0f} s ({took}){few}{_far_longer(plan)}"


def _few(steps: int, advice: str) -> str:
    """What is said where so few updates are made, with what to give."""
    return f"; so few teach a model little: give {advice}" if steps < FEW_UPDATES else ""


def _afforded(available: float, seconds: float, timing: Timing, every: int | None) -> tuple[int, float]:
    """How many updates fit into the seconds that are available of these, and what is left for validations."""
    if every is None:
        validating = validations_for(seconds, timing.validation) * timing.validation
        return max(0, int((available - validating) / timing.update)), validating
    steps = max(0, int((available - timing.validation) / (timing.update + timing.validation / every)))
    return steps, math.ceil(steps / every) * timing.validation


def _far_longer(plan: Plan) -> str:
    """What is said where a budget is far beyond those that the model's size was measured with."""
    planned = any(one.name == "model.width" and one.name not in plan.asked for one in plan.decisions)
    if not planned or plan.minutes is None or plan.minutes <= FAR_LONGER * plan.machine.usual_minutes:
        return ""
    width, usual = plan.config.model["width"], plan.machine.usual_minutes
    return (
        f"; recipes were measured with about {usual:g} minutes: in so many more a larger model may learn more, as with "
        f"--set model.width={2 * width}"
    )


def in_updates(plan: Plan, config: RunConfig, steps: int, validations: int = VALIDATIONS) -> RunConfig:
    """The configuration with so many updates; what is counted in updates follows, where nobody set it."""
    every = max(1, math.ceil(steps / validations))
    often = max(1, min(50, steps // RECORDS))
    follow = {"validate_every": every, "save_every": max(every, math.ceil(steps / 3)), "log_every": often}
    free = {name: value for name, value in follow.items() if f"train.{name}" not in plan.asked}
    return replace(config, train=replace(config.train, steps=steps, **free))


@dataclass(slots=True)
class TimeBudget:
    """The seconds that a run may take in all, and what its updates have taken in its course."""

    seconds: float
    began: float
    """When the run began, by `time.monotonic`."""
    most: float | int = math.inf
    """Updates that data of its size may have, `more` of them as long as the validation loss has not risen, and whether
    they have just become more."""
    more: bool = False
    doubled: bool = False
    last: float = math.inf
    """The validation loss, and the lowest so far."""
    lowest: float = math.inf
    validation: float = 0.0
    """Seconds of one, and whether that is what one took in the course of the run: when it was timed, the model had
    learnt nothing, and wrote outputs as long as they may be."""
    validated: bool = False
    every: int | None = None
    """Updates between validations, where that was given: how many there are then follows from the updates."""
    saving: float = 0.0
    """Seconds of the last checkpoint that was waited for, as one is where the number of updates changes."""
    update: float = 0.0
    """What an update took, of late more than long ago."""
    paused: float = 0.0
    """Seconds since the last look in which something else was done than training."""
    seen: int | None = None
    at: float = 0.0

    def left(self) -> float:
        return self.began + self.seconds - time.monotonic()

    def saw(self, seconds: float, loss: float) -> None:
        """Note a validation of the run, which took so many seconds."""
        self.validation, self.validated = seconds, True
        self.last, self.lowest = loss, min(self.lowest, loss)

    def due(self, number: int, steps: int) -> bool:
        """Whether it is time to look, after this update of so many."""
        return self.seen is None or number - self.seen >= max(1, steps // CHECKS)

    def steps(self, number: int, options: TrainConfig) -> int:
        """How many updates there are to be in all, by what those so far took: as many as planned, unless the run would
        end too late or too early."""
        now, seen = time.monotonic(), self.seen
        spent, self.paused = now - self.at - self.paused, 0.0
        self.at, self.seen, self.doubled = now, number, False
        if seen is None:
            return options.steps
        took = spent / (number - seen)
        self.update = took if not self.update else 0.75 * self.update + 0.25 * took
        left, each = self.left() - max(RESERVED * self.seconds, self.saving), self.update
        if self.every is None:
            left -= self._validating(number, options)
        else:
            left, each = left - self.validation, each + self.validation / self.every
        done = number / options.steps
        if self.more and options.steps >= self.most and HALF_WAY <= done < SETTLED and self.last <= RISEN * self.lowest:
            self.most, self.doubled = 2 * self.most, True
        steps = int(min(self.most, number + max(1, int(left / each))))
        difference = (steps - options.steps) * self.update / self.seconds
        change = SAVINGS * self.saving / self.seconds
        late = difference < -max(LATE * (3 - 2 * done), change)
        early = difference > max(EARLY, change) and done < SETTLED
        return steps if late or early or (self.doubled and steps > options.steps) else options.steps

    def _validating(self, number: int, options: TrainConfig) -> float:
        """The seconds of the validations to come: of as many as are paid for, for there will be no more."""
        total = self.validations(options)
        if not self.validated:
            total = min(total, validations_for(self.seconds, self.validation))
        return math.ceil(total * (1 - number / options.steps)) * self.validation

    def validations(self, options: TrainConfig) -> int:
        """How many validations there are to be in all: as many as planned, unless the first has shown that far more or
        fewer are paid for."""
        planned = max(1, round(options.steps / options.validate_every))
        if self.every is not None:
            return planned
        paid = validations_for(self.seconds, self.validation) if self.validated else planned
        return planned if planned < OTHERWISE * paid and paid < OTHERWISE * planned else paid


@dataclass(slots=True)
class Minutes:
    """The minutes that a planned run may take: how many updates they pay for, before it begins and in its course.

    A process other than the first has no plan: it hears from that one.
    """

    plan: Plan | None
    budget: TimeBudget
    timed: float = 0.0
    """What an update took before the run began."""
    updates: str = ""
    """Why there are so many updates, with what was decided in the course of the run."""

    @classmethod
    def of(cls, plan: Plan, minutes: float | int, timing: Timing, began: float) -> "Minutes":
        """Those of a run that `began` at that time of `time.monotonic`, after the data was looked at."""
        most = most_updates(plan, timing.epoch)
        budget = TimeBudget(
            60.0 * minutes,
            began - plan.seconds,
            most,
            more=plan.more_epochs,
            validation=timing.validation,
            every=plan.validates_every,
            update=timing.update,
        )
        return cls(plan, budget, timing.update)

    def first(self, config: RunConfig, timing: Timing) -> tuple[RunConfig, str]:
        """The configuration with as many updates as the rest of the minutes pays for, and why so many.

        As many validations as there may be are begun with: the first, early on, shows how many are paid for.
        """
        assert self.plan is not None
        left = max(0.0, self.budget.left())
        steps, why = steps_for(self.plan, left, timing)
        long = timing.validation > VALIDATING * left
        self.updates = why
        return in_updates(self.plan, config, steps, FEWEST_VALIDATIONS if long else VALIDATIONS), why

    def other(self, number: int, config: RunConfig) -> RunConfig | None:
        """After this update, the configuration where there are to be fewer or more of them, or of validations, than it
        says."""
        if self.plan is None:
            self.budget.seen = number
            return None
        options = config.train
        steps, validations = self.budget.steps(number, options), self.budget.validations(options)
        planned = max(1, round(options.steps / options.validate_every))
        if steps == options.steps and validations == planned:
            return None
        after = in_updates(self.plan, config, steps, validations)
        return None if after == config else after

    def note(self, number: int, before: TrainConfig, after: TrainConfig) -> str:
        """What to say of another number of updates or validations, which the plan says from then on too."""
        said = []
        if after.steps != before.steps:
            said.append(
                f"{self._why(fewer=after.steps < before.steps)}: {updates_in_words(after.steps)} instead of "
                f"{before.steps:,}, to end within {self.budget.seconds:.0f} s"
            )
        often = [round(one.steps / one.validate_every) for one in (before, after)]
        if not said or (self.budget.every is None and often[0] != often[1]):
            every = f"from here on there is one every {after.validate_every:,} updates"
            said.append(f"a validation takes {self.budget.validation:.1f} s: {every}")
        line = "; ".join(said)
        self.updates += f"\n\nAt update {number:,}: {line}."
        return line

    def _why(self, *, fewer: bool) -> str:
        """Why there are to be fewer or more updates."""
        if self.budget.doubled and not fewer:
            return "the validation loss has not risen, so the data may be read twice as often"
        took, times = f"{1000 * self.budget.update:.1f} ms", self.budget.update / self.timed
        if times > 1 + LATE if fewer else times < 1 - LATE:
            return f"updates are {'slower' if fewer else 'faster'} than timed ({took})"
        saving = f", a checkpoint {self.budget.saving:.1f} s" * (self.budget.saving > 0)
        return f"an update takes {took}{saving} and a validation {self.budget.validation:.1f} s"
