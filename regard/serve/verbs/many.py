"""Work on items that a function does many of at a time, whoever asked for them."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from regard.serve.jobs import Done, in_parts
from regard.tasks.records import Record


@dataclass(frozen=True, slots=True)
class Many:
    """`function(items)` gives one result an item, and `records(item, result)` what is said of it.

    `prepared(item)` is what the function takes, and its cost in tokens; it refuses an item that cannot be done.
    """

    key: Hashable
    items: tuple[Any, ...]
    prepared: Callable[[Any], tuple[Any, int]]
    function: Callable[[list[Any]], Sequence[Any]]
    records: Callable[[Any, Any], list[Record]]
    alone: bool = False

    def cost(self) -> int:
        return sum(self.prepared(item)[1] for item in self.items)

    def parts(self, tokens: int) -> "list[Many]":
        """The same by pieces that read few tokens each."""
        found = in_parts([self.prepared(item)[1] for item in self.items], tokens)
        return [replace(self, items=tuple(self.items[place] for place in part)) for part in found]

    def together(self, works: "list[Many]", gone: Callable[[int], bool]) -> list[Done]:
        items = [self.prepared(item)[0] for item in chain.from_iterable(work.items for work in works)]
        found = iter(self.function(items))
        return [
            Done({"results": [record for item in work.items for record in self.records(item, next(found))]})
            for work in works
        ]
