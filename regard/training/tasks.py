"""Tasks turn a batch into a loss. A loss is a sum and its count, never an average, so splitting changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.batch import PackedPairs, Pairs, Windows


@dataclass(frozen=True, slots=True)
class Loss:
    """`total` is what is minimised, summed over `count` predictions; `parts` are named sums over the same count."""

    total: Float[Tensor, ""]
    count: int
    parts: Mapping[str, Float[Tensor, ""]] = field(default_factory=dict)


@runtime_checkable
class Batch(Protocol):
    """What a task is given: it knows how many predictions it asks for, and can move."""

    @property
    def count(self) -> int: ...

    def to(self, device: Any) -> "Batch": ...


@runtime_checkable
class Task(Protocol):
    """What is asked of a model."""

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The summed loss of `model` on `batch`, how many predictions it is summed over, and its parts by name."""
        ...


@dataclass(frozen=True, slots=True)
class Translation:
    """Predict each target token from the source and the true tokens before it (teacher forcing).

    The model gives a vector a prediction and its `head` the loss of it, so that a head may copy or point instead.
    """

    smoothing: float = 0.0

    def loss(self, model: nn.Module, batch: Pairs | PackedPairs) -> Loss:
        total, plain = model.head.loss(model(batch), batch.labels, self.smoothing)  # type: ignore[union-attr, operator]
        return Loss(total, batch.count, {"nll": plain})


@dataclass(frozen=True, slots=True)
class LanguageModelling:
    """Predict each token of running text from those before it."""

    smoothing: float = 0.0

    def loss(self, model: nn.Module, batch: Windows) -> Loss:
        total, plain = model.head.loss(model(batch), batch.labels, self.smoothing)  # type: ignore[union-attr, operator]
        return Loss(total, batch.count, {"nll": plain})
