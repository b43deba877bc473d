"""BPE dropout: the same text in other pieces, so that a model meets a word in more than one spelling of it."""

import json
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.text.tokenizer import Tokenizer

TABLES = 16
"""How many thinned tables of merges there are. Each text of each variant is cut by one of them."""

LOST = 0.25
"""The share of a rate that a table is thinned by. In BPE dropout as published a merge that was left out is tried again
at the next step; from a table it is gone. At the usual rate of 0.1 texts become as long one way as the other."""


@dataclass(frozen=True, slots=True)
class MergeDropout:
    """One variant of a tokenised corpus, cut as BPE dropout of this `rate` would.

    The library's own dropout draws from a generator that cannot be seeded. Here a merge is left out of a whole table,
    and the text itself and the variant's number choose the table: pieces are a function of text, rate and variant.
    """

    rate: float
    variant: int

    def encoder(self, tokenizer: Tokenizer) -> Callable[[Sequence[str]], list[list[int]]]:
        """Texts to ids by thinned tables; the tokenizer's own way where it has no merges."""
        tables = [thinned(tokenizer, LOST * self.rate, number) for number in range(TABLES)]

        def encode(texts: Sequence[str]) -> list[list[int]]:
            found: list[list[int]] = [[] for _ in texts]
            chosen = [zlib.crc32(f"{self.variant} {text}".encode("utf-8", "replace")) % TABLES for text in texts]
            for number, table in enumerate(tables):
                rows = [row for row, one in enumerate(chosen) if one == number]
                for row, ids in zip(rows, table.encode_batch([texts[row] for row in rows]), strict=True):
                    found[row] = ids
            return found

        return encode


def thinned(tokenizer: Tokenizer, rate: float, number: int) -> Tokenizer:
    """The tokenizer without about the share `rate` of its merges, always the same ones; ids mean what they meant."""
    state = json.loads(tokenizer.to_json())
    if state["model"]["type"] != "BPE":
        return tokenizer
    draw = random.Random(number)
    state["model"]["merges"] = [merge for merge in state["model"]["merges"] if draw.random() >= rate]
    return Tokenizer.from_json(json.dumps(state))
