"""A request that waits for a model."""

import time
from collections.abc import Callable, Hashable, Sequence
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


PART = 1 << 14
"""Tokens to write, over all texts and hypotheses, in one part of a request: between its parts others get their turn."""


def in_parts(costs: Sequence[int], budget: int, most: int | None = None) -> list[list[int]]:
    """Places of these costs in order, by parts of at most `most`, each within the budget unless one alone is not."""
    parts: list[list[int]] = []
    spent = 0
    for place, cost in enumerate(costs):
        if not parts or spent + cost > budget or len(parts[-1]) == most:
            parts.append([])
            spent = 0
        parts[-1].append(place)
        spent += cost
    return parts


def joined(parts: Sequence[Done]) -> Done:
    """The answer to a request whose parts were done one after another."""
    if len(parts) == 1:
        return parts[0]
    results = [result for part in parts for result in part.answer["results"]]
    return Done({"results": results}, sum(part.tokens for part in parts))


class Job:
    """A work with its deadline, and someone who waits for its `future`; `told` hears of it before, if anything.

    Its time runs from `since`, where the request came; from now unless that is known.
    """

    def __init__(
        self, work: Work, timeout: float, told: Callable[[Any], None] | None = None, *, since: float | None = None
    ) -> None:
        self.work, self._told = work, told
        self._parts: list[Work] | None = None
        self._done: list[Done] = []
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
        """Tokens that the model reads in what is to be done next."""
        cost = self._cost if self._cost is not None else self.work.cost()
        self._cost = cost
        return cost

    def split(self, tokens: int) -> bool:
        """Do a long work by parts, if it can be; whether there are several."""
        if self._parts is None:
            parts = [self.work] if self.work.alone else getattr(self.work, "parts", lambda tokens: [self.work])(tokens)
            self.work, *self._parts = parts
        return bool(self._parts or self._done)

    def tell(self, news: Any) -> None:
        """A part of the answer, for someone who listens."""
        if self._told is not None:
            self._told(news)

    def finish(self, done: Done) -> bool:
        """What was to be done next is done; whether that was all."""
        self._done.append(done)
        if self._parts:
            self.work, self._cost = self._parts.pop(0), None
            return False
        with suppress(InvalidStateError):
            self.future.set_result(joined(self._done))
        return True

    def fail(self, error: BaseException) -> None:
        with suppress(InvalidStateError):
            self.future.set_exception(error)
