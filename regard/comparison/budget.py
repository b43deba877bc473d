"""What every run of a comparison may spend: updates, minutes or floating-point operations; and equal parameters."""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import nn

from regard.data import Position
from regard.errors import ConfigError
from regard.nn.flops import operations
from regard.tasks.config import RunConfig
from regard.tasks.run import build_model, choose_device, choose_precision, packs
from regard.tasks.spec import Prepared
from regard.training.loop import train_step
from regard.training.optim import make_optimizer

TIMED_UPDATES, WARMUP_UPDATES = 24, 4
"""Updates that are timed to turn minutes into updates, and how many come before, untimed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """At most one of them; none leaves every configuration its own `train.steps`."""

    updates: int | None = None
    minutes: float | int | None = None
    flops: float | int | None = None

    def __post_init__(self) -> None:
        given = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        if len(given) > 1:
            raise ConfigError(f"one budget, not {len(given)}: give --updates, --minutes or --flops")
        for name in given:
            if not getattr(self, name) > 0:
                raise ConfigError(f"a budget of {getattr(self, name)} {name} must be above 0")

    def __str__(self) -> str:
        if self.updates is not None:
            return f"{self.updates:,} updates each"
        if self.minutes is not None:
            return f"{self.minutes:g} minutes of training each"
        return "each its own number of updates" if self.flops is None else f"{self.flops:.3g} FLOPs each"

    def steps(self, config: RunConfig, prepared: Prepared) -> int:
        """How many updates of this run the budget pays for."""
        if self.updates is not None:
            return self.updates
        if self.minutes is not None:
            return max(1, int(60 * self.minutes / seconds_per_update(config, prepared)))
        return (
            config.train.steps if self.flops is None else max(1, int(self.flops / flops_per_update(config, prepared)))
        )


def with_steps(config: RunConfig, steps: int) -> RunConfig:
    """The configuration for so many updates, everything that is counted in updates scaled along."""
    options = config.train
    share = steps / options.steps

    def scaled(count: int) -> int:
        return max(1, min(steps, round(count * share)))

    return replace(
        config,
        train=replace(
            options,
            steps=steps,
            epochs=0.0,
            warmup=scaled(options.warmup) if options.warmup else 0,
            dropout_until=scaled(options.dropout_until) if options.dropout_until else 0,
            validate_every=scaled(options.validate_every),
            save_every=scaled(options.save_every),
            log_every=min(options.log_every, max(1, steps // 20)),
        ),
    )


def with_parameters(config: RunConfig, parameters: int) -> RunConfig:
    """The configuration with the `model.width` whose model comes nearest to so many parameters."""
    if "width" not in {field.name for field in fields(config.architecture()[0])}:
        raise ConfigError(f"a {config.model['name']} model has no width to choose")
    heads = config.model.get("heads", 1)
    unit = max(2, 2 * heads if isinstance(heads, int) else 2)

    def of_width(units: int) -> RunConfig:
        return replace(config, model={**config.model, "width": unit * units})

    low, high = 1, 2
    while count_parameters(of_width(high)) < parameters:
        low, high = high, 2 * high
        if unit * high > 1 << 16:
            raise ConfigError(f"no width gives a {config.model['name']} model {parameters:,} parameters")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count_parameters(of_width(middle)) < parameters else (low, middle)
    return min((of_width(low), of_width(high)), key=lambda one: abs(count_parameters(one) - parameters))


def count_parameters(config: RunConfig) -> int:
    """Of the configured model, without making its weights."""
    with torch.device("meta"):
        _, kind = config.architecture()
        model = kind(config.model_config())
    return sum(parameter.numel() for parameter in model.parameters())


def flops_per_update(config: RunConfig, prepared: Prepared, tried: int = 6) -> float:
    """Floating-point operations of an update, forward, backward and head, counted as they run: products alone."""
    model = build_model(config)
    with operations(model) as counter:
        for _ in _updates(config, prepared, tried, model):
            pass
    return counter.get_total_flops() / tried


def seconds_per_update(config: RunConfig, prepared: Prepared) -> float:
    """Seconds of an update here, timed on fresh weights and the run's own batches."""
    marks = []
    for number, _ in enumerate(_updates(config, prepared, WARMUP_UPDATES + TIMED_UPDATES, build_model(config)), 1):
        if number >= WARMUP_UPDATES:
            marks.append(time.perf_counter())
    return (marks[-1] - marks[0]) / TIMED_UPDATES


def _updates(config: RunConfig, prepared: Prepared, count: int, model: nn.Module) -> Iterator[Any]:
    """The first updates of the run, on that model."""
    options = config.train
    if options.threads:
        torch.set_num_threads(options.threads)
    device = choose_device(options.device)
    model = model.to(device)
    optimizer = make_optimizer(model, options)
    precision = choose_precision(options.precision, device)
    model.train()
    with closing(prepared.stream(Position(0, 0), pin=False, pack=packs(type(model), options.pack, device))) as stream:
        for _ in range(count):
            parts = [next(stream) for _ in range(options.accumulate)]
            step = train_step(
                model, prepared.objective, parts, optimizer, clip=options.clip, device=device, precision=precision
            )
            float(step.loss)  # a GPU has done it only when someone has read it
            yield step
