"""Words on a plane, as one SVG picture that needs nothing else."""

from collections.abc import Sequence
from html import escape

import numpy as np
from jaxtyping import Float

from regard.look.excerpt import writable

WIDTH, HEIGHT, MARGIN = 960, 640, 60

_STYLE = """
  svg { background: #ffffff; font: 13px system-ui, sans-serif }
  circle { fill: #4c6ef5 } text { fill: #212529 } .note { fill: #868e96; font-size: 12px }
  @media (prefers-color-scheme: dark) {
    svg { background: #16191d } circle { fill: #91a7ff } text { fill: #e9ecef } .note { fill: #868e96 }
  }
"""


def words_on_a_plane(words: Sequence[str], points: Float[np.ndarray, "W 2"], note: str = "") -> str:
    """The words where `points` say, one scale for both axes, so that distances compare; `note` stands below."""
    low, high = points.min(0), points.max(0)
    room = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN])
    scale = float(np.min(room / np.maximum(high - low, 1e-9)))
    middle = (low + high) / 2
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{len(words)} words on a plane">',
        f"<style>{_STYLE}</style>",
    ]
    for word, point in zip(map(writable, words), points, strict=True):
        x, y = (point - middle) * scale * (1, -1) + (WIDTH / 2, HEIGHT / 2)
        side = ("end", -7) if x > WIDTH - 2 * MARGIN else ("start", 7)
        lines.append(
            f"<g><title>{escape(word)}: {point[0]:.3f}, {point[1]:.3f}</title>"
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
            f'<text x="{x + side[1]:.1f}" y="{y + 4:.1f}" text-anchor="{side[0]}">{escape(word)}</text></g>'
        )
    lines.append(f'<text class="note" x="{MARGIN}" y="{HEIGHT - 16}">{escape(writable(note))}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"
