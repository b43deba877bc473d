"""Words on a plane, as one SVG picture that needs nothing else."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from jaxtyping import Float

from regard.look.charts import Number, Point, text_width
from regard.look.excerpt import writable

WIDTH, HEIGHT, MARGIN = 960, 640, 60
SIZE, TALL, RADIUS = 13, 16, 3.5  # of the letters, of a line of them, of a point
NEAR = RADIUS + 4
"""How far from its point a word stands where there is room."""
LONGEST = 48
"""More letters than this are cut on the picture; the whole word shows where the pointer rests."""

_STYLE = """
  svg { background: #ffffff; font: 13px system-ui, sans-serif }
  circle { fill: #4c6ef5 } text { fill: #212529 } .note { fill: #868e96; font-size: 12px }
  .leader { stroke: #adb5bd; stroke-width: 1 }
  @media (prefers-color-scheme: dark) {
    svg { background: #16191d } circle { fill: #91a7ff } text { fill: #e9ecef } .note { fill: #868e96 }
    .leader { stroke: #5c636a }
  }
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of whole pixels, by its left upper corner."""

    x: int
    y: int
    width: int
    height: int

    def nearest(self, x: Number, y: Number) -> Point:
        """The place in the box that is nearest to a point."""
        return min(max(x, self.x), self.x + self.width), min(max(y, self.y), self.y + self.height)


def words_on_a_plane(words: Sequence[str], points: Float[np.ndarray, "W 2"], note: str = "") -> str:
    """The words where `points` say, one scale for both axes, so that distances compare; `note` stands below.

    No word lies over another or over a point: one that finds no room at its point moves away, and where the picture is
    too full for all of them it is made larger. A line joins a word to its point where that is not plain.
    """
    labels = [word if len(word) <= LONGEST else word[: LONGEST - 1] + "…" for word in map(writable, words)]
    width, height = float(WIDTH), float(HEIGHT)
    while (found := _laid_out(labels, points, width, height)) is None:
        width, height = 1.2 * width, 1.2 * height
    places, boxes = found
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{len(words)} words on a plane">',
        f"<style>{_STYLE}</style>",
    ]
    for (x, y), box in zip(places, boxes, strict=True):
        if _is_unclear(box, (x, y), places):
            to_x, to_y = box.nearest(x, y)
            lines.append(f'<line class="leader" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>')
    for word, label, point, (x, y), box in zip(map(writable, words), labels, points, places, boxes, strict=True):
        anchor, at = ("start", box.x) if box.x > x else ("middle", box.x + box.width / 2)
        anchor, at = ("end", box.x + box.width) if box.x + box.width < x else (anchor, at)
        lines.append(
            f"<g><title>{escape(word)}: {point[0]:.3f}, {point[1]:.3f}</title>"
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}"/>'
            f'<text x="{at:.1f}" y="{box.y + 12:.1f}" text-anchor="{anchor}">{escape(label)}</text></g>'
        )
    lines.append(f'<text class="note" x="{MARGIN}" y="{height - 16:.0f}">{escape(writable(note))}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _is_unclear(box: Box, point: Point, points: Sequence[Point]) -> bool:
    """Whether a word stands away from its point, or about as near to another one."""

    def away(x: Number, y: Number) -> float:
        to_x, to_y = box.nearest(x, y)
        return math.hypot(to_x - x, to_y - y)

    own = away(*point)
    return own > NEAR + 1 or any(away(*other) < own + 3 for other in points if other != point)


def _laid_out(
    labels: Sequence[str], points: Float[np.ndarray, "W 2"], width: Number, height: Number
) -> tuple[list[Point], list[Box]] | None:
    """Where points and words go on a picture of that size, or nothing if not every word finds room."""
    low, high = points.min(0), points.max(0)
    scale = float(np.min((np.array([width, height]) - 2 * MARGIN) / np.maximum(high - low, 1e-9)))
    moved = (points - (low + high) / 2) * scale * (1, -1) + (width / 2, height / 2)
    places = [(float(x), float(y)) for x, y in moved]
    boxes = place_labels([(text_width(label, SIZE), TALL) for label in labels], places, width, height - 32)
    return None if boxes is None else (places, boxes)


def place_labels(sizes: Sequence[Point], points: Sequence[Point], width: Number, height: Number) -> list[Box] | None:
    """A box for each point's label: none over another, over a point or beyond the picture; nothing if there is no room.

    One after the other takes the first free place: right of its point, left, above, below, between these, then in
    circles further and further away. The same points always give the same places.
    """
    taken = np.zeros((math.floor(height), math.floor(width)), dtype=bool)  # pixel by pixel
    for x, y in points:
        taken[math.floor(y - RADIUS) : math.ceil(y + RADIUS), math.floor(x - RADIUS) : math.ceil(x + RADIUS)] = True
    boxes = []
    for size, point in zip(sizes, points, strict=True):
        for box in _around(size, point, (width + height) / 6):
            right, bottom = box.x + box.width, box.y + box.height
            inside = min(box.x, box.y) >= 0 and right <= taken.shape[1] and bottom <= taken.shape[0]
            if inside and not taken[box.y : bottom, box.x : right].any():
                taken[box.y : bottom, box.x : right] = True
                boxes.append(box)
                break
        else:
            return None
    return boxes


def _around(size: Point, point: Point, furthest: Number) -> Iterator[Box]:
    """Boxes of that size around a point, the best place first, then in circles further and further away."""
    (width, height), (x, y), away = map(math.ceil, size), point, NEAR
    while away < furthest:
        for right, down in _DIRECTIONS:  # it is the near edge of the box that is so far away, not its middle
            left, top = x + right * (away + width / 2) - width / 2, y + down * (away + height / 2) - height / 2
            yield Box(round(left), round(top), width, height)
        away += 8


_TURNS = (0, 180, -90, 90, -30, -150, 30, 150, -60, -120, 60, 120)
_DIRECTIONS = [(math.cos(math.radians(turn)), math.sin(math.radians(turn))) for turn in _TURNS]
