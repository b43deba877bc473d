"""Chance that is the same everywhere: nothing but `Random.random`, whose numbers no version of Python changes."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Item = TypeVar("Item")


class Dice:
    """A source of choices; the same seed makes the same ones in the same order."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed).random

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items, all equally likely."""
        return items[int(self.random() * len(items))]

    def chance(self, share: float) -> bool:
        """True in that share of all cases."""
        return self.random() < share
