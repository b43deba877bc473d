"""Batches with hardly any padding: several sequences to a row, in rows whose number and width never change."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from regard.data.batches import PaddedLayout, epoch_groups
from regard.data.mixing import CorpusMixture, random_of, shuffled
from regard.data.pair_store import PairStore, Rows
from regard.data.sharing import bounds
from regard.nn.batch import Packed, PackedPairs, Pairs
from regard.nn.losses.cross_entropy import IGNORE

ROUND = 8  # rows of a multiple of this width are aligned as GPU kernels like them
NARROWEST = 128  # narrower rows leave an attention kernel's tiles half empty
FILL = 0.98  # of a batch's room is offered to be filled; offering more leaves more sequences over


class PackedLayout:
    """Pairs in random order, fitted into rows: a pair lies whole in one row of the source and the same of the target.

    The budget of source and target tokens is shared between the sides as the corpus shares its tokens. What no sequence
    fills is padding, which is not predicted.
    """

    def __init__(self, store: PairStore, budget: int, mixture: CorpusMixture | None = None) -> None:
        self.store, self.mixture = store, mixture
        self.sizes = np.stack((store.source.lengths, store.target.lengths - 1), 1)
        share = self.sizes.sum(0) / self.sizes.sum()
        narrowest = np.maximum(self.sizes.max(0), NARROWEST * share / share.max())
        # Widths in the ratio of the sides, so that rows of both fill up together.
        widest = max(narrowest / share)
        self.widths = tuple(_rounded(int(np.ceil(widest * part))) for part in share)
        self.rows = max(1, budget // sum(self.widths))

    def order(self, seed: int, epoch: int) -> list[np.ndarray]:
        """All batches of one epoch, as `groups` gives them."""
        return list(self.groups(seed, epoch))

    def groups(self, seed: int, epoch: int) -> Iterator[np.ndarray]:
        """For each batch of one epoch the pairs in it and the row of each; every pair once, or as the mixture has it.

        A function of the seed and the epoch: pairs are dealt in random order, the longest of a batch placed first, and
        what finds no room goes to the next batch. Placing takes some microseconds per pair, so batches are worked out
        as they are asked for: with millions of pairs the first need not wait for the last.
        """
        random = random_of(seed, epoch)
        if self.mixture is None:
            dealt = shuffled(len(self.store), random)
        else:
            rows = self.mixture.rows(seed, epoch)
            dealt = rows[shuffled(len(rows), random)]
        room = FILL * self.rows * np.array(self.widths)
        left, next_pair = np.empty(0, dtype=np.int64), 0
        # To search a column of a table, or integers for a fraction, numpy would first copy all of it.
        ends = [np.cumsum(self.sizes[dealt, side], dtype=np.int64) for side in (0, 1)]
        while next_pair < len(dealt) or len(left):
            used = [side[next_pair - 1] if next_pair else 0 for side in ends]
            free = room - self.sizes[left].sum(0)
            most = [math.floor(used[side] + free[side]) for side in (0, 1)]
            stop = min(int(np.searchsorted(ends[side], most[side], "right")) for side in (0, 1))
            # One at least, where none is left over: a row is as wide as the longest pair, but what is offered is less.
            stop = max(next_pair + (len(left) == 0), stop)
            offered = np.concatenate((left, dealt[next_pair:stop]))
            placed = self._place(offered)
            yield np.stack((offered[placed >= 0], placed[placed >= 0]), 1)
            left, next_pair = offered[placed < 0], stop

    def fit(self, pairs: np.ndarray) -> np.ndarray:
        """Just these pairs as a group for `batch`, in as many rows as they need."""
        rows = self.rows
        self.rows = len(pairs)
        placed = self._place(pairs)
        self.rows = rows
        return np.stack((pairs, placed), 1)

    def _place(self, pairs: np.ndarray) -> np.ndarray:
        """The row of each pair, or -1: the longest first, each in the first row with room for both its sides."""
        # A side's free places by themselves, since arrays of one dimension are compared in half the time.
        source, target = (np.full(self.rows, width) for width in self.widths)
        found = np.full(len(pairs), -1)
        sizes = self.sizes[pairs]
        order = np.argsort(-(sizes / np.array(self.widths)).max(1), kind="stable")
        for index, (one, other) in zip(order.tolist(), sizes[order].tolist(), strict=True):
            fits = (source >= one) & (target >= other)
            row = int(fits.argmax())
            if fits[row]:
                source[row] -= one
                target[row] -= other
                found[index] = row
        return found

    def share(self, group: np.ndarray, member: int, members: int) -> PackedPairs | None:
        first, last = bounds(self.rows, member, members)
        own = group[(group[:, 1] >= first) & (group[:, 1] < last)]
        return self._batch(own - np.array([0, first]), last - first) if first < last else None

    def batch(self, group: np.ndarray) -> PackedPairs:
        return self._batch(group, self.rows)

    def _batch(self, group: np.ndarray, count: int) -> PackedPairs:
        """So many rows, with the pairs of the group in theirs."""
        pairs, rows = group[np.argsort(group[:, 1], kind="stable")].T
        sizes = self.sizes[pairs]
        labels = np.full(count * self.widths[1], IGNORE, dtype=np.int64)
        target = _PackedSide(self.store.target, pairs, rows, sizes[:, 1], self.widths[1])
        labels[target.there] = self.store.target.tokens[target.here + 1]
        source = _PackedSide(self.store.source, pairs, rows, sizes[:, 0], self.widths[0])
        return PackedPairs(
            source=source.packed(count),
            inputs=target.packed(count),
            labels=torch.from_numpy(labels.reshape(count, -1)),
            count=int(sizes[:, 1].sum()),
            tokens=int(sizes.sum()),
        )


class _PackedSide:
    """Where the tokens of one side lie in the store (`here`) and where they go in the batch (`there`)."""

    def __init__(self, side: Rows, pairs: np.ndarray, rows: np.ndarray, lengths: np.ndarray, width: int) -> None:
        self.side, self.width = side, width
        ends = np.cumsum(lengths)
        starts = ends - lengths
        first = np.searchsorted(rows, rows)  # the first pair of the same row: pairs come in the order of their rows
        self.places = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
        self.here = np.repeat(side.offsets[pairs], lengths) + self.places
        self.there = np.repeat(rows * width + starts - starts[first], lengths) + self.places
        self.numbers = np.repeat(np.arange(len(rows)) - first + 1, lengths)

    def packed(self, rows: int) -> Packed:
        size = rows * self.width
        ids = np.full(size, self.side.pad, dtype=np.int64)
        places, numbers = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        ids[self.there], places[self.there], numbers[self.there] = (
            self.side.tokens[self.here],
            self.places,
            self.numbers,
        )
        return Packed(*(torch.from_numpy(one.reshape(rows, -1)) for one in (ids, places, numbers)))


class VariantLayout:
    """A layout over stores of the same pairs: epoch e of seed s reads store s + e, counted round.

    Large ones stay mapped files, so memory is flat; and as the choice is a function of the two numbers, order and
    resuming are as exact as with one store. Packed batches have one shape in all variants.
    """

    def __init__(
        self,
        stores: Sequence[PairStore],
        budget: int,
        *,
        pack: bool,
        mixtures: Sequence[CorpusMixture | None] | None = None,
    ) -> None:
        mixed = list(zip(stores, mixtures or [None] * len(stores), strict=True))
        self.layouts: list[PaddedLayout | PackedLayout]
        if pack:
            packings = [PackedLayout(store, budget, mixture) for store, mixture in mixed]
            widths = tuple(int(width) for width in np.max([packing.widths for packing in packings], 0))
            for packing in packings:
                packing.widths, packing.rows = widths, max(1, budget // sum(widths))
            self.layouts = [*packings]
        else:
            self.layouts = [PaddedLayout(store, budget, mixture) for store, mixture in mixed]
        # Pairs are numbered through all stores, so that a batch's rows say which store they are of.
        self.starts: list[int] = np.cumsum([0, *(len(store) for store in stores)]).tolist()

    def order(self, seed: int, epoch: int) -> list[np.ndarray]:
        return list(self.groups(seed, epoch))

    def groups(self, seed: int, epoch: int) -> Iterator[np.ndarray]:
        variant = (seed + epoch) % len(self.layouts)
        for rows in epoch_groups(self.layouts[variant], seed, epoch):
            yield self._shifted(rows, self.starts[variant])

    def batch(self, rows: np.ndarray, /) -> Pairs | PackedPairs:
        layout, own = self._own(rows)
        return layout.batch(own)

    def share(self, rows: np.ndarray, member: int, members: int) -> Pairs | PackedPairs | None:
        layout, own = self._own(rows)
        return layout.share(own, member, members)

    def _own(self, rows: np.ndarray) -> tuple[PaddedLayout | PackedLayout, np.ndarray]:
        """The layout of these rows, and their numbers in it."""
        variant = int(np.searchsorted(self.starts, rows.flat[0], "right")) - 1
        return self.layouts[variant], self._shifted(rows, -self.starts[variant])

    def _shifted(self, rows: np.ndarray, by: int) -> np.ndarray:
        """Other numbers for the pairs; packed ones have theirs in the first column, the row to go to in the second."""
        return rows + by if rows.ndim == 1 else rows + np.array([by, 0])


def _rounded(size: int) -> int:
    return -(-size // ROUND) * ROUND
