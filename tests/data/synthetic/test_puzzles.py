"""The puzzles' answers against brute force, and their files."""

import json
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import Loader, Position
from regard.data.synthetic.puzzle_solvers import (
    area,
    hull_orders,
    improved_tour,
    oriented,
    sorted_orders,
    tour_length,
    tour_orders,
)
from regard.data.synthetic.puzzles import (
    PUZZLES,
    ProblemList,
    SampledProblems,
    in_unit_square,
    problem_batches,
    problem_of,
    puzzle_named,
    read_problems,
    sample,
    sample_problems,
    solved,
    write_problems,
)
from regard.errors import ConfigError, DataError
from regard.nn.batch import END

SORT, HULL, TSP = PUZZLES["sort"], PUZZLES["hull"], PUZZLES["tsp"]

coordinate = st.integers(0, 8).map(lambda step: step / 8)  # coarse, so that ties, lines and doubles come up
points = st.lists(st.tuples(coordinate, coordinate), min_size=3, max_size=8).map(np.array)
some = settings(max_examples=60)


@some
@given(st.lists(coordinate, min_size=1, max_size=9))
def test_a_sorted_order_is_sorted_and_stable(numbers):
    (order,) = sorted_orders(np.array(numbers)[None, :, None])
    assert list(order) == sorted(range(len(numbers)), key=lambda place: (numbers[place], place))


@some
@given(points)
def test_a_hull_is_what_brute_force_finds(points):
    (order,) = hull_orders(points[None])
    distinct = {tuple(point) for point in points.tolist()}
    assert {tuple(points[place]) for place in order} == corners(distinct)
    assert len(order) == len(corners(distinct))
    assert tuple(points[order[0]]) == min(distinct)
    if len(order) > 2:
        assert area(points[order]) > 0
        turns = [cross(*points[[order[i - 2], order[i - 1], order[i]]]) for i in range(len(order))]
        assert min(turns) > 0


def corners(distinct):
    """A point is a corner unless it lies in a triangle or on a line of others."""
    inside = set()
    for point in distinct:
        others = distinct - {point}
        for a, b in combinations(others, 2):
            if cross(a, b, point) == 0 and min(a, b) < point < max(a, b):
                inside.add(point)
        for a, b, c in combinations(others, 3):
            if cross(a, b, c) and len({np.sign(cross(*side, point)) for side in ((a, b), (b, c), (c, a))} | {0.0}) == 2:
                inside.add(point)
    return distinct - inside


def cross(a, b, c):
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


@settings(max_examples=30)
@given(st.lists(st.tuples(coordinate, coordinate), min_size=3, max_size=7).map(np.array))
def test_a_tour_is_as_short_as_any(cities):
    (order,) = tour_orders(cities[None])
    assert sorted(order) == list(range(len(cities)))
    shortest = min(tour_length(cities, np.array((0, *rest))) for rest in permutations(range(1, len(cities))))
    assert tour_length(cities, order) == pytest.approx(shortest)
    assert tuple(cities[order[0]]) == min(map(tuple, cities.tolist()))
    assert area(cities[order]) >= 0


def test_tours_of_many_problems_are_those_of_each():
    cities = np.random.default_rng(0).random((7, 8, 2))
    for row, order in zip(cities, tour_orders(cities), strict=True):
        np.testing.assert_array_equal(order, tour_orders(row[None])[0])


def test_above_twelve_cities_tours_are_good_and_cannot_be_improved_by_a_simple_exchange():
    random = np.random.default_rng(0)
    exact = [(row, tour_orders(row[None])[0]) for row in random.random((20, 10, 2))]
    ratios = [tour_length(row, improved_tour(row)) / tour_length(row, order) for row, order in exact]
    assert np.mean(ratios) < 1.01
    cities = random.random((30, 2))
    (order,) = tour_orders(cities[None])
    assert sorted(order) == list(range(30))
    length = tour_length(cities, order)
    for i, j in combinations(range(30), 2):
        assert tour_length(cities, np.concatenate((order[:i], order[i : j + 1][::-1], order[j + 1 :]))) > length - 1e-9


def test_a_tour_is_told_in_one_way_only():
    cities = np.random.default_rng(0).random((6, 2))
    order = np.random.default_rng(1).permutation(6)
    ways = [oriented(cities, np.roll(way, turn)).tolist() for way in (order, order[::-1]) for turn in range(6)]
    assert len({tuple(way) for way in ways}) == 1


@pytest.mark.parametrize("name", PUZZLES)
def test_problems_are_a_function_of_the_seed_and_parts_differ(name):
    puzzle = puzzle_named(name)
    one, again = (sample_problems(puzzle, 70, (4, 6), seed=3, part="test") for _ in range(2))
    assert [len(problem.items) for problem in one[:4]] == [4, 5, 6, 4]
    for first, second in zip(one, again, strict=True):
        np.testing.assert_array_equal(first.items, second.items)
        np.testing.assert_array_equal(first.order, second.order)
    others = [sample_problems(puzzle, 70, (4, 6), seed=seed, part=part) for seed, part in ((3, "train"), (4, "test"))]
    seen = {problem.items.tobytes() for problem in one}
    assert len(seen) == 70
    assert not any(problem.items.tobytes() in seen for other in others for problem in other)


