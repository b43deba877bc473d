"""Schedules that are functions of the step alone: the learning rate, and when dropout ends."""

import math
from typing import Any, Literal

from torch import nn

from regard.errors import ConfigError

ScheduleKind = Literal["paper", "cosine", "linear", "constant", "inverse-sqrt", "trapezoid"]


def learning_rate(
    step: int,
    *,
    kind: ScheduleKind,
    peak: float,
    warmup: int,
    total: int,
    width: int | None = None,
    floor: float = 0.0,
    decay: float = 0.2,
) -> float:
    """The learning rate of update `step`, counted from 1: linear warm-up to `peak` over `warmup` steps, then by `kind`.

    `paper` is peak * width^-0.5 * min(step^-0.5, step * warmup^-1.5), where the paper's `peak` is 1. `cosine` and
    `linear` come down to `floor` * peak at `total`; `inverse-sqrt` falls as 1 / sqrt(step); `constant` stays;
    `trapezoid` stays too, until the last `decay` of all steps, in which it comes down as `linear` does.
    """
    if kind == "paper":
        if width is None:
            raise ConfigError("the paper's schedule needs the model's width")
        return peak * width**-0.5 * min(step**-0.5, step * max(1, warmup) ** -1.5)
    if step <= warmup:
        return peak * step / warmup
    if kind == "constant":
        return peak
    if kind == "inverse-sqrt":
        return peak * math.sqrt(max(1, warmup) / step)
    if kind == "trapezoid":
        warmup = max(warmup, round(total * (1 - decay)))
    progress = min(1.0, max(0, step - warmup) / max(1, total - warmup))
    left = 0.5 * (1 + math.cos(math.pi * progress)) if kind == "cosine" else 1 - progress
    return peak * (floor + (1 - floor) * left)


class DropoutUntil:
    """Turns off all dropout of a model after update `last`; it depends on the update alone, so resuming is exact."""

    def __init__(self, model: nn.Module, last: int) -> None:
        self.last = last
        self._layers = [(part, part.p) for part in model.modules() if isinstance(part, nn.Dropout)]
        # Attention has no layer for it, but a rate that its kernel is given.
        rates = [(part, getattr(part, "dropout", None)) for part in model.modules()]
        self._rates: list[tuple[Any, float]] = [(part, rate) for part, rate in rates if isinstance(rate, float)]
        self._on = True

    def __call__(self, step: int) -> bool:
        """Set it as update `step` wants it; whether that changed anything."""
        on = step <= self.last
        if on == self._on:
            return False
        self._on = on
        for part, rate in self._layers:
            part.p = rate if on else 0.0
        for part, rate in self._rates:
            part.dropout = rate if on else 0.0
        return True
