"""Attention as matplotlib figures, for notebooks and papers. matplotlib is imported only here."""

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import ConfigError
from regard.look.attention_svg import GLOW, GOLD, MUTED, OPAQUE, Excerpt, check_view, excerpts, lit_patches
from regard.look.charts import FAINTEST, RAMP, head_style, line_style, same_style_note
from regard.look.document import Document
from regard.look.packed_arrays import png_pixels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(
    document: Document,
    *,
    view: str = "map",
    sentence: int = 0,
    attention: str | None = None,
    heads: Sequence[int] | None = None,
    words: bool = False,
) -> "Figure":
    """A figure of its own, which no window shows by itself: `figure(document).savefig("map.pdf")`."""
    check_view(view, as_svg=False)
    need_matplotlib()
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    ramp = LinearSegmentedColormap.from_list("regard", RAMP)
    shown = excerpts(document, view, sentence=sentence, attention=attention, heads=heads, words=words)
    if view == "heads":
        return _grid(Figure, shown, ramp)
    if view == "columns":
        return _map(Figure, shown[0].turned(), ramp, right=True)
    if view == "image":
        return _lit(Figure, shown[0])
    return _map(Figure, shown[0], ramp) if view == "map" else _lines(Figure, shown[0])


def write_png(document: Document, path: Path, **chosen: Any) -> None:
    """The figure as a file, ready for a slide. A letter that no font here has is shown as a box, without a word."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        figure(document, **chosen).savefig(path, dpi=200, format="png")


def need_matplotlib(otherwise: str = "plot SVG instead") -> None:
    """Say in one line what to install, or what to do without it."""
    if find_spec("matplotlib") is None:
        raise ConfigError(f"matplotlib is not here: pip install 'regard[plots]', or {otherwise}")


def _map(make: Any, shown: Excerpt, ramp: Any, right: bool = False) -> "Figure":
    T, S = shown.mean.shape
    small = max(T, S) <= 80
    whole = make(figsize=(min(2.5 + 0.32 * S, 12), min(2 + 0.32 * T, 12)), layout="constrained")
    axes = whole.add_subplot()
    image = axes.imshow(shown.mean, cmap=ramp, vmin=0, vmax=1, aspect="equal", interpolation="nearest")
    if small:
        axes.set_xticks(
            range(S), [_plain(one) for one in shown.columns], rotation=45, ha="left", rotation_mode="anchor"
        )
        axes.set_yticks(range(T), [_plain(one) for one in shown.rows])
    axes.xaxis.tick_top()
    if right:
        axes.yaxis.tick_right()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for row, column in shown.gold:
        axes.add_patch(_rectangle(column, row))
    axes.set_xlabel(shown.title)
    many = len(shown.heads)
    whole.colorbar(image, ax=axes, shrink=0.6, label=f"weight, mean of {many} heads" if many > 1 else "weight")
    if shown.gold:
        whole.legend(handles=[_rectangle(0, 0, label="gold alignment")], loc="outside lower center", frameon=False)
    return whole


def _rectangle(column: int, row: int, label: str | None = None) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.45, row - 0.45), 0.9, 0.9, fill=False, edgecolor=GOLD, linewidth=2, label=label)


def _lines(make: Any, shown: Excerpt) -> "Figure":
    T, S = shown.mean.shape
    legend = 0.4 + 0.22 * ((len(shown.heads) + 3) // 4 + 1)
    whole = make(figsize=(6, min(0.6 + 0.28 * max(T, S), 30) + legend), layout="constrained")
    axes = whole.add_subplot()
    for order, head in enumerate(shown.heads):
        shift = (order - (len(shown.heads) - 1) / 2) * min(0.09, 0.7 / len(shown.heads))
        for row in range(T):
            for column in range(S):
                weight = float(shown.values[order, row, column])
                if weight >= FAINTEST:
                    axes.plot([0, 1], [row + shift, column + shift], **_stroke(head, weight))
    for places, labels, side in ((0, shown.rows, "right"), (1, shown.columns, "left")):
        for place, label in enumerate(labels):
            axes.text(places + (-0.02 if side == "right" else 0.02), place, _plain(label), ha=side, va="center")
    axes.set(xlim=(-0.35, 1.35), ylim=(max(T, S) - 0.5, -0.5), title=shown.title)
    axes.axis("off")
    _legend(whole, shown)
    return whole


def _stroke(head: int | None, weight: float) -> dict[str, Any]:
    """How a line of a head and a weight is plotted, in matplotlib's words; without a head, in grey."""
    colour, dashes = (MUTED, "") if head is None else head_style(head)
    alpha, width = line_style(weight)
    # matplotlib counts dashes in widths of the line, SVG in pixels.
    style = (0, [float(one) / width for one in dashes.split()]) if dashes else "-"
    return {"color": colour, "linestyle": style, "alpha": alpha, "linewidth": width}


