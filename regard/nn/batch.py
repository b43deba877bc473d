"""What models are given: tensors and descriptions (lengths, boundaries), never masks."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.nn.losses.cross_entropy import IGNORE
from regard.nn.masks import Numbers, Visible


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


@dataclass(frozen=True, slots=True)
class Tokens:
    """Rows of token ids, row `b` being `lengths[b]` long and padded on the right.

    `padded` says whether any row is shorter than the rest. It is a plain bool, so that asking never waits for a
    device; False lets attention take its kernel without a mask.
    """

    ids: Int[Tensor, "B S"]
    lengths: Int[Tensor, " B"]
    padded: bool

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], pad: int = 0) -> "Tokens":
        """The rows side by side, padded to the longest."""
        lengths = [len(row) for row in rows]
        longest = max(lengths, default=0)
        ids = torch.full((len(rows), longest), pad, dtype=torch.long)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = torch.as_tensor(row, dtype=torch.long)
        return cls(ids, torch.tensor(lengths, dtype=torch.long), padded=min(lengths, default=0) < longest)

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

    def to(self, device: torch.device | str) -> "Tokens":
        return moved(self, device)


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows of several sequences each. `numbers` says which of its row's a token belongs to, from 1; 0 is padding.

    `places` are the positions of the tokens in their own sequences. Every batch has the same shape, so that a compiled
    model never compiles again.
    """

    ids: Int[Tensor, "B S"]
    places: Int[Tensor, "B S"]
    numbers: Int[Tensor, "B S"]

    def visible(self, causal: bool = False, window: int | None = None) -> Visible:
        packed = Numbers(self.numbers, self.numbers, self.places)
        T = self.ids.shape[1]
        return Visible(causal=causal, window=window, packed=packed).build(T, T, self.ids.device)

    def seen_from(self, queries: Sequences) -> Visible:
        assert isinstance(queries, Packed), "packed sequences are seen by packed sequences"
        packed = Numbers(queries.numbers, self.numbers, queries.places)
        return Visible(packed=packed).build(queries.ids.shape[1], self.ids.shape[1], self.ids.device)

    def to(self, device: torch.device | str) -> "Packed":
        return moved(self, device)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Source rows and, when known, the target rows they belong to: whole, from `bos` to `eos`.

    `count` is how many predictions the target asks for, known without waiting for a device.
    """

    source: Tokens
    target: Tokens | None = None
    count: int = 0

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

    @property
    def tokens(self) -> int:
        """Real tokens read and predicted. Waits for the device unless the batch is still on the host."""
        return int(self.source.lengths.sum()) + self.count

    def to(self, device: torch.device | str) -> "Pairs":
        return moved(self, device)


@dataclass(frozen=True, slots=True)
class PackedPairs:
    """The same pairs packed: sequence `i` of a row of the source belongs to sequence `i` of that row of the inputs."""

    source: Packed
    inputs: Packed
    labels: Int[Tensor, "B T"]
    count: int
    tokens: int

    def to(self, device: torch.device | str) -> "PackedPairs":
        return moved(self, device)


@dataclass(frozen=True, slots=True)
class Windows:
    """Rows of running text and, for each token of them, the one that follows: IGNORE where nobody asks for it.

    `inputs` are `Tokens` or, where documents must not see each other, `Packed`.
    """

    inputs: Tokens | Packed
    labels: Int[Tensor, "B T"]
    count: int

    @property
    def tokens(self) -> int:
        """Tokens read."""
        return self.labels.numel()

    def to(self, device: torch.device | str) -> "Windows":
        return moved(self, device)


@dataclass(frozen=True, slots=True)
class Stretch:
    """The next tokens of several streams of running text, as `Windows` that go on where those before them ended.

    Row `b` belongs to stream `rows[b]` of as many as `streams`; where the batch is whole those are 0, 1, 2 and so on.
    Batch `number` 0 begins the streams.
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

    def to(self, device: torch.device | str) -> "Stretch":
        return moved(self, device)


@dataclass(frozen=True, slots=True)
class Texts:
    """Rows as an encoder reads them: one text or a pair, framed by special tokens; `segments` say which of the two.

    Without `segments` every token is of the first.
    """

    tokens: Tokens
    segments: Int[Tensor, "B S"] | None = None

    @property
    def ids(self) -> Int[Tensor, "B S"]:
        return self.tokens.ids

    def to(self, device: torch.device | str) -> "Texts":
        return moved(self, device)


@dataclass(frozen=True, slots=True)
class MaskedTexts:
    """Texts with words hidden: `labels` are the words, `places` where in their row they stand; both are filled up with
    IGNORE and 0. `elsewhere` is 0 where the second text of a pair goes on from the first, 1 where it does not.

    `count` is how many words are asked for. `share` is how many of them there are to a row: it makes one question
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

    def to(self, device: torch.device | str) -> "MaskedTexts":
        return moved(self, device)


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Texts and what they are labelled with: a class a row, a tag a token (IGNORE where none is asked for), or where
    in a row an answer begins and ends."""

    inputs: Texts
    labels: Int[Tensor, "B *more"]
    count: int

    @property
    def tokens(self) -> int:
        """Real tokens read. Waits for the device unless the batch is still on the host."""
        return int(self.inputs.tokens.lengths.sum())

    def to(self, device: torch.device | str) -> "LabelledTexts":
        return moved(self, device)


@dataclass(frozen=True, slots=True)
class Images:
    """Pictures as normalised numbers, and the class of each.

    A picture that two were mixed into has the other's class too, and the share that is its own. `patches` is how many
    tokens a model makes of each.
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

    def to(self, device: torch.device | str) -> "Images":
        return moved(self, device)


def moved(batch: Any, device: torch.device | str) -> Any:
    """The batch with its tensors on `device`, without waiting for them; "pinned" is the host's page-locked memory."""

    def move(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.pin_memory() if device == "pinned" else value.to(device, non_blocking=True)
        return moved(value, device) if is_dataclass(value) else value

    return replace(batch, **{field.name: move(getattr(batch, field.name)) for field in fields(batch)})
