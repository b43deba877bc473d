"""A request that waits for a model."""

import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Done:
    """An answer as JSON, how many tokens were written for it, and perhaps a page to keep for who asked."""

    answer: dict[str, Any]
    tokens: int = 0
    page: str | None = None


@runtime_checkable
class Work(Protocol):
    """What is to be done. Works with the same `key` can be done together."""

    @property
    def key(self) -> Hashable: ...

    @property
    def alone(self) -> bool:
        """Whether it never goes with another."""
        ...

    def cost(self) -> int:
        """Tokens that the model reads."""
        ...

    def together(self, works: list[Any], gone: Callable[[int], bool]) -> list[Done]:
        """The answers to all of these, as if each were alone; `gone(place)` says that nobody waits for one."""
        ...


class Job:
    """A work with its deadline, and someone who waits for its `future`; `told` hears of it before, if anything.

    Its time runs from `since`, where the request came; from now unless that is known.
    """

    def __init__(
        self, work: Work, timeout: float, told: Callable[[Any], None] | None = None, *, since: float | None = None
    ) -> None:
        self.work, self._told = work, told
        self.future: Future[Done] = Future()
        self.since = time.monotonic() if since is None else since
        self.deadline = self.since + timeout
        self._cancelled = False
        self._cost: int | None = None

    @property
    def gone(self) -> bool:
        """Whether nobody waits any more."""
        return self._cancelled or self.future.done() or time.monotonic() > self.deadline

    def cancel(self) -> None:
        self._cancelled = True

    def cost(self) -> int:
        if self._cost is None:
            self._cost = self.work.cost()
        return self._cost

    def tell(self, news: Any) -> None:
        """A part of the answer, for someone who listens."""
        if self._told is not None:
            self._told(news)

    def finish(self, done: Done) -> None:
        with suppress(InvalidStateError):
            self.future.set_result(done)

    def fail(self, error: BaseException) -> None:
        with suppress(InvalidStateError):
            self.future.set_exception(error)
