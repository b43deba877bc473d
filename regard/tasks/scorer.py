"""How likely a run finds texts that are given: pairs of a translation run, or texts of a language model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from regard.decode.score import forced_log_probs
from regard.decode.search import in_batches
from regard.decode.stepper import Stepper
from regard.errors import DataError
from regard.nn.batch import Pairs, Tokens
from regard.tasks.ensemble import Ensemble
from regard.tasks.generator import Generator
from regard.tasks.translator import BUDGET, Translator
from regard.tasks.verbs.score import TokenScore
from regard.text import Tokenizer

LOGITS = 1 << 24
"""Logits formed at a time."""


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A text to score: its tokens, its own end with them if that counts, after `before`; of a pair with its source."""

    text: str
    before: tuple[int, ...]
    tokens: tuple[int, ...]
    tokenizer: Tokenizer
    source: str | None = None
    row: tuple[int, ...] = ()

    @property
    def read(self) -> int:
        """How many tokens the model reads for it."""
        return len(self.row) + len(self.before) + len(self.tokens)

    def scored(self, log_probs: Sequence[float]) -> list[TokenScore]:
        pieces = self.tokenizer.pieces(self.tokens)
        return [TokenScore(*each) for each in zip(pieces, log_probs, strict=True)]


class PairScorer:
    """Scores translations given their sources, by the steps that decoding would make."""

    pairs = True

    def __init__(self, translator: Translator) -> None:
        self.translator = translator

    def checked(self, pair: tuple[str, str]) -> ScoredText:
        """The pair as the model reads it; one that it cannot read whole is refused."""
        source, target = pair
        read = self.translator.reading(source)
        row, tokens = read.source_row(read.source.encode(source)), [*read.target.encode(target), read.target.eos]
        for side, length, text in (("source", len(row), source), ("target", len(tokens), target)):
            if length > self.translator.max_len:
                raise DataError(
                    f"the {side} '{text[:40]}' has {length} tokens with its end; "
                    f"the model reads at most {self.translator.max_len}"
                )
        return ScoredText(target, (read.target.bos,), tuple(tokens), read.target, source, tuple(row))

    def score(self, items: Sequence[ScoredText]) -> list[list[TokenScore]]:
        """For each pair the tokens of its target, its end last."""
        return in_batches(self._batch, items, [max(len(one.row), len(one.tokens)) for one in items], budget=BUDGET)

    @torch.inference_mode()
    def _batch(self, items: list[ScoredText]) -> list[list[TokenScore]]:
        translator = self.translator
        translator.model.eval()
        pad = translator.vocabularies.source.pad
        stepper = cast("Stepper[Any]", translator.model)
        state = stepper.start(Pairs(Tokens.of([one.row for one in items], pad).to(translator.device)))
        first = torch.tensor([one.before[-1] for one in items], device=translator.device)
        found = forced_log_probs(stepper, state, first, [one.tokens for one in items])
        return [one.scored(log_probs) for one, log_probs in zip(items, found, strict=True)]


class TextScorer:
    """Scores texts by themselves, after what the tokenizer opens a text with, or else the end of another document."""

    pairs = False

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    def checked(self, text: str) -> ScoredText:
        """The text as the model reads it; one that it cannot read whole is refused."""
        tokenizer, most = self.generator.tokenizer, self.generator.length
        before, tokens = tokenizer.opening or (tokenizer.eos,), tokenizer.encode(text)
        # What is predicted last is not read.
        if len(before) + len(tokens) - 1 > most:
            raise DataError(f"the text '{text[:40]}' has {len(tokens)} tokens; the model reads at most {most}")
        return ScoredText(text, tuple(before), tuple(tokens), tokenizer)

    def score(self, items: Sequence[ScoredText]) -> list[list[TokenScore]]:
        """For each text its tokens."""
        return in_batches(self._batch, items, [one.read for one in items], budget=BUDGET)

    @torch.inference_mode()
    def _batch(self, items: list[ScoredText]) -> list[list[TokenScore]]:
        model = self.generator.model
        model.eval()
        device = next(model.parameters()).device
        if isinstance(model, Ensemble):  # whose members agree step by step
            state = model.start(Tokens.of([one.before for one in items]).to(device))
            first = torch.tensor([one.before[-1] for one in items], device=device)
            found = forced_log_probs(model, state, first, [one.tokens for one in items])
        else:
            found = _read_at_once(model, items, device)
        return [one.scored(log_probs) for one, log_probs in zip(items, found, strict=True)]


def _read_at_once(model: Any, items: Sequence[ScoredText], device: torch.device) -> list[list[float]]:
    """The log-probability of every token from one reading of all of a text."""
    rows = [[*one.before, *one.tokens][: len(one.before) + len(one.tokens) - 1] or [one.before[-1]] for one in items]
    vectors = model.read(Tokens.of(rows).to(device))
    found = []
    for index, one in enumerate(items):
        start = len(one.before) - 1
        wanted = torch.tensor(one.tokens, dtype=torch.long, device=device)[:, None]
        own, step = vectors[index, start : start + len(wanted)], max(1, LOGITS // one.tokenizer.vocab_size)
        parts = [
            model.head(own[None, at : at + step])[0].float().log_softmax(-1).gather(1, wanted[at : at + step])
            for at in range(0, len(wanted), step)
        ]
        found.append(torch.cat(parts)[:, 0].tolist() if parts else [])
    return found
