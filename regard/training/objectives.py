"""Objectives turn a batch into a loss: a sum and its count, never an average, so that splitting changes nothing."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.config import Dataclass
from regard.errors import RunError
from regard.models.protocols import capabilities
from regard.nn.batch import (
    CaptionedImages,
    Images,
    LabelledTexts,
    MaskedTexts,
    PackedPairs,
    Pairs,
    Parses,
    Pointings,
    SourcedTexts,
    StreamedWindows,
    TranscribedSounds,
    Windows,
    doubled,
)
from regard.nn.blocks import DecoderBlock, EncoderBlock
from regard.nn.embeddings import OutputProjection
from regard.nn.losses.cross_entropy import IGNORE, widened
from regard.training.config import TrainConfig


@dataclass(frozen=True, slots=True)
class Loss:
    """`total` is what is minimised, summed over `count` predictions; `parts` are named sums over the same count."""

    total: Float[Tensor, ""]
    count: int
    parts: Mapping[str, Float[Tensor, ""]] = field(default_factory=dict)


@runtime_checkable
class Batch(Dataclass, Protocol):
    """What an objective is given: it knows how many predictions it asks for, and can move to a device."""

    @property
    def count(self) -> int: ...

    def to(self, device: torch.device | str) -> "Batch": ...


B = TypeVar("B", contravariant=True)
Part = TypeVar("Part")
Total = Callable[..., list[float | int]]
"""The sums of some numbers over all processes."""


@runtime_checkable
class Objective(Protocol[B]):
    """What a model is trained for."""

    def loss(self, model: nn.Module, batch: B) -> Loss:
        """The summed loss of `model` on `batch`, how many predictions it is summed over, and its parts by name."""
        ...


@runtime_checkable
class Counting(Protocol[B]):
    """An objective that makes more predictions, or fewer, of a batch than the batch counts."""

    def predictions(self, batch: B) -> int: ...


@runtime_checkable
class Weighing(Protocol[Part]):
    """An objective whose loss adds up means over different counts, so that parts of one update depend on each other."""

    def weighed(self, parts: Sequence[Part], total: Total = lambda *numbers: list(numbers)) -> list[Part]:
        """The parts of one update, such that their losses add up to that of one batch of all their rows.

        `total` adds numbers up over all processes that share the update; `parts` are this one's.
        """
        ...


def predictions(objective: Objective, batch: Batch) -> int:
    """How many predictions an objective makes of a batch: the count of its loss, known before there is one."""
    return objective.predictions(batch) if isinstance(objective, Counting) else batch.count


@dataclass(frozen=True, slots=True)
class SequenceToSequence:
    """Predict each target token from the source and the true tokens before it (teacher forcing).

    The model gives a vector per prediction and its `head` the loss of it, so that a head may copy or point. With
    `r_drop` a training batch is read twice, under different dropout: the loss is both cross-entropies plus `r_drop`
    times the mean divergence of the two predictions from each other.

    With `coverage` the model also says where each step attended in the source, and what a step attends to again is
    added with that weight: the sum over positions of the lesser of its attention and that of all steps before it (See
    et al. 2017).
    """

    smoothing: float = 0.0
    r_drop: float = 0.0
    coverage: float = 0.0

    def loss(self, model: nn.Module, batch: Pairs | PackedPairs | SourcedTexts) -> Loss:
        twice = bool(self.r_drop) and model.training
        total, parts = self.sums(model, doubled(batch) if twice else batch, twice)
        return Loss(total, batch.count, parts)

    def sums(
        self, model: nn.Module, batch: Pairs | PackedPairs | SourcedTexts, twice: bool = False
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and its parts, of a batch doubled or not: tensors to tensors, so that it can be compiled."""
        head: Any = model.head
        labels = batch.labels
        if self.coverage:
            attending: Any = model
            x, weights = attending.attended(batch)
            total, plain = head.loss(x, labels, self.smoothing)
            again = coverage_loss(weights, labels != IGNORE)
            return total + self.coverage * again, {"nll": plain, "coverage": again.detach()}
        x = model(batch)
        if not twice:
            total, plain = head.loss(x, labels, self.smoothing)
            return total, {"nll": plain}
        total, plain, divergence = head.r_drop_loss(x, labels, self.smoothing, self.r_drop)
        return total, {"nll": plain, "divergence": divergence}


