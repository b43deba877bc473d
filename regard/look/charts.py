"""Charts as SVG, without matplotlib: lines over axes, and words on a plane; and the colours and dashes of all plots.

Lines are told apart by colour, by dashes and by the shape of their points, in light and in dark.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from jaxtyping import Float

# The order matters: the first few are as unlike as can be. Each pair differs clearly to readers with any of the three
# kinds of colour blindness as well, in hue or in lightness, and each stands out from the ground: tests hold them to it.
LIGHT = ("#0014eb", "#e7760f", "#008391", "#8b0ca5", "#3e96fc", "#9f1500", "#b65c44", "#5e2249")
DARK = ("#166cfc", "#ff9700", "#21d1a3", "#9d71a6", "#99ffdd", "#f01f00", "#fff30b", "#be99ff")
DASHES = ("", "8 4", "2 3", "10 3 2 3", "18 4", "4 6", "1 5", "10 3 2 3 2 3")
STYLES = len(LIGHT) * len(DASHES)

RAMP = ("#f4f7fb", "#d3e2f3", "#a3c4e6", "#6c9fd4", "#3a78bb", "#16549b", "#0a336b")
"""From a weight of 0 to one of 1."""

FAINTEST = 0.04
"""Lines of smaller weights would only be fog, and are not shown."""


def head_style(head: int) -> tuple[str, str]:
    """Colour and dashes of a head, by its number in the model: the first eight are whole lines, then come dashes."""
    return LIGHT[head % len(LIGHT)], DASHES[head // len(LIGHT) % len(DASHES)]


def line_style(weight: float) -> tuple[float, float]:
    """Opacity and width of a line of that weight."""
    return 0.06 + 0.94 * weight, 1 + 2 * weight


def same_style_note(heads: Sequence[int]) -> str:
    """What to say where two of the heads look the same, or nothing."""
    return f"heads {STYLES} apart look alike" if len({head % STYLES for head in heads}) < len(heads) else ""


def writable(text: str) -> str:
    """What XML and fonts can hold: no control characters, no half of a pair."""
    return re.sub("[\0-\x1f\ud800-\udfff\ufffe\uffff]", "�", text)


Number = float | int
Point = tuple[Number, Number]

SHAPES = ("circle", "square", "triangle", "diamond", "cross", "down", "plus", "bar")

LEFT, TOP, BOTTOM = 62, 30, 46
RIGHT, HEIGHT = 530, 300  # where the lines end, and how tall a chart is; names of lines may make it wider and taller
NAMES, NAME_HEIGHT = 190, 20


def _rules(colours: Sequence[str], ink: str, muted: str, line: str, ground: str) -> str:
    series = " ".join(f"--s{index}:{colour};" for index, colour in enumerate(colours))
    return f"{series} --ink:{ink}; --muted:{muted}; --line:{line}; --ground:{ground};"


STYLE = f""":root {{ {_rules(LIGHT, "#16202e", "#5a6878", "#d5dde8", "#ffffff")} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_rules(DARK, "#e8edf4", "#9aa8ba", "#323c4b", "#12161d")} }} }}
.chart text {{ fill: var(--ink); font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; }}
.chart .title {{ font-weight: 600; font-size: 13.5px; }}
.chart .muted {{ fill: var(--muted); }}
.chart .grid {{ stroke: var(--line); stroke-width: 1; }}
.chart .line {{ fill: none; stroke-width: 2; stroke-linejoin: round; }}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line with a name. `style` is which of the 64 styles it has; by default its place in the chart."""

    name: str
    points: Sequence[Point]
    style: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines over one pair of axes. `log_x` and `log_y` leave out what is not above zero. `ticks` name places of x."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    low: Number | None = None
    high: Number | None = None
    ticks: Sequence[tuple[Number, str]] | None = None
    marks: bool = True


def plot(chart: Chart, *, alone: bool = False) -> str:
    """The chart as an SVG element; `alone`, as a file that brings its own style."""
    kept = [(index, one, _shown(one.points, chart)) for index, one in enumerate(chart.series)]
    xs = [x for _, _, points in kept for x, _ in points]
    ys = [y for _, _, points in kept for _, y in points]
    across = _Axis(xs, chart.log_x, LEFT, RIGHT)
    up = _Axis(
        [*ys, *(edge for edge in (chart.low, chart.high) if edge is not None)], chart.log_y, HEIGHT - BOTTOM, TOP
    )
    names = max((text_width(one.name, 12) for one in chart.series), default=0)
    width, height = RIGHT + max(NAMES, 55 + names), max(HEIGHT, TOP + NAME_HEIGHT * len(chart.series) + 8)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width:g} {height}" width="{width:g}" '
        f'height="{height}" role="img">',
        f"<title>{escape(chart.title)}</title>",
    ]
    if alone:
        parts.append(f'<style>{STYLE}</style><rect width="{width:g}" height="{height}" fill="var(--ground)"/>')
    parts.append(f'<text class="title" x="{LEFT}" y="16">{escape(chart.title)}</text>')
    parts += _grid(chart, across, up)
    for index, series, points in kept:
        style = index if series.style is None else series.style
        placed = [(across.place(x), up.place(y)) for x, y in points]
        parts += _line(placed, points, series.name, style, chart.marks)
        parts += _legend(index, series.name, style)
    if not xs:
        parts.append(f'<text class="muted" x="{LEFT + 20}" y="{HEIGHT // 2}">nothing to show</text>')
    return "\n".join([*parts, "</svg>"]) + ("\n" if alone else "")


def stacked(charts: Sequence[Chart]) -> str:
    """Several charts one below the other, as one SVG file that brings its own style."""
    made = [plot(chart) for chart in charts]
    boxes = [re.search(r'viewBox="0 0 (\S+) (\S+)"', one) for one in made]
    sizes = [(float(box[1]), float(box[2])) for box in boxes if box is not None]
    width, height = max(wide for wide, _ in sizes), sum(tall for _, tall in sizes)
    tops = [sum(tall for _, tall in sizes[:place]) for place in range(len(made))]
    placed = [one.replace("<svg ", f'<svg y="{top:g}" ', 1) for one, top in zip(made, tops, strict=True)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}">',
            f'<style>{STYLE}</style><rect width="{width:g}" height="{height:g}" fill="var(--ground)"/>',
            *placed,
            "</svg>\n",
        ]
    )


class _Axis:
    """From values to places on the page, and the values worth naming."""

    def __init__(self, values: Sequence[Number], log: bool, start: Number, end: Number) -> None:
        low, high = (min(values), max(values)) if values else (1.0, 10.0) if log else (0.0, 1.0)
        if log:
            low, high = 10 ** math.floor(math.log10(low) + 1e-9), 10 ** math.ceil(math.log10(high) - 1e-9)
            high = high if high > low else 10 * low
        elif high <= low:
            low, high = low - 0.5, high + 0.5
        self.log, self.start, self.end = log, start, end
        self.ticks = _decades(low, high) if log else _round_ticks(low, high)
        if not log:
            low, high = min(low, self.ticks[0]), max(high, self.ticks[-1])
        self.low, self.high = low, high

    def place(self, value: Number) -> float:
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        share = ((math.log10(value) if self.log else value) - low) / (high - low)
        return self.start + share * (self.end - self.start)


def _shown(points: Sequence[Point], chart: Chart) -> list[Point]:
    return [
        (float(x), float(y))
        for x, y in points
        if math.isfinite(x) and math.isfinite(y) and (x > 0 or not chart.log_x) and (y > 0 or not chart.log_y)
    ]


def _decades(low: Number, high: Number) -> list[float]:
    first, last = round(math.log10(low)), round(math.log10(high))
    step = max(1, math.ceil((last - first) / 8))
    return [10.0**power for power in range(first, last + 1, step)]


def _round_ticks(low: Number, high: Number) -> list[float]:
    """Five or so round numbers around the range."""
    rough = (high - low) / 5
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(float(step * number), 12) for number in range(first, last + 1)]


def label(value: Number) -> str:
    """A number in few characters: 0.25, 1,200, 3M, 7.5e-4."""
    size = abs(value)
    if size >= 1e15 or 0 < size < 1e-3:
        digits, _, power = f"{value:.2e}".partition("e")
        return f"{float(digits):g}e{int(power)}"
    for bound, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if size >= bound:
            return f"{value / bound:g}{letter}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:g}"


def _grid(chart: Chart, across: _Axis, up: _Axis) -> list[str]:
    parts, right, foot = [], RIGHT, HEIGHT - BOTTOM
    for tick in up.ticks:
        y = up.place(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        text = f"1e{round(math.log10(tick))}" if up.log and not 1e-3 < tick < 1e5 else label(tick)
        parts.append(f'<text class="muted" x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    named = chart.ticks or [(tick, label(tick)) for tick in across.ticks]
    for tick, text in named:
        x = across.place(tick)
        if LEFT - 1 <= x <= right + 1:
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{foot}" y2="{foot + 4}"/>')
            parts.append(f'<text class="muted" x="{x:.1f}" y="{foot + 17}" text-anchor="middle">{escape(text)}</text>')
    middle = (LEFT + right) / 2
    parts.append(
        f'<text class="muted" x="{middle:.0f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(chart.x)}</text>'
    )
    half = (TOP + foot) / 2
    parts.append(
        f'<text class="muted" transform="translate(14 {half:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(chart.y)}</text>"
    )
    return parts


def _line(placed: Sequence[Point], values: Sequence[Point], name: str, style: int, marks: bool) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    parts = [f'<polyline class="line" points="{path}" {_stroke(style)}/>']
    # Few points are all marked; of many only some, so that the shapes do not run together.
    every = 1 if marks and len(placed) <= 24 else max(1, len(placed) // 8)
    for index in range(0, len(placed), every):
        x, y = values[index]
        parts.append(_shape(*placed[index], style, f"{name}: {label(_short(x))}, {label(_short(y))}"))
    return parts


def _legend(index: int, name: str, style: int) -> list[str]:
    x, y = RIGHT + 14, TOP + 8 + NAME_HEIGHT * index
    return [
        f'<line class="line" x1="{x}" x2="{x + 26}" y1="{y}" y2="{y}" {_stroke(style)}/>',
        _shape(x + 13, y, style, name),
        f'<text x="{x + 33}" y="{y + 4}">{escape(name)}</text>',
    ]


def _stroke(style: int) -> str:
    """The first eight differ in colour, dashes and shape; the next have these paired anew."""
    dash = DASHES[(style + style // 8) % 8]
    return f'style="stroke:var(--s{style % 8})"' + (f' stroke-dasharray="{dash}"' if dash else "")


def text_width(text: str, size: Number) -> float:
    """How wide a text is at most, in about any font of that size: there is none here to measure it with."""
    return 1.0 * size * sum(_EMS.get(one, 0.82 if one.isupper() else 0.66) if one < "ɐ" else 1.1 for one in text)


# Letters and signs that are wider than their kind.
_EMS = dict.fromkeys("mwMWQ@%", 1.0) | dict.fromkeys("+=<>#~&^_", 0.86)


def _shape(x: Number, y: Number, style: int, title: str) -> str:
    kind, r = SHAPES[(style + style // 8) % 8], 3.6
    d = 1.35 * r
    paths = {
        "circle": f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z",
        "square": f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}z",
        "triangle": f"M{x:.1f} {y - 1.2 * r:.1f}l{1.2 * r:.1f} {2.1 * r:.1f}h{-2.4 * r:.1f}z",
        "diamond": f"M{x:.1f} {y - d:.1f}l{d:.1f} {d:.1f}l{-d:.1f} {d:.1f}l{-d:.1f} {-d:.1f}z",
        "cross": f"M{x - r:.1f} {y - r:.1f}l{2 * r} {2 * r}m0 {-2 * r}l{-2 * r} {2 * r}",
        "down": f"M{x:.1f} {y + 1.2 * r:.1f}l{1.2 * r:.1f} {-2.1 * r:.1f}h{-2.4 * r:.1f}z",
        "plus": f"M{x - r:.1f} {y:.1f}h{2 * r}m{-r} {-r}v{2 * r}",
        "bar": f"M{x:.1f} {y - 1.3 * r:.1f}v{2.6 * r:.1f}",
    }
    open_shape = kind in ("cross", "plus", "bar")
    colour, thickness = f"var(--s{style % 8})", 2 if open_shape else 1
    css = f"stroke:{colour};fill:{'none' if open_shape else colour};stroke-width:{thickness}"
    return f'<path d="{paths[kind]}" style="{css}"><title>{escape(title)}</title></path>'


def _short(value: Number) -> float:
    return float(f"{value:.3g}")


PLANE_WIDTH, PLANE_HEIGHT, MARGIN = 960, 640, 60
SIZE, TALL, RADIUS = 13, 16, 3.5  # of the letters, of a line of them, of a point
NEAR = RADIUS + 4
"""How far from its point a word stands where there is room."""
LONGEST = 48
"""More letters than this are cut on the plot; the whole word shows where the pointer rests."""

_PLANE_STYLE = """
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

    No word lies over another or over a point: one that finds no room at its point moves away, and where the plot is
    too full for all of them it is made larger. A line joins a word to its point where that is not plain.
    """
    labels = [word if len(word) <= LONGEST else word[: LONGEST - 1] + "…" for word in map(writable, words)]
    width, height = float(PLANE_WIDTH), float(PLANE_HEIGHT)
    while (found := _laid_out(labels, points, width, height)) is None:
        width, height = 1.2 * width, 1.2 * height
    places, boxes = found
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{len(words)} words on a plane">',
        f"<style>{_PLANE_STYLE}</style>",
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
    """Where points and words go on a plot of that size, or nothing if not every word finds room."""
    low, high = points.min(0), points.max(0)
    scale = float(np.min((np.array([width, height]) - 2 * MARGIN) / np.maximum(high - low, 1e-9)))
    moved = (points - (low + high) / 2) * scale * (1, -1) + (width / 2, height / 2)
    places = [(float(x), float(y)) for x, y in moved]
    boxes = place_labels([(text_width(label, SIZE), TALL) for label in labels], places, width, height - 32)
    return None if boxes is None else (places, boxes)


def place_labels(sizes: Sequence[Point], points: Sequence[Point], width: Number, height: Number) -> list[Box] | None:
    """A box for each point's label: none over another, over a point or beyond the plot; nothing if there is no room.

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
