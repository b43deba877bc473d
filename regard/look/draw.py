"""Pictures for papers, as SVG, without a browser: a map, lines, every head at once, or the text shaded."""

import base64
import struct
import zlib
from collections.abc import Callable, Sequence
from html import escape

import numpy as np

from regard.look.document import Document
from regard.look.excerpt import Excerpt, check_view, excerpt

RAMP = ("#f4f7fb", "#d3e2f3", "#a3c4e6", "#6c9fd4", "#3a78bb", "#16549b", "#0a336b")
HEADS = ("#0072b2", "#d98300", "#009e73", "#b8438a", "#3ba3dd", "#d55e00", "#9a8a00", "#5b6673")
GOLD, INK, MUTED = "#d55e00", "#16202e", "#5a6878"
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
# More cells than this go in as one image: an element each would make a file that nobody can open.
MOST_CELLS = 10_000

Number = float | int


def svg(
    document: Document,
    *,
    view: str = "map",
    sentence: int = 0,
    attention: str | None = None,
    heads: Sequence[int] | None = None,
    words: bool = False,
) -> str:
    """The picture as a whole SVG file. Names and numbers as in `excerpt`."""
    check_view(view)
    if view == "heads":
        names = [one.name for one in document.sentences[sentence].attentions] if attention is None else [attention]
        each = [excerpt(document, sentence=sentence, attention=name, heads=heads, words=words) for name in names]
        return _whole(*_grid(each))
    return _whole(*DRAWN[view](excerpt(document, sentence=sentence, attention=attention, heads=heads, words=words)))


Drawing = tuple[Number, Number, list[str]]
"""Width, height and what is on it."""


