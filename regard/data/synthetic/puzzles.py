"""Puzzles whose answer is positions of the input (sorting, convex hulls, tours): sampled afresh, or read from files."""

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from regard.config import JsonObject
from regard.data.batches import epoch_order, evaluation_order
from regard.data.formats import check_file, numbered, objects
from regard.data.synthetic.puzzle_solvers import hull_orders, sorted_orders, tour_orders
from regard.errors import ConfigError, DataError, nearest
from regard.nn.batch import Pointings

Part = Literal["train", "valid", "test"]

EPOCH = 1000
"""Batches of freshly sampled problems that count as an epoch."""
MOST = 1_000_000
"""Items that one problem in a file may have."""

CHUNK = 64  # problems sampled and solved at a time

_PARTS = ("train", "valid", "test")


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
    answers: Callable[[Float[np.ndarray, "B S X"]], Sequence[Int[np.ndarray, " T"]]]


PUZZLES = {
    puzzle.name: puzzle
    for puzzle in (
        Puzzle("sort", "numbers", 1, True, 1, sorted_orders),
        Puzzle("hull", "points", 2, False, 3, hull_orders),
        Puzzle("tsp", "points", 2, True, 3, tour_orders),
    )
}


def puzzle_named(name: str) -> Puzzle:
    if name not in PUZZLES:
        raise ConfigError(f"unknown puzzle '{name}'{nearest(name, PUZZLES)}")
    return PUZZLES[name]


@dataclass(frozen=True, slots=True)
class Problem:
    """Items and, where known, the positions that answer: from 0, in order."""

    items: Float[np.ndarray, "S X"]
    order: Int[np.ndarray, " T"] | None = None


def sample(puzzle: Puzzle, count: int, size: int, key: tuple[int, int]) -> list[Problem]:
    """`count` problems of `size` items, every number uniform between 0 and 1: a function of these four alone."""
    # Raw bits, which numpy promises never to change; 24 of them, so that single precision holds a number exactly.
    raw = np.random.Philox(key=np.array(key, dtype=np.uint64)).random_raw(count * size * puzzle.inputs)
    items = ((raw >> np.uint64(40)) * 2.0**-24).reshape(count, size, puzzle.inputs)
    return [Problem(row, order) for row, order in zip(items, puzzle.answers(items), strict=True)]


