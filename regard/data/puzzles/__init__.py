"""Puzzles whose answer is positions of the input: sorting, convex hulls, round tours. Drawn at random, with answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from regard.data.puzzles import hulls, sorting, tours
from regard.errors import ConfigError, nearest

Items = Float[np.ndarray, "S X"]
Order = Int[np.ndarray, " T"]


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A kind of problem: items of `inputs` numbers each, and a rule that says which positions answer it, in order.

    `complete` where an answer names every position once. `key` is what the items are called in files, `fewest` how many
    a problem needs. `answers` solves many problems of one size; each of them has exactly one right answer.
    """

    name: str
    key: str
    inputs: int
    complete: bool
    fewest: int
    answers: Callable[[Float[np.ndarray, "B S X"]], Sequence[Order]]


PUZZLES = {
    puzzle.name: puzzle
    for puzzle in (
        Puzzle("sort", "numbers", 1, True, 1, sorting.sorted_orders),
        Puzzle("hull", "points", 2, False, 3, hulls.hull_orders),
        Puzzle("tsp", "points", 2, True, 3, tours.tour_orders),
    )
}


def puzzle_named(name: str) -> Puzzle:
    if name not in PUZZLES:
        raise ConfigError(f"unknown puzzle '{name}'{nearest(name, PUZZLES)}")
    return PUZZLES[name]
