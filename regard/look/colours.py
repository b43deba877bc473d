"""How lines are told apart: eight colours that the colour-blind tell apart too, times eight kinds of dashes."""

from collections.abc import Sequence

# The order matters: the first few are as unlike as can be. Each pair differs clearly to readers with any of the three
# kinds of colour blindness as well, in hue or in lightness, and each stands out from the ground: tests hold them to it.
LIGHT = ("#0014eb", "#e7760f", "#008391", "#8b0ca5", "#3e96fc", "#9f1500", "#b65c44", "#5e2249")
DARK = ("#166cfc", "#ff9700", "#21d1a3", "#9d71a6", "#99ffdd", "#f01f00", "#fff30b", "#be99ff")
DASHES = ("", "8 4", "2 3", "10 3 2 3", "18 4", "4 6", "1 5", "10 3 2 3 2 3")
LOOKS = len(LIGHT) * len(DASHES)

RAMP = ("#f4f7fb", "#d3e2f3", "#a3c4e6", "#6c9fd4", "#3a78bb", "#16549b", "#0a336b")
"""From a weight of 0 to one of 1."""

FAINTEST = 0.04
"""Lines of smaller weights would only be fog, and are not drawn."""


def head_look(head: int) -> tuple[str, str]:
    """Colour and dashes of a head, by its number in the model: the first eight are whole lines, then come dashes."""
    return LIGHT[head % len(LIGHT)], DASHES[head // len(LIGHT) % len(DASHES)]


def line_look(weight: float) -> tuple[float, float]:
    """Opacity and width of a line of that weight."""
    return 0.06 + 0.94 * weight, 1 + 2 * weight


def looks_note(heads: Sequence[int]) -> str:
    """What to say where two of the heads look the same, or nothing."""
    return f"heads {LOOKS} apart look alike" if len({head % LOOKS for head in heads}) < len(heads) else ""
