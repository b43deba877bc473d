"""Batches, as models take them: tensors and descriptions (lengths, boundaries), never masks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.config import Dataclass
from regard.nn.losses.cross_entropy import IGNORE
from regard.nn.masks import SequenceIds, Visible

Same = TypeVar("Same", bound=Dataclass)


@runtime_checkable
class Sequences(Protocol):
    """Token sequences, however they are laid out."""

    @property
    def ids(self) -> Int[Tensor, "B S"]: ...

    @property
    def places(self) -> Int[Tensor, "B S"] | None:
        """The position of every token in its own sequence; None where that is its column."""
        ...

    def visible(self, causal: bool = False, window: int | None = None) -> Visible:
        """What these tokens see of one another."""
        ...

    def seen_from(self, queries: "Sequences") -> Visible:
        """What `queries`, sequence by sequence, see of these tokens."""
        ...


def map_tensors(batch: Same, change: Callable[[Tensor], Tensor]) -> Same:
    """The batch with every tensor changed, in the dataclasses that it is made of too."""

    def changed(value: object) -> object:
        if isinstance(value, Tensor):
            return change(value)
        return map_tensors(value, change) if is_dataclass(value) and not isinstance(value, type) else value

    return replace(batch, **{field.name: changed(getattr(batch, field.name)) for field in fields(batch)})


def tensors(batch: Dataclass) -> Iterator[Tensor]:
    """The tensors that a batch is made of, in their order."""
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, Dataclass):
            yield from tensors(value)


def moved(batch: Same, device: torch.device | str) -> Same:
    """The batch with its tensors on `device`, without waiting for them; "pinned" is the host's page-locked memory."""
    if device == "pinned":
        return map_tensors(batch, Tensor.pin_memory)
    return map_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))


class Movable:
    """A dataclass of tensors that moves to a device as a whole."""

    __slots__ = ()

    def to(self: Same, device: torch.device | str) -> Same:
        return moved(self, device)


@dataclass(frozen=True, slots=True)
class Tokens(Movable):
    """Rows of token ids, row `b` being `lengths[b]` long and padded on the right.

    `padded` says whether any row is shorter than the rest. It is a plain bool, so that asking never waits for a
    device; False lets attention take its kernel without a mask.
    """

    ids: Int[Tensor, "B S"]
    lengths: Int[Tensor, " B"]
    padded: bool

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], pad: int = 0, length: int | None = None) -> "Tokens":
        """The rows side by side, padded to the longest, or to a `length` and then called padded in any case."""
        lengths = [len(row) for row in rows]
        longest = max(lengths, default=0) if length is None else length
        ids = np.full((len(rows), longest), pad, dtype=np.int64)
        for line, row in zip(ids, rows, strict=True):
            line[: len(row)] = row
        padded = length is not None or min(lengths, default=0) < longest
        return cls(torch.from_numpy(ids), torch.tensor(lengths, dtype=torch.long), padded)

    @property
    def places(self) -> None:
        return None

    def mask(self) -> Bool[Tensor, "B S"]:
        """True where a row has a token."""
        return torch.arange(self.ids.shape[1], device=self.ids.device) < self.lengths[:, None]

    def visible(self, causal: bool = False, window: int | None = None) -> Visible:
        # Right padding lies after every real query, so a causal view needs no lengths.
        return Visible(causal=causal, window=window, lengths=self.lengths if self.padded and not causal else None)

    def seen_from(self, queries: Sequences) -> Visible:
        return Visible(lengths=self.lengths if self.padded else None)


@dataclass(frozen=True, slots=True)
class Packed(Movable):
    """Rows of several sequences each. `numbers` says which of its row's a token belongs to, from 1; 0 is padding.

    `places` are the positions of the tokens in their own sequences. Every batch has the same shape, so that a compiled
    model never compiles again.
    """

    ids: Int[Tensor, "B S"]
    places: Int[Tensor, "B S"]
    numbers: Int[Tensor, "B S"]

    def visible(self, causal: bool = False, window: int | None = None) -> Visible:
        packed = SequenceIds(self.numbers, self.numbers, self.places)
        T = self.ids.shape[1]
        return Visible(causal=causal, window=window, packed=packed).build(T, T, self.ids.device)

    def seen_from(self, queries: Sequences) -> Visible:
        assert isinstance(queries, Packed), "packed sequences are seen by packed sequences"
        packed = SequenceIds(queries.numbers, self.numbers, queries.places)
        return Visible(packed=packed).build(queries.ids.shape[1], self.ids.shape[1], self.ids.device)


