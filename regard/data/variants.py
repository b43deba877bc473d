"""A corpus tokenised in several ways: each epoch reads one of them."""

from collections.abc import Sequence

import numpy as np

from regard.data.loader import Layout, Padding
from regard.data.packing import Packing
from regard.data.store import PairStore
from regard.nn.batch import PackedPairs, Pairs


class Variants:
    """A layout over stores of the same pairs: epoch e of seed s reads store s + e, counted round.

    All stay mapped files, so memory is flat; and as the choice is a function of the two numbers, order and resuming are
    as exact as with one store. Packed batches have one shape in all variants.
    """

    def __init__(self, stores: Sequence[PairStore], budget: int, *, pack: bool) -> None:
        self.layouts: list[Layout]
        if pack:
            packings = [Packing(store, budget) for store in stores]
            widths = tuple(int(width) for width in np.max([packing.widths for packing in packings], 0))
            for packing in packings:
                packing.widths, packing.rows = widths, max(1, budget // sum(widths))
            self.layouts = [*packings]
        else:
            self.layouts = [Padding(store, budget) for store in stores]
        # Pairs are numbered through all stores, so that a batch's rows say which store they are of.
        self.starts: list[int] = np.cumsum([0, *(len(store) for store in stores)]).tolist()

    def order(self, seed: int, epoch: int) -> list[np.ndarray]:
        variant = (seed + epoch) % len(self.layouts)
        return [self._shifted(rows, self.starts[variant]) for rows in self.layouts[variant].order(seed, epoch)]

    def batch(self, rows: np.ndarray, /) -> Pairs | PackedPairs:
        variant = int(np.searchsorted(self.starts, rows.flat[0], "right")) - 1
        return self.layouts[variant].batch(self._shifted(rows, -self.starts[variant]))

    def _shifted(self, rows: np.ndarray, by: int) -> np.ndarray:
        """Other numbers for the pairs; packed ones have theirs in the first column, the row to go to in the second."""
        return rows + by if rows.ndim == 1 else rows + np.array([by, 0])
