"""BPE dropout: the same text in other pieces, so that a model meets a word in more than one spelling of it."""

import json
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from regard.text.tokenizer import Tokenizer

SPELLINGS = 64
"""How many spellings of a word are sampled at most: each place where it stands has one of them."""

_REMEMBERED = 1 << 20  # spellings that are kept in memory; when there are more, it begins anew


@dataclass(frozen=True, slots=True)
class MergeDropout:
    """One variant of a tokenised corpus: at each step of cutting a word, each merge is left out at this `rate`.

    The library's own dropout uses a generator that cannot be seeded. Here the text, the place of a word in it and
    the variant's number choose one of the word's spellings, and the word and the spelling's number choose what is left
    out: pieces are a function of text, rate and variant.
    """

    rate: float
    variant: int

    def encoder(self, tokenizer: Tokenizer) -> Callable[[Sequence[str]], list[list[int]]]:
        """Texts to ids by merges that are left out at random; the tokenizer's own way where it has no merges."""
        merges = _merges(tokenizer.to_json(), self.rate)
        if merges is None:
            return tokenizer.encode_batch

        def encode(texts: Sequence[str]) -> list[list[int]]:
            return [self._spelled(text, tokenizer.split(text), merges) for text in texts]

        return encode

    def _spelled(self, text: str, words: list[str], merges: "Merges") -> list[int]:
        seed = zlib.crc32(f"{self.variant} {text}".encode("utf-8", "replace"))
        ids: list[int] = []
        for place, word in enumerate(words):
            ids += merges.spelling(word, zlib.crc32(place.to_bytes(4, "little"), seed) % SPELLINGS)
        return ids


class Merges:
    """A table of merges, some of them left out at random."""

    def __init__(self, vocab: dict[str, int], merges: list[Sequence[str]] | list[str], rate: float) -> None:
        pairs = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in merges]
        self.ranks = {(one, other): rank for rank, (one, other) in enumerate(pairs)}
        self.vocab, self.rate = vocab, rate
        self._known: dict[tuple[str, int], list[int]] = {}

    def spelling(self, word: str, number: int) -> list[int]:
        """The ids of the pieces that a word has in its spelling of this number."""
        found = self._known.get((word, number))
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[word, number] = self._cut(word, random.Random(f"{number} {word}").random)
        return found

    def _cut(self, word: str, random: Callable[[], float]) -> list[int]:
        pieces, ranks, rate = list(word), self.ranks, self.rate
        while len(pieces) > 1:
            # The merge to make is the first in the table of those that are not left out this time.
            best, place = len(ranks), -1
            for index in range(len(pieces) - 1):
                rank = ranks.get((pieces[index], pieces[index + 1]))
                if rank is not None and rank < best and random() >= rate:
                    best, place = rank, index
            if place < 0:
                break
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
        return [self.vocab[piece] for piece in pieces]


@lru_cache(maxsize=2)  # the two sides; all variants have the same spellings to choose from
def _merges(tokenizer: str, rate: float) -> Merges | None:
    model = json.loads(tokenizer)["model"]
    return Merges(model["vocab"], model["merges"], rate) if model["type"] == "BPE" else None