class WithTarget(Movable):
    """A batch whose rows may have a `target`, what is to be written of each, from its first token to its last."""

    __slots__ = ()
    target: Tokens | None

    @property
    def inputs(self) -> Tokens:
        """What the decoder reads: each target without its last token."""
        assert self.target is not None
        return Tokens(self.target.ids[:, :-1], self.target.lengths - 1, self.target.padded)

    @property
    def labels(self) -> Int[Tensor, "B T"]:
        """What it should predict: each target without its first token, padding marked to be ignored."""
        assert self.target is not None
        labels = self.target.ids[:, 1:]
        return labels.masked_fill(~self.target.mask()[:, 1:], IGNORE) if self.target.padded else labels


@dataclass(frozen=True, slots=True)
class Pairs(WithTarget):
    """Source rows and, when known, the target rows they belong to: whole, from `bos` to `eos`.

    `count` is how many predictions the target asks for, known without waiting for a device.
    """

    source: Tokens
    target: Tokens | None = None
    count: int = 0

    @property
    def tokens(self) -> int:
        """Real tokens read and predicted. Waits for the device unless the batch is still on the host."""
        return int(self.source.lengths.sum()) + self.count


@dataclass(frozen=True, slots=True)
class PackedPairs(Movable):
    """The same pairs packed: sequence `i` of a row of the source belongs to sequence `i` of that row of the inputs."""

    source: Packed
    inputs: Packed
    labels: Int[Tensor, "B T"]
    count: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Windows(Movable):
    """Windows of running text and, for each token of them, the next one: IGNORE where it is not predicted.

    `inputs` are `Tokens` or, where documents must not see each other, `Packed`.
    """

    inputs: Tokens | Packed
    labels: Int[Tensor, "B T"]
    count: int

    @property
    def tokens(self) -> int:
        """Tokens read."""
        return self.labels.numel()


@dataclass(frozen=True, slots=True)
class StreamedWindows(Movable):
    """The next tokens of several streams of running text: `Windows` that continue where the previous ones ended.

    Row `b` belongs to stream `rows[b]` of `streams`; where the batch is whole those are 0, 1, 2 and so on. Batch
    `number` 0 begins the streams.
    """

    inputs: Tokens
    labels: Int[Tensor, "B T"]
    count: int
    rows: Int[Tensor, " B"]
    streams: int
    number: int

    @property
    def tokens(self) -> int:
        """Tokens read."""
        return self.labels.numel()


@dataclass(frozen=True, slots=True)
class Texts(Movable):
    """Rows as an encoder reads them: one text or a pair, framed by special tokens; `segments` say which of the two.

    Without `segments` every token is of the first.
    """

    tokens: Tokens
    segments: Int[Tensor, "B S"] | None = None

    @property
    def ids(self) -> Int[Tensor, "B S"]:
        return self.tokens.ids


@dataclass(frozen=True, slots=True)
class MaskedTexts(Movable):
    """Texts with masked words: `labels` are the words, `places` their positions in the row, padded with IGNORE and 0.
    `elsewhere` is 0 where the second text of a pair follows the first, 1 where it does not.

    `count` is how many words are predicted. `share` is how many of them there are per row: it makes one prediction
    about a pair weigh as much as all the words of a row, and stays as it was when rows are split.
    """

    inputs: Texts
    places: Int[Tensor, "B M"]
    labels: Int[Tensor, "B M"]
    elsewhere: Int[Tensor, " B"] | None
    count: int
    share: float

    @property
    def tokens(self) -> int:
        """Real tokens read. Waits for the device unless the batch is still on the host."""
        return int(self.inputs.tokens.lengths.sum())


