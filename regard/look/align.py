"""Word alignment read from attention, and how often it agrees with a gold alignment."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import DataError

Span: TypeAlias = tuple[int, int]
"""Characters from the first up to, not including, the second; an empty span is a special piece."""

Pair: TypeAlias = tuple[int, int]
"""A source word and a target word that translate each other, by position."""


def words_of_pieces(piece_spans: Sequence[Span], word_spans: Sequence[Span]) -> list[int | None]:
    """For each piece the word it shares most characters with; None for one that touches no word."""
    if not piece_spans or not word_spans:
        return [None] * len(piece_spans)
    pieces, words = np.array(piece_spans)[:, None], np.array(word_spans)
    shared = np.minimum(pieces[..., 1], words[:, 1]) - np.maximum(pieces[..., 0], words[:, 0])
    return [int(word) if row[word] > 0 else None for row, word in zip(shared, shared.argmax(1), strict=True)]


def merge(
    weights: Float[Tensor, "*heads T S"],
    source_words: Sequence[int | None],
    target_words: Sequence[int | None],
    *,
    sources: int,
    targets: int,
) -> Float[Tensor, "*heads targets sources"]:
    """Weights between words: summed over a source word's pieces, averaged over a target word's.

    `sources` and `targets` count the words of each side. Pieces of no word, such as an end of sentence, are left
    out, so a row may sum to less than one; a word without pieces has a row or column of zeros.
    """
    if (len(target_words), len(source_words)) != weights.shape[-2:]:
        T, S = weights.shape[-2:]
        raise DataError(f"weights of {T} x {S} pieces, but words for {len(target_words)} x {len(source_words)}")
    into = _membership(target_words, targets, weights)
    # A word without pieces has no rows to average; the floor keeps its zeros from becoming 0 / 0.
    into = into / into.sum(0).clamp(min=1)
    return into.mT @ weights @ _membership(source_words, sources, weights)


def align(word_weights: Float[Tensor, "targets sources"]) -> set[Pair]:
    """Each target word with the source word it weighs most; a target word that weighs none stays alone."""
    return {(source, target) for target, source in links(word_weights).nonzero().tolist()}


def links(word_weights: Float[Tensor, "*heads targets sources"]) -> Bool[Tensor, "*heads targets sources"]:
    """True at each target word's heaviest source word, the first of equals, for every head at once."""
    if not word_weights.numel():
        return torch.zeros_like(word_weights, dtype=torch.bool)
    heaviest, where = word_weights.max(-1, keepdim=True)
    chosen = torch.zeros_like(word_weights, dtype=torch.bool)
    return chosen.scatter_(-1, where, heaviest > 0)


def alignment_error_rate(
    predicted: Collection[Pair], sure: Collection[Pair], possible: Collection[Pair] | None = None
) -> float:
    """1 - (|A and S| + |A and P|) / (|A| + |S|): 0 when every sure pair is found and no impossible one.

    `possible` adds pairs that are neither asked for nor wrong; a sure pair is always possible. With nothing
    predicted and nothing to find, nothing is wrong: 0.
    """
    found, certain = set(predicted), set(sure)
    allowed = certain | set(possible or ())
    size = len(found) + len(certain)
    return 1 - (len(found & certain) + len(found & allowed)) / size if size else 0.0


@dataclass(frozen=True, slots=True)
class HeadScores:
    """Alignment error rate, precision and recall over a corpus, of every head.

    Precision counts predictions that are possible, recall the sure pairs found.
    """

    error_rate: Float[Tensor, "*heads"]
    precision: Float[Tensor, "*heads"]
    recall: Float[Tensor, "*heads"]

    def to_mapping(self) -> dict[str, Any]:
        """Nested lists, ready for JSON."""
        return {name: getattr(self, name).tolist() for name in self.__slots__}


class AlignmentCounts:
    """Agreement with gold alignments, added up sentence by sentence for every head at once.

    The error rate of a corpus is that of its summed counts, not the mean over sentences.
    """

    def __init__(self) -> None:
        self.sentences = 0
        self._sure = 0
        self._predicted: Tensor = torch.zeros(())
        self._found: Tensor = torch.zeros(())
        self._allowed: Tensor = torch.zeros(())

    def add(
        self,
        word_weights: Float[Tensor, "*heads targets sources"],
        sure: Collection[Pair],
        possible: Collection[Pair] | None = None,
    ) -> None:
        """Count one sentence: word weights of any heads, the same heads every time."""
        heads = word_weights.shape[:-2]
        if self.sentences and heads != self._predicted.shape:
            raise DataError(f"weights of heads {tuple(heads)} after {tuple(self._predicted.shape)}: must stay the same")
        chosen = links(word_weights)
        certain = _gold(sure, chosen)
        allowed = certain if possible is None else certain | _gold(possible, chosen)
        self.sentences += 1
        self._sure += int(certain.sum())
        self._predicted = self._predicted + chosen.sum((-2, -1)).cpu()
        self._found = self._found + (chosen & certain).sum((-2, -1)).cpu()
        self._allowed = self._allowed + (chosen & allowed).sum((-2, -1)).cpu()

    def scores(self) -> HeadScores:
        """The scores so far, one number a head, in the shape the heads came in."""
        if not self.sentences:
            raise DataError("no sentences: an alignment score needs at least one")
        # Counts are whole numbers, so a floor of one changes only 0 / 0: nothing predicted, nothing to find.
        both = (self._predicted + self._sure).clamp(min=1)
        agreed = self._found + self._allowed
        nothing = self._predicted + self._sure == 0
        return HeadScores(
            error_rate=(1 - agreed / both).masked_fill(nothing, 0.0),
            precision=self._allowed / self._predicted.clamp(min=1),
            recall=self._found / max(self._sure, 1),
        )


def best_head(scores: HeadScores) -> tuple[int, ...]:
    """Where the lowest error rate is, as an index into the heads: (layer, head) when they came layer by head."""
    flat = int(scores.error_rate.argmin())
    return tuple(int(index) for index in np.unravel_index(flat, tuple(scores.error_rate.shape)))


def _membership(words: Sequence[int | None], count: int, like: Tensor) -> Float[Tensor, "pieces words"]:
    """1 where a piece is part of a word."""
    known = [(piece, word) for piece, word in enumerate(words) if word is not None]
    if known and not 0 <= min(word for _, word in known) <= max(word for _, word in known) < count:
        raise DataError(f"pieces of words {[word for _, word in known]}, but there are {count} words, from 0")
    belongs = torch.zeros(len(words), count, dtype=like.dtype, device=like.device)
    if known:
        belongs[tuple(torch.tensor(known).T)] = 1
    return belongs


def _gold(pairs: Collection[Pair], chosen: Bool[Tensor, "*heads targets sources"]) -> Bool[Tensor, "targets sources"]:
    targets, sources = chosen.shape[-2:]
    gold = torch.zeros(targets, sources, dtype=torch.bool)
    for source, target in pairs:
        if not (0 <= source < sources and 0 <= target < targets):
            raise DataError(f"gold pair {(source, target)} is outside {sources} source and {targets} target words")
        gold[target, source] = True
    return gold.to(chosen.device)
