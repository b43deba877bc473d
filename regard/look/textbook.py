"""Figures of the mathematics itself, which need no run: positions, masks, softmax, schedules, variance of products."""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Float

from regard.errors import ConfigError, nearest
from regard.look.charts import RAMP, STYLE, Chart, Series, plot
from regard.nn.masks import Visible
from regard.nn.positions import Alibi, Layout, linear, sinusoidal

POSITIONS = ("sinusoidal", "linear", "linear-unscaled", "alibi")
OF_A_MODEL = ("learned", "rotary", "relative")
LOW, HIGH = "#c2571a", RAMP[-2]
"""The ends of a scale around zero: below it, above it."""


def positions_figure(kind: str, *, width: int, length: int, layout: str = "interleaved") -> str:
    """A table of positional encodings as a heat map; of ALiBi what each head adds for each distance."""
    if kind in OF_A_MODEL:
        raise ConfigError(
            f"{kind} positions belong to a model, and `regard look` shows them; without one: {', '.join(POSITIONS)}"
        )
    if kind not in POSITIONS:
        raise ConfigError(f"unknown kind '{kind}'{nearest(kind, POSITIONS)}")
    if layout not in get_args(Layout):
        raise ConfigError(f"layout='{layout}' must be one of {', '.join(get_args(Layout))}")
    if kind != "sinusoidal" and layout != "interleaved":
        raise ConfigError(f"layout='{layout}' is for sinusoidal positions: {kind} ones have no layout")
    if kind == "sinusoidal":
        table = sinusoidal(length, width, layout).numpy()  # pyright: ignore[reportArgumentType]
        return _heat(table, f"sinusoidal positions, {layout}", "feature", "position")
    if kind == "alibi":
        return _heat(Alibi(width)(1, length)[0, :, 0].numpy(), "ALiBi: added to the score", "distance", "head")
    slope = 1.0 if kind == "linear-unscaled" else 1 / length
    table = linear(length, slope).expand(-1, width).numpy()
    return _heat(table, f"{kind} positions, {'i' if slope == 1.0 else 'i / N'}", "feature", "position")


def masks_figure(*, length: int, window: int, padding: int) -> str:
    """Everything, causal, a window and padding: a row per query, dark where it may see the key."""
    if padding >= length:
        raise ConfigError(f"padding={padding} must be below length={length}")
    real = torch.tensor([length - padding])
    kinds = {
        "everything": Visible(),
        "causal": Visible(causal=True),
        f"causal, window {window}": Visible(causal=True, window=window),
        f"padding {padding}": Visible(lengths=real),
    }
    panels = []
    for title, visible in kinds.items():
        mask = visible.mask(length, length, torch.device("cpu"))
        seen = torch.ones(length, length) if mask is None else mask[0, 0].expand(length, length).float()
        panels.append((seen.numpy(), title, "key", "query"))
    return _heats(panels)


def softmax_figure(scores: Sequence[float]) -> str:
    """The weights of some scores times a growing factor, and the largest derivative by any score."""
    if len(scores) < 2 or not np.isfinite(scores).all():
        raise ConfigError(f"scores={list(scores)} must be two finite numbers or more")
    factors = np.geomspace(0.1, 100, 61)
    weights = torch.tensor(np.outer(factors, scores)).softmax(-1)
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
    series = [
        Series(name=f"score {score:g}", points=_points(factors, weights[:, place].tolist()))
        for place, score in enumerate(scores)
    ]
    largest = jacobian.abs().flatten(1).max(1).values.tolist()
    series.append(Series(name="largest derivative", points=_points(factors, largest)))
    return plot(
        Chart(title="softmax of scores times a factor", x="factor", y="weight", series=series, log_x=True, marks=False),
        alone=True,
    )


def schedules_figure(rates: dict[str, Callable[[int], float]], steps: int) -> str:
    """Learning rates by step, each as a share of its largest."""
    at = sorted({max(1, round(step)) for step in np.linspace(1, steps, 200)})
    series = []
    for name, rate in rates.items():
        values = [rate(step) for step in at]
        series.append(Series(name=name, points=_points(at, [value / max(values) for value in values])))
    return plot(
        Chart(title="learning rate, as a share of its peak", x="update", y="share", series=series, marks=False),
        alone=True,
    )


