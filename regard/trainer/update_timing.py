"""How fast a training goes: tokens per second, what an update takes, and how many updates minutes pay for."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from regard.nn.batch import padding
from regard.tasks.config import RunConfig
from regard.tasks.planning import (
    FEWEST_VALIDATIONS,
    LEAST_VALIDATIONS,
    VALIDATING,
    VALIDATIONS,
    Plan,
    TimeBudget,
    Timing,
    in_updates,
    most_updates,
    steps_for,
    updates_in_words,
)
from regard.training.config import TrainConfig
from regard.training.loop import Step
from regard.training.processes import Processes

SAMPLED = 8
"""How many validation batches are timed at the least, and how many the loss of a validation is of at the least."""

LEAST_UPDATES, LEAST_SHARE, MOST_SECONDS, MOST_TIMES = 3, 0.015, 7.5, 4
"""Updates are timed to turn minutes into updates: so many at the least, for this share of the minutes and at the most
so long, until two stretches on end took the same within `SAME`, as the first updates load and compile what later ones
have; or so many times as long."""
SAME = 0.15


class Throughput:
    """Tokens per second of training alone, validation and saving left out; and what of it was waiting for data, and
    what of the batches is padding."""

    def __init__(self) -> None:
        self.tokens, self.waited = 0, 0.0
        self._hidden = self._places = 0
        self._since, self._paused, self._trained = time.monotonic(), 0.0, 0.0

    def add(self, tokens: int, batches: Sequence[Any]) -> None:
        """Note an update of so many tokens in all, of which these batches are this process's."""
        self.tokens += tokens
        for batch in batches:
            hidden, places = padding(batch)
            self._hidden, self._places = self._hidden + hidden, self._places + places

    def pause(self, seconds: float) -> None:
        """Leave so many seconds out."""
        self._paused += seconds

    def read(self) -> dict[str, float]:
        """The speed since the last lap, and the seconds trained in all."""
        seconds = self._seconds(time.monotonic())
        return {"tokens_per_second": round(self.tokens / seconds, 1), "seconds": round(self._trained + seconds, 2)}

    def lap(self) -> dict[str, float]:
        """The same with the shares of waiting and padding, and a new lap begins."""
        now = time.monotonic()
        seconds, values = self._seconds(now), self.read()
        values["waiting"] = round(min(1.0, self.waited / seconds), 3)
        if self._hidden:
            values["padding"] = round(self._hidden / self._places, 3)
        self._trained += seconds
        self._since, self._paused, self.tokens, self.waited = now, 0.0, 0, 0.0
        self._hidden = self._places = 0
        return values

    def _seconds(self, now: float) -> float:
        return max(1e-9, now - self._since - self._paused)


def seconds_to_time(minutes: float | int) -> float:
    """For how long updates are timed where a run may take so many minutes."""
    return min(MOST_SECONDS, LEAST_SHARE * 60 * minutes)


def seconds_to_validate(minutes: float | int) -> float:
    """What the loss of one validation may take where a run may take so many minutes."""
    return VALIDATING / LEAST_VALIDATIONS * 60 * minutes


def even_sample(batches: Iterable[Any]) -> tuple[list[Any], int]:
    """Some of the batches, evenly spread, and how many there are; all where they are few."""
    kept, every, count = list[Any](), 1, 0
    for batch in batches:
        if count % every == 0:
            kept.append(batch)
        if len(kept) > 2 * SAMPLED:
            kept, every = kept[::2], 2 * every
        count += 1
    return kept, count


def seconds_per_update(steps: Iterator[Step], seconds: float, processes: Processes) -> float:
    """What an update takes, once updates have come to take the same; timed for some times as many seconds."""
    update, began = _stretch(steps, seconds, processes), time.perf_counter()
    while True:
        before, update = update, _stretch(steps, seconds, processes)
        late = time.perf_counter() - began > MOST_TIMES * seconds
        if _first_says(processes, late or abs(update / before - 1) < SAME):
            return update


def _stretch(steps: Iterator[Step], seconds: float, processes: Processes) -> float:
    """What an update takes, of those of so many seconds."""
    began, made = time.perf_counter(), 0
    while True:
        step, made = next(steps), made + 1
        if _first_says(processes, made >= LEAST_UPDATES and time.perf_counter() - began > seconds):
            float(step.loss)  # a GPU has done it only when someone has read it
            return (time.perf_counter() - began) / made


def _first_says(processes: Processes, yes: bool) -> bool:
    """What the first process decides by its clock, so that all do the same."""
    return any(processes.total(yes and processes.rank == 0))


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
        left = max(1.0, self.budget.left())
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
        took = f"{1000 * self.budget.update:.1f} ms"
        if (self.budget.update > self.timed) == fewer:
            return f"updates are {'slower' if fewer else 'faster'} than timed ({took})"
        return f"an update takes {took} and a validation {self.budget.validation:.1f} s"
