"""See where a model looked, score what is seen, and change it."""

from regard.look.edits import evened, masked, row_set, swapped
from regard.look.given_attentions import show
from regard.look.measures import HeadMeasures, Measures, flow, rollout, value_norms
from regard.look.recurrence import text_features, tracking
from regard.look.watch import Seen, SeenCell, Trace, attentions, recurrences, watch

__all__ = [
    "HeadMeasures",
    "Measures",
    "Seen",
    "SeenCell",
    "Trace",
    "attentions",
    "evened",
    "flow",
    "masked",
    "recurrences",
    "rollout",
    "row_set",
    "show",
    "swapped",
    "text_features",
    "tracking",
    "value_norms",
    "watch",
]
