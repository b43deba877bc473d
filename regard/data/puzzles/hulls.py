"""Convex hulls: the corners of the smallest convex shape that holds all points."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int


def hull_orders(points: Float[np.ndarray, "B S 2"]) -> Sequence[Int[np.ndarray, " _"]]:
    """The corners of each row's hull, counter-clockwise from the leftmost point, the lower of two equally far left.

    Points on an edge between two corners are no corners. Of points in the same place the earlier counts.
    """
    return [np.array(hull(row.tolist()), dtype=np.int64) for row in np.asarray(points, dtype=np.float64)]


def hull(points: list[list[float]]) -> list[int]:
    """Andrew's monotone chain: the lower side from left to right, then the upper side back."""
    places = sorted(range(len(points)), key=lambda place: (points[place], place))
    distinct = [place for i, place in enumerate(places) if i == 0 or points[place] != points[places[i - 1]]]
    if len(distinct) < 3:
        return distinct
    lower, upper = _chain(points, distinct), _chain(points, distinct[::-1])
    return lower[:-1] + upper[:-1]


def _chain(points: list[list[float]], places: list[int]) -> list[int]:
    """The places at which the way along them turns left."""
    chain: list[int] = []
    for place in places:
        while len(chain) > 1 and _turn(points[chain[-2]], points[chain[-1]], points[place]) <= 0:
            chain.pop()
        chain.append(place)
    return chain


def _turn(a: list[float], b: list[float], c: list[float]) -> float:
    """Above zero where the way from a over b to c turns left."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def area(points: Float[np.ndarray, "S 2"]) -> float:
    """The area inside the polygon with these corners, above zero if they run counter-clockwise."""
    x, y = np.asarray(points, dtype=np.float64).T
    return float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2
