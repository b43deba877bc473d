"""Tasks turn a batch into a loss. A loss is a sum and its count, never an average, so splitting changes nothing."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.models.protocols import capabilities
from regard.nn.batch import PackedPairs, Pairs, Stretch, Windows
from regard.nn.blocks import DecoderBlock, EncoderBlock
from regard.nn.embedding import Head
from regard.nn.loss import IGNORE
from regard.nn.rows import doubled
from regard.training.config import TrainConfig


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
class Objective(Protocol):
    """What is asked of a model."""

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The summed loss of `model` on `batch`, how many predictions it is summed over, and its parts by name."""
        ...


@runtime_checkable
class Counting(Protocol):
    """A task that makes more predictions, or fewer, of a batch than the batch counts."""

    def predictions(self, batch: Any) -> int: ...


@runtime_checkable
class Weighing(Protocol):
    """A task whose loss adds up means over different counts, so that parts of one update must know of each other."""

    def weighed(self, parts: Sequence[Any]) -> list[Any]:
        """The parts of one update, such that their losses add up to that of one batch of all their rows."""
        ...


def predictions(task: Objective, batch: Batch) -> int:
    """How many predictions a task makes of a batch: the count of its loss, known before there is one."""
    return task.predictions(batch) if isinstance(task, Counting) else batch.count


@dataclass(frozen=True, slots=True)
class SequenceToSequence:
    """Predict each target token from the source and the true tokens before it (teacher forcing).

    The model gives a vector a prediction and its `head` the loss of it, so that a head may copy or point instead. With
    `r_drop` a training batch is read twice, under different dropout: the loss is both cross-entropies plus `r_drop`
    times the mean divergence of the two predictions from each other.
    """

    smoothing: float = 0.0
    r_drop: float = 0.0

    def loss(self, model: nn.Module, batch: Pairs | PackedPairs) -> Loss:
        twice = bool(self.r_drop) and model.training
        total, parts = self.sums(model, doubled(batch) if twice else batch, twice)
        return Loss(total, batch.count, parts)

    def sums(
        self, model: nn.Module, batch: Pairs | PackedPairs, twice: bool = False
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and its parts, of a batch doubled or not: tensors to tensors, so that it can be compiled."""
        head: Any = model.head
        x, labels = model(batch), batch.labels
        if not twice:
            total, plain = head.loss(x, labels, self.smoothing)
            return total, {"nll": plain}
        total, plain, divergence = head.r_drop_loss(x, labels, self.smoothing, self.r_drop)
        return total, {"nll": plain, "divergence": divergence}


def compiled(task: Objective, model: nn.Module, config: TrainConfig, *, dynamic: bool) -> tuple[Objective, nn.Module]:
    """Objective and model, compiled as the settings say: block by block, model and loss apart, or as one graph."""
    on_gpu = next(model.parameters()).is_cuda
    if config.compile_blocks and on_gpu:
        # Blocks of one kind run the same code on other weights, so what was compiled for the first serves the rest.
        for part in model.modules():
            if isinstance(part, EncoderBlock | DecoderBlock):
                part.compile(dynamic=dynamic)
        _fuse_heads(model)
        return task, model
    if not config.compile:
        if config.cuda_graphs and on_gpu:
            _fuse_heads(model)
        return task, model
    if config.compile_loss:
        assert isinstance(task, SequenceToSequence), "only its loss is made to be compiled"
        return CompiledObjective(task, dynamic=dynamic), model
    _fuse_heads(model)
    return task, torch.compile(model, dynamic=dynamic)  # type: ignore[return-value]


def _fuse_heads(model: nn.Module) -> None:
    for part in model.modules():
        if isinstance(part, Head):
            part.fuse()


class CompiledObjective:
    """A task whose model and loss are compiled together, so that fewer kernels are launched."""

    def __init__(self, task: SequenceToSequence, **options: Any) -> None:
        self._task = replace(task)
        self._sums = torch.compile(self._task.sums, **options)

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        twice = bool(self._task.r_drop) and model.training
        total, parts = self._sums(model, doubled(batch) if twice else batch, twice)
        return Loss(total, batch.count, parts)


@dataclass(frozen=True, slots=True)
class LanguageModelling:
    """Predict each token of running text from those before it."""

    smoothing: float = 0.0

    def loss(self, model: nn.Module, batch: Windows | Stretch) -> Loss:
        total, plain = model.head.loss(model(batch), batch.labels, self.smoothing)  # type: ignore[union-attr, operator]
        return Loss(total, batch.count, {"nll": plain})


def precision_context(device: torch.device | str, precision: torch.dtype) -> AbstractContextManager:
    if precision == torch.float32:
        return nullcontext()
    return torch.autocast(torch.device(device).type, precision)


@dataclass(frozen=True, slots=True)
class BothWaysModelling:
    """Predict each token of running text from those before it, and from those after it: two predictions a token."""

    smoothing: float = 0.0

    def predictions(self, batch: Windows) -> int:
        return 2 * batch.count

    def loss(self, model: nn.Module, batch: Windows) -> Loss:
        onward, back, ids = model.before_and_after(batch)  # type: ignore[operator]
        head: Any = model.head
        total, before = head.loss(onward, batch.labels, self.smoothing)
        rest, after = head.loss(back, ids.masked_fill(batch.labels == IGNORE, IGNORE), self.smoothing)
        return Loss(total + rest, self.predictions(batch), {"nll": before + after})


@dataclass(frozen=True, slots=True)
class BackwardModelling:
    """Predict the token before each of running text from it and those after it: what else the above asks for, alone."""

    def loss(self, model: nn.Module, batch: Windows) -> Loss:
        total, plain = model.head.loss(model.after(batch.inputs.ids), batch.labels, 0.0)  # type: ignore[union-attr, operator]
        return Loss(total, batch.count, {"nll": plain})


def language_objective(model: type[nn.Module], smoothing: float = 0.0) -> Objective:
    """What is asked of this kind of language model."""
    return BothWaysModelling(smoothing) if capabilities(model).both_ways else LanguageModelling(smoothing)
