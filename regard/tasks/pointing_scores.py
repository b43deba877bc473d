"""Measure a pointing run on problems with known answers."""

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float

from regard.data.puzzles.hulls import area
from regard.data.puzzles.problems import Problem, solved
from regard.data.puzzles.tours import EXACT, tour_length
from regard.tasks.problems import held_out, problems_of
from regard.tasks.run import Run

WINDOW = 256


def pointing_scores(
    run: Run,
    problems: Sequence[Problem] | None = None,
    *,
    limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **decode: Any,
) -> dict[str, Any]:
    """Scores of the run on `problems`, by default its test problems, as one JSON-ready object.

    `exact_match` is the share of answers that are right in every position. Of hulls, `area_covered` is the mean share
    of the hull's area that an answer's polygon holds, where its sides do not cross (`simple`). Of tours, `valid` is the
    share that visit every city once, and `excess` how much longer they are than the reference on average: the shortest
    tour up to 12 cities, a good one above. Every figure comes with its 95 % interval.
    """
    puzzle, data = run.pointer.puzzle, run.config.data
    if problems is None:
        named = problems_of(data, puzzle, "test") or problems_of(data, puzzle, "valid")
        problems = named or held_out(data, puzzle, "test")
    problems = [solved(problem, puzzle) for problem in problems[:limit]]
    config = run.decode_config(**decode)
    orders: list[list[int]] = []
    for start in range(0, len(problems), WINDOW):
        orders += [best[0].order for best in run.pointer.answers(problems[start : start + WINDOW], config)]
        if progress is not None:
            progress(len(orders), len(problems))
    judged = list(zip(problems, orders, strict=True))
    sizes = [len(problem.items) for problem in problems]
    result: dict[str, Any] = {
        "puzzle": puzzle.name,
        "problems": len(problems),
        "sizes": [min(sizes), max(sizes)],
        **share("exact_match", [_reference(problem) == order for problem, order in judged]),
        "decode": {"beam": config.beam, "length_penalty": config.length_penalty, "length_form": config.length_form},
    }
    if puzzle.name == "hull":
        shapes = [problem.items[order] for problem, order in judged]
        wholes = [area(problem.items[problem.order]) for problem in problems]
        simple = [is_simple(shape) for shape in shapes]
        covered = [abs(area(shape)) / whole for shape, whole, fine in zip(shapes, wholes, simple, strict=True) if fine]
        result |= {**share("simple", simple), **_mean("area_covered", covered)}
    if puzzle.name == "tsp":
        valid = [sorted(order) == list(range(len(problem.items))) for problem, order in judged]
        lengths = np.array([tour_length(problem.items, np.array(order)) for problem, order in judged])
        shortest = np.array([tour_length(problem.items, np.array(problem.order)) for problem in problems])
        result |= {
            **share("valid", valid),
            "length": float(lengths.mean()),
            "reference_length": float(shortest.mean()),
            "reference": "shortest" if max(sizes) <= EXACT else "heuristic",
            **_mean("excess", (lengths / shortest - 1).tolist()),
        }
    return result


def is_simple(shape: Float[np.ndarray, "S 2"]) -> bool:
    """Whether these corners, in order, are those of a polygon no two of whose sides cross."""
    if len(shape) < 3:
        return False
    sides = [(shape[place - 1], shape[place]) for place in range(len(shape))]
    return not any(_cross(*one, *other) for one, other in combinations(sides, 2))


def _cross(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> bool:
    """Whether the inner parts of the segments ab and cd have a point in common; neighbours share only an end."""

    def side(p: np.ndarray, q: np.ndarray, r: np.ndarray) -> float:
        return float((q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0]))

    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


def _reference(problem: Problem) -> list[int]:
    assert problem.order is not None
    return problem.order.tolist()


def share(name: str, hits: Sequence[bool]) -> dict[str, Any]:
    """A share and its interval by Wilson's formula, which stays within 0 and 1."""
    n, z = len(hits), 1.96
    share = sum(hits) / n
    middle, spread = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = ((middle + sign * spread) / (1 + z * z / n) for sign in (-1, 1))
    return {name: share, f"{name}_interval": [max(0.0, low), min(1.0, high)]}


def _mean(name: str, values: Sequence[float]) -> dict[str, Any]:
    """A mean and its interval from the values' own spread; none where there are no values."""
    if not values:
        return {name: None, f"{name}_interval": None}
    mean = float(np.mean(values))
    error = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return {name: mean, f"{name}_interval": [mean - error, mean + error]}
