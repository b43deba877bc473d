"""One self-contained HTML page that shows where a model looked, from one JSON document."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from string import Template
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float

from regard import config
from regard.errors import DataError
from regard.look.align import Span, words_of_pieces

SideName = Literal["source", "target", "prefix"]

SCRIPTS = ("core.js", "colour.js", "matrix.js", "heads.js", "heat.js", "grid.js", "page.js")

# Weights travel as whole numbers of this grid in 16 bits. Rounding to three decimals changes value at odd multiples
# of 1/2000, which are points of the grid; cutting down to the grid therefore never changes a number on screen.
GRID = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A text and the pieces a model saw it as; with words, the word that each piece is part of (None: of none)."""

    text: str
    pieces: tuple[str, ...]
    words: tuple[str, ...] | None = None
    word_of: tuple[int | None, ...] | None = None

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
    ) -> "Side":
        """A side whose words are found by character overlap; without spans, words are what white space separates."""
        spans = [match.span() for match in re.finditer(r"\S+", text)] if word_spans is None else word_spans
        return cls(
            text=text,
            pieces=tuple(pieces),
            words=tuple(text[start:end] for start, end in spans),
            word_of=tuple(words_of_pieces(piece_spans, spans)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMap:
    """The weights of one attention: head, then row (which piece looks), then column (where it looks).

    A row of the target side is the step that predicts that piece. `prefix` is the target as the decoder reads it,
    one piece behind. `weights` may be a tensor, an array, nested lists, or the packed form of `to_mapping`.
    """

    name: str
    kind: Literal["self", "cross"]
    rows: SideName
    columns: SideName
    weights: Any

    def array(self) -> Float[np.ndarray, "H T S"]:
        """The weights as an array, checked to lie between 0 and 1."""
        try:
            weights = self._unpacked() if isinstance(self.weights, Mapping) else _array(self.weights)
        except (TypeError, ValueError, KeyError) as error:
            raise DataError(f"the weights of '{self.name}' cannot be read: {error}") from None
        if weights.ndim != 3 or not weights.size:
            raise DataError(f"the weights of '{self.name}' have shape {weights.shape}; must be heads, rows, columns")
        # Sums in low precision overshoot by a little; a NaN fails this comparison too.
        if not (weights.min() >= -1e-2 and weights.max() <= 1 + 1e-2):
            raise DataError(f"the weights of '{self.name}' run from {weights.min()} to {weights.max()}; must be 0 to 1")
        return weights.clip(0, 1)

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, the weights packed as little-endian 16-bit numbers in base64."""
        weights = self.array()
        whole = np.floor(weights * GRID).astype("<u2")
        packed = {"shape": list(weights.shape), "grid": GRID, "data": base64.b64encode(whole.tobytes()).decode()}
        return {"name": self.name, "kind": self.kind, "rows": self.rows, "columns": self.columns, "weights": packed}

    def _unpacked(self) -> Float[np.ndarray, "H T S"]:
        whole = np.frombuffer(base64.b64decode(self.weights["data"]), dtype="<u2").reshape(self.weights["shape"])
        grid = int(self.weights["grid"])
        # The middle of a grid cell stays in that cell when packed again; 0 and 1 are exact.
        return np.where((whole == 0) | (whole == grid), whole, whole + 0.5) / grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A piece that a step might have chosen, and how likely the model thought it."""

    piece: str
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One input and what the model made of it.

    `alignment` holds gold pairs (source word, target word). `candidates` gives, for each target piece, what the step
    could have chosen, likeliest first. `scores` are lines to show beside the text, each a name and a value.
    """

    source: Side
    target: Side | None = None
    prefix: Side | None = None
    attentions: tuple[AttentionMap, ...] = ()
    alignment: tuple[tuple[int, int], ...] | None = None
    candidates: tuple[tuple[Candidate, ...], ...] | None = None
    scores: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.attentions:
            raise DataError(f"'{self.source.text}' has no attentions: a page needs at least one")
        for attention in self.attentions:
            shape = attention.array().shape[1:]
            expected = (len(self.side(attention.rows).pieces), len(self.side(attention.columns).pieces))
            if shape != expected:
                raise DataError(f"'{attention.name}' weighs {shape} pieces; the sentence has {expected}")
        if self.candidates is not None and len(self.candidates) != len(self.side("target").pieces):
            raise DataError(f"candidates for {len(self.candidates)} steps; must be one a target piece")
        if self.alignment is not None:
            sources, targets = self.side("source").words, self.side("target").words
            if sources is None or targets is None:
                raise DataError("a gold alignment pairs words: both sides must have them")
            for source, target in self.alignment:
                if not (0 <= source < len(sources) and 0 <= target < len(targets)):
                    raise DataError(f"gold pair {(source, target)} is outside {len(sources)} x {len(targets)} words")

    def side(self, name: SideName) -> Side:
        """The side of that name, which must be there."""
        side = getattr(self, name)
        if side is None:
            raise DataError(f"the sentence '{self.source.text}' has no {name}, which something in it refers to")
        return side

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**config.to_mapping(self), "attentions": [one.to_mapping() for one in self.attentions]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a page shows: a title, perhaps a note under it, and one or more sentences."""

    title: str
    sentences: tuple[Sentence, ...]
    note: str = ""

    def __post_init__(self) -> None:
        if not self.sentences:
            raise DataError("the document has no sentences: a page needs at least one")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "Document":
        """The document in a mapping such as `to_mapping` gives, everything in it checked."""
        return config.from_mapping(cls, mapping)

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, ready for JSON: what a page embeds and a server sends."""
        return {
            "title": self.title,
            "note": self.note,
            "sentences": [sentence.to_mapping() for sentence in self.sentences],
        }


def render(document: Document | Mapping[str, Any]) -> str:
    """The whole page as HTML: styles, scripts and data inside it, nothing fetched from anywhere."""
    checked = document if isinstance(document, Document) else Document.from_mapping(document)
    style = _viewer("style.css")
    # One function around all files: their names meet each other and nothing else.
    script = "(() => {\n" + "\n".join(_viewer(name) for name in SCRIPTS) + "})();\n"
    return Template(_viewer("page.html")).substitute(
        # Half of a surrogate pair cannot be written to a file; in the document below it is escaped.
        title=html.escape(checked.title.encode("utf-8", "replace").decode()),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        document=embed(checked.to_mapping()),
    )


def embed(value: Any) -> str:
    """JSON that is safe between script tags: no character in it can end the tag, open a comment or break a line."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _viewer(name: str) -> str:
    return resources.files("regard.look").joinpath("viewer", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What the page's security policy calls the text: only what we wrote runs."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _array(weights: Any) -> np.ndarray:
    if isinstance(weights, torch.Tensor):
        weights = weights.detach().to("cpu", torch.float64).numpy()
    return np.asarray(weights, dtype=np.float64)
