"""Pictures for papers, as SVG, without a browser: a map, lines, every head at once, or the text shaded.

Each says below what its colours, dashes and strengths stand for.
"""

import base64
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from regard.look.colours import FAINTEST, RAMP, head_look, line_look, looks_note
from regard.look.document import Document
from regard.look.excerpt import Excerpt, check_view, excerpt

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
    foot = top + cell * len(shown.rows) + 20
    keys = [_scale(len(shown.heads)), *([_gold_key()] if shown.gold else [])]
    wide = max(left + cell * len(shown.columns) + lean * 0.72, MARGIN + keys[0].width) + 12
    placed, height = _legend(keys, foot, wide)
    return wide, foot + height, parts + placed


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
            if weight >= FAINTEST:
                start, end = (top + (place + 0.5) * row_height + shift for place in (row, column))
                curve = f"M{left} {start:g} C{left + between * 0.45:g} {start:g} {left + between * 0.55:g} {end:g}"
                parts.append(
                    f'<path d="{curve} {left + between:g} {end:g}" fill="none" {_stroke(head, float(weight))}/>'
                )
    for row, label in enumerate(shown.rows):
        parts.append(_text(left - 7, top + (row + 0.5) * row_height, label, anchor="end"))
    for column, label in enumerate(shown.columns):
        parts.append(_text(left + between + 7, top + (column + 0.5) * row_height, label))
    foot, wide = top + max(len(shown.rows), len(shown.columns)) * row_height + 20, left + between + right
    keys = [_head_key(head) for head in shown.heads]
    said = [f"lines below {FAINTEST:g} are not drawn", *filter(None, [looks_note(shown.heads)])]
    strengths = [_words_key("weight"), *map(_weight_key, (0.1, 0.5, 1.0)), *map(_words_key, said)]
    wide = max(wide, MARGIN + max(key.width for key in (*keys, *strengths)))
    upper, height = _legend(keys, foot, wide)
    lower, more = _legend(strengths, foot + height, wide)
    return wide, foot + height + more, parts + upper + lower


def _stroke(head: int | None, weight: float) -> str:
    colour, dashes = (MUTED, "") if head is None else head_look(head)
    opacity, width = line_look(weight)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'stroke="{colour}"{dashed} stroke-opacity="{opacity:.3f}" stroke-width="{width:.2f}"'


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
    key = _scale(len(shown.heads))
    wide, foot = left + sum(widths) + 3 * len(widths) + 8, top + len(shown.rows) * row_height + 20
    placed, height = _legend([key], foot, wide)
    return max(wide, MARGIN + key.width), foot + height, parts + placed


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
            parts.append(_text(x + size / 2, y + size + 9, f"head {head}", anchor="middle", size=12, fill=MUTED))
    most = max(len(shown.heads) for shown in each)
    key, foot = _scale(), 20 + len(each) * (size + gap + 16)
    wide = max(left + most * (size + gap) + 4, MARGIN + key.width)
    placed, height = _legend([key], foot, wide)
    return wide, foot + height, parts + placed


MARGIN, KEY_HEIGHT = 12, 22


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: how wide it is, and how to draw it with its left edge and its middle at a place."""

    width: Number
    at: Callable[[Number, Number], list[str]]


def _legend(keys: Sequence[Key], top: Number, width: Number) -> tuple[list[str], Number]:
    """The keys side by side, in as many lines as they need, and the height of these."""
    parts: list[str] = []
    x, y = MARGIN, top
    for key in keys:
        if x > MARGIN and x + key.width > width:
            x, y = MARGIN, y + KEY_HEIGHT
        parts += key.at(x, y)
        x += key.width
    return parts, y + KEY_HEIGHT - top


def _scale(heads: int = 1) -> Key:
    """Which colour is which weight, of one head or the mean of several."""
    label, bar = f"weight, mean of {heads} heads" if heads > 1 else "weight", 110
    before = 7.6 * len(label) + 8

    def at(x: Number, y: Number) -> list[str]:
        stops = "".join(
            f'<stop offset="{place / (len(RAMP) - 1):.4f}" stop-color="{stop}"/>' for place, stop in enumerate(RAMP)
        )
        frame = f'x="{x + before + 14:g}" y="{y - 6:g}" width="{bar}" height="12"'
        return [
            f'<defs><linearGradient id="weights">{stops}</linearGradient></defs>',
            _text(x, y, label, size=13, fill=MUTED),
            _text(x + before + 10, y, "0", anchor="end", size=13, fill=MUTED),
            f'<rect class="scale" {frame} fill="url(#weights)" stroke="#d5dde8"/>',
            _text(x + before + 18 + bar, y, "1", size=13, fill=MUTED),
        ]

    return Key(before + bar + 48, at)


def _gold_key() -> Key:
    frame = f'width="12" height="12" rx="2" fill="none" stroke="{GOLD}" stroke-width="2.5"'
    return Key(
        140,
        lambda x, y: [
            f'<rect x="{x:g}" y="{y - 6:g}" {frame}/>',
            _text(x + 19, y, "gold alignment", size=13, fill=MUTED),
        ],
    )


def _line_key(name: str, head: int | None, weight: float) -> Key:
    def at(x: Number, y: Number) -> list[str]:
        line = f'<path class="key" d="M{x:g} {y:g} h44" fill="none" {_stroke(head, weight)}/>'
        return [line, _text(x + 50, y, name, size=13, fill=MUTED)]

    return Key(62 + 7.6 * len(name), at)


def _head_key(head: int) -> Key:
    return _line_key(f"head {head}", head, 0.8)


def _weight_key(weight: float) -> Key:
    return _line_key(f"{weight:g}", None, weight)


def _words_key(words: str) -> Key:
    return Key(7.2 * len(words) + 8, lambda x, y: [_text(x, y, words, size=13, fill=MUTED)])


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
