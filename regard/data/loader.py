"""An endless stream of batches, made ahead by a thread, that can be stopped and taken up at any position."""

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from regard.data.batches import Layout, PaddedLayout, Position, check_budget, epoch_groups
from regard.data.pair_store import PairStore
from regard.data.prepared_cache import whole_batches
from regard.data.sequence_packing import PackedLayout
from regard.data.sharing import Idle, Share, SharesRows, share_rows
from regard.data.text_windows import StreamLayout
from regard.errors import ConfigError
from regard.nn.batch import moved, rows_between

Item = TypeVar("Item")
BatchRows = tuple[np.ndarray, Position]


class Loader:
    """Batches without end, from `position` on, made ahead of time by a thread.

    A store of pairs is laid out here, in batches of at most `budget` tokens; anything else says its own `Layout`.

    `position` is where the next batch lies: a loader started there gives exactly the batches that this one would
    have given. Of the one stream that all processes share, process `rank` of `world` takes every `world`-th batch, and
    `position` moves by all of theirs: it is the same in every process. `ahead` batches wait ready; with 0 there is no
    thread. `pin` puts them in page-locked memory for a CUDA device. `pack` lays sequences end to end.

    With a `share` it gives, instead of batches, that process's parts of one update after the other, `parts` for each;
    `position` is then right after the last of an update.
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
        share: Share | None = None,
    ) -> None:
        if not 0 <= rank < world:
            raise ConfigError(f"rank={rank} must be at least 0 and less than world={world}")
        if seed < 0:
            raise ConfigError(f"seed={seed} must not be negative")
        layout: Layout
        if isinstance(store, PairStore):
            # Here, not in the thread, so that a budget that cannot be is refused at once.
            check_budget(store.source.lengths, store.target.lengths, budget)
            layout = PackedLayout(store, budget) if pack else PaddedLayout(store, budget)
        else:
            layout = store
        self.position = position or Position()
        self._layout, self._seed = layout, seed
        self.share, together = share, isinstance(layout, StreamLayout)
        self.parts = 1 if share is None else len(share.parts(together))
        rows_of_batches = _batch_rows(layout, seed, self.position, rank, world)
        made = _batches(layout, rows_of_batches) if share is None else _shares(layout, rows_of_batches, share, together)
        self._batches = whole_batches(_pinned(made) if pin else made)
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


def _batch_rows(layout: Layout, seed: int, start: Position, rank: int, world: int) -> Iterator[BatchRows]:
    """The rows of each of this process's batches, and the position after every process has taken its own."""
    stream = islice(_from_epoch(layout, seed, start.epoch), start.index, None)
    following, mine = next(stream), np.empty(0)
    while True:
        for member in range(world):
            (rows, _), following = following, next(stream)
            mine = rows if member == rank else mine
        yield mine, following[1]


def _from_epoch(layout: Layout, seed: int, epoch: int) -> Iterator[BatchRows]:
    """The rows of each batch from the first of this epoch on, and where it lies."""
    while True:
        for index, rows in enumerate(epoch_groups(layout, seed, epoch)):
            yield rows, Position(epoch, index)
        epoch += 1


def _batches(layout: Layout, rows_of_batches: Iterator[BatchRows]) -> Iterator[tuple[Any, Position]]:
    for rows, after in rows_of_batches:
        yield layout.batch(rows), after


def _shares(
    layout: Layout, rows_of_batches: Iterator[BatchRows], share: Share, together: bool
) -> Iterator[tuple[Any, Position]]:
    """A process's parts of each update, and the position after the update."""
    parts = share.parts(together)
    while True:
        update = [next(rows_of_batches) for _ in range(share.batches)]
        for index, member, members in parts:
            yield _share_of(layout, update[index][0], member, members), update[-1][1]


def _share_of(layout: Layout, rows: np.ndarray, member: int, members: int) -> Any:
    """Gathered alone where the layout can, else with the rest of its batch."""
    if members > 1 and isinstance(layout, SharesRows):
        found = layout.share(rows, member, members)
        return Idle(rows_between(layout.batch(rows), 0, 1)) if found is None else found
    return share_rows(layout.batch(rows), member, members)


def _pinned(batches: Iterator[tuple[Any, Position]]) -> Iterator[tuple[Any, Position]]:
    for batch, after in batches:
        yield (Idle(moved(batch.batch, "pinned")) if isinstance(batch, Idle) else moved(batch, "pinned")), after


@dataclass(frozen=True, slots=True)
class _Failure:
    error: BaseException


def in_background(items: Iterator[Item], ahead: int, owner: object) -> tuple[Iterator[Item], Callable[[], object]]:
    """The same endless items, up to `ahead` of them made early by a thread, and a function that ends the thread.

    It ends also when `owner` is forgotten, or Python ends; so nothing that `items` holds may refer to `owner`. What
    goes wrong in the thread is raised to the reader, in its turn.
    """
    ready: queue.Queue[Item | _Failure] = queue.Queue(maxsize=ahead)
    stop = threading.Event()
    thread = threading.Thread(target=_fill, args=(items, ready, stop), name="regard-loader", daemon=True)
    thread.start()
    return _drain(ready), weakref.finalize(owner, _end, thread, ready, stop)


def _fill(items: Iterator[Any], ready: queue.Queue[Any], stop: threading.Event) -> None:
    try:
        while not stop.is_set():
            ready.put(next(items))
    except BaseException as error:
        ready.put(_Failure(error))


def _drain(ready: queue.Queue[Any]) -> Iterator[Any]:
    while True:
        item = ready.get()
        if isinstance(item, _Failure):
            raise item.error
        yield item


def _end(thread: threading.Thread, ready: queue.Queue[Any], stop: threading.Event) -> None:
    # Between two looks at `stop` the thread puts one thing in the queue; emptied, the queue has room for it.
    stop.set()
    with suppress(queue.Empty):
        while True:
            ready.get_nowait()
    thread.join()
