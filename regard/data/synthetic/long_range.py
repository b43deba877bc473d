"""Questions whose answer lies far back: which value was shown, how many marks there were, among thousands of tokens.

Made, not collected: any length, as many as wanted, the same for the same seed. The last token asks.
"""

from typing import Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import ConfigError, nearest

LongRangeQuestion = Literal["recall", "count"]

ANSWERS = 8
NOISE = 16
ASK, MARK = 0, 1
VALUES = 2  # the first of the values; after them comes the noise
VOCAB = VALUES + ANSWERS + NOISE


def long_range(
    question: LongRangeQuestion, rows: int, length: int, *, seed: int
) -> tuple[Int[Tensor, "B T"], Int[Tensor, " B"]]:
    """(tokens, answers): `rows` sequences of `length` tokens, and what each asks for, from 0 to 7.

    `recall` shows one of eight values once, in the first tenth, among noise, and asks for it at the end. `count` strews
    zero to seven marks over the whole, and asks how many.
    """
    if question not in get_args(LongRangeQuestion):
        raise ConfigError(f"unknown question '{question}'{nearest(question, get_args(LongRangeQuestion))}")
    if length < ANSWERS + 2:
        raise ConfigError(f"length={length} must be at least {ANSWERS + 2}")
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VALUES + ANSWERS, VOCAB, (rows, length), generator=generator)
    answers = torch.randint(ANSWERS, (rows,), generator=generator)
    if question == "recall":
        places = torch.randint(max(1, length // 10), (rows,), generator=generator)
        tokens[torch.arange(rows), places] = VALUES + answers
    else:
        # The first places of a random order of all but the last.
        order = torch.rand(rows, length - 1, generator=generator).argsort(dim=1)[:, :ANSWERS]
        marked = torch.arange(ANSWERS) < answers[:, None]
        tokens[torch.arange(rows)[:, None].expand_as(order)[marked], order[marked]] = MARK
    tokens[:, -1] = ASK
    return tokens, answers