def sample_problems(
    puzzle: Puzzle,
    count: int,
    sizes: tuple[int, int],
    *,
    seed: int,
    part: Part,
    progress: Callable[[int, int], None] | None = None,
) -> list[Problem]:
    """`count` problems, of each size from the smallest to the largest in turn, other ones for other parts."""
    lowest, highest = sizes
    span = highest - lowest + 1
    found: list[Problem] = []
    while len(found) < count:
        number, rest = len(found) // CHUNK, count - len(found)
        parts = [
            sample(puzzle, -(-CHUNK // span), lowest + offset, (_seed(seed, part), number * span + offset))
            for offset in range(min(span, rest))
        ]
        found += [problem for several in zip(*parts, strict=True) for problem in several][:rest]
        if progress is not None:
            progress(len(found), count)
    return found


class SampledProblems:
    """A layout for `Loader`: no problem twice, each batch a function of the seed, the epoch and its number in it.

    A batch holds problems of one size, at most `budget` items and choices.
    """

    def __init__(self, puzzle: Puzzle, sizes: tuple[int, int], budget: int) -> None:
        self.puzzle, self.sizes, self.budget = puzzle, sizes, budget

    def order(self, seed: int, epoch: int) -> list[Int[np.ndarray, " _"]]:
        return [np.array([seed, epoch * EPOCH + number]) for number in range(EPOCH)]

    def batch(self, rows: Int[np.ndarray, " _"]) -> Pointings:
        seed, number = (int(value) for value in rows)
        lowest, highest = self.sizes
        size = lowest + number % (highest - lowest + 1)
        count = max(1, self.budget // (2 * size + 1))
        # Held-out problems have keys of their own, so those of training begin above them.
        return batch_of(sample(self.puzzle, count, size, (_seed(seed, "train"), (1 << 32) + number)))


class ProblemList:
    """A layout for `Loader` over problems with answers, in an order of their own every epoch."""

    def __init__(self, problems: Sequence[Problem], budget: int) -> None:
        self.problems, self.budget = problems, budget
        self.lengths = _lengths(problems)

    def order(self, seed: int, epoch: int) -> list[Int[np.ndarray, " _"]]:
        return epoch_order(*self.lengths, budget=self.budget, seed=seed, epoch=epoch)

    def batch(self, rows: Int[np.ndarray, " _"]) -> Pointings:
        return batch_of([self.problems[row] for row in rows])


def problem_batches(problems: Sequence[Problem], budget: int) -> Iterator[Pointings]:
    """Every problem once, smaller ones first."""
    sources, targets = _lengths(problems)
    for rows in evaluation_order(sources, targets, budget=max(budget, int((sources + targets).max()))):
        yield batch_of([problems[row] for row in rows])


def batch_of(problems: Sequence[Problem]) -> Pointings:
    """These problems with their answers side by side."""
    return Pointings.of([one.items for one in problems], [one.order for one in problems if one.order is not None])


def read_problems(path: Path, puzzle: Puzzle, *, answered: bool = False) -> list[Problem]:
    """The problems of a file: one per line of `.jsonl`, or the rows of one problem in a `.csv`.

    A line of JSONL is an object: `{"points": [[0.1, 0.2], ...], "order": [2, 0, 1]}`, `numbers` for sorting. A CSV
    file has one item per row, and may begin with a row of names. With `answered` an answer that is missing is found.
    """
    check_file(path)
    if path.suffix.lower() not in (".jsonl", ".csv"):
        raise DataError(f"{path}: problems are in a .jsonl or a .csv file")
    read = _read_csv if path.suffix.lower() == ".csv" else _read_jsonl
    problems = list(read(path, puzzle))
    if not problems:
        raise DataError(f"{path} is empty")
    return [solved(problem, puzzle) for problem in problems] if answered else problems


def solved(problem: Problem, puzzle: Puzzle) -> Problem:
    """The problem with its answer."""
    return problem if problem.order is not None else Problem(problem.items, puzzle.answers(problem.items[None])[0])


def problem_of(given: object, puzzle: Puzzle, where: str, order: object = None) -> Problem:
    """A problem from plain lists, everything in it checked. `where` says what to name in an error."""
    if not isinstance(given, (list, tuple, np.ndarray)):
        raise DataError(f"{where}: {str(given)[:40]} is not a list of {puzzle.key}")
    if not puzzle.fewest <= len(given) <= MOST:
        raise DataError(f"{where}: {len(given)} {puzzle.key}; at least {puzzle.fewest} are needed, at most {MOST:,}")
    rows = [row if isinstance(row, (list, tuple, np.ndarray)) else [row] for row in given]
    for row in rows:
        if len(row) != puzzle.inputs or not all(_is_number(value) for value in row):
            kind = "a number" if puzzle.inputs == 1 else f"{puzzle.inputs} numbers"
            raise DataError(f"{where}: {str(list(row))[:40]} is not {kind}")
    items = np.array(rows, dtype=np.float64)
    if order is None:
        return Problem(items)
    positions = range(len(items))
    if (
        not isinstance(order, list)
        or not all(isinstance(place, int) and place in positions for place in order)
        or len(set(order)) < len(order)
        or not (len(order) == len(items) if puzzle.complete else order)
    ):
        rule = "each position once" if puzzle.complete else "some positions, each at most once"
        raise DataError(f"{where}: the order {str(order)[:40]} must name {rule}, counted from 0")
    return Problem(items, np.array(order, dtype=np.int64))


def in_unit_square(items: Float[np.ndarray, "S X"]) -> Float[np.ndarray, "S X"]:
    """The items as they are, if all numbers lie between 0 and 1; else moved and scaled, shape kept, so that they do.

    None of the puzzles' answers changes by that.
    """
    if items.min() >= 0 and items.max() <= 1:
        return items
    extent = float((items.max(0) - items.min(0)).max())
    return (items - items.min(0)) / extent if extent else np.zeros_like(items)


def write_problems(path: Path, puzzle: Puzzle, problems: Iterable[Problem]) -> None:
    """One JSON object per line, as `read_problems` reads."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for problem in problems:
            items = problem.items[:, 0] if puzzle.inputs == 1 else problem.items
            record: JsonObject = {puzzle.key: items.tolist()}
            if problem.order is not None:
                record["order"] = problem.order.tolist()
            file.write(json.dumps(record) + "\n")


def _read_jsonl(path: Path, puzzle: Puzzle) -> Iterator[Problem]:
    for number, record in objects(path, numbered(path)):
        where = f"{path}, line {number}"
        if puzzle.key not in record:
            raise DataError(f"{where} has no key '{puzzle.key}'{nearest(puzzle.key, record)}")
        yield problem_of(record[puzzle.key], puzzle, where, record.get("order"))


def _read_csv(path: Path, puzzle: Puzzle) -> Iterator[Problem]:
    rows: list[list[float]] = []
    try:
        for number, cells in enumerate(csv.reader(line for _, line in numbered(path)), 1):
            try:
                if any(cell.strip() for cell in cells):
                    rows.append([float(cell) for cell in cells])
            except ValueError:
                if number > 1:
                    raise DataError(f"{path}, line {number}: {','.join(cells)[:40]} is not numbers") from None
    except csv.Error as error:
        raise DataError(f"{path} is not CSV: {error}") from None
    if rows:
        yield problem_of(rows, puzzle, str(path))


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    return math.isfinite(value)


def _lengths(problems: Sequence[Problem]) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    sources = np.array([len(one.items) for one in problems], dtype=np.int32)
    targets = np.array([0 if one.order is None else len(one.order) + 1 for one in problems], dtype=np.int32)
    return sources, targets


def _seed(seed: int, part: Part) -> int:
    return len(_PARTS) * seed + _PARTS.index(part)
