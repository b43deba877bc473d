"""See where a model looked, score what is seen, and change it."""

from regard.look.edits import evened, masked, row_set, swapped
from regard.look.given_attentions import show
from regard.look.measures import HeadMeasures, Measures, flow, rollout, value_norms
from regard.look.watch import Seen, Trace, attentions, watch

__all__ = [
    "HeadMeasures",
    "Measures",
    "Seen",
    "Trace",
    "attentions",
    "evened",
    "flow",
    "masked",
    "rollout",
    "row_set",
    "show",
    "swapped",
    "value_norms",
    "watch",
]