@dataclass(frozen=True, slots=True)
class LabelledTexts(Movable):
    """Texts and their labels: a class per row, a tag per token (IGNORE where there is none), or where in a row an
    answer begins and ends."""

    inputs: Texts
    labels: Int[Tensor, " B *more"]
    count: int

    @property
    def tokens(self) -> int:
        """Real tokens read. Waits for the device unless the batch is still on the host."""
        return int(self.inputs.tokens.lengths.sum())


@dataclass(frozen=True, slots=True)
class Images(Movable):
    """Images as normalised numbers, and the class of each.

    An image that two were mixed into has the other's class too, and the share that is its own. `patches` is how many
    tokens a model reads of each.
    """

    pixels: Float[Tensor, "B C Y X"]
    labels: Int[Tensor, " B"]
    count: int
    patches: int = 1
    others: Int[Tensor, " B"] | None = None
    shares: Float[Tensor, " B"] | None = None

    @property
    def tokens(self) -> int:
        """Tokens read."""
        return self.labels.shape[0] * self.patches


@dataclass(frozen=True, slots=True)
class CaptionedImages(WithTarget):
    """Images as normalised numbers and, when known, the caption of each: whole, from `bos` to `eos`.

    `count` is how many predictions the captions ask for, `patches` how many tokens a model reads of each image.
    """

    pixels: Float[Tensor, "B C Y X"]
    target: Tokens | None = None
    count: int = 0
    patches: int = 1

    @property
    def tokens(self) -> int:
        """Tokens read and predicted."""
        return self.pixels.shape[0] * self.patches + self.count


