"""What a decoder attends to in its source, step by step: for the coverage penalty, and for word alignments."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.decode.stepper import Stepper
from regard.errors import ConfigError
from regard.look.alignment import Pair, align, merge, words_of_pieces
from regard.look.watch import attentions, watch
from regard.nn.attention import ACROSS
from regard.nn.batch import Pairs, Tokens
from regard.tasks.ensemble import Ensemble
from regard.text import Tokenizer, Vocabularies


def aligning_attention(model: nn.Module, what: str) -> str:
    """The attention that alignments are read from: that of the last layer but one, whose heads align best on average
    (Garg et al. 2019); of one layer alone, its own. `what` is said to need it where there is none."""
    if isinstance(model, Ensemble):
        raise ConfigError(f"{what} needs one model, whose attention it is, not an ensemble")
    names = [name for name, one in attentions(model).items() if one.sides == ACROSS and one.heads]
    if not names:
        raise ConfigError(f"{what} needs a model that attends to its source, and {type(model).__name__} does not")
    return names[-2:][0]


@dataclass(frozen=True, slots=True)
class StepAttention:
    """A model's state with where its rows attended in the step that made it."""

    state: Any
    mask: Bool[Tensor, "B S"]
    weights: Float[Tensor, "R S"] | None = None

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " B"] | None = None) -> "StepAttention":
        return StepAttention(self.state.select(rows, sources), self.mask if sources is None else self.mask[sources])

    def attention(self) -> Float[Tensor, "R S"]:
        assert self.weights is not None, "no step was made"
        return self.weights

    def readable(self) -> Bool[Tensor, "B S"]:
        return self.mask


class AttendingStepper:
    """A model that steps, watched in one cross-attention: its states tell the mean weights of that one's heads."""

    def __init__(self, model: nn.Module, what: str) -> None:
        self.model, self.name = model, aligning_attention(model, what)
        self.stepper = cast("Stepper[Any]", model)

    def start(self, batch: Pairs) -> StepAttention:
        with watch(self.model, self.name):  # a model may start otherwise where nobody will watch its steps
            state = self.stepper.start(batch)
        return StepAttention(state, batch.source.mask())

    def step(self, choices: Int[Tensor, " R"], state: StepAttention) -> tuple[Float[Tensor, "R C"], StepAttention]:
        with watch(self.model, self.name) as trace:
            log_probs, after = self.stepper.step(choices, state.state)
        # Rows of one source stand side by side as queries.
        weights = trace.weights(self.name).transpose(1, 2).flatten(0, 1).mean(1)
        return log_probs, StepAttention(after, state.mask, weights)


@torch.inference_mode()
def word_alignments(
    model: nn.Module, items: Sequence[tuple[str, Vocabularies, Sequence[int], str, Sequence[int]]], pad: int
) -> list[list[Pair]]:
    """For each source text, its vocabularies and row, with a translation and its tokens, which words belong together.

    Words are what spaces separate, counted from 0. Each target word goes with the source word that the step predicting
    it attended to most, by the mean of the heads of `aligning_attention`. Targets are read by teacher forcing.
    """
    name = aligning_attention(model, "alignments")
    device = next(model.parameters()).device
    rows = [(list(row), [read.target.bos, *tokens]) for _, read, row, _, tokens in items]
    batch = Pairs(Tokens.of([row[0] for row in rows], pad), Tokens.of([row[1] for row in rows], pad)).to(device)
    with watch(model, name) as trace:
        model(batch)
    weights = trace.weights(name).mean(1).float().cpu()
    found = []
    for index, (source, read, row, text, tokens) in enumerate(items):
        sources, targets = _word_spans(source), _word_spans(text)
        own = weights[index, : len(tokens), : len(row) - 1]  # the end of the source is no word
        pieces = [None] * len(read.source.opening) + words_of_pieces(read.source.offsets(source), sources)
        of_target = words_of_pieces(piece_spans(read.target, text, tokens), targets)
        words = merge(own, pieces[: len(row) - 1], of_target, sources=len(sources), targets=len(targets))
        found.append(sorted(align(words)))
    return found


def piece_spans(tokenizer: Tokenizer, text: str, tokens: Sequence[int]) -> list[tuple[int, int]]:
    """The characters of a decoded text that each of its tokens covers."""
    from regard.tasks.looking.steps import readable, spans_in_order

    if tokenizer.encode(text) == list(tokens):
        return tokenizer.offsets(text)
    return spans_in_order(text, [(piece.strip(),) for piece in readable(list(tokenizer.pieces(tokens)))])


def _word_spans(text: str) -> list[tuple[int, int]]:
    return [found.span() for found in re.finditer(r"\S+", text)]
