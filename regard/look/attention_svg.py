"""Attention as SVG, without a browser: a map, lines, every head, the text shaded, an image lit, decoding as it moves.

Each has a legend of what its colours, dashes and strengths stand for. `regard.look.figures` plots the same with
matplotlib: a figure has axes to change and is laid out by its fonts' true sizes, an SVG names each weight under the
pointer and needs no package.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float

from regard.errors import ConfigError, nearest
from regard.look.alignment import merge
from regard.look.charts import FAINTEST, RAMP, head_style, line_style, same_style_note, writable
from regard.look.document import AttentionMap, Document, PatchedImage, Sentence, Side
from regard.look.packed_arrays import png_address

View = Literal["map", "columns", "lines", "heads", "text", "image", "decoding"]


def check_view(view: str, *, as_svg: bool = True) -> None:
    """Refuse a view that cannot be plotted; text and decoding, which moves, are plotted as SVG only."""
    known = [one for one in get_args(View) if as_svg or one not in ("text", "decoding")]
    if view not in known:
        raise ConfigError(f"view='{view}' must be one of {', '.join(known)}{nearest(view, known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """What to plot: labels of rows and columns, the weights of each chosen head, and the gold cells where known.

    `picture` is the image that the columns are the patches of, where they are.
    """

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    heads: tuple[int, ...]
    values: Float[np.ndarray, "H T S"]
    gold: frozenset[tuple[int, int]]
    picture: PatchedImage | None = None

    @property
    def mean(self) -> Float[np.ndarray, "T S"]:
        return self.values.mean(0)

    def turned(self) -> "Excerpt":
        """The same with what is written along the top and what is read down the side: a column is a step."""
        gold = frozenset((column, row) for row, column in self.gold)
        return replace(self, rows=self.columns, columns=self.rows, values=self.values.swapaxes(1, 2), gold=gold)


def excerpt(
    document: Document,
    *,
    sentence: int = 0,
    attention: str | None = None,
    heads: Sequence[int] | None = None,
    words: bool = False,
) -> Excerpt:
    """The heads asked for, by their numbers in the model; all unless given.

    Without a name, the attention is the last that looks at the source, or else the last.
    """
    found = _sentence(document, sentence)
    chosen = _attention(found, attention)
    numbers = chosen.heads or tuple(range(len(chosen.array())))
    wanted = numbers if heads is None else tuple(heads)
    for head in wanted:
        if head not in numbers:
            raise ConfigError(f"no head {head} of '{chosen.name}' is here: there are {list(numbers)}")
    if not wanted:
        raise ConfigError("no heads to plot: name at least one")
    weights = chosen.array()[[numbers.index(head) for head in wanted]].astype(np.float64)
    rows, columns = found.side(chosen.rows), found.side(chosen.columns)
    if words and (rows.words is None or columns.words is None):
        raise ConfigError(f"the words of '{chosen.name}' are not known, only its pieces")
    many = "all heads" if len(wanted) == len(numbers) > 1 else "heads" if len(wanted) > 1 else "head"
    listed = "" if many == "all heads" else " " + ", ".join(map(str, wanted))
    return Excerpt(
        title=writable(f"{chosen.name}, {many}{listed}"),
        rows=_labels(rows, words),
        columns=_labels(columns, words),
        heads=wanted,
        values=_by_words(weights, rows, columns) if words else weights,
        gold=_gold(found, chosen, words),
        picture=found.picture if chosen.columns == "source" else None,
    )


def excerpts(
    document: Document, view: str, *, sentence: int, attention: str | None, heads: Sequence[int] | None, words: bool
) -> list[Excerpt]:
    """What a view shows: one excerpt, or of the view `heads` one for each attention unless one is named."""
    every = view == "heads" and attention is None
    names = [one.name for one in _sentence(document, sentence).attentions] if every else [attention]
    return [excerpt(document, sentence=sentence, attention=name, heads=heads, words=words) for name in names]


def lit_patches(shown: Excerpt) -> tuple[PatchedImage, list[tuple[str, Float[np.ndarray, "Y X"]]]]:
    """The image, and for each word what its patches are lit by: shares of the weight of the one looked at most.

    Of an attention within the image only what stands before the patches looks, such as [CLS].
    """
    picture = shown.picture
    if picture is None:
        raise ConfigError(
            f"view='image' lights an image, and '{shown.title}' does not look at one; choose another view"
        )
    within = shown.rows == shown.columns
    count = picture.first if within else len(shown.rows)
    if not count:
        raise ConfigError(f"'{shown.title}' looks from patch to patch: view='image' shows what words look at")
    weights = shown.mean[:count, picture.first :]
    lit = weights / weights.max(-1, keepdims=True).clip(1e-9)
    return picture, list(zip(shown.rows, lit.reshape(-1, picture.rows, picture.columns), strict=False))


def shown_piece(piece: str) -> str:
    """A piece as it can be seen: white space has marks."""
    return writable(piece.replace(" ", "·").replace("\n", "↵").replace("\t", "⇥")) or "∅"


def _sentence(document: Document, number: int) -> Sentence:
    if not 0 <= number < len(document.sentences):
        raise ConfigError(f"no sentence {number}: there are {len(document.sentences)}, counted from 0")
    return document.sentences[number]


def _attention(sentence: Sentence, name: str | None) -> AttentionMap:
    if name is None:
        crossing = [one for one in sentence.attentions if one.kind == "cross"]
        if not sentence.attentions:
            raise ConfigError("this model has no attention to plot: its page shows its states, so write one with --out")
        return (crossing or sentence.attentions)[-1]
    known = {one.name: one for one in sentence.attentions}
    if name not in known:
        raise ConfigError(f"no attention is called '{name}'{nearest(name, known)}")
    return known[name]


def _labels(side: Side, words: bool) -> tuple[str, ...]:
    if words:
        return tuple(map(writable, side.words or ()))
    return tuple(map(writable if side.names else shown_piece, side.pieces))


def _by_words(weights: np.ndarray, rows: Side, columns: Side) -> np.ndarray:
    assert rows.words is not None
    assert columns.words is not None
    sizes = {"sources": len(columns.words), "targets": len(rows.words)}
    return merge(torch.from_numpy(weights), columns.word_of or (), rows.word_of or (), **sizes).numpy()


def _gold(sentence: Sentence, attention: AttentionMap, words: bool) -> frozenset[tuple[int, int]]:
    if not words:
        return sentence.aligned_pieces(attention)
    across = (attention.rows, attention.columns) == ("target", "source")
    return frozenset((to, of) for of, to in sentence.alignment or ()) if across else frozenset()


GLOW, OPAQUE = "#ff8c00", 0.82
"""What lights an image, and how strongly where it is looked at most: as in the viewer."""
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
    """The plot as a whole SVG file. Names and numbers as in `excerpt`."""
    check_view(view)
    shown = excerpts(document, view, sentence=sentence, attention=attention, heads=heads, words=words)
    return _whole(*(_grid(shown) if view == "heads" else PLOTS[view](shown[0])))


Drawing = tuple[Number, Number, list[str]]
"""Width, height and what is on it."""


def _columns(shown: Excerpt) -> Drawing:
    return _map(shown.turned(), right=True)


def _map(shown: Excerpt, right: bool = False) -> Drawing:
    """Rows are named on the left, or on the `right`."""
    beside, lean = 12 + _width(shown.rows), _width(shown.columns)
    left = 12 if right else beside
    longest = max(len(shown.rows), len(shown.columns))
    cell = 26 if longest <= 40 else max(2, 800 // longest)
    top = 40 + lean * 0.72
    parts = [_text(8, 18, shown.title, size=13, fill=MUTED)]
    parts += _cells(shown.mean, left, top, cell, shown)
    if cell >= 10:
        for row, label in enumerate(shown.rows):
            x = left + cell * len(shown.columns) + 7 if right else left - 7
            parts.append(_text(x, top + (row + 0.5) * cell, label, anchor="start" if right else "end"))
        for column, label in enumerate(shown.columns):
            x, y = left + (column + 0.5) * cell, top - 7
            parts.append(_text(x, y, label, turn=-45))
    for row, column in sorted(shown.gold):
        place = f'x="{left + column * cell + 1:g}" y="{top + row * cell + 1:g}"'
        side = f'width="{cell - 2:g}" height="{cell - 2:g}"'
        parts.append(f'<rect {place} {side} rx="2" fill="none" stroke="{GOLD}" stroke-width="2.5"/>')
    foot = top + cell * len(shown.rows) + 20
    keys = [_scale(len(shown.heads)), *([_gold_key()] if shown.gold else [])]
    after = max(lean * 0.72, beside if right else 0)
    return _with_legend(parts, left + cell * len(shown.columns) + after + 12, foot, keys)


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
    keys = [_line_key(f"head {head}", head, 0.8) for head in shown.heads]
    said = [f"lines below {FAINTEST:g} are not shown", *filter(None, [same_style_note(shown.heads)])]
    weights = [_line_key(f"{weight:g}", None, weight) for weight in (0.1, 0.5, 1.0)]
    strengths = [_words_key("weight"), *weights, *map(_words_key, said)]
    return _with_legend(parts, wide, foot, keys, strengths)


def _stroke(head: int | None, weight: float) -> str:
    colour, dashes = (MUTED, "") if head is None else head_style(head)
    opacity, width = line_style(weight)
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
    wide, foot = left + sum(widths) + 3 * len(widths) + 8, top + len(shown.rows) * row_height + 20
    return _with_legend(parts, wide, foot, [_scale(len(shown.heads))])


SECONDS = 0.9
"""How long a step of decoding is shown."""
MOST_STEPS = 200


def _decoding(shown: Excerpt) -> Drawing:
    """The output as it grows: at each step what was read is shaded by where the step looked. It plays over and over.

    A reader that does not move sees the last step.
    """
    steps = len(shown.rows)
    if steps > MOST_STEPS:
        raise ConfigError(f"{steps} steps of decoding; one animation has room for {MOST_STEPS}")
    parts, wide, height = [_text(8, 18, shown.title, size=13, fill=MUTED)], 900, 30
    # One beat after the last step, with everything written.
    timing = f'calcMode="discrete" dur="{SECONDS * (steps + 1):g}s" repeatCount="indefinite"'

    def animated(name: str, values: Sequence[str]) -> str:
        return f'<animate attributeName="{name}" values="{";".join([*values, values[-1]])}" {timing}/>'

    def placed(labels: Sequence[str], top: Number) -> tuple[list[tuple[Number, Number, Number]], Number]:
        """Left, top and width of each, in lines as wide as there is room, and where the last line ends."""
        found, x = [], 14.0
        for label in labels:
            width = _width([label]) + 12
            if x > 14 and x + width > wide - 14:
                x, top = 14.0, top + height + 4
            found.append((x, top, width))
            x += width + 4
        return found, top + height

    read, foot = placed(shown.columns, 36)
    for column, (label, (x, y, width)) in enumerate(zip(shown.columns, read, strict=True)):
        weights = [float(shown.mean[row, column]) for row in range(steps)]
        box = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height}" rx="5"'
        parts.append(f'<rect {box} fill="{colour(weights[-1])}">{animated("fill", [*map(colour, weights)])}</rect>')
        inks = ["#ffffff" if weight > 0.45 else "#000000" for weight in weights]
        word = _text(x + 6, y + height / 2, label, fill=inks[-1])
        parts.append(word.replace("</text>", f"{animated('fill', inks)}</text>"))
    wrote, foot = placed(shown.rows, foot + 34)
    for row, (label, (x, y, width)) in enumerate(zip(shown.rows, wrote, strict=True)):
        there = [str(int(step >= row)) for step in range(steps)]
        now = [str(int(step == row)) for step in range(steps)]
        word = _text(x + 6, y + height / 2, label)
        parts.append(f"<g>{animated('opacity', there)}{word}</g>")
        line = f'<rect x="{x:g}" y="{y + height - 3:g}" width="{width:g}" height="3" fill="{GOLD}" opacity="0">'
        parts.append(f"{line}{animated('opacity', now)}</rect>")
    return _with_legend(parts, wide, foot + 24, [_scale(len(shown.heads))])


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
    return _with_legend(parts, left + most * (size + gap) + 4, 20 + len(each) * (size + gap + 16), [_scale()])


def _lit(shown: Excerpt) -> Drawing:
    """The image in grey once for each word, lit where the word's step looked."""
    picture, words = lit_patches(shown)
    side, gap, line = 128, 12, 22
    scale = side / max(picture.width, picture.height)
    wide, tall = picture.width * scale, picture.height * scale
    across, down = wide / picture.columns, tall / picture.rows
    columns = min(len(words), 6)
    parts = [
        '<defs><filter id="grey"><feColorMatrix type="saturate" values="0"/></filter></defs>',
        _text(8, 18, shown.title, size=13, fill=MUTED),
    ]
    for number, (word, lit) in enumerate(words):
        x, y = MARGIN + number % columns * (wide + gap), 36 + number // columns * (tall + gap + line)
        size = f'width="{wide:g}" height="{tall:g}"'
        href = f'filter="url(#grey)" preserveAspectRatio="none" href="{picture.image}"'
        parts.append(f'<image x="{x:g}" y="{y:g}" {size} {href}/>')
        parts += [
            f'<rect x="{x + column * across:g}" y="{y + row * down:g}" width="{across:g}" height="{down:g}" '
            f'fill="{GLOW}" fill-opacity="{OPAQUE * share:.3f}"/>'
            for (row, column), share in np.ndenumerate(lit)
            if share >= FAINTEST
        ]
        parts.append(_text(x + wide / 2, y + tall + line / 2, word, anchor="middle"))
    lines = -(-len(words) // columns)
    said = f"mean of {len(shown.heads)} heads; " if len(shown.heads) > 1 else ""
    note = _words_key(f"{said}brightest: where the word's step looked most")
    return _with_legend(parts, 2 * MARGIN + columns * (wide + gap) - gap, 46 + lines * (tall + gap + line), [note])


MARGIN, KEY_HEIGHT = 12, 22


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: how wide it is, and how to plot it with its left edge and its middle at a place."""

    width: Number
    at: Callable[[Number, Number], list[str]]


def _with_legend(parts: list[str], width: Number, top: Number, *groups: Sequence[Key]) -> Drawing:
    """The plot with the keys of each group side by side below it, in as many lines as they need."""
    width = max(width, MARGIN + max(key.width for keys in groups for key in keys))
    for keys in groups:
        x = MARGIN
        for key in keys:
            if x > MARGIN and x + key.width > width:
                x, top = MARGIN, top + KEY_HEIGHT
            parts += key.at(x, top)
            x += key.width
        top += KEY_HEIGHT
    return width, top, parts


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


def _words_key(words: str) -> Key:
    return Key(7.2 * len(words) + 8, lambda x, y: [_text(x, y, words, size=13, fill=MUTED)])


PLOTS: dict[str, Callable[[Excerpt], Drawing]] = {
    "map": _map,
    "columns": _columns,
    "lines": _lines,
    "text": _shaded,
    "image": _lit,
    "decoding": _decoding,
}


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
    return (
        f'<image x="{x:g}" y="{y:g}" width="{S * cell:g}" height="{T * cell:g}" preserveAspectRatio="none" '
        f'style="image-rendering: pixelated" href="{png_address(_shades(values))}"/>'
    )


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
