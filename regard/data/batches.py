"""Rows to batches filled to a token budget, in an order that is a function of seed and epoch, padded to tensors."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int

from regard.data.mixing import CorpusMixture, random_of, shuffled
from regard.data.pair_store import PairStore, Rows
from regard.data.sharing import bounds
from regard.errors import ConfigError
from regard.nn.batch import Pairs, Tokens

Lengths = Int[np.ndarray, " rows"]

BATCHES_PER_BUCKET = 2
JITTER = 1.5  # in tokens: how far apart targets may be and still change places, so that batches differ every epoch


@dataclass(frozen=True, slots=True)
class Position:
    """The next batch of an endless stream: batch `index` of epoch `epoch`, counted over all processes."""

    epoch: int = 0
    index: int = 0


@runtime_checkable
class Layout(Protocol):
    """A way to lay a corpus out in batches."""

    def order(self, seed: int, epoch: int) -> list[np.ndarray]:
        """The rows of each batch of one epoch: a function of these two alone."""
        ...

    def batch(self, rows: np.ndarray, /) -> Any:
        """These rows as tensors."""
        ...


def epoch_order(source: Lengths, target: Lengths, *, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
    """The rows of each batch of one epoch, every row once; the same on every machine, whatever came before.

    A batch holds at most `budget` source and target tokens, padding included. Rows of equal source length come
    together where the corpus has enough of them, so that most batches need no mask over the source.
    """
    check_budget(source, target, budget)
    random = random_of(seed, epoch)
    noise = random.random_raw(len(source)) * (JITTER / 2**64)
    groups = _cut(_by_length(source, target, noise, BATCHES_PER_BUCKET * budget), source, target, budget)
    return [groups[index] for index in shuffled(len(groups), random)]


def evaluation_order(source: Lengths, target: Lengths, *, budget: int) -> list[np.ndarray]:
    """The rows of each batch, shortest first, every row once."""
    check_budget(source, target, budget)
    return _cut(_by_length(source, target, np.zeros(len(source)), 0), source, target, budget)


@runtime_checkable
class LaysOutByAndBy(Protocol):
    """A layout that can say an epoch's batches one after the other, without working out all of them first."""

    def groups(self, seed: int, epoch: int) -> Iterator[np.ndarray]:
        """The same as `order`."""
        ...


def epoch_groups(layout: Layout, seed: int, epoch: int) -> Iterator[np.ndarray]:
    """The rows of each batch of one epoch, as soon as they are known."""
    return layout.groups(seed, epoch) if isinstance(layout, LaysOutByAndBy) else iter(layout.order(seed, epoch))


def check_budget(source: Lengths, target: Lengths, budget: int) -> None:
    """Refuse a budget that the longest pair alone would exceed."""
    if not len(source):
        raise ConfigError("no pairs to make batches of")
    longest = int((source + target).max())
    if budget < longest:
        raise ConfigError(f"budget={budget} tokens per batch is less than the longest pair, which has {longest}")


def _by_length(source: Lengths, target: Lengths, noise: np.ndarray, enough: int) -> np.ndarray:
    """The rows by bucket of source length, then by target; a bucket has `enough` tokens unless it is the last."""
    tokens = np.bincount(source, weights=source + target)
    # A length with rows for a few batches is a bucket by itself; rarer neighbours share one.
    buckets = np.zeros(len(tokens), dtype=np.int64)
    bucket, filled = 0, 0.0
    for length, share in enumerate(tokens.tolist()):
        buckets[length] = bucket
        filled += share
        if filled >= enough:
            bucket, filled = bucket + 1, 0.0
    bucket_of = buckets[source]
    # Targets rise through one bucket and fall through the next, so that a batch which crosses from one to the other
    # meets similar targets on both sides.
    return np.lexsort((np.where(bucket_of % 2, 1, -1) * (target + noise), bucket_of))


def _cut(rows: np.ndarray, source: Lengths, target: Lengths, budget: int) -> list[np.ndarray]:
    """Consecutive rows as batches, each as long as the budget allows."""
    groups = []
    start, window = 0, 64
    while start < len(rows):
        ahead = rows[start : start + window]
        widths = np.maximum.accumulate(source[ahead]) + np.maximum.accumulate(target[ahead]).astype(np.int64)
        size = int(np.searchsorted(widths * np.arange(1, len(ahead) + 1), budget, side="right"))
        if size == len(ahead) and start + window < len(rows):
            window *= 2
            continue
        groups.append(ahead[:size])
        start += size
    return groups


class PaddedLayout:
    """Batches of like lengths, padded; of a `mixture` where there are several corpora."""

    def __init__(self, store: PairStore, budget: int, mixture: CorpusMixture | None = None) -> None:
        self.store, self.budget, self.mixture = store, budget, mixture

    def order(self, seed: int, epoch: int) -> list[np.ndarray]:
        source, target = self.store.source.lengths, self.store.target.lengths
        if self.mixture is None:
            return epoch_order(source, target, budget=self.budget, seed=seed, epoch=epoch)
        rows = self.mixture.rows(seed, epoch)
        groups = epoch_order(source[rows], target[rows], budget=self.budget, seed=seed, epoch=epoch)
        return [rows[group] for group in groups]

    def batch(self, rows: np.ndarray) -> Pairs:
        return collate(self.store, rows)

    def share(self, rows: np.ndarray, member: int, members: int) -> Pairs | None:
        first, last = bounds(len(rows), member, members)
        return collate(self.store, rows[first:last]) if first < last else None


def collate(store: PairStore, rows: np.ndarray) -> Pairs:
    """These pairs side by side, padded to the longest of each side."""
    count = int(store.target.lengths[rows].sum()) - len(rows)
    return Pairs(padded(store.source, rows), padded(store.target, rows), count)


def evaluation_batches(store: PairStore, budget: int) -> Iterator[Pairs]:
    """Every pair once, shortest first."""
    for rows in evaluation_order(store.source.lengths, store.target.lengths, budget=budget):
        yield collate(store, rows)


def padded(rows: Rows, chosen: np.ndarray) -> Tokens:
    """These rows side by side, padded to the longest."""
    lengths = rows.lengths[chosen]
    longest = int(lengths.max())
    uneven = int(lengths.min()) < longest
    columns = np.arange(longest)
    places = rows.offsets[chosen][:, None] + columns
    if uneven:  # places beyond a row's end are another row's tokens, or beyond the last: read, then covered
        ids = rows.tokens[np.minimum(places, len(rows.tokens) - 1)].astype(np.int64)
        ids[columns >= lengths[:, None]] = rows.pad
    else:
        ids = rows.tokens[places].astype(np.int64)
    return Tokens(torch.from_numpy(ids), torch.from_numpy(lengths.astype(np.int64)), uneven)
