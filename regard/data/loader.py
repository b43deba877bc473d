"""Rows to tensors: an endless stream of batches that can be stopped and taken up at any position."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from regard.data.batches import Position, check_budget, epoch_order, evaluation_order
from regard.data.packing import Packing
from regard.data.prefetch import in_background
from regard.data.store import PairStore, Rows
from regard.errors import ConfigError
from regard.nn.batch import Pairs, Tokens, moved

Step = tuple[np.ndarray, Position]


def collate(store: PairStore, rows: np.ndarray) -> Pairs:
    """These pairs side by side, padded to the longest of each side."""
    count = int(store.target.lengths[rows].sum()) - len(rows)
    return Pairs(padded(store.source, rows), padded(store.target, rows), count)


def evaluation_batches(store: PairStore, budget: int) -> Iterator[Pairs]:
    """Every pair once, shortest first."""
    for rows in evaluation_order(store.source.lengths, store.target.lengths, budget=budget):
        yield collate(store, rows)


@runtime_checkable
class Layout(Protocol):
    """A way to lay a corpus out in batches."""

    def order(self, seed: int, epoch: int) -> list[np.ndarray]:
        """The rows of each batch of one epoch: a function of these two alone."""
        ...

    def batch(self, rows: np.ndarray, /) -> Any:
        """These rows as tensors."""
        ...


class Loader:
    """Batches without end, from `position` on, made ahead of time by a thread.

    A store of pairs is laid out here, in batches of at most `budget` tokens; anything else says its own `Layout`.

    `position` is where the next batch lies: a loader started there gives exactly the batches that this one would
    have given. Of the one stream that all processes share, process `rank` of `world` takes every `world`-th batch, and
    `position` moves by all of theirs: it is the same in every process. `ahead` batches wait ready; with 0 there is no
    thread. `pin` puts them in page-locked memory for a CUDA device. `pack` lays sequences end to end.
    """

    def __init__(
        self,
        store: PairStore | Layout,
        *,
        budget: int = 0,
        seed: int = 0,
        position: Position | None = None,
        rank: int = 0,
        world: int = 1,
        ahead: int = 8,
        pin: bool = False,
        pack: bool = False,
    ) -> None:
        if not 0 <= rank < world:
            raise ConfigError(f"rank={rank} must be at least 0 and less than world={world}")
        if seed < 0:
            raise ConfigError(f"seed={seed} must not be negative")
        layout: Layout
        if isinstance(store, PairStore):
            # Here, not in the thread, so that a budget that cannot be is refused at once.
            check_budget(store.source.lengths, store.target.lengths, budget)
            layout = Packing(store, budget) if pack else Padding(store, budget)
        else:
            layout = store
        self.position = position or Position()
        self._layout, self._seed = layout, seed
        self._batches = _batches(layout, _steps(layout, seed, self.position, rank, world), pin)
        self._stop: Callable[[], object] | None = None
        if ahead:
            self._batches, self._stop = in_background(self._batches, ahead, self)

    def __iter__(self) -> "Loader":
        return self

    def __next__(self) -> Any:
        batch, self.position = next(self._batches)
        return batch

    def batches(self, epoch: int = 0) -> int:
        """How many batches an epoch has, of all processes together."""
        return len(self._layout.order(self._seed, epoch))

    def close(self) -> None:
        """Stop the thread. The loader gives nothing more."""
        if self._stop is not None:
            self._stop()
        self._batches = iter(())

    def __enter__(self) -> "Loader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Padding:
    """Batches of like lengths, padded."""

    def __init__(self, store: PairStore, budget: int) -> None:
        self.store, self.budget = store, budget

    def order(self, seed: int, epoch: int) -> list[np.ndarray]:
        lengths = self.store.source.lengths, self.store.target.lengths
        return epoch_order(*lengths, budget=self.budget, seed=seed, epoch=epoch)

    def batch(self, rows: np.ndarray) -> Pairs:
        return collate(self.store, rows)


def _steps(layout: Layout, seed: int, start: Position, rank: int, world: int) -> Iterator[Step]:
    """The rows of each of this process's batches, and the position after every process has taken its own."""

    @lru_cache(maxsize=2)
    def order(epoch: int) -> list[np.ndarray]:
        return layout.order(seed, epoch)

    def forward(position: Position, batches: int) -> Position:
        epoch, index = position.epoch, position.index + batches
        while index >= len(order(epoch)):
            index -= len(order(epoch))
            epoch += 1
        return Position(epoch, index)

    here = start
    while True:
        mine, here = forward(here, rank), forward(here, world)
        yield order(mine.epoch)[mine.index], here


def _batches(layout: Layout, steps: Iterator[Step], pin: bool) -> Iterator[tuple[Any, Position]]:
    for rows, after in steps:
        batch = layout.batch(rows)
        yield (moved(batch, "pinned") if pin else batch), after


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
