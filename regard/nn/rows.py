"""Batches of fewer or more rows, whatever they are made of."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.nn.batch import Packed, PackedPairs
from regard.nn.losses.cross_entropy import IGNORE


def doubled(batch: Any) -> Any:
    """The batch with all its rows a second time after them. What it says of itself in numbers stays as it was."""
    return _each(batch, lambda rows: torch.cat((rows, rows)))


def halves(batch: Any) -> list[Any]:
    """The first half of the rows and the second, each with its own counts; alone what is one row, or has no labels."""
    rows = batch.labels.shape[0] if hasattr(batch, "labels") else 1
    if rows < 2:
        return [batch]
    middle = (rows + 1) // 2
    return [
        _counted(_each(batch, lambda values, part=part: values[part])) for part in (slice(middle), slice(middle, None))
    ]


def _counted(batch: Any) -> Any:
    count = int((batch.labels != IGNORE).sum())
    if isinstance(batch, PackedPairs):
        return replace(batch, count=count, tokens=_real(batch.source) + _real(batch.inputs))
    return replace(batch, count=count)


def _real(side: Packed) -> int:
    return int((side.numbers > 0).sum())


def _each(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    def changed(value: Any) -> Any:
        if isinstance(value, Tensor):
            return change(value)
        return _each(value, change) if is_dataclass(value) else value

    return replace(batch, **{field.name: changed(getattr(batch, field.name)) for field in fields(batch)})
