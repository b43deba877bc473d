"""An encoder-only model with its tokenizer: rows in, what the model says of each out."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from regard.data.framer import Framer
from regard.nn.batch import Texts, Tokens
from regard.text import Tokenizer
from regard.text.framing import Framed

BUDGET = 8192
"""Tokens of one batch, padding included."""

Told = Callable[[int, int], None]


class Encoder:
    """It reads at most `length` tokens of a text or a pair."""

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, length: int) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.framer = Framer(tokenizer, length)
        self.segmented: bool = model.config.segments > 1  # type: ignore[union-attr, operator, assignment]

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