def coverage_loss(weights: Float[Tensor, "B T S"], real: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    """How much the steps that are `real` attend to what steps before them attended to, over all positions."""
    paid = widened(weights) * real[..., None]
    return torch.minimum(paid, paid.cumsum(1) - paid).sum()


def compiled(
    objective: Objective, model: nn.Module, config: TrainConfig, *, dynamic: bool
) -> tuple[Objective, nn.Module]:
    """Objective and model, compiled as the settings say: block by block, model and loss apart, or as one graph."""
    on_gpu = next(model.parameters()).is_cuda
    if config.compile_blocks and on_gpu:
        # Blocks of one kind run the same code on other weights, so what was compiled for the first serves the rest.
        for part in model.modules():
            if isinstance(part, EncoderBlock | DecoderBlock):
                part.compile(dynamic=dynamic)
        _fuse_heads(model)
        return objective, model
    if not config.compile:
        if config.cuda_graphs and on_gpu:
            _fuse_heads(model)
        return objective, model
    if config.compile_loss:
        assert isinstance(objective, SequenceToSequence), "only its loss is made to be compiled"
        return CompiledObjective(objective, dynamic=dynamic), model
    _fuse_heads(model)
    return objective, torch.compile(model, dynamic=dynamic)  # type: ignore[return-value]


def _fuse_heads(model: nn.Module) -> None:
    for part in model.modules():
        if isinstance(part, OutputProjection):
            part.fuse()


class CompiledObjective:
    """An objective whose model and loss are compiled together, so that fewer kernels are launched."""

    def __init__(self, objective: SequenceToSequence, **options: Any) -> None:
        self._objective = replace(objective)
        self._sums = torch.compile(self._objective.sums, **options)

    def loss(self, model: nn.Module, batch: Pairs | PackedPairs) -> Loss:
        twice = bool(self._objective.r_drop) and model.training
        total, parts = self._sums(model, doubled(batch) if twice else batch, twice)
        return Loss(total, batch.count, parts)


@dataclass(frozen=True, slots=True)
class LanguageModelling:
    """Predict each token of running text from those before it."""

    smoothing: float = 0.0

    def loss(self, model: Any, batch: Windows | StreamedWindows) -> Loss:
        total, plain = model.head.loss(model(batch), batch.labels, self.smoothing)
        return Loss(total, batch.count, {"nll": plain})


MIXED_DTYPES = "Mismatch dtype between input and weight"
"""What newer torch warns of where the weights of an RMSNorm stay in float32 beside inputs that do not, as is meant."""


def precision_context(device: torch.device | str, precision: torch.dtype) -> AbstractContextManager:
    if precision == torch.float32:
        return nullcontext()
    # Once, since each change of the filters makes Python repeat warnings that it has shown.
    if all(getattr(message, "pattern", message) != MIXED_DTYPES for _, message, *_ in warnings.filters):
        warnings.filterwarnings("ignore", message=MIXED_DTYPES)
    return torch.autocast(torch.device(device).type, precision)


@dataclass(frozen=True, slots=True)
class BidirectionalLanguageModelling:
    """Predict each token of running text from those before it, and from those after it: two predictions per token."""

    smoothing: float = 0.0

    def predictions(self, batch: Windows) -> int:
        return 2 * batch.count

    def loss(self, model: Any, batch: Windows) -> Loss:
        onward, back, ids = model.before_and_after(batch)
        head: Any = model.head
        total, before = head.loss(onward, batch.labels, self.smoothing)
        rest, after = head.loss(back, ids.masked_fill(batch.labels == IGNORE, IGNORE), self.smoothing)
        return Loss(total + rest, self.predictions(batch), {"nll": before + after})


@dataclass(frozen=True, slots=True)
class BackwardLanguageModelling:
    """Predict the token before each of running text from it and those after it: the backward half of the above."""

    def loss(self, model: Any, batch: Windows) -> Loss:
        total, plain = model.head.loss(model.after(batch.inputs.ids), batch.labels, 0.0)
        return Loss(total, batch.count, {"nll": plain})


def language_objective(model: type[nn.Module], smoothing: float = 0.0) -> Objective:
    """The objective of this kind of language model."""
    return BidirectionalLanguageModelling(smoothing) if capabilities(model).both_ways else LanguageModelling(smoothing)


@dataclass(frozen=True, slots=True)
class MaskedLanguageModelling:
    """Predict masked words and, of pairs, whether the second text follows the first (next-sentence prediction).

    Both are means that add up: all words of an update weigh as much as all its pairs.
    """

    smoothing: float = 0.0

    def weighed(self, parts: Sequence[MaskedTexts], total: Total = lambda *numbers: list(numbers)) -> list[MaskedTexts]:
        """The parts of one update, a pair in each weighing as much as in all of them together."""
        words, rows = total(sum(part.count for part in parts), sum(part.labels.shape[0] for part in parts))
        return [replace(part, share=words / rows) for part in parts]

    def loss(self, model: Any, batch: MaskedTexts) -> Loss:
        words: Any = model.words
        x = model(batch)
        asked = words.vectors(x.gather(1, batch.places[..., None].expand(-1, -1, x.shape[-1])))
        total, plain = words.output.loss(asked, batch.labels, self.smoothing)
        if batch.elsewhere is None:
            return Loss(total, batch.count, {"nll": plain, "words": plain})
        logits = widened(model.next_logits(x))
        following = F.cross_entropy(logits, batch.elsewhere, reduction="sum") * batch.share
        right = (logits.argmax(-1) == batch.elsewhere).sum() * batch.share
        parts = {"nll": plain + following.detach(), "words": plain, "next": following, "next_accuracy": right}
        return Loss(total + following, batch.count, parts)


@dataclass(frozen=True, slots=True)
class Labelled:
    """Predict the label of each text, or of each of its tokens.

    With `r_drop` a training batch is read twice, under different dropout: the loss is both cross-entropies plus
    `r_drop` times the mean divergence of the two predictions from each other.
    """

    smoothing: float = 0.0
    r_drop: float = 0.0
    smooths: ClassVar[bool] = True

    def loss(self, model: nn.Module, batch: LabelledTexts) -> Loss:
        twice = bool(self.r_drop) and model.training
        read = doubled(batch) if twice else batch
        logits, smoothing = self.logits(model, read), self.smoothing if self.smooths else 0.0
        return labelled_loss(logits, read.labels.flatten(), batch.count, smoothing, self.r_drop if twice else 0.0)

    def logits(self, model: Any, batch: LabelledTexts) -> Float[Tensor, "N C"]:
        """A score per class for each label of the batch."""
        raise NotImplementedError


class Classification(Labelled):
    """Predict the class of each text."""

    def logits(self, model: Any, batch: LabelledTexts) -> Float[Tensor, "N C"]:
        return model.classes(model(batch), batch)


class Tagging(Labelled):
    """Predict the tag of each word; that of a word of several tokens at its first."""

    def logits(self, model: Any, batch: LabelledTexts) -> Float[Tensor, "N C"]:
        return model.classifier(model.dropout(model(batch))).flatten(0, 1)


class Answering(Labelled):
    """Predict at which token the answer begins, and at which it ends."""

    smooths = False  # over what? padding is no answer

    def logits(self, model: Any, batch: LabelledTexts) -> Float[Tensor, "N C"]:
        logits = model.classifier(model.dropout(model(batch)))
        hidden = ~batch.inputs.tokens.mask()[..., None]
        return logits.masked_fill(hidden, -1e30).transpose(1, 2).flatten(0, 1)


def labelled_loss(
    logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"], count: int, smoothing: float = 0.0, r_drop: float = 0.0
) -> Loss:
    """Cross-entropy, and how many are right; with `r_drop` of two passes, whose rows come one after the other."""
    logits = widened(logits)
    total = F.cross_entropy(logits, labels, ignore_index=IGNORE, label_smoothing=smoothing, reduction="sum")
    plain = total if not smoothing else F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
    right = (logits.argmax(-1) == labels).sum()
    parts = {"nll": plain.detach(), "accuracy": right.to(total.dtype)}
    if not r_drop:
        return Loss(total, count, parts)
    one, other = logits.log_softmax(-1).chunk(2)
    # KL(p|q) + KL(q|p) is the sum of (p - q) (log p - log q).
    apart = ((one.exp() - other.exp()) * (one - other)).sum(-1)
    divergence = 0.5 * (apart * (labels.chunk(2)[0] != IGNORE)).sum()
    means = {name: value / 2 for name, value in parts.items()}
    return Loss(total + r_drop * divergence, count, {**means, "divergence": divergence.detach()})


@dataclass(frozen=True, slots=True)
class ImageClassification:
    """Predict the class of each image; of one that two were mixed into, both, by their shares."""

    smoothing: float = 0.0

    def loss(self, model: nn.Module, batch: Images) -> Loss:
        head: Any = model.head
        log_probs = widened(head(model(batch))).log_softmax(-1)
        plain = -log_probs.gather(1, batch.labels[:, None]).squeeze(1)
        if batch.others is not None and batch.shares is not None:
            other = -log_probs.gather(1, batch.others[:, None]).squeeze(1)
            plain = batch.shares * plain + (1 - batch.shares) * other
        nll = plain.sum()
        total = (1 - self.smoothing) * nll - self.smoothing * log_probs.mean(-1).sum()
        right = (log_probs.argmax(-1) == batch.labels).float().sum()
        return Loss(total, batch.count, {"nll": nll, "accuracy": right})


@dataclass(frozen=True, slots=True)
class Captioning:
    """Predict each token of an image's caption from the image and the true tokens before it.

    With `place_penalty` the model also says where each step attended, and the squares of what each place of the image
    lacks of having been attended to once, over all steps of a caption, are added: the doubly stochastic attention of
    Xu et al. 2015.
    """

    smoothing: float = 0.0
    place_penalty: float = 0.0

    def loss(self, model: nn.Module, batch: CaptionedImages) -> Loss:
        head: Any = model.head
        labels = batch.labels
        if not self.place_penalty:
            total, plain = head.loss(model(batch), labels, self.smoothing)
            return Loss(total, batch.count, {"nll": plain})
        attending: Any = model
        x, weights = attending.attended(batch)
        total, plain = head.loss(x, labels, self.smoothing)
        seen = (weights * (labels != IGNORE)[..., None]).sum(1)
        missed = ((1 - seen) ** 2).sum()
        return Loss(total + self.place_penalty * missed, batch.count, {"nll": plain, "missed": missed.detach()})


@dataclass(frozen=True, slots=True)
class Transcription:
    """Predict each token of what is said from the sound and the true tokens before it.

    With `ctc` the encoder's positions also predict the text by themselves (connectionist temporal classification), and
    that loss has this share of the whole: it teaches the encoder, and so the attention, to go from left to right.
    """

    smoothing: float = 0.0
    ctc: float = 0.0

    def loss(self, model: nn.Module, batch: TranscribedSounds) -> Loss:
        head: Any = model.head
        if not self.ctc:
            total, plain = head.loss(model(batch), batch.labels, self.smoothing)
            return Loss(total, batch.count, {"nll": plain})
        listening: Any = model
        x, by_position = listening.joint(batch)
        total, plain = head.loss(x, batch.labels, self.smoothing)
        aligned = by_position.loss(batch)
        whole = (1 - self.ctc) * total + self.ctc * aligned
        return Loss(whole, batch.count, {"nll": plain, "ctc": aligned.detach()})


@dataclass(frozen=True, slots=True)
class Pointing:
    """Predict each position to point at, and the end, given the right ones before it."""

    def loss(self, model: nn.Module, batch: Pointings) -> Loss:
        log_probs = model(batch).flatten(0, 1)
        total = F.nll_loss(log_probs, batch.labels.flatten(), ignore_index=IGNORE, reduction="sum")
        return Loss(total, batch.count, {"nll": total})


@dataclass(frozen=True, slots=True)
class Parsing:
    """Predict each symbol of a sentence's tree, among those that can stand there, given the right ones before it.

    With `smoothing` a share of the target is spread evenly over the symbols that can stand there.
    """

    smoothing: float = 0.0

    def loss(self, model: nn.Module, batch: Parses) -> Loss:
        log_probs, labels = model(batch).flatten(0, 1), batch.labels.flatten()
        nll = F.nll_loss(log_probs, labels, ignore_index=IGNORE, reduction="sum")
        right = ((log_probs.argmax(-1) == labels) & (labels != IGNORE)).sum().to(nll.dtype)
        parts = {"nll": nll.detach(), "accuracy": right}
        if not self.smoothing:
            return Loss(nll, batch.count, parts)
        possible = log_probs.isfinite()
        even = -log_probs.masked_fill(~possible, 0.0).sum(-1) / possible.sum(-1)
        spread = (even * (labels != IGNORE)).sum()
        return Loss((1 - self.smoothing) * nll + self.smoothing * spread, batch.count, parts)


States = tuple[tuple[Tensor, ...], ...]
"""What a model carries: for each layer its tensors, a row per stream."""


class StreamedLanguageModelling:
    """Predict each token from all that its stream has read before it; gradients reach back to the window's start.

    The model gives, beside its vectors, the states at the end of a window, and takes them at the start of the next:
    `model.carry(inputs, states)`. Streams that are validated are kept apart from those that are trained on.
    """

    def __init__(self, smoothing: float = 0.0) -> None:
        self.smoothing = smoothing
        self._trained, self._validated = _Carried(), _Carried()

    def loss(self, model: Any, batch: StreamedWindows) -> Loss:
        carried = self._trained if model.training else self._validated
        x, ends = model.carry(batch.inputs, carried.before(batch))
        carried.keep(batch, ends)
        total, plain = model.head.loss(x, batch.labels, self.smoothing)
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

    def before(self, batch: StreamedWindows) -> States | None:
        """What the batch's rows start from. A batch that comes again, in halves that fit, starts where it did."""
        if batch.number != self.number:
            self.start, self.number = (self.after if batch.number else None), batch.number
        if self.start is None:
            return None
        device = batch.rows.device
        if self.start[0][0].device != device:
            self.start = tuple(tuple(part.to(device) for part in own) for own in self.start)
        return self.start if batch.rows.shape[0] == batch.streams else _each(self.start, lambda part: part[batch.rows])

    def keep(self, batch: StreamedWindows, ends: States) -> None:
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
