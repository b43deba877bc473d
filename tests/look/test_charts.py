import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.look.charts import Chart, Series, label, place_labels, plot, words_on_a_plane
from regard.look.page import paragraph, static_page, table

SPACE = "{http://www.w3.org/2000/svg}"


def chart(series, **more):
    return Chart(title="A < B", x="x", y="y", series=series, **more)


def test_a_chart_alone_is_an_svg_file_with_both_colour_schemes():
    svg = plot(chart([Series(name="one", points=[(1, 2.0), (3, 4.0)])]), alone=True)
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in svg
    assert "A &lt; B" in svg


def test_lines_differ_in_colour_dashes_and_shape():
    svg = plot(chart([Series(name=f"line {index}", points=[(0, index), (1, index)]) for index in range(8)]))
    lines = re.findall(r'<polyline class="line"[^>]*style="stroke:(var\(--s\d\))"( stroke-dasharray="[^"]*")?', svg)
    assert len(set(lines)) == 8
    assert len({dash for _, dash in lines}) == 8
    shapes = {re.sub(r"^M[\d.]+ [\d.]+", "", path) for path in re.findall(r'<path d="([^"]*)"', svg)}
    assert len(shapes) == 8


def test_forty_lines_look_unlike_and_are_all_named_in_full_within_the_picture():
    names = [f"runs/of-a-rather-long-name/{index}" for index in range(40)]
    root = ElementTree.fromstring(plot(chart([Series(name=one, points=[(0, 1), (1, 2)]) for one in names])))
    lines = list(root.iter(f"{SPACE}polyline"))
    assert len({(line.get("style"), line.get("stroke-dasharray")) for line in lines}) == 40
    written = {text.text: text for text in root.iter(f"{SPACE}text")}
    assert set(names) <= set(written)
    for name in names:
        assert float(written[name].get("y")) < float(root.get("height")) - 4
        assert float(written[name].get("x")) + 6.2 * len(name) < float(root.get("width"))


def test_a_larger_value_stands_higher_and_further_right():
    svg = plot(chart([Series(name="one", points=[(1, 10.0), (10, 1000.0)])], log_x=True, log_y=True))
    (first, second) = re.search(r'points="([^"]*)"', svg).group(1).split()
    (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in (first, second))
    assert x1 < x2
    assert y1 > y2


def test_what_cannot_be_placed_is_left_out():
    points = [(0, 1.0), (1, math.nan), (2, 0.0), (3, 5.0), (4, math.inf)]
    svg = plot(chart([Series(name="one", points=points)], log_x=True, log_y=True))
    assert len(re.search(r'points="([^"]*)"', svg).group(1).split()) == 1
    assert "nothing to show" in plot(chart([Series(name="none", points=[])]))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.25, "0.25"), (1200, "1,200"), (3e6, "3M"), (2e-7, "2e-7"), (7.5e-4, "7.5e-4"), (0, "0"), (5e15, "5e15")],
)
def test_numbers_are_short(value, text):
    assert label(value) == text


def test_a_static_page_escapes_what_it_is_given_and_fetches_nothing():
    page = static_page("<title>", [paragraph("a & b <i>"), table(["<x>"], [["<y>"]])])
    for mark in ("<i>", "<x>", "<y>", "<title><"):
        assert mark not in page
    assert "default-src 'none'" in page
    assert "<script" not in page


def test_words_on_a_plane_are_one_drawing_whatever_they_are_made_of():
    words = ["plain", "<b>", "\x01\x1b", "\ud800", "\uffff"]
    points = np.array([[0, 0], [2, 0], [0, 1], [1, 1], [2, 1]], dtype=np.float64)
    root = ElementTree.fromstring(words_on_a_plane(words, points, "note & more"))
    names = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert names == ["plain", "<b>", "��", "�", "�", "note & more"]
    places = np.array(
        [[float(c.get("cx")), -float(c.get("cy"))] for c in root.iter("{http://www.w3.org/2000/svg}circle")]
    )
    assert np.allclose((places - places[0]) / (places[1, 0] - places[0, 0]), points / 2, atol=1e-3)


@given(
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=40),
    st.sampled_from([1, 8]),
)
def test_labels_lie_neither_over_each_other_nor_over_points(words, scale):
    points = [(10 + scale * x, 10 + scale * y) for x, y, _ in words]
    sizes = [(9.3 * letters, 16) for _, _, letters in words]
    boxes = place_labels(sizes, points, 960, 640)
    if boxes is None:  # too full: the picture grows, which is held to its own test below
        return
    assert place_labels(sizes, points, 960, 640) == boxes
    taken = [(x - 3.5, y - 3.5, x + 3.5, y + 3.5) for x, y in points]
    for box, (width, height) in zip(boxes, sizes, strict=True):
        assert box.width >= width
        assert box.height >= height
        sides = (box.x, box.y, box.x + box.width, box.y + box.height)
        assert 0 <= sides[0] < sides[2] <= 960
        assert 0 <= sides[1] < sides[3] <= 640
        for left, top, right, bottom in taken:
            assert sides[2] <= left or right <= sides[0] or sides[3] <= top or bottom <= sides[1]
        taken.append(sides)


def test_words_that_lie_on_one_spot_are_all_written_and_joined_to_it():
    words = [f"word{index}" for index in range(150)]
    root = ElementTree.fromstring(words_on_a_plane(words, np.zeros((150, 2)), "note"))
    places = {(text.get("x"), text.get("y")) for text in root.iter(f"{SPACE}text")}
    assert len(places) == 151
    far = [text for text in root.iter(f"{SPACE}text") if text.text in words[12:]]
    leaders = {(line.get("x1"), line.get("y1")) for line in root.iter(f"{SPACE}line")}
    assert len(far) == 138
    assert len(leaders) == 1
    assert len(list(root.iter(f"{SPACE}line"))) >= 138
    assert float(root.get("viewBox").split()[2]) > 960  # no room for so many in the usual size


def test_a_word_alone_at_its_point_has_no_line_to_it():
    words, points = ["a", "b", "c"], np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    root = ElementTree.fromstring(words_on_a_plane(words, points))
    assert not list(root.iter(f"{SPACE}line"))


def test_a_very_long_word_is_cut_on_the_picture_and_whole_in_its_title():
    root = ElementTree.fromstring(words_on_a_plane(["w" * 500, "b", "c"], np.eye(3)[:, :2]))
    title = next(iter(root.iter(f"{SPACE}title"))).text
    assert title.startswith("w" * 500)
    assert next(iter(root.iter(f"{SPACE}text"))).text == "w" * 47 + "…"
