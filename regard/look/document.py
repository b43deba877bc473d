"""What a page shows, as plain data that is checked when it is made: texts, weights, decoding, edits, history."""

import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from regard import config
from regard.config import Dataclass, JsonObject
from regard.errors import DataError
from regard.look.alignment import Span, words_of_pieces
from regard.look.packed_arrays import (
    as_array,
    pack_floats,
    pack_range,
    pack_weights,
    unpack_floats,
    unpack_range,
    unpack_weights,
)
from regard.look.position_tables import PositionTable

SideName = Literal["source", "target", "prefix"]

MOST_WEIGHTS = 50_000_000
"""Weights of one page: 50 heads on 1,000 tokens."""

MOST_NUMBERS = 6_000_000
"""Numbers of queries, keys and values of one page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A text and the pieces a model saw it as; with words, the word that each piece is part of (None: of none).

    White space in a piece of text is shown by marks. With `names` the pieces are no text but names of what the model
    saw, such as "item 1: 4", and are shown as they are.
    """

    text: str
    pieces: tuple[str, ...]
    words: tuple[str, ...] | None = None
    word_of: tuple[int | None, ...] | None = None
    names: bool = False

    def __post_init__(self) -> None:
        if (self.words is None) != (self.word_of is None):
            raise DataError("words and word_of go together: give both or neither")
        if self.words is not None and self.word_of is not None:
            if len(self.word_of) != len(self.pieces):
                raise DataError(f"word_of has {len(self.word_of)} entries for {len(self.pieces)} pieces")
            if any(word is not None and not 0 <= word < len(self.words) for word in self.word_of):
                raise DataError(f"word_of={list(self.word_of)} must point into {len(self.words)} words, from 0")

    @classmethod
    def of(
        cls,
        text: str,
        pieces: Sequence[str],
        piece_spans: Sequence[Span],
        word_spans: Sequence[Span] | None = None,
        *,
        specials: bool = False,
    ) -> "Side":
        """A side whose words are found by character overlap; without spans, words are what white space separates.

        With `specials` a piece that covers no characters, such as [CLS], is a word of its own, and what no piece covers
        is none; without, such pieces are of no word.
        """
        spans = [match.span() for match in re.finditer(r"\S+", text)] if word_spans is None else word_spans
        words, word_of = [text[start:end] for start, end in spans], words_of_pieces(piece_spans, spans)
        if specials:
            words, word_of = _with_specials(words, word_of, pieces, piece_spans)
        return cls(text=text, pieces=tuple(pieces), words=tuple(words), word_of=tuple(word_of))


def _with_specials(
    words: Sequence[str], word_of: Sequence[int | None], pieces: Sequence[str], piece_spans: Sequence[Span]
) -> tuple[list[str], list[int | None]]:
    shown: list[str] = []
    places: dict[int, int] = {}
    found: list[int | None] = []
    for piece, (start, stop), word in zip(pieces, piece_spans, word_of, strict=True):
        if word is None and start < stop:
            found.append(None)  # white space
            continue
        if word is None or word not in places:
            shown.append(piece if word is None else words[word])
        found.append(len(shown) - 1 if word is None else places.setdefault(word, len(shown) - 1))
    return shown, found


