"""Labelled rows in memory, and batches of like lengths of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int

from regard.data.batches import epoch_order, evaluation_order
from regard.data.loader import padded
from regard.data.store import Rows
from regard.nn.batch import LabelledTexts, Texts
from regard.nn.losses.cross_entropy import IGNORE
from regard.text.framing import Framed


@dataclass(frozen=True)
class LabelledRows:
    """Rows and their labels: a class, a pair of places, or as many tags as the row has tokens."""

    ids: Rows
    segments: Rows
    labels: list[Int[np.ndarray, " _"]]
    segmented: bool

    @classmethod
    def of(
        cls, rows: Sequence[Framed], labels: Sequence[Sequence[int]], pad: int, *, segmented: bool
    ) -> "LabelledRows":
        ids = Rows.of([row.ids for row in rows], pad)
        segments = Rows.of([row.segments for row in rows])
        return cls(ids, segments, [np.array(one, dtype=np.int64) for one in labels], segmented)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, chosen: np.ndarray) -> LabelledTexts:
        tokens = padded(self.ids, chosen)
        segments = padded(self.segments, chosen).ids if self.segmented else None
        labels = [self.labels[index] for index in chosen.tolist()]
        longest = max(map(len, labels))
        table = np.full((len(labels), longest), IGNORE, dtype=np.int64)
        for index, row in enumerate(labels):
            table[index, : len(row)] = row
        wide = torch.from_numpy(table)
        return LabelledTexts(
            Texts(tokens, segments), wide.squeeze(1) if longest == 1 else wide, int((table != IGNORE).sum())
        )

    def order(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        nothing = np.zeros_like(self.ids.lengths)
        return epoch_order(self.ids.lengths, nothing, budget=budget, seed=seed, epoch=epoch)

    def evaluation(self, budget: int) -> Iterator[LabelledTexts]:
        """Every row once, shortest first."""
        nothing = np.zeros_like(self.ids.lengths)
        for chosen in evaluation_order(self.ids.lengths, nothing, budget=max(budget, int(self.ids.lengths.max()))):
            yield self.batch(chosen)


class LabelledLayout:
    """Batches of at most `budget` tokens, padding included."""

    def __init__(self, rows: LabelledRows, budget: int) -> None:
        self.rows, self.budget = rows, budget

    def order(self, seed: int, epoch: int) -> list[np.ndarray]:
        return self.rows.order(self.budget, seed, epoch)

    def batch(self, rows: np.ndarray) -> LabelledTexts:
        return self.rows.batch(rows)
