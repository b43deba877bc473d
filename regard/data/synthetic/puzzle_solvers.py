"""The solvers of the puzzles: sorted orders, convex hulls, and tours of the travelling salesman."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int

EXACT = 12
"""Up to so many cities the shortest tour is found for certain; above, a good one."""

_PATHS = 1 << 22  # paths weighed at a time, to bound memory


def sorted_orders(numbers: Float[np.ndarray, "B S 1"]) -> Sequence[Int[np.ndarray, " S"]]:
    """Where each row's numbers lie, smallest first; of equal ones the earlier comes first."""
    return list(np.argsort(numbers[..., 0], axis=1, kind="stable"))


def hull_orders(points: Float[np.ndarray, "B S 2"]) -> Sequence[Int[np.ndarray, " _"]]:
    """The corners of each row's hull, counter-clockwise from the leftmost point, the lower of two equally far left.

    Points on an edge between two corners are no corners. Of points in the same place the earlier counts.
    """
    return [np.array(hull(row.tolist()), dtype=np.int64) for row in np.asarray(points, dtype=np.float64)]


def hull(points: list[list[float]]) -> list[int]:
    """Andrew's monotone chain: the lower side from left to right, then the upper side back.

    Not by scipy, whose hull refuses points on a line, begins anywhere, and takes twice as long for 20 points.
    """
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


