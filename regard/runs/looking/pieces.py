"""Pieces as a reader wants them, and what a step could have chosen."""

import torch
from torch import Tensor

from regard.look.document import Candidate
from regard.text import Tokenizer
from regard.text.pipelines import JOINER

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
    tokenizer: Tokenizer, probabilities: Tensor, count: int = CANDIDATES
) -> tuple[tuple[Candidate, ...], ...]:
    """For each row of probabilities the likeliest pieces, likeliest first."""
    values, ids = torch.topk(probabilities, min(count, probabilities.shape[-1]))
    return tuple(
        tuple(Candidate(piece=name, probability=p) for name, p in zip(named(tokenizer, row), chances, strict=True))
        for row, chances in zip(ids.tolist(), values.tolist(), strict=True)
    )