def _map(shown: Excerpt) -> Drawing:
    left, lean = 12 + _width(shown.rows), _width(shown.columns)
    cell = (
        26
        if max(len(shown.rows), len(shown.columns)) <= 40
        else max(2, 800 // max(len(shown.rows), len(shown.columns)))
    )
    top = 40 + lean * 0.72
    parts = [_text(8, 18, shown.title, size=13, fill=MUTED)]
    parts += _cells(shown.mean, left, top, cell, shown)
    if cell >= 10:
        for row, label in enumerate(shown.rows):
            parts.append(_text(left - 7, top + (row + 0.5) * cell, label, anchor="end"))
        for column, label in enumerate(shown.columns):
            x, y = left + (column + 0.5) * cell, top - 7
            parts.append(_text(x, y, label, turn=-45))
    for row, column in sorted(shown.gold):
        place = f'x="{left + column * cell + 1:g}" y="{top + row * cell + 1:g}"'
        side = f'width="{cell - 2:g}" height="{cell - 2:g}"'
        parts.append(f'<rect {place} {side} rx="2" fill="none" stroke="{GOLD}" stroke-width="2.5"/>')
    return left + cell * len(shown.columns) + lean * 0.72 + 12, top + cell * len(shown.rows) + 10, parts


def _cells(values: np.ndarray, left: Number, top: Number, cell: Number, shown: Excerpt) -> list[str]:
    if values.size > MOST_CELLS:
        return [_image(values, left, top, cell)]
    return [
        f'<rect x="{left + column * cell:g}" y="{top + row * cell:g}" width="{cell:g}" height="{cell:g}" '
        f'fill="{colour(float(weight))}"><title>{escape(shown.rows[row])} → {escape(shown.columns[column])}: '
        f"{weight:.3f}</title></rect>"
        for (row, column), weight in np.ndenumerate(values)
    ]


def _lines(shown: Excerpt) -> Drawing:
    row_height, between = 24, 220
    left, right = 12 + _width(shown.rows), _width(shown.columns) + 12
    top = 38
    parts = [_text(8, 18, shown.title, size=13, fill=MUTED)]
    for order, head in enumerate(shown.heads):
        shift = (order - (len(shown.heads) - 1) / 2) * min(2.2, 16 / len(shown.heads))
        for (row, column), weight in np.ndenumerate(shown.values[order]):
            if weight >= 0.04:
                start, end = (top + (place + 0.5) * row_height + shift for place in (row, column))
                curve = f"M{left} {start:g} C{left + between * 0.45:g} {start:g} {left + between * 0.55:g} {end:g}"
                parts.append(
                    f'<path d="{curve} {left + between:g} {end:g}" fill="none" stroke="{HEADS[head % 8]}" '
                    f'stroke-opacity="{0.06 + 0.94 * weight:.3f}" stroke-width="{1 + 2 * weight:.2f}"/>'
                )
    for row, label in enumerate(shown.rows):
        parts.append(_text(left - 7, top + (row + 0.5) * row_height, label, anchor="end"))
    for column, label in enumerate(shown.columns):
        parts.append(_text(left + between + 7, top + (column + 0.5) * row_height, label))
    height = top + max(len(shown.rows), len(shown.columns)) * row_height + 10
    return left + between + right, height, parts


def _shaded(shown: Excerpt) -> Drawing:
    """A line for each token that looks, with the tokens it looks at."""
    row_height, left = 27, 14 + _width(shown.rows)
    widths = [_width([label]) + 10 for label in shown.columns]
    parts, top = [_text(8, 18, shown.title, size=13, fill=MUTED)], 34
    for row, label in enumerate(shown.rows):
        y = top + row * row_height
        parts.append(_text(left - 10, y + row_height / 2, label, anchor="end", fill=MUTED))
        x = left
        for column, other in enumerate(shown.columns):
            weight = float(shown.mean[row, column])
            size = f'width="{widths[column]:g}" height="{row_height - 5:g}" rx="4"'
            parts.append(f'<rect x="{x:g}" y="{y + 2:g}" {size} fill="{colour(weight)}"/>')
            fill = "#ffffff" if weight > 0.45 else "#000000"
            parts.append(_text(x + 5, y + row_height / 2 - 0.5, other, fill=fill))
            x += widths[column] + 3
    return left + sum(widths) + 3 * len(widths) + 8, top + len(shown.rows) * row_height + 8, parts


def _grid(each: Sequence[Excerpt]) -> Drawing:
    size, gap, left = 84, 12, 16 + _width([one.title.partition(",")[0] for one in each])
    parts: list[str] = []
    for line, shown in enumerate(each):
        y = 10 + line * (size + gap + 16)
        parts.append(_text(8, y + size / 2, shown.title.partition(",")[0]))
        for order, head in enumerate(shown.heads):
            x = left + order * (size + gap)
            cell = size / max(shown.values.shape[1:])
            parts.append(_image(shown.values[order], x, y, cell))
            parts.append(_text(x + size / 2, y + size + 9, str(head), anchor="middle", size=12, fill=MUTED))
    most = max(len(shown.heads) for shown in each)
    return left + most * (size + gap) + 4, 10 + len(each) * (size + gap + 16), parts


DRAWN: dict[str, Callable[[Excerpt], Drawing]] = {"map": _map, "lines": _lines, "text": _shaded}


def colour(weight: float) -> str:
    """The ramp's colour for a weight between 0 and 1."""
    return "#{:02x}{:02x}{:02x}".format(*_shades(np.array(weight)).tolist())


def _shades(weights: np.ndarray) -> np.ndarray:
    stops = np.array([[int(stop[place : place + 2], 16) for place in (1, 3, 5)] for stop in RAMP])
    places = weights.clip(0, 1) * (len(RAMP) - 1)
    channels = [np.interp(places, np.arange(len(RAMP)), stops[:, channel]) for channel in range(3)]
    return np.stack(channels, -1).round().astype(np.uint8)


def _image(values: np.ndarray, x: Number, y: Number, cell: Number) -> str:
    T, S = values.shape
    data = base64.b64encode(png(_shades(values))).decode()
    return (
        f'<image x="{x:g}" y="{y:g}" width="{S * cell:g}" height="{T * cell:g}" preserveAspectRatio="none" '
        f'style="image-rendering: pixelated" href="data:image/png;base64,{data}"/>'
    )


def png(pixels: np.ndarray) -> bytes:
    """Red, green and blue of every pixel as a PNG file."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def _text(
    x: Number,
    y: Number,
    text: str,
    *,
    anchor: str = "start",
    size: int = 14,
    fill: str = INK,
    turn: Number | None = None,
) -> str:
    turned = "" if turn is None else f' transform="rotate({turn:g} {x:g} {y:g})"'
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" '
        f'dominant-baseline="central" xml:space="preserve"{turned}>{escape(text)}</text>'
    )


def _width(labels: Sequence[str]) -> Number:
    """About how wide the longest label is: there is no font here to measure it with."""
    return max((sum(13 if one > "⺀" else 7.6 for one in label) for label in labels), default=0.0)


def _whole(width: Number, height: Number, parts: list[str]) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}">'
    return "\n".join((head, f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>', *parts, "</svg>\n"))
