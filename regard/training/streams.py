"""Language modelling with a state that is carried from window to window: truncated backpropagation through time."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from regard.errors import RunError
from regard.nn.batch import Stretch
from regard.training.objectives import Loss

States = tuple[tuple[Tensor, ...], ...]
"""What a model carries: for each layer its tensors, a row a stream."""


class StreamedLanguageModelling:
    """Predict each token from all that its stream has read before it; gradients reach back to the window's start.

    The model gives, beside its vectors, the states at the end of a window, and takes them at the start of the next:
    `model.carry(inputs, states)`. Streams that are validated are kept apart from those that are trained on.
    """

    def __init__(self, smoothing: float = 0.0) -> None:
        self.smoothing = smoothing
        self._trained, self._validated = _Carried(), _Carried()

    def loss(self, model: nn.Module, batch: Stretch) -> Loss:
        carried = self._trained if model.training else self._validated
        x, ends = model.carry(batch.inputs, carried.before(batch))  # type: ignore[operator]
        carried.keep(batch, ends)
        total, plain = model.head.loss(x, batch.labels, self.smoothing)  # type: ignore[union-attr, operator]
        return Loss(total, batch.count, {"nll": plain})

    def tensors(self) -> dict[str, Tensor]:
        """The states carried so far, by `<layer>.<part>`: what going on exactly needs beside weights and optimiser."""
        states = self._trained.after or ()
        return {f"{layer}.{part}": tensor for layer, own in enumerate(states) for part, tensor in enumerate(own)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` gave."""
        layers: dict[int, dict[int, Tensor]] = {}
        for name, tensor in tensors.items():
            layer, dot, part = name.partition(".")
            if not (layer.isdecimal() and dot and part.isdecimal()):
                raise RunError(f"{name!r} is not the name of a carried state")
            layers.setdefault(int(layer), {})[int(part)] = tensor
        self._trained = _Carried()
        self._trained.after = tuple(tuple(own[part] for part in sorted(own)) for _, own in sorted(layers.items()))


class _Carried:
    """States of all streams, before the batch being read and after it."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.start: States | None = None
        self.after: States | None = None

    def before(self, batch: Stretch) -> States | None:
        """What the batch's rows start from. A batch that comes again, in halves that fit, starts where it did."""
        if batch.number != self.number:
            self.start, self.number = (self.after if batch.number else None), batch.number
        if self.start is None:
            return None
        device = batch.rows.device
        if self.start[0][0].device != device:
            self.start = tuple(tuple(part.to(device) for part in own) for own in self.start)
        return self.start if batch.rows.shape[0] == batch.streams else _each(self.start, lambda part: part[batch.rows])

    def keep(self, batch: Stretch, ends: States) -> None:
        ends = _each(ends, Tensor.detach)
        if batch.rows.shape[0] == batch.streams:
            self.after = ends
            return
        if self.after is None or self.after[0][0].device != ends[0][0].device:  # nothing yet, or put back from a file
            self.after = _each(ends, lambda part: part.new_zeros(batch.streams, *part.shape[1:]))
        self.after = tuple(
            tuple(torch.index_copy(whole, 0, batch.rows, part) for whole, part in zip(*both, strict=True))
            for both in zip(self.after, ends, strict=True)
        )


def _each(states: States, change: Callable[[Tensor], Tensor]) -> States:
    return tuple(tuple(change(part) for part in own) for own in states)