@dataclass(frozen=True, slots=True)
class SourcedTexts(WithTarget):
    """Rows of several sources each, texts, images and sounds, and, when known, the text to write of each, from `bos` to
    `eos`.

    The k-th text of row `b` is `lengths[b, k]` tokens long, 0 where it is missing; `pictured` says which of P images
    are there. `patches` is how many places a model reads of each. The a-th sound has `frame_lengths[b, a]` log-mel
    frames, 0 where it is missing, of which a model reads one position for every `reduction`.
    """

    ids: Int[Tensor, "B K S"]
    lengths: Int[Tensor, "B K"]
    pixels: Float[Tensor, "B P C Y X"]
    pictured: Bool[Tensor, "B P"]
    target: Tokens | None = None
    count: int = 0
    patches: int = 1
    frames: Float[Tensor, "B A F M"] | None = None
    frame_lengths: Int[Tensor, "B A"] | None = None
    reduction: int = 1

    @property
    def tokens(self) -> int:
        """Real tokens, places and positions read, and tokens predicted."""
        heard = 0 if self.frame_lengths is None else int(-(-self.frame_lengths // self.reduction).sum())
        return int(self.lengths.sum()) + int(self.pictured.sum()) * self.patches + heard + self.count


END = 0
"""The choice that ends an output. Position p of the input is choice p + 1."""


@dataclass(frozen=True, slots=True)
class Points(Movable):
    """Rows of items of X numbers each, row `b` being `lengths[b]` long and padded on the right with zeros."""

    values: Float[Tensor, "B S X"]
    lengths: Int[Tensor, " B"]
    padded: bool

    @classmethod
    def of(cls, rows: Sequence[Float[np.ndarray, "_ X"]]) -> "Points":
        """The rows side by side, padded to the longest."""
        lengths = [len(row) for row in rows]
        values = torch.zeros(len(rows), max(lengths), rows[0].shape[1])
        for index, row in enumerate(rows):
            values[index, : len(row)] = torch.from_numpy(np.asarray(row, dtype=np.float32))
        return cls(values, torch.tensor(lengths), padded=min(lengths) < max(lengths))


@dataclass(frozen=True, slots=True)
class Pointings(Movable):
    """Rows of items and, when known, the positions to point at: each row's, then END; past it, IGNORE."""

    source: Points
    target: Int[Tensor, "B T"] | None = None
    count: int = 0

    @classmethod
    def of(
        cls, rows: Sequence[Float[np.ndarray, "_ X"]], orders: Sequence[Int[np.ndarray, " _"]] | None = None
    ) -> "Pointings":
        """The rows and the positions to point at, counted from 0."""
        source = Points.of(rows)
        if orders is None:
            return cls(source)
        target = torch.full((len(orders), max(map(len, orders)) + 1), IGNORE)
        for index, order in enumerate(orders):
            target[index, : len(order)] = torch.from_numpy(np.asarray(order, dtype=np.int64)) + 1
            target[index, len(order)] = END
        return cls(source, target, sum(len(order) + 1 for order in orders))

    @property
    def inputs(self) -> Int[Tensor, "B T"]:
        """What the decoder reads: the choice before each; END stands for the start."""
        assert self.target is not None
        before = torch.full_like(self.target, END)
        before[:, 1:] = self.target[:, :-1].clamp_min(END)
        return before

    @property
    def labels(self) -> Int[Tensor, "B T"]:
        assert self.target is not None
        return self.target

    @property
    def tokens(self) -> int:
        """Items read and choices made. Waits for the device unless the batch is still on the host."""
        return int(self.source.lengths.sum()) + self.count


CLOSE = 1
"""The symbol of a tree that closes a bracket; END ends the tree, and stands before its first symbol too."""
FIRST_LABEL = 2
"""The first symbol of a tree with a label."""


@dataclass(frozen=True, slots=True)
class Parses(WithTarget):
    """Sentences as pieces of words and, when known, the symbols of their trees: whole, from END to END.

    `word_of` is the word of each piece, counted from 1, and 0 of special tokens. Row `b` has `lengths[b]` words, none
    more than `longest`. `count` is how many predictions the trees ask for.
    """

    source: Texts
    word_of: Int[Tensor, "B S"]
    lengths: Int[Tensor, " B"]
    longest: int
    target: Tokens | None = None
    count: int = 0

    @property
    def tokens(self) -> int:
        """Real pieces read and symbols predicted. Waits for the device unless the batch is still on the host."""
        return int(self.source.tokens.lengths.sum()) + self.count


@dataclass(frozen=True, slots=True)
class TranscribedSounds(WithTarget):
    """Log-mel frames of sounds and, when known, the text of each: whole, from `bos` to `eos`.

    `count` is how many predictions the texts ask for. A model reads one position for every `reduction` frames.
    """

    source: Points
    target: Tokens | None = None
    count: int = 0
    reduction: int = 1

    @property
    def tokens(self) -> int:
        """Positions read and tokens predicted. Waits for the device unless the batch is still on the host."""
        return (
            int((self.source.lengths + self.reduction - 1).div(self.reduction, rounding_mode="floor").sum())
            + self.count
        )


def padding(batch: Dataclass) -> tuple[int, int]:
    """How many places of a batch's rows of tokens are padding, and how many there are; packed rows have none."""
    hidden = places = 0
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, Tokens):
            places += value.ids.numel()
            hidden += value.ids.numel() - int(value.lengths.sum())
        elif isinstance(value, Dataclass):
            more = padding(value)
            hidden, places = hidden + more[0], places + more[1]
    return hidden, places


def doubled(batch: Same) -> Same:
    """The batch with all its rows repeated after them. Its counts stay as they were."""
    return map_tensors(batch, lambda rows: torch.cat((rows, rows)))


def halves(batch: Same) -> list[Same]:
    """The first half of the rows and the second, each with its own counts; just itself where it cannot be halved."""
    rows = row_count(batch)
    if rows < 2:
        return [batch]
    middle = (rows + 1) // 2
    return [rows_between(batch, 0, middle), rows_between(batch, middle, rows)]


def row_count(batch: Dataclass) -> int:
    """The number of rows that a batch can be split into: one where it has no labels."""
    labels = getattr(batch, "labels", None)
    return 1 if labels is None else labels.shape[0]


def rows_between(batch: Same, first: int, last: int) -> Same:
    """The rows from `first` to before `last`, with their own counts."""
    return _counted(map_tensors(batch, lambda values: values[first:last]))


def _counted(batch: Any) -> Any:
    count = int((batch.labels != IGNORE).sum())
    if isinstance(batch, PackedPairs):
        return replace(batch, count=count, tokens=_real(batch.source) + _real(batch.inputs))
    return replace(batch, count=count)


def _real(side: Packed) -> int:
    return int((side.numbers > 0).sum())