def _legend(whole: "Figure", shown: Excerpt) -> None:
    """Which line is which head, and how strong a line is which weight."""
    from matplotlib.lines import Line2D

    heads = [Line2D([], [], label=f"head {head}", **_stroke(head, 0.8)) for head in shown.heads]
    weights = [Line2D([], [], label=f"weight {weight:g}", **_stroke(None, weight)) for weight in (0.1, 0.5, 1.0)]
    note = "; ".join(filter(None, [f"lines below {FAINTEST:g} are not shown", same_style_note(shown.heads)]))
    whole.legend(
        handles=[*heads, *weights], title=note, loc="outside lower center", ncols=4, frameon=False, handlelength=3.5
    )


def _lit(make: Any, shown: Excerpt) -> "Figure":
    """The image in grey once for each word, lit where the word's step looked."""
    from matplotlib.colors import to_rgb

    picture, words = lit_patches(shown)
    pixels = png_pixels(picture.image)
    grey, columns = pixels.mean(-1), min(len(words), 6)
    lines = -(-len(words) // columns)
    whole = make(figsize=(1.6 * columns, 0.5 + 1.85 * lines), layout="constrained")
    axes = whole.subplots(lines, columns, squeeze=False)
    extent = (0, picture.width, picture.height, 0)
    for number, one in enumerate(axes.flat):
        one.axis("off")
        if number < len(words):
            word, lit = words[number]
            glow = np.concatenate((np.broadcast_to(to_rgb(GLOW), (*lit.shape, 3)), OPAQUE * lit[..., None]), axis=-1)
            one.imshow(grey, cmap="gray", vmin=0, vmax=255, extent=extent)
            one.imshow(glow, extent=extent, interpolation="nearest")
            one.set_title(_plain(word), fontsize=9, y=-0.18)
    whole.suptitle(shown.title, fontsize=9)
    return whole


def _grid(make: Any, each: Sequence[Excerpt], ramp: Any) -> "Figure":
    most = max(len(one.heads) for one in each)
    whole = make(figsize=(2.2 + 1.1 * most, 0.4 + 1.2 * len(each)), layout="compressed")
    axes, image = whole.subplots(len(each), most, squeeze=False), None  # one scale for all of them
    for shown, line in zip(each, axes, strict=True):
        for order, one in enumerate(line):
            one.set_xticks([])
            one.set_yticks([])
            if order >= len(shown.heads):
                one.axis("off")
                continue
            image = one.imshow(shown.values[order], cmap=ramp, vmin=0, vmax=1, interpolation="nearest")
            one.set_xlabel(f"head {shown.heads[order]}", fontsize=8)
        name = shown.title.partition(",")[0]
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    whole.colorbar(image, ax=axes, shrink=0.8, label="weight")
    return whole


def _plain(label: str) -> str:
    """A label as it is: matplotlib would read what stands between dollar signs as mathematics."""
    return label.replace("$", r"\$")
