"""A request that waits for a model."""

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from regard.tasks.run import Run
from regard.tasks.verbs import Asked, Cost, Verb


@dataclass(frozen=True, slots=True)
class Done:
    """The results of a request's inputs in their order, and how many tokens were read and written for them."""

    results: list[Any]
    read: int = 0
    written: int = 0


class Job:
    """A request with its deadline, and someone who waits for its `future`; `told` hears pieces of it before.

    Its time runs from `since`, where the request came; from now unless that is known. Jobs with one `key` can be
    answered together. It takes so many `places` of a queue.
    """

    def __init__(
        self,
        verb: Verb,
        run: Run,
        request: object,
        items: Sequence[Any],
        timeout: float,
        told: Callable[[list[Any]], None] | None = None,
        *,
        since: float | None = None,
        places: int = 1,
    ) -> None:
        self.places = places
        self.verb, self.run, self._told = verb, run, told
        self.key: Hashable = (verb.name, verb.key(run, request))
        self.waiting = deque(Asked(request, item, number) for number, item in enumerate(items))
        self.future: Future[Done] = Future()
        self.since = time.monotonic() if since is None else since
        self.deadline = self.since + timeout
        self._results: list[Any] = [None] * len(items)
        self._missing, self._read, self._written = len(items), 0, 0
        self._cancelled = False
        self._cost: tuple[Asked, Cost] | None = None

    @property
    def gone(self) -> bool:
        """Whether nobody waits any more."""
        return self._cancelled or self.future.done() or time.monotonic() > self.deadline

    def cancel(self) -> None:
        self._cancelled = True

    def cost(self) -> Cost:
        """What the next input costs."""
        asked = self.waiting[0]
        if self._cost is None or self._cost[0] is not asked:
            self._cost = asked, self.verb.cost(self.run, asked)
        return self._cost[1]

    def take(self) -> Asked:
        """The next input, to be answered."""
        self._read += self.cost().read
        return self.waiting.popleft()

    def tell(self, pieces: list[Any]) -> None:
        """Parts of the answer, for someone who listens."""
        if self._told is not None:
            self._told(pieces)

    def finish(self, asked: Asked, result: object) -> None:
        """One input is answered."""
        self._results[asked.number] = result
        self._missing, self._written = self._missing - 1, self._written + self.verb.written(result)
        if not self._missing:
            with suppress(InvalidStateError):
                self.future.set_result(Done(self._results, self._read, self._written))

    def fail(self, error: BaseException) -> None:
        with suppress(InvalidStateError):
            self.future.set_exception(error)
