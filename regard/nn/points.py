"""What a pointing model is given: rows of items that are numbers, not tokens, and which of them to point at."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.batch import moved
from regard.nn.losses.cross_entropy import IGNORE

END = 0
"""The choice that ends an output. Position p of the input is choice p + 1."""


@dataclass(frozen=True, slots=True)
class Points:
    """Rows of items of X numbers each, row `b` being `lengths[b]` long and padded on the right with zeros."""

    values: Float[Tensor, "B S X"]
    lengths: Int[Tensor, " B"]
    padded: bool

    @classmethod
    def of(cls, rows: Sequence[Float[np.ndarray, "_ X"]]) -> "Points":
        """The rows side by side, padded to the longest."""
        lengths = [len(row) for row in rows]
        values = torch.zeros(len(rows), max(lengths), rows[0].shape[1])
        for index, row in enumerate(rows):
            values[index, : len(row)] = torch.from_numpy(np.asarray(row, dtype=np.float32))
        return cls(values, torch.tensor(lengths), padded=min(lengths) < max(lengths))

    def to(self, device: torch.device | str) -> "Points":
        return moved(self, device)


@dataclass(frozen=True, slots=True)
class Pointings:
    """Rows of items and, when known, the choices to make: each row's positions, then END; past it, IGNORE."""

    source: Points
    target: Int[Tensor, "B T"] | None = None
    count: int = 0

    @classmethod
    def of(
        cls, rows: Sequence[Float[np.ndarray, "_ X"]], orders: Sequence[Int[np.ndarray, " _"]] | None = None
    ) -> "Pointings":
        """The rows and the positions to point at, counted from 0."""
        source = Points.of(rows)
        if orders is None:
            return cls(source)
        target = torch.full((len(orders), max(map(len, orders)) + 1), IGNORE)
        for index, order in enumerate(orders):
            target[index, : len(order)] = torch.from_numpy(np.asarray(order, dtype=np.int64)) + 1
            target[index, len(order)] = END
        return cls(source, target, sum(len(order) + 1 for order in orders))

    @property
    def inputs(self) -> Int[Tensor, "B T"]:
        """What the decoder reads: the choice before each; END stands for the start."""
        assert self.target is not None
        before = torch.full_like(self.target, END)
        before[:, 1:] = self.target[:, :-1].clamp_min(END)
        return before

    @property
    def labels(self) -> Int[Tensor, "B T"]:
        assert self.target is not None
        return self.target

    @property
    def tokens(self) -> int:
        """Items read and choices made. Waits for the device unless the batch is still on the host."""
        return int(self.source.lengths.sum()) + self.count

    def to(self, device: torch.device | str) -> "Pointings":
        return moved(self, device)