def variance_figure(widths: Sequence[int], *, samples: int, seed: int = 0) -> str:
    """The variance of q.k of vectors of unit variance, and of the same divided by sqrt(d_k)."""
    found = dot_product_variances(widths, samples=samples, seed=seed)
    series = [
        Series(name="q.k", points=_points(widths, [one for one, _ in found])),
        Series(name="q.k / sqrt(d_k)", points=_points(widths, [two for _, two in found])),
    ]
    return plot(
        Chart(title="variance of dot products", x="d_k", y="variance", series=series, log_x=True, log_y=True),
        alone=True,
    )


def dot_product_variances(widths: Sequence[int], *, samples: int, seed: int = 0) -> list[tuple[float, float]]:
    """For each width the variance of q.k over so many random pairs, before and after scaling."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for width in widths:
        q, k = (torch.randn(samples, width, generator=generator) for _ in range(2))
        products = (q * k).sum(-1)
        found.append((float(products.var()), float((products * width**-0.5).var())))
    return found


def _points(xs: Iterable[Any], ys: Iterable[Any]) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in zip(xs, ys, strict=True)]


CELL, LEFT, TOP, LARGEST = 14, 64, 34, 960


def _heat(table: Float[np.ndarray, "R C"], title: str, across: str, down: str) -> str:
    return _heats([(table, title, across, down)])


def _heats(panels: Sequence[tuple[np.ndarray, str, str, str]]) -> str:
    """Tables side by side as one SVG file, each with its title, axes and the ends of its scale."""
    parts, left, height = [], 0.0, 0.0
    for table, title, across, down in panels:
        rows, columns = table.shape
        # Each side has its own size: twenty positions of 512 features are rows, not hairs.
        wide, tall = (min(CELL, LARGEST / count) for count in (columns, rows))
        size = max(columns * wide, 7.2 * len(title))
        lined = min(wide, tall) > 4  # between cells, where there is room for it
        low, high = float(table.min()), float(table.max())
        parts.append(f'<g transform="translate({left + LEFT:.2f},{TOP})">')
        parts.append(f'<text class="title" x="0" y="-18">{escape(title)}</text>')
        parts.append(f'<text class="muted" x="0" y="-5">{escape(across)} 0 to {columns - 1}</text>')
        parts.append(f'<text class="muted" x="-8" y="10" text-anchor="end">{escape(down)}</text>')
        parts.append(f'<text class="muted" x="-8" y="24" text-anchor="end">0 to {rows - 1}</text>')
        for row in range(rows):
            for column in range(columns):
                place = f'x="{column * wide:.2f}" y="{row * tall:.2f}" width="{wide:.2f}" height="{tall:.2f}"'
                fill = _shade(float(table[row, column]), low, high)
                parts.append(
                    f'<rect {place} fill="{fill}" stroke="{"var(--line)" if lined else fill}" stroke-width="0.5"/>'
                )
        ends = [f"orange {low:.3g}"] * (low < 0) + [f"blue {high:.3g}"] * (high > 0)
        scale = ", ".join(["white is 0", *ends])
        parts.append(f'<text class="muted" x="0" y="{rows * tall + 16:.2f}">{scale}</text></g>')
        left, height = left + LEFT + size + 16, max(height, TOP + rows * tall + 26)
    box = f'viewBox="0 0 {left:.0f} {height:.0f}" width="{left:.0f}" height="{height:.0f}"'
    inside = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" {box}><style>{STYLE}</style>\n{inside}\n</svg>\n'


def _shade(value: float, low: float, high: float) -> str:
    """White at zero, towards one colour above it and another below, as far as the table goes either way."""
    most = max(abs(low), abs(high)) or 1.0
    end, share = (HIGH if value >= 0 else LOW), min(1.0, abs(value) / most)
    channels = (round(255 + (int(end[place : place + 2], 16) - 255) * share) for place in (1, 3, 5))
    return "#" + "".join(f"{channel:02x}" for channel in channels)
