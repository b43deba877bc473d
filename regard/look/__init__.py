"""See where a model looked, and score what is seen."""

from regard.look.watch import Seen, Trace, attentions, watch

__all__ = ["Seen", "Trace", "attentions", "watch"]
