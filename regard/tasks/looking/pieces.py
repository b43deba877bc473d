"""Pieces as a reader wants them, and what a step could have chosen."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.look.document import Candidate
from regard.text import Tokenizer
from regard.text.tokenizer import JOINER

END = "⟨end⟩"
START = "⟨start⟩"
CANDIDATES = 8


def readable(pieces: list[str]) -> list[str]:
    """The pieces as a reader wants them: the word tokenizer's marks say only where no space goes."""
    return [piece.replace(JOINER, "") for piece in pieces]


def named(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """The pieces with these ids; the one that ends a text has a name of its own."""
    return [END if token == tokenizer.eos else readable(tokenizer.pieces([token]))[0] for token in ids]


def candidates(
    tokenizer: Tokenizer, probabilities: Tensor, given: Sequence[int | None], count: int = CANDIDATES
) -> tuple[tuple[Candidate, ...], ...]:
    """For each row of probabilities the likeliest pieces, likeliest first, and the one given if it is not there."""
    values, ids = torch.topk(probabilities, min(count, probabilities.shape[-1]))
    found = []
    for row, chances, token, all_of_them in zip(ids.tolist(), values.tolist(), given, probabilities, strict=True):
        if token is not None and token not in row:
            row, chances = [*row, token], [*chances, float(all_of_them[token])]
        pairs = zip(named(tokenizer, row), chances, strict=True)
        found.append(tuple(Candidate(piece=name, probability=p) for name, p in pairs))
    return tuple(found)
