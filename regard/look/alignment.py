"""Word alignment read from attention, and how often it agrees with a gold alignment.

Sentences are small and many. Their sums are done in numpy, on one core: torch would wake all its threads for each,
which on a busy machine takes a hundred times as long as the sum. Results are on the CPU.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.config import JsonObject
from regard.errors import DataError
from regard.look.packed_arrays import as_array

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
    array = as_array(weights)
    into = _membership(target_words, targets, array.dtype)
    # A word without pieces has no rows to average; the floor keeps its zeros from becoming 0 / 0.
    into /= np.maximum(into.sum(0), 1)
    return torch.from_numpy(into.T @ array @ _membership(source_words, sources, array.dtype))


def align(word_weights: Float[Tensor, "targets sources"]) -> set[Pair]:
    """Each target word with the source word it weighs most; a target word that weighs none stays alone."""
    return {
        (int(source), int(target)) for target, source in zip(*_links(as_array(word_weights)).nonzero(), strict=True)
    }


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

    def to_mapping(self) -> JsonObject:
        """Nested lists, ready for JSON."""
        return {name: getattr(self, name).tolist() for name in self.__slots__}


class AlignmentCounts:
    """Agreement with gold alignments, added up sentence by sentence for every head at once.

    The error rate of a corpus is that of its summed counts, not the mean over sentences.
    """

    def __init__(self) -> None:
        self.sentences = 0
        self._sure = 0
        self._predicted = self._found = self._allowed = np.zeros((), dtype=np.int64)

    def add(
        self,
        word_weights: Float[Tensor, "*heads targets sources"],
        sure: Collection[Pair],
        possible: Collection[Pair] | None = None,
    ) -> None:
        """Count one sentence: word weights of any heads, the same heads every time."""
        *heads, targets, sources = word_weights.shape
        if self.sentences and tuple(heads) != self._predicted.shape:
            raise DataError(f"weights of heads {tuple(heads)} after {self._predicted.shape}: must stay the same")
        chosen = _links(as_array(word_weights))
        certain = _gold(sure, targets, sources)
        allowed = certain | _gold(possible or (), targets, sources)
        self.sentences += 1
        self._sure += int(certain.sum())
        self._predicted = self._predicted + chosen.sum((-2, -1))
        self._found = self._found + (chosen & certain).sum((-2, -1))
        self._allowed = self._allowed + (chosen & allowed).sum((-2, -1))

    def scores(self) -> HeadScores:
        """The scores so far, one number per head, in the shape the heads came in."""
        if not self.sentences:
            raise DataError("no sentences: an alignment score needs at least one")
        # Counts are whole numbers, so a floor of one changes only 0 / 0: nothing predicted, nothing to find.
        both = self._predicted + self._sure
        wrong = both - self._found - self._allowed
        return HeadScores(
            error_rate=torch.as_tensor(wrong / np.maximum(both, 1)),
            precision=torch.as_tensor(self._allowed / np.maximum(self._predicted, 1)),
            recall=torch.as_tensor(self._found / max(self._sure, 1)),
        )


def best_head(scores: HeadScores) -> tuple[int, ...]:
    """Where the lowest error rate is, as an index into the heads: (layer, head) when they came layer by head."""
    flat = int(scores.error_rate.argmin())
    return tuple(int(index) for index in np.unravel_index(flat, tuple(scores.error_rate.shape)))


def _links(weights: Float[np.ndarray, "*heads targets sources"]) -> Bool[np.ndarray, "*heads targets sources"]:
    """True at each target word's heaviest source word, the first of equals; a row of zeros has none."""
    chosen = np.zeros(weights.shape, dtype=bool)
    if weights.size:
        where = weights.argmax(-1)[..., None]
        np.put_along_axis(chosen, where, np.take_along_axis(weights, where, -1) > 0, -1)
    return chosen


def _membership(words: Sequence[int | None], count: int, dtype: np.dtype) -> Float[np.ndarray, "pieces words"]:
    """1 where a piece is part of a word."""
    known = [(piece, word) for piece, word in enumerate(words) if word is not None]
    if any(not 0 <= word < count for _, word in known):
        raise DataError(f"pieces of words {[word for _, word in known]}, but there are {count} words, from 0")
    belongs = np.zeros((len(words), count), dtype=dtype)
    for piece, word in known:
        belongs[piece, word] = 1
    return belongs


def _gold(pairs: Collection[Pair], targets: int, sources: int) -> Bool[np.ndarray, "targets sources"]:
    gold = np.zeros((targets, sources), dtype=bool)
    for source, target in pairs:
        if not (0 <= source < sources and 0 <= target < targets):
            raise DataError(f"gold pair {(source, target)} is outside {sources} source and {targets} target words")
        gold[target, source] = True
    return gold
