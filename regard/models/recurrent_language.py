"""A language model over any recurrent cell: reads text in order, and predicts each next token from its state."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, DataError
from regard.nn.batch import Pairs, Stretch, Tokens, Windows
from regard.nn.cells import CellKind, Recurrent, RecurrentLayer, States, initialise_cell
from regard.nn.dropout import Dropout, SharedDropout
from regard.nn.embedding import Embedding, Head
from regard.nn.initial import initialise


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentLanguageConfig:
    """`tied` makes the head's matrix the table of token vectors.

    A window of text starts from a state of zeros, unless `data.carry` lets it start from where the one before ended.

    Against overfitting: `dropout` after the embedding and before the head, `layer_dropout` between layers, by default
    as much, both taking the same features from every position of a row where they are `variational`; `token_dropout`
    the vectors of that share of the vocabulary, and `weight_drop` that share of the weights over the state.
    """

    vocab_size: int
    width: int = 256
    cell: CellKind = "lstm"
    layers: int = 2
    tied: bool = True
    output_bias: bool = True
    dropout: float = 0.1
    layer_dropout: float | None = None
    variational: bool = False
    token_dropout: float = 0.0
    weight_drop: float = 0.0
    max_len: int = 1024

    def __post_init__(self) -> None:
        for name in ("vocab_size", "width", "layers", "max_len"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("dropout", "layer_dropout", "token_dropout", "weight_drop"):
            if not 0 <= (getattr(self, name) or 0.0) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 0 and below 1")


@dataclass(frozen=True, slots=True)
class TextState:
    """All that the model remembers of what each row has read: its layers' states."""

    states: tuple[tuple[Tensor, ...], ...]

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " N"] | None = None) -> "TextState":
        return TextState(tuple(tuple(part[rows] for part in state) for state in self.states))


class RecurrentLanguageModel(nn.Module):
    """An embedding, layers of a recurrent cell, and a head over the vocabulary."""

    packs = False  # a recurrence runs on past the end of a document, into the next of its row

    def __init__(self, config: RecurrentLanguageConfig) -> None:
        super().__init__()
        self.config = config
        dropout, shared = config.dropout, config.variational
        self.embedding = Embedding(
            config.vocab_size, config.width, dropout=dropout, token_dropout=config.token_dropout, shared=shared
        )
        self.layers = Recurrent(
            config.cell,
            config.width,
            config.width,
            config.layers,
            dropout=dropout if config.layer_dropout is None else config.layer_dropout,
            shared=shared,
            weight_drop=config.weight_drop,
        )
        tied = self.embedding.tokens.weight if config.tied else None
        self.head = Head(config.width, config.vocab_size, bias=config.output_bias, tied=tied)
        self.dropout = SharedDropout(dropout) if shared else Dropout(dropout)
        initialise(self)
        for layer in self.layers.layers:
            assert isinstance(layer, RecurrentLayer)
            for cell in layer.cells:
                initialise_cell(cell)

    def forward(self, batch: Windows | Stretch | Pairs) -> Float[Tensor, "B T D"]:
        """For each token read, the vector from which `head` predicts the next one."""
        assert isinstance(batch.inputs, Tokens), "a recurrent model reads one sequence a row"
        return self.carry(batch.inputs)[0]

    def carry(self, inputs: Tokens, states: States | None = None) -> tuple[Float[Tensor, "B T D"], States]:
        """The same from `states` on, and the states after it."""
        outputs, ends = self.layers(self.embedding(inputs.ids), None, states)
        return self.dropout(outputs), ends

    def logits(self, batch: Windows | Stretch | Pairs) -> Float[Tensor, "B T V"]:
        """The scores of every next token, given the true ones before it."""
        return self.head(self(batch))

    def start(self, batch: Tokens) -> TextState:
        """Prompts, all but the last token of each read: `step` with those last tokens goes on from here."""
        if int(batch.lengths.min()) < 1:
            raise DataError("a prompt without a token has nothing to go on from")
        words = self.embedding(batch.ids)
        if batch.ids.shape[1] == 1:
            return TextState(tuple(layer.zeros(words) for layer in self.layers.layers))  # type: ignore[operator]
        read = batch.lengths - 1
        _, states = self.layers(words[:, :-1], read.clamp(min=1) if batch.padded else None)
        # A prompt of one token has read nothing yet.
        begun = (read > 0)[:, None]
        return TextState(tuple(tuple(torch.where(begun, part, 0.0) for part in state) for state in states))

    def step(self, choices: Int[Tensor, " R"], state: TextState) -> tuple[Float[Tensor, "R V"], TextState]:
        """Log-probabilities of the tokens that may follow `choices`."""
        output, states = self.layers.step(self.embedding(choices[:, None]).squeeze(1), state.states)
        return self.head(self.dropout(output)).log_softmax(-1), TextState(states)
