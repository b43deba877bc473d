"""The same pictures as matplotlib figures, for notebooks and papers. matplotlib is asked for only here."""

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import ConfigError
from regard.look.document import Document
from regard.look.draw import GOLD, HEADS, RAMP
from regard.look.excerpt import Excerpt, check_view, excerpt

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
    if view == "heads":
        names = [one.name for one in document.sentences[sentence].attentions] if attention is None else [attention]
        each = [excerpt(document, sentence=sentence, attention=name, heads=heads, words=words) for name in names]
        return _grid(Figure, each, ramp)
    shown = excerpt(document, sentence=sentence, attention=attention, heads=heads, words=words)
    return _map(Figure, shown, ramp) if view == "map" else _lines(Figure, shown)


def write_png(document: Document, path: Path, **drawn: Any) -> None:
    """The figure as a file, ready for a slide. A letter that no font here has is drawn as a box, without a word."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        figure(document, **drawn).savefig(path, dpi=200, format="png")


def need_matplotlib(otherwise: str = "draw SVG instead") -> None:
    """Say in one line what to install, or what to do without it."""
    if find_spec("matplotlib") is None:
        raise ConfigError(f"matplotlib is not here: pip install 'regard[plots]', or {otherwise}")


def _map(make: Any, shown: Excerpt, ramp: Any) -> "Figure":
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
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for row, column in shown.gold:
        axes.add_patch(_rectangle(column, row))
    axes.set_xlabel(shown.title)
    whole.colorbar(image, ax=axes, shrink=0.6)
    return whole


def _rectangle(column: int, row: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.45, row - 0.45), 0.9, 0.9, fill=False, edgecolor=GOLD, linewidth=2)


def _lines(make: Any, shown: Excerpt) -> "Figure":
    T, S = shown.mean.shape
    whole = make(figsize=(6, min(0.6 + 0.28 * max(T, S), 30)), layout="constrained")
    axes = whole.add_subplot()
    for order, head in enumerate(shown.heads):
        shift = (order - (len(shown.heads) - 1) / 2) * min(0.09, 0.7 / len(shown.heads))
        for row in range(T):
            for column in range(S):
                weight = float(shown.values[order, row, column])
                if weight >= 0.04:
                    ends = [row + shift, column + shift]
                    axes.plot([0, 1], ends, color=HEADS[head % 8], alpha=0.06 + 0.94 * weight, linewidth=1 + 2 * weight)
    for places, labels, side in ((0, shown.rows, "right"), (1, shown.columns, "left")):
        for place, label in enumerate(labels):
            axes.text(places + (-0.02 if side == "right" else 0.02), place, _plain(label), ha=side, va="center")
    axes.set(xlim=(-0.35, 1.35), ylim=(max(T, S) - 0.5, -0.5), title=shown.title)
    axes.axis("off")
    return whole


def _grid(make: Any, each: Sequence[Excerpt], ramp: Any) -> "Figure":
    most = max(len(one.heads) for one in each)
    whole = make(figsize=(2.2 + 1.1 * most, 0.4 + 1.2 * len(each)), layout="constrained")
    axes = whole.subplots(len(each), most, squeeze=False)
    for shown, line in zip(each, axes, strict=True):
        for order, one in enumerate(line):
            one.set_xticks([])
            one.set_yticks([])
            if order >= len(shown.heads):
                one.axis("off")
                continue
            one.imshow(shown.values[order], cmap=ramp, vmin=0, vmax=1, interpolation="nearest")
            one.set_xlabel(str(shown.heads[order]), fontsize=8)
        name = shown.title.partition(",")[0]
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    return whole


def _plain(label: str) -> str:
    """A label as it is: matplotlib would read what stands between dollar signs as mathematics."""
    return label.replace("$", r"\$")
