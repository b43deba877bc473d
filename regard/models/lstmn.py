"""A language model of long short-term memory-networks: LSTMs that attend to all their own past states."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, DataError
from regard.models.protocols import Capabilities
from regard.models.recurrent_language import TextState
from regard.nn.batch import Pairs, Stretch, Tokens, Windows
from regard.nn.blocks import Stack
from regard.nn.dropout import Dropout
from regard.nn.embedding import Embedding, OutputProjection
from regard.nn.initialization import initialise
from regard.nn.lstmn import LSTMNLayer, Tape

Tapes = tuple[Tape, ...]  # one a layer


@dataclass(frozen=True, kw_only=True, slots=True)
class LSTMNConfig:
    """`span` is how many of its last states a layer looks at; they are all that it remembers."""

    vocab_size: int
    width: int = 128
    layers: int = 1
    span: int = 128
    tied: bool = True
    output_bias: bool = True
    dropout: float = 0.1
    max_len: int = 1024

    def __post_init__(self) -> None:
        for name in ("vocab_size", "width", "layers", "span", "max_len"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout={self.dropout} must be at least 0 and below 1")


class LSTMN(nn.Module):
    """An embedding, layers that look back over their own states, and a head over the vocabulary."""

    # It packs no rows: a recurrence runs on past the end of a document, into the next of its row.
    capabilities: ClassVar[Capabilities] = Capabilities(tasks=("language",))

    def __init__(self, config: LSTMNConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.width, dropout=config.dropout)
        self.layers = Stack(LSTMNLayer(config.width, config.width, config.span) for _ in range(config.layers))
        tied = self.embedding.tokens.weight if config.tied else None
        self.head = OutputProjection(config.width, config.vocab_size, bias=config.output_bias, tied=tied)
        self.dropout = Dropout(config.dropout)
        initialise(self)
        for layer in self.layers:
            layer.initialise()

    def forward(self, batch: Windows | Stretch | Pairs) -> Float[Tensor, "B T D"]:
        """For each token read, the vector from which `head` predicts the next one."""
        assert isinstance(batch.inputs, Tokens), "a recurrent model reads one sequence a row"
        return self.carry(batch.inputs)[0]

    def read(self, inputs: Tokens) -> Float[Tensor, "B T D"]:
        """The same of tokens alone."""
        return self.carry(inputs)[0]

    def logits(self, batch: Windows | Stretch | Pairs) -> Float[Tensor, "B T V"]:
        """The scores of every next token, given the true ones before it."""
        return self.head(self(batch))

    def carry(self, inputs: Tokens, states: Tapes | None = None) -> tuple[Float[Tensor, "B T D"], Tapes]:
        """The same from `states` on, and the states after it."""
        x, ends = self._read(self.embedding(inputs.ids), None, states)
        return self.dropout(x), ends

    def start(self, batch: Tokens) -> TextState:
        """Prompts, all but the last token of each read: `step` with those last tokens goes on from here."""
        if int(batch.lengths.min()) < 1:
            raise DataError("a prompt without a token has nothing to go on from")
        words = self.embedding(batch.ids)
        if batch.ids.shape[1] == 1:
            return TextState(self._nothing(words))
        read = batch.lengths - 1
        _, states = self._read(words[:, :-1], read.clamp(min=1) if batch.padded else None, None)
        begun = (read > 0)[:, None]  # a prompt of one token has read nothing yet
        return TextState(tuple((torch.where(begun, mean, 0.0), h, c, there & begun) for mean, h, c, there in states))

    def step(self, choices: Int[Tensor, " R"], state: TextState) -> tuple[Float[Tensor, "R V"], TextState]:
        """Log-probabilities of the tokens that may follow `choices`."""
        x, ends = self.embedding(choices[:, None]).squeeze(1), []
        for number, (layer, own) in enumerate(zip(self.layers, state.states, strict=True)):
            mean, h, c, there = own
            x, end = layer.step(self.dropout(x) if number else x, (mean, h, c, there))
            ends.append(end)
        return self.head(self.dropout(x)).log_softmax(-1), TextState(tuple(ends))

    def _read(self, x: Tensor, lengths: Tensor | None, states: Tapes | None) -> tuple[Tensor, Tapes]:
        ends = []
        for number, (layer, own) in enumerate(zip(self.layers, states or self._nothing(x), strict=True)):
            x, end = layer(self.dropout(x) if number else x, own, lengths)
            ends.append(end)
        return x, tuple(ends)

    def _nothing(self, like: Tensor) -> Tapes:
        return tuple(layer.zeros(like) for layer in self.layers)


MODEL = LSTMNConfig, LSTMN
