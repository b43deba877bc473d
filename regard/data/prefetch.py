"""An iterator that a thread runs ahead of its reader, in the same order."""

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

Item = TypeVar("Item")


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
