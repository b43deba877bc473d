import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from regard.look.charts import Chart, Series, draw, label
from regard.look.plane import words_on_a_plane
from regard.look.sheet import paragraph, sheet, table


def chart(series, **more):
    return Chart(title="A < B", x="x", y="y", series=series, **more)


def test_a_chart_alone_is_an_svg_file_with_both_colour_schemes():
    svg = draw(chart([Series(name="one", points=[(1, 2.0), (3, 4.0)])]), alone=True)
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in svg
    assert "A &lt; B" in svg


def test_lines_differ_in_colour_dashes_and_shape():
    svg = draw(chart([Series(name=f"line {index}", points=[(0, index), (1, index)]) for index in range(8)]))
    lines = re.findall(r'<polyline class="line"[^>]*style="stroke:(var\(--s\d\))"( stroke-dasharray="[^"]*")?', svg)
    assert len(set(lines)) == 8
    assert len({dash for _, dash in lines}) == 8
    shapes = {re.sub(r"^M[\d.]+ [\d.]+", "", path) for path in re.findall(r'<path d="([^"]*)"', svg)}
    assert len(shapes) == 8


def test_a_larger_value_stands_higher_and_further_right():
    svg = draw(chart([Series(name="one", points=[(1, 10.0), (10, 1000.0)])], log_x=True, log_y=True))
    (first, second) = re.search(r'points="([^"]*)"', svg).group(1).split()
    (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in (first, second))
    assert x1 < x2
    assert y1 > y2


def test_what_cannot_be_placed_is_left_out():
    points = [(0, 1.0), (1, math.nan), (2, 0.0), (3, 5.0), (4, math.inf)]
    svg = draw(chart([Series(name="one", points=points)], log_x=True, log_y=True))
    assert len(re.search(r'points="([^"]*)"', svg).group(1).split()) == 1
    assert "nothing to show" in draw(chart([Series(name="none", points=[])]))


@pytest.mark.parametrize(
    ("value", "text"), [(0.25, "0.25"), (1200, "1,200"), (3e6, "3M"), (2e-7, "2e-7"), (0, "0"), (5e15, "5e15")]
)
def test_numbers_are_short(value, text):
    assert label(value) == text


def test_a_sheet_escapes_what_it_is_given_and_fetches_nothing():
    page = sheet("<title>", [paragraph("a & b <i>"), table(["<x>"], [["<y>"]])])
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
