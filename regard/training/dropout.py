"""Dropout that ends at a given update."""

from torch import nn


class DropoutUntil:
    """Turns all dropout of a model off after update `last`: a function of the update alone, so resuming is exact."""

    def __init__(self, model: nn.Module, last: int) -> None:
        self.last = last
        self._layers = [(part, part.p) for part in model.modules() if isinstance(part, nn.Dropout)]
        # Attention has no layer for it, but a rate that its kernel is given.
        rates = [(part, getattr(part, "dropout", None)) for part in model.modules()]
        self._rates = [(part, rate) for part, rate in rates if isinstance(rate, float)]
        self._on = True

    def __call__(self, step: int) -> bool:
        """Set it as update `step` wants it; whether that changed anything."""
        on = step <= self.last
        if on == self._on:
            return False
        self._on = on
        for part, rate in self._layers:
            part.p = rate if on else 0.0
        for part, rate in self._rates:
            part.dropout = rate if on else 0.0  # type: ignore[assignment]
        return True
