"""Texts to rows that an encoder reads, and rows to batches of like lengths."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from regard.errors import DataError
from regard.nn.batch import Texts, Tokens
from regard.text import Tokenizer
from regard.text.framing import Framed, Framing

BUDGET = 8192
"""Tokens of one batch, padding included."""

Overlong = Literal["truncate", "refuse"]
Told = Callable[[int, int | None], None]


class Encoder:
    """An encoder-only model with its tokenizer. It reads at most `length` tokens of a text or a pair."""

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, length: int) -> None:
        self.model, self.tokenizer, self.length = model, tokenizer, length
        self.framing = Framing.of(tokenizer)
        segments = model.config.segments  # type: ignore[union-attr]
        self.segmented = isinstance(segments, int) and segments > 1

    def frame(
        self, first: Sequence[int], second: Sequence[int] | None = None, overlong: Overlong = "truncate"
    ) -> Framed:
        """The row of one text or two, given as ids. Of texts too long together, the longer loses its end first."""
        room = self.framing.room(self.length, second is not None)
        one, other = fit_pair(len(first), None if second is None else len(second), room)
        if overlong == "refuse" and (one < len(first) or (second is not None and other < len(second))):
            size = len(first) + len(second or ())
            raise DataError(f"a text of {size} tokens is longer than the {room} that the model reads")
        return self.framing.frame(first[:one], None if second is None else second[:other])

    def texts(self, rows: Sequence[Framed]) -> Texts:
        """The rows side by side, on the model's device."""
        tokens = Tokens.of([row.ids for row in rows], self.tokenizer.pad)
        segments = Tokens.of([row.segments for row in rows]).ids if self.segmented else None
        return Texts(tokens, segments).to(next(self.model.parameters()).device)

    def batches(self, rows: Sequence[Framed]) -> Iterator[tuple[list[int], Texts]]:
        """Every row once, the like lengths together: the rows' numbers, and they themselves."""
        order = sorted(range(len(rows)), key=lambda index: len(rows[index].ids))
        start = 0
        while start < len(order):
            stop = start + 1
            while stop < len(order) and len(rows[order[stop]].ids) * (stop - start + 1) <= BUDGET:
                stop += 1
            yield order[start:stop], self.texts([rows[index] for index in order[start:stop]])
            start = stop

    @torch.inference_mode()
    def each(self, rows: Sequence[Framed], of: Callable[[Texts], Tensor], progress: Told | None = None) -> list[Tensor]:
        """What `of` says of each row, in the rows' order, on the host."""
        self.model.eval()
        found: list[Tensor] = [torch.empty(0)] * len(rows)
        done = 0
        for numbers, texts in self.batches(rows):
            for number, value in zip(numbers, of(texts).float().cpu(), strict=True):
                found[number] = value
            done += len(numbers)
            if progress is not None:
                progress(done, len(rows))
        return found


def fit_pair(first: int, second: int | None, room: int) -> tuple[int, int]:
    """How many tokens of each text fit into `room`: the longer one loses first, as in BERT."""
    if second is None:
        return max(0, min(first, room)), 0
    spare = max(0, first + second - room)
    if first > second:
        taken = min(spare, first - second)
        first, spare = first - taken, spare - taken
    else:
        taken = min(spare, second - first)
        second, spare = second - taken, spare - taken
    return max(0, first - spare // 2), max(0, second - (spare + 1) // 2)
