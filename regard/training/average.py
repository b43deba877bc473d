"""Averages of weights: over the last checkpoints, or exponentially over all steps."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class ExponentialAverage:
    """Keeps average = decay * average + (1 - decay) * weights, with a shorter memory while training is young."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._names = [name for name, _ in model.named_parameters()]
        self._followed: list[Tensor] = list(model.parameters())
        self.start()

    def start(self) -> None:
        """Begin with the weights as they are."""
        copies = (parameter.detach().clone() for parameter in self._followed)
        self.weights = dict(zip(self._names, copies, strict=True))

    @torch.no_grad()
    def update(self, step: int) -> None:
        # Early weights are far from any good ones; the ramp forgets them.
        keep = min(self.decay, (1 + step) / (10 + step))
        averages: list[Tensor] = list(self.weights.values())
        torch._foreach_lerp_(averages, self._followed, 1 - keep)  # pyright: ignore[reportPrivateImportUsage]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model with the averaged weights, its own put back at the end. Takes no memory: the two change places."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for average, parameter in zip(self.weights.values(), self._followed, strict=True):
            own = parameter.clone()
            parameter.copy_(average)
            average.copy_(own)


def mean_weights(checkpoints: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights, one in memory at a time."""
    total: dict[str, Tensor] = {}
    count = 0
    for weights in checkpoints:
        for name, value in weights.items():
            value = value.double()
            total[name] = value if name not in total else total[name].add_(value)
        count += 1
    return {name: (value / count).float() for name, value in total.items()}
