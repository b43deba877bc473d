"""Text in, text out: a model with its vocabularies, decoding many sentences at a time."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, cast

import torch
from torch import nn

from regard.decode.batching import in_batches
from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.decode.greedy import greedy
from regard.decode.hypothesis import Hypothesis
from regard.decode.sample import sample
from regard.decode.stepper import Stepper
from regard.errors import DataError
from regard.nn.batch import Pairs, Tokens
from regard.text import Vocabularies

Overlong = Literal["split", "truncate", "refuse"]

BUDGET = 4096
"""Source tokens of one batch."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A translation with its length-normalised score and its log-probability; `pieces` are its tokens as text."""

    text: str
    score: float
    log_prob: float
    pieces: tuple[str, ...]


class Translator:
    """Decodes with a model that steps from a source: `Stepper` is all it knows of it."""

    def __init__(self, model: nn.Module, vocabularies: Vocabularies, config: DecodeConfig, max_len: int) -> None:
        self.model, self.vocabularies, self.config, self.max_len = model, vocabularies, config, max_len
        self._stepper = cast("Stepper[Any]", model)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def translate(
        self,
        sentences: Sequence[str],
        config: DecodeConfig | None = None,
        *,
        overlong: Overlong = "split",
        budget: int = BUDGET,
    ) -> list[list[Translation]]:
        """The `top_beams` best translations (or `samples`) of each sentence, best first, in the order given.

        A sentence longer than the model can read is refused, cut, or split where a sentence or a word ends; the
        translations of its pieces are then joined, and so many are best as the first piece has.
        """
        config = config or self.config
        pieces = [self._fit(sentence, index, overlong) for index, sentence in enumerate(sentences)]
        rows = [row for parts in pieces for row in parts]
        decoded = iter(self._decode(rows, config, budget))
        return [_join([next(decoded) for _ in parts]) for parts in pieces]

    def stream(
        self,
        sentences: Iterable[str],
        config: DecodeConfig | None = None,
        *,
        overlong: Overlong = "split",
        window: int = 256,
    ) -> Iterator[list[Translation]]:
        """The same for any number of sentences, a window at a time, so that memory stays flat."""
        lines = iter(sentences)
        while chunk := list(islice(lines, window)):
            yield from self.translate(chunk, config, overlong=overlong)

    def _fit(self, sentence: str, index: int, overlong: Overlong) -> list[list[int]]:
        tokenizer, room = self.vocabularies.source, self.max_len - 1
        ids = tokenizer.encode(sentence)
        if len(ids) <= room:
            return [[*ids, tokenizer.eos]]
        if overlong == "refuse":
            raise DataError(f"sentence {index + 1} has {len(ids)} tokens; the model reads at most {room}")
        if overlong == "truncate":
            return [[*ids[:room], tokenizer.eos]]
        parts = [
            tokenizer.encode(part) for part in split_text(sentence, lambda text: len(tokenizer.encode(text)), room)
        ]
        return [[*part[:room], tokenizer.eos] for part in parts]

    def _decode(self, rows: list[list[int]], config: DecodeConfig, budget: int) -> list[list[Translation]]:
        indexed = list(enumerate(rows))
        lengths = [len(row) for row in rows]
        # The search holds `beam` rows a source, so a batch is that much smaller.
        width = config.samples if config.temperature is not None else config.beam
        return in_batches(lambda batch: self._decode_batch(batch, config), indexed, lengths, budget=budget // width + 1)

    @torch.inference_mode()
    def _decode_batch(self, batch: list[tuple[int, list[int]]], config: DecodeConfig) -> list[list[Translation]]:
        self.model.eval()
        rows = [row for _, row in batch]
        source = Tokens.of(rows, self.vocabularies.source.pad).to(self.device)
        state = self._stepper.start(Pairs(source))
        target = self.vocabularies.target
        first = torch.full((len(rows),), target.bos, device=self.device)
        limits = torch.tensor([min(limit, self.max_len) for limit in config.limits([len(row) for row in rows])])
        if config.temperature is not None:
            found = sample(
                self._stepper, state, first, eos=target.eos, config=config, max_len=limits, ids=[n for n, _ in batch]
            )
        elif config.beam == 1:
            found = [
                [one] for one in greedy(self._stepper, state, first, eos=target.eos, config=config, max_len=limits)
            ]
        else:
            found = beam_search(self._stepper, state, first, eos=target.eos, config=config, max_len=limits)
        return [[self._text(hypothesis) for hypothesis in hypotheses] for hypotheses in found]

    def _text(self, hypothesis: Hypothesis) -> Translation:
        target = self.vocabularies.target
        return Translation(
            text=target.decode(hypothesis.tokens),
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            pieces=tuple(target.pieces(hypothesis.tokens)),
        )


def split_text(text: str, length: Callable[[str], int], room: int) -> list[str]:
    """The text in parts of at most `room` by `length`: whole sentences while they fit, else whole words."""
    parts: list[str] = []
    for sentence in re.split(r"(?<=[.!?;:。！？])\s+", text):
        units = [sentence] if length(sentence) <= room else sentence.split(" ")
        for unit in units:
            if parts and length(f"{parts[-1]} {unit}") <= room:
                parts[-1] = f"{parts[-1]} {unit}"
            else:
                parts.append(unit)
    return [part for part in parts if part] or [""]


def _join(parts: list[list[Translation]]) -> list[Translation]:
    if len(parts) == 1:
        return parts[0]
    joined = parts[0]
    for part in parts[1:]:
        joined = [
            replace(
                before,
                text=f"{before.text} {after.text}",
                score=before.score + after.score,
                log_prob=before.log_prob + after.log_prob,
                pieces=(*before.pieces, *after.pieces),
            )
            for before, after in zip(joined, part, strict=False)
        ]
    return joined
