"""Batches without padding: sequences end to end, in rows whose length never changes."""

import numpy as np
import torch

from regard.data.store import PairStore, Rows
from regard.nn.batch import Packed, PackedPairs
from regard.nn.loss import IGNORE

ROUND = 64  # matrices whose sides are multiples of this suit a GPU's kernels


class Packing:
    """Pairs in random order, as many as fit `budget` source and target tokens.

    The budget is shared between the sides as the corpus shares its tokens. Each side's row is always full length: what
    no sequence fills is padding that sees only itself and is not predicted.
    """

    def __init__(self, store: PairStore, budget: int) -> None:
        self.store = store
        sources, inputs = store.source.lengths, store.target.lengths - 1
        self.longest = int(max(sources.max(), inputs.max()))
        share = sources.sum() / (sources.sum() + inputs.sum())
        self.room = tuple(_rounded(max(self.longest, int(budget * part))) for part in (share, 1 - share))
        # So many sequences that it is the tokens, not their number, that fill a batch, however short they are drawn.
        self.most = max(8, int(2 * min(self.room[0] / sources.mean(), self.room[1] / inputs.mean())))
        self.fillers = -(-max(self.room) // self.longest)

    def order(self, seed: int, epoch: int) -> list[np.ndarray]:
        """The rows of each batch of one epoch, every row once; a function of the seed and the epoch."""
        rows = np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(len(self.store))
        ends = [np.cumsum(lengths[rows]) for lengths in (self.store.source.lengths, self.store.target.lengths - 1)]
        groups, start = [], 0
        while start < len(rows):
            stop = start + self.most
            for end, room in zip(ends, self.room, strict=True):
                used = end[start - 1] if start else 0
                stop = min(stop, int(np.searchsorted(end, used + room, "right")))
            groups.append(rows[start:stop])
            start = stop
        return groups

    def batch(self, rows: np.ndarray) -> PackedPairs:
        source, target = self.store.source, self.store.target
        lengths = source.lengths[rows], target.lengths[rows] - 1
        used = [int(side.sum()) for side in lengths]
        labels = np.full((1, self.room[1]), IGNORE, dtype=np.int64)
        labels[0, : used[1]] = target.tokens[_places(target, rows, lengths[1])[0] + 1]
        return PackedPairs(
            source=self._packed(source, rows, lengths[0], self.room[0]),
            inputs=self._packed(target, rows, lengths[1], self.room[1]),
            labels=torch.from_numpy(labels),
            count=used[1],
            tokens=sum(used),
        )

    def _packed(self, side: Rows, rows: np.ndarray, lengths: np.ndarray, room: int) -> Packed:
        where, places = _places(side, rows, lengths)
        ids = np.full((1, room), side.pad, dtype=np.int64)
        ids[0, : len(where)] = side.tokens[where]
        column = np.empty((1, room), dtype=np.int64)
        column[0, : len(where)] = places
        column[0, len(where) :] = np.arange(room - len(where)) % self.longest
        bounds = np.full(self.most + self.fillers + 1, room, dtype=np.int32)
        bounds[0] = 0
        bounds[1 : len(rows) + 1] = np.cumsum(lengths)
        # Then the padding, in pieces no longer than a sequence may be; what bounds remain are empty sequences.
        fillers = len(where) + self.longest * np.arange(1, self.fillers + 1)
        bounds[len(rows) + 1 : len(rows) + 1 + self.fillers] = np.minimum(fillers, room)
        return Packed(torch.from_numpy(ids), torch.from_numpy(column), torch.from_numpy(bounds), self.longest)


def _places(side: Rows, rows: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the tokens of these rows lie in the store, end to end, and each one's place in its own row."""
    starts = np.cumsum(lengths) - lengths
    places = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
    return np.repeat(side.offsets[rows], lengths) + places, places


def _rounded(size: int) -> int:
    return -(-size // ROUND) * ROUND