def test_what_is_sampled_never_changes():
    """Philox's raw bits are promised; were they not, every run would change without a word."""
    (problem,) = sample(SORT, 1, 3, (1, 2))
    assert (problem.items[:, 0] * 2**24).tolist() == [5189443, 5988731, 619155]


def test_a_stream_of_fresh_problems_is_taken_up_anywhere_and_never_repeats():
    layout = SampledProblems(HULL, (3, 5), budget=60)
    with Loader(layout, seed=1, ahead=0) as whole:
        batches = [next(whole) for _ in range(6)]
    with Loader(layout, seed=1, position=Position(0, 4), ahead=0) as later:
        for expected in batches[4:]:
            found = next(later)
            np.testing.assert_array_equal(found.source.values, expected.source.values)
            np.testing.assert_array_equal(found.labels, expected.labels)
    assert len({row.numpy().tobytes() for batch in batches for row in batch.source.values}) == sum(
        len(batch.labels) for batch in batches
    )
    for batch in batches:
        assert batch.source.values.shape[:2].numel() + batch.labels.numel() <= 60
        assert batch.count == int((batch.labels >= END).sum())


def test_listed_problems_are_each_seen_once_an_epoch():
    problems = sample_problems(HULL, 30, (3, 6), seed=0, part="train")
    layout = ProblemList(problems, budget=80)
    rows = np.concatenate(layout.order(1, 0))
    assert sorted(rows) == list(range(30))
    assert sum(len(batch.labels) for batch in problem_batches(problems, 80)) == 30


@pytest.mark.parametrize("name", PUZZLES)
def test_files_give_back_what_was_written(name, tmp_path):
    puzzle = puzzle_named(name)
    problems = sample_problems(puzzle, 5, (3, 5), seed=0, part="test")
    write_problems(tmp_path / "a.jsonl", puzzle, problems)
    for one, other in zip(problems, read_problems(tmp_path / "a.jsonl", puzzle), strict=True):
        np.testing.assert_array_equal(one.items, other.items)
        np.testing.assert_array_equal(one.order, other.order)


def test_a_csv_file_is_one_problem_with_or_without_names(tmp_path):
    for text in ("x,y\n0,0\n10,0\n5,9\n", "0,0\n10,0\n\n5,9\n"):
        (tmp_path / "a.csv").write_text(text, encoding="utf-8")
        (problem,) = read_problems(tmp_path / "a.csv", TSP)
        assert problem.items.tolist() == [[0, 0], [10, 0], [5, 9]]
    assert solved(problem, TSP).order.tolist() == [0, 1, 2]
    (tmp_path / "b.csv").write_text("3\n1\n2\n", encoding="utf-8")
    assert read_problems(tmp_path / "b.csv", SORT, answered=True)[0].order.tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 1 is not JSON"),
        ("[1]", "not a JSON object"),
        ('{"point": [[0, 1]]}', "no key 'points'; did you mean 'points'"),
        ('{"points": [[0, 1], [1]]}', "at least 3 are needed"),
        ('{"points": [[0, 1], [1], [2, 3]]}', "is not 2 numbers"),
        ('{"points": [[0, 1], [1, NaN], [2, 3]]}', "is not 2 numbers"),
        ('{"points": [[0, 1], [1, true], [2, 3]]}', "is not 2 numbers"),
        ('{"points": "abc"}', "not a list of points"),
        ('{"points": [[0, 1], [1, 1], [2, 3]], "order": [0, 1]}', "each position once"),
        ('{"points": [[0, 1], [1, 1], [2, 3]], "order": [0, 1, 3]}', "each position once"),
        ('{"points": [[0, 1], [1, 1], [2, 3]], "order": [0, 1, 1]}', "each position once"),
        ("", "is empty"),
    ],
)
def test_what_a_file_has_wrong_is_said_with_its_place(line, complaint, tmp_path):
    (tmp_path / "a.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_problems(tmp_path / "a.jsonl", TSP)
    assert complaint.replace("did you mean 'points'", "") in str(caught.value)


def test_other_mistakes_are_said(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_problems(tmp_path / "none.jsonl", TSP)
    (tmp_path / "a.txt").write_text(json.dumps([1]), encoding="utf-8")
    with pytest.raises(DataError, match=r"\.jsonl or a \.csv"):
        read_problems(tmp_path / "a.txt", TSP)
    (tmp_path / "a.csv").write_text("1,2\nx,y\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 2: x,y is not numbers"):
        read_problems(tmp_path / "a.csv", TSP)
    with pytest.raises(ConfigError, match="unknown puzzle 'hul'; did you mean 'hull'"):
        puzzle_named("hul")
    with pytest.raises(DataError, match="problem 1: 0 numbers"):
        problem_of([], SORT, "problem 1")


@some
@given(points, st.floats(0.1, 1e6), st.floats(-1e6, 1e6))
def test_points_of_any_size_are_brought_to_the_unit_square_and_keep_their_shape(points, scale, shift):
    moved = in_unit_square(points * scale + shift)
    assert moved.min() >= 0
    assert moved.max() <= 1
    extent = np.ptp(points, axis=0).max()
    if extent and not np.array_equal(moved, points * scale + shift):
        np.testing.assert_allclose(moved, (points - points.min(0)) / extent, atol=1e-3)