@dataclass(frozen=True, slots=True, kw_only=True)
class Neurons:
    """The vectors behind an attention's weights, head by head: queries, keys and values.

    The score of a query and a key is the sum over features of q k, or with `combine="additive"` of tanh(q + k) times
    `vector`; then times `scale`; then, with `offsets`, plus what the head adds for the distance: for row i and column
    j of S its number i - j + S - 1. Numbers may be tensors, arrays, lists or packed.
    """

    q: Any
    k: Any
    v: Any
    scale: float = 1.0
    combine: Literal["product", "additive"] = "product"
    vector: Any = None
    offsets: Any = None

    def arrays(self) -> dict[str, np.ndarray]:
        """The vectors as arrays, checked against one another."""
        given = {name: getattr(self, name) for name in ("q", "k", "v", "vector", "offsets")}
        found = {name: unpack_floats(value) for name, value in given.items() if value is not None}
        shapes = {name: array.shape for name, array in found.items()}
        q, k, v = (shapes[name] for name in "qkv")
        if not (len(q) == len(k) == len(v) == 3 and q[0] == k[0] == v[0] and q[2] == k[2] and k[1] == v[1]):
            raise DataError(f"q, k and v of shapes {q}, {k} and {v}; must be heads, places, features, alike")
        if (self.combine == "additive") != ("vector" in found) or ("vector" in found and shapes["vector"] != (q[2],)):
            raise DataError("an additive score, and no other, has a vector with a number for each feature")
        if "offsets" in found and shapes["offsets"] != (q[0], q[1] + k[1] - 1):
            raise DataError(f"offsets of shape {shapes['offsets']}; must be {(q[0], q[1] + k[1] - 1)}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMap:
    """The weights of one attention: head, then row (which piece looks), then column (where it looks).

    A row of the target side is the step that predicts that piece. `prefix` is the target as the decoder reads it,
    one piece behind. `weights` may be a tensor, an array, nested lists, or packed as `to_mapping` packs them. `heads`
    are the numbers that the heads have in the model, where not all of them are here.
    """

    name: str
    kind: Literal["self", "cross"]
    rows: SideName
    columns: SideName
    weights: Any
    neurons: Neurons | None = None
    heads: tuple[int, ...] | None = None

    def array(self) -> Float[np.ndarray, "H T S"]:
        """The weights as an array, checked to lie between 0 and 1."""
        try:
            weights = unpack_weights(self.weights) if isinstance(self.weights, Mapping) else as_array(self.weights)
        except (TypeError, ValueError, KeyError, zlib.error) as error:
            raise DataError(f"the weights of '{self.name}' cannot be read: {error}") from None
        if weights.ndim != 3 or not weights.size:
            raise DataError(f"the weights of '{self.name}' have shape {weights.shape}; must be heads, rows, columns")
        # Sums in low precision overshoot by a little; a NaN fails this comparison too.
        if not (weights.min() >= -1e-2 and weights.max() <= 1 + 1e-2):
            raise DataError(f"the weights of '{self.name}' run from {weights.min()} to {weights.max()}; must be 0 to 1")
        return weights.clip(0, 1)

    def check(self, rows: int, columns: int) -> None:
        """Refuse weights, heads or vectors that do not fit so many pieces."""
        H, *shape = self.array().shape
        if tuple(shape) != (rows, columns):
            raise DataError(f"'{self.name}' weighs {tuple(shape)} pieces; the sentence has {(rows, columns)}")
        if self.heads is not None and len(self.heads) != H:
            raise DataError(f"'{self.name}' has {H} heads and numbers for {len(self.heads)}")
        if self.neurons is not None:
            vectors = self.neurons.arrays()
            if (vectors["q"].shape[:2], vectors["k"].shape[:2]) != ((H, rows), (H, columns)):
                raise DataError(
                    f"the vectors of '{self.name}' are not those of {H} heads, {rows} rows and {columns} columns"
                )


def that_fit(maps: Sequence[AttentionMap]) -> tuple[tuple[AttentionMap, ...], str]:
    """The last attentions that fit a page, and what the page says about the others."""
    room, kept = MOST_WEIGHTS, len(maps)
    while kept and (room := room - math.prod(maps[kept - 1].weights.shape)) >= 0:
        kept -= 1
    if maps and kept == len(maps):
        raise DataError(
            f"'{maps[-1].name}' alone has {math.prod(maps[-1].weights.shape):,} weights; a page holds "
            f"{MOST_WEIGHTS:,}: give fewer heads, or less text"
        )
    left = (
        f"The page holds the last {len(maps) - kept} attentions; {kept} more did not fit. Give them alone to see them."
    )
    return tuple(maps[kept:]), left if kept else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """One gate or state of a recurrent cell over time, by its letter: step, then unit. A gate lies between 0 and 1."""

    name: str
    values: Any
    gate: bool = False

    def array(self) -> Float[np.ndarray, "T D"]:
        try:
            values = unpack_range(self.values)
        except (TypeError, ValueError, KeyError) as error:
            raise DataError(f"the values of '{self.name}' cannot be read: {error}") from None
        if values.ndim != 2 or not values.size or not np.isfinite(values).all():
            raise DataError(f"the values of '{self.name}' have shape {values.shape}; must be steps, units, all finite")
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """The gates and states of one recurrent cell. Its steps are the pieces of a side, in the side's order.

    With `backward` it read them from the last to the first.
    """

    name: str
    steps: SideName
    parts: tuple[Units, ...]
    backward: bool = False

    def check(self, pieces: int) -> None:
        """Refuse parts of other numbers of steps or units."""
        shapes = {one.array().shape for one in self.parts}
        if len(shapes) != 1 or next(iter(shapes))[0] != pieces:
            raise DataError(f"'{self.name}' has parts of shapes {sorted(shapes)}; must be one, of {pieces} steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A number for each piece of a side, such as whether a quote is open: units may be found that go with it."""

    name: str
    side: SideName
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A piece that a step might have chosen, and how likely the model thought it."""

    piece: str
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchedImage:
    """An image as a model saw it, a PNG in a data: address, cut in `rows` x `columns` patches.

    The source's piece `first + row * columns + column` is a patch; pieces before `first` are none.
    """

    image: str
    width: int
    height: int
    rows: int
    columns: int
    first: int = 1

    def check(self, pieces: int) -> None:
        """Refuse what is no image of so many pieces."""
        if not re.fullmatch(r"data:image/png;base64,[A-Za-z0-9+/]+=*", self.image):
            raise DataError("an image must be a PNG in base64, as data:image/png;base64,...")
        if min(self.width, self.height, self.rows, self.columns) < 1 or self.first < 0:
            raise DataError("an image's sizes must be at least 1")
        if self.first + self.rows * self.columns != pieces:
            raise DataError(f"{self.first} pieces and {self.rows} x {self.columns} patches; the source has {pieces}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundTrack:
    """A sound as a model heard it: a WAV and its spectrogram, a PNG, in data: addresses.

    The source's pieces are positions, each of `step` seconds, of `seconds` in all. `wave` is how loud the sound is,
    from 0 to 1, in stretches of equal length. `words` say when each word of the target was said, `aligned` when each of
    its pieces was by CTC, in seconds; a piece that has no time, such as the end, has (0, 0).
    """

    audio: str
    spectrogram: str
    seconds: float
    step: float
    wave: tuple[float, ...]
    words: tuple[tuple[float, float], ...] = ()
    aligned: tuple[tuple[float, float], ...] = ()

    def check(self, words: int | None, pieces: int) -> None:
        """Refuse what is no sound of so many words and pieces of the target."""
        for name, kind, value in (("audio", "audio/wav", self.audio), ("spectrogram", "image/png", self.spectrogram)):
            if not re.fullmatch(rf"data:{kind};base64,[A-Za-z0-9+/]+=*", value):
                raise DataError(f"a sound's {name} must be data:{kind};base64,...")
        if not (self.seconds > 0 and self.step > 0):
            raise DataError(f"a sound of {self.seconds} seconds in positions of {self.step}; both must be above 0")
        if self.words and len(self.words) != words:
            raise DataError(f"times of {len(self.words)} words; the target has {words}")
        if self.aligned and len(self.aligned) != pieces:
            raise DataError(f"times of {len(self.aligned)} pieces; the target has {pieces}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """A node of a tree that was written: its label, its parent's number (-1 of the root), and the step that wrote it.

    A node over a word names the source's piece that it is.
    """

    label: str
    parent: int
    step: int
    word: int | None = None


def check_tree(tree: Sequence[TreeNode], steps: int, pieces: int) -> None:
    """Refuse nodes before their parents, and steps and words that there are not."""
    for number, node in enumerate(tree):
        if not (node.parent == -1 if number == 0 else 0 <= node.parent < number):
            raise DataError(f"node {number} of a tree has the parent {node.parent}; a parent comes before it")
        if not 0 <= node.step < steps or not (node.word is None or 0 <= node.word < pieces):
            raise DataError(f"node {number} of a tree is of step {node.step} and word {node.word}, which are not there")


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A candidate of a beam search: a piece after the branch `parent` of the step before, -1 the start.

    `log_prob` is of the whole so far. `best` ones lead to the output that was chosen.
    """

    piece: str
    parent: int
    log_prob: float
    fate: Literal["kept", "finished", "pruned"]
    best: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """How a step that may copy came to its piece: `writing` is the share that the vocabulary has in its prediction.

    That is p_gen of a pointer-generator and the sentinel's share of a pointer-sentinel; the rest copies words that
    were read. `written` and `copied` add up to the probability of the piece; None where no piece followed.
    """

    writing: float
    written: float | None = None
    copied: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Vectors of every step, as tensors, arrays, lists or packed, and the branches of every step of the search.

    `hidden` is what a step predicts from, `context` what it gathered from where it looked. `mixture` is of models that
    copy. `summary` is the one vector that a decoder without attention gets of all that was read.
    """

    hidden: Any = None
    context: Any = None
    summary: Any = None
    beam: tuple[tuple[Branch, ...], ...] = ()
    mixture: tuple[Mixture, ...] = ()

    def arrays(self) -> dict[str, np.ndarray]:
        """The vectors that there are, as arrays."""
        given = {"hidden": self.hidden, "context": self.context, "summary": self.summary}
        return {name: unpack_floats(value) for name, value in given.items() if value is not None}

    def check(self, steps: int) -> None:
        """Refuse vectors of another number of steps, shares that are none, and branches from nowhere."""
        for name, array in self.arrays().items():
            if name == "summary":
                if array.ndim != 1:
                    raise DataError(f"a summary of shape {array.shape}; must be one vector")
            elif array.ndim != 2 or len(array) != steps:
                raise DataError(f"{name} vectors of shape {array.shape} for {steps} steps; must be one per step")
        if self.mixture and len(self.mixture) != steps:
            raise DataError(f"{len(self.mixture)} mixtures for {steps} steps; must be one per step")
        for one in self.mixture:
            # A NaN fails these comparisons too.
            if not all(share is None or 0 <= share <= 1 for share in (one.writing, one.written, one.copied)):
                raise DataError(f"{one} has a share outside 0 to 1")
        before = 0
        for number, branches in enumerate(self.beam, 1):
            for branch in branches:
                if not (branch.parent == -1 if number == 1 else 0 <= branch.parent < before):
                    raise DataError(f"a branch of step {number} comes from branch {branch.parent} of {before}")
            before = len(branches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """What became of a sentence when one head was changed: what the model then says, and how it finds the old one.

    A head is `masked`, made to look `even`ly at all that it sees, or `swapped`: it looks where it looks on the sentence
    `other` of the document. `head` is its number in the model. `log_prob` is of all the old pieces together, and
    `probabilities` of each; where the sentence has answers, of the first answer, and of each.
    """

    attention: str
    head: int
    log_prob: float
    probabilities: tuple[float, ...]
    text: str | None = None
    edit: Literal["masked", "even", "swapped"] = "masked"
    other: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadHistory:
    """One head, by its number in the model: the name of a measure to its value at each step."""

    attention: str
    head: int
    measures: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All heads at the same steps."""

    steps: tuple[int, ...]
    heads: tuple[HeadHistory, ...]

    def __post_init__(self) -> None:
        for head in self.heads:
            for name, values in head.measures.items():
                if len(values) != len(self.steps):
                    of = f"{name} of {head.attention} head {head.head}"
                    raise DataError(f"{len(values)} values of {of}, but {len(self.steps)} steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """That numbers were typed, not computed by a model: a page lets its reader type others.

    The scores are scaled by 1 / sqrt(`d_k`). With `raw` the scores themselves were given, so that there are no vectors
    to show; `causal` hides keys after the query's place.
    """

    d_k: float
    causal: bool = False
    raw: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One input and what the model made of it.

    `alignment` holds gold pairs (source word, target word). `candidates` gives, for each target piece, what the step
    could have chosen, likeliest first; where there is no target, what each piece of the source was followed by.
    `scores` are lines to show beside the text, each a name and a value. A `picture` has its patches for pieces, a
    `sound` its positions in time;
    `rollout` is what each layer's output holds of each piece, layers in the place of heads. `decoding` is how the
    output came about, and `edited` what becomes of it when heads are changed. Steps are target pieces, or
    where there is no target the source's. `answers` are what a model says of the whole, such as classes, likeliest
    first. `tree` is what the target writes, where it is a tree over the source's words. `recurrences` are the gates and
    states of recurrent cells, and `features` what their units may be compared with. `worked` is of numbers typed.
    """

    source: Side
    target: Side | None = None
    prefix: Side | None = None
    attentions: tuple[AttentionMap, ...] = ()
    alignment: tuple[tuple[int, int], ...] | None = None
    candidates: tuple[tuple[Candidate, ...], ...] | None = None
    scores: Mapping[str, str] = field(default_factory=dict)
    picture: PatchedImage | None = None
    sound: SoundTrack | None = None
    rollout: AttentionMap | None = None
    decoding: Decoding | None = None
    answers: tuple[Candidate, ...] = ()
    edited: tuple[Edited, ...] = ()
    tree: tuple[TreeNode, ...] = ()
    recurrences: tuple[Recurrence, ...] = ()
    features: tuple[Feature, ...] = ()
    worked: Worked | None = None

    def __post_init__(self) -> None:
        if not self.attentions and not self.recurrences:
            raise DataError(f"'{self.source.text}' has no attentions and no recurrences: a page needs one of them")
        for recurrence in self.recurrences:
            recurrence.check(len(self.side(recurrence.steps).pieces))
        for feature in self.features:
            if len(feature.values) != (pieces := len(self.side(feature.side).pieces)):
                raise DataError(f"'{feature.name}' has {len(feature.values)} values for {pieces} pieces")
        for attention in (*self.attentions, *([] if self.rollout is None else [self.rollout])):
            attention.check(len(self.side(attention.rows).pieces), len(self.side(attention.columns).pieces))
        if self.picture is not None:
            self.picture.check(len(self.source.pieces))
        if self.sound is not None:
            target = self.target or self.source
            self.sound.check(None if target.words is None else len(target.words), len(target.pieces))
        self._check_steps(len((self.target or self.source).pieces))
        check_tree(self.tree, len((self.target or self.source).pieces), len(self.source.pieces))
        if self.alignment is not None:
            sources, targets = self.side("source").words, self.side("target").words
            if sources is None or targets is None:
                raise DataError("a gold alignment pairs words: both sides must have them")
            for source, target in self.alignment:
                if not (0 <= source < len(sources) and 0 <= target < len(targets)):
                    raise DataError(f"gold pair {(source, target)} is outside {len(sources)} x {len(targets)} words")

    def aligned_pieces(self, attention: AttentionMap) -> frozenset[tuple[int, int]]:
        """Rows and columns of the pieces whose words the gold alignment pairs, where target looks at source."""
        if self.alignment is None or (attention.rows, attention.columns) != ("target", "source"):
            return frozenset()
        pairs, sources, targets = set(self.alignment), self.source.word_of or (), self.side("target").word_of or ()
        return frozenset(
            (row, column) for row, to in enumerate(targets) for column, of in enumerate(sources) if (of, to) in pairs
        )

    def _check_steps(self, steps: int) -> None:
        if self.candidates is not None and len(self.candidates) != steps:
            raise DataError(f"candidates for {len(self.candidates)} steps; must be {steps}, one per piece")
        if self.decoding is not None:
            self.decoding.check(steps)
        wanted = len(self.answers) or steps
        for one in self.edited:
            if len(one.probabilities) != wanted:
                raise DataError(
                    f"{len(one.probabilities)} probabilities of {one.attention} {one.head}; must be {wanted}"
                )

    def side(self, name: SideName) -> Side:
        """The side of that name, which must be there."""
        side = getattr(self, name)
        if side is None:
            raise DataError(f"the sentence '{self.source.text}' has no {name}, which something in it refers to")
        return side


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a page shows: a title, perhaps a note under it, and one or more sentences.

    `positions` are the model's positional encodings, `history` its heads over training. `beside` marks one of several
    pages side by side, which show the same view of the same sentence.
    """

    title: str
    sentences: tuple[Sentence, ...]
    note: str = ""
    positions: tuple[PositionTable, ...] = ()
    history: History | None = None
    beside: bool = False

    def __post_init__(self) -> None:
        if not self.sentences:
            raise DataError("the document has no sentences: a page needs at least one")
        for table in self.positions:
            table.array()

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "Document":
        """The document in a mapping such as `to_mapping` gives, everything in it checked."""
        return config.from_mapping(cls, mapping)

    def to_mapping(self, *, packed: bool = True) -> JsonObject:
        """Plain values, ready for JSON: what a page embeds and a server sends. Not `packed`, numbers are lists."""
        return to_mapping(self, packed=packed)

    def figure(self, **chosen: Any) -> Any:
        """A matplotlib figure: see `regard.look.figures.figure`."""
        from regard.look.figures import figure

        return figure(self, **chosen)

    def save(self, path: str | Path) -> Path:
        """Write the page to a file that any browser opens: `show(...).save("attention.html")`."""
        from regard.look.page import render

        where = config.path_of(path, "the page to write")
        try:
            where.write_text(render(self), encoding="utf-8", newline="\n")
        except OSError as error:
            raise DataError(f"{where} cannot be written: {error.strerror or error}") from None
        return where

    def _repr_html_(self) -> str:
        """In a notebook, the page."""
        from regard.look.page import framed

        return framed(self)


def to_mapping(part: Dataclass, *, packed: bool = True) -> JsonObject:
    """A document or a part of one as plain values; arrays in base64 or, not `packed`, as lists. None is left out."""
    pack = pack_weights if isinstance(part, AttentionMap) else pack_range if isinstance(part, Units) else pack_floats
    arrays = _arrays(part)
    result = {}
    for each in fields(part):
        value = getattr(part, each.name)
        if each.name in arrays:
            result[each.name] = pack(arrays[each.name]) if packed else arrays[each.name].tolist()
        elif value is not None and (value or each.name not in _LEFT_OUT_IF_EMPTY):
            result[each.name] = _plain(value, packed)
    return result


_LEFT_OUT_IF_EMPTY = ("answers", "edited", "mixture", "tree", "recurrences", "features")


def _arrays(part: object) -> dict[str, np.ndarray]:
    match part:
        case AttentionMap():
            return {"weights": part.array()}
        case Units():
            return {"values": part.array()}
        case PositionTable():
            return {"table": part.array()}
        case Neurons() | Decoding():
            return part.arrays()
    return {}


def _plain(value: object, packed: bool) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return to_mapping(value, packed=packed)
    return [_plain(one, packed) for one in value] if isinstance(value, tuple) else value