def tour_orders(cities: Float[np.ndarray, "B S 2"]) -> Sequence[Int[np.ndarray, " S"]]:
    """A shortest tour of each row: from the leftmost city (the lower of two equally far left) counter-clockwise.

    Exact up to 12 cities, by dynamic programming over sets of cities (Held and Karp 1962). Above, the best of several
    starts after no exchange of two ways and no move of up to three cities makes it shorter.
    """
    cities = np.asarray(cities, dtype=np.float64)
    B, S, _ = cities.shape
    if S <= 3:
        return [oriented(row, np.arange(S)) for row in cities]
    if S > EXACT:
        return [oriented(row, improved_tour(row)) for row in cities]
    step = max(1, _PATHS // (S * S << (S - 1)))
    found = [held_karp(distances(cities[start : start + step])) for start in range(0, B, step)]
    return [oriented(row, order) for row, order in zip(cities, np.concatenate(found), strict=True)]


def tour_length(cities: Float[np.ndarray, "S 2"], order: Int[np.ndarray, " T"]) -> float:
    """How long the way through these cities and back is."""
    way = np.asarray(cities, dtype=np.float64)[order]
    return float(np.linalg.norm(way - np.roll(way, -1, axis=0), axis=1).sum())


def distances(cities: Float[np.ndarray, "*B S 2"]) -> Float[np.ndarray, "*B S S"]:
    return np.linalg.norm(cities[..., :, None, :] - cities[..., None, :, :], axis=-1)


def oriented(cities: Float[np.ndarray, "S 2"], order: Int[np.ndarray, " S"]) -> Int[np.ndarray, " S"]:
    """The same tour from the leftmost city on, counter-clockwise; where it holds no area, the lower position first."""
    x, y = cities[order].T
    order = np.roll(order, -int(np.lexsort((order, y, x))[0]))
    turn = area(cities[order])
    backwards = turn < 0 if turn else len(order) > 2 and order[1] > order[-1]
    return np.roll(order[::-1], 1) if backwards else order


def held_karp(d: Float[np.ndarray, "B S S"]) -> Int[np.ndarray, "B S"]:
    """A shortest tour of each row of distances.

    `cost[set, j]` is the shortest way from city 0 through every city of the set to its city j; it grows by one city
    at a time: cost[set + j, j] = min over i in set of cost[set, i] + d(i, j). Numbers here leave city 0 out.
    """
    B, S, _ = d.shape
    n = S - 1
    between = d[:, 1:, 1:]
    cost = np.full((B, 1 << n, n), np.inf)
    before = np.zeros((B, 1 << n, n), dtype=np.int8)
    cost[:, 1 << np.arange(n), np.arange(n)] = d[:, 0, 1:]
    for sets, inside in _sets_by_size(n):
        for j in range(n):
            chosen = sets[inside[:, j]]
            ways = cost[:, chosen ^ (1 << j)] + between[:, None, :, j]
            before[:, chosen, j] = ways.argmin(-1)
            cost[:, chosen, j] = ways.min(-1)
    rows, left = np.arange(B), np.full(B, (1 << n) - 1)
    last = (cost[:, -1] + d[:, 1:, 0]).argmin(-1)
    order = np.zeros((B, S), dtype=np.int64)
    for place in range(n, 0, -1):
        order[:, place] = last + 1
        left, last = left ^ (1 << last), before[rows, left, last].astype(np.int64)
    return order


@lru_cache(maxsize=4)
def _sets_by_size(n: int) -> list[tuple[Int[np.ndarray, " M"], Bool[np.ndarray, "M n"]]]:
    """The sets of two and more of n things as bits, smaller sets first, and which things each holds."""
    sets = np.arange(1 << n)
    inside = (sets[:, None] >> np.arange(n) & 1).astype(bool)
    sizes = inside.sum(1)
    return [(sets[sizes == size], inside[sizes == size]) for size in range(2, n + 1)]


def improved_tour(cities: Float[np.ndarray, "S 2"], starts: int = 8) -> Int[np.ndarray, " S"]:
    """The best of several tours: each goes on to the nearest city left, and is then improved until nothing helps."""
    d = distances(cities)
    places = np.linspace(0, len(cities) - 1, min(starts, len(cities))).astype(int)
    tours = [_improve(_nearest_first(d, int(start)), d) for start in places]
    return min(tours, key=lambda order: tour_length(cities, order))


def _nearest_first(d: Float[np.ndarray, "S S"], start: int) -> Int[np.ndarray, " S"]:
    order, left = [start], np.ones(len(d), dtype=bool)
    for _ in range(len(d) - 1):
        left[order[-1]] = False
        order.append(int(np.where(left, d[order[-1]], np.inf).argmin()))
    return np.array(order)


def _improve(order: Int[np.ndarray, " S"], d: Float[np.ndarray, "S S"]) -> Int[np.ndarray, " S"]:
    """The tour after ways were exchanged and cities moved for as long as that made it shorter."""
    while True:
        gain, better = min(_two_opt(order, d), _or_opt(order, d), key=lambda found: found[0])
        if gain > -1e-12:
            return order
        order = better


def _two_opt(order: Int[np.ndarray, " S"], d: Float[np.ndarray, "S S"]) -> tuple[float, Int[np.ndarray, " S"]]:
    """The best exchange of two ways: what lies between them is gone through backwards."""
    after = np.roll(order, -1)
    ways = d[order, after]
    change = d[np.ix_(order, order)] + d[np.ix_(after, after)] - ways[:, None] - ways[None, :]
    i, j = np.unravel_index(np.triu(change, 1).argmin(), change.shape)
    return float(np.triu(change, 1)[i, j]), np.concatenate((order[: i + 1], order[i + 1 : j + 1][::-1], order[j + 1 :]))


def _or_opt(order: Int[np.ndarray, " S"], d: Float[np.ndarray, "S S"]) -> tuple[float, Int[np.ndarray, " S"]]:
    """The best move of one, two or three neighbouring cities to between two others."""
    best, found = 0.0, order
    for start in range(len(order)):
        turned = np.roll(order, -start)
        for length in range(1, min(4, len(order) - 2)):
            part, rest = turned[:length], turned[length:]
            first, last = part[0], part[-1]
            saved = d[rest[-1], first] + d[last, rest[0]] - d[rest[-1], rest[0]]
            added = d[rest[:-1], first] + d[last, rest[1:]] - d[rest[:-1], rest[1:]]
            place = int(added.argmin())
            if added[place] - saved < best:
                best = float(added[place] - saved)
                found = np.concatenate((rest[: place + 1], part, rest[place + 1 :]))
    return best, found
