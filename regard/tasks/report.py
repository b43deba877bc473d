"""Whoever wants to hear how training goes."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Report(Protocol):
    """Is told what is being done, how far it has come, and how each logged step and each validation went."""

    def say(self, text: str) -> None: ...

    def progress(self, what: str, pairs: int) -> None: ...

    def step(self, values: Mapping[str, Any], total: int) -> None: ...

    def validation(self, values: Mapping[str, Any]) -> None: ...


@runtime_checkable
class FollowsUpdates(Protocol):
    """A report that also wants to hear of every update: how many are made, first those that were there at the start.

    What an update's loss was is not said, for that would keep a GPU waiting.
    """

    def updated(self, number: int, total: int) -> None: ...


class Silence:
    """Hears everything and shows nothing."""

    def say(self, text: str) -> None: ...

    def progress(self, what: str, pairs: int) -> None: ...

    def step(self, values: Mapping[str, Any], total: int) -> None: ...

    def validation(self, values: Mapping[str, Any]) -> None: ...
