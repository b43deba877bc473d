"""A recurrent language model over any cell, with the regularisation of AWD-LSTM and a pointer-sentinel as settings."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import DataError, check_at_least, check_fractions
from regard.models.protocols import Capabilities
from regard.nn.batch import Pairs, StreamedWindows, Tokens, Windows
from regard.nn.copy_mechanism import (
    CopyProjection,
    Memory,
    PointerSentinel,
    appended,
    empty_memory,
    last_entries,
    window_mask,
)
from regard.nn.dropout import Dropout, SharedDropout
from regard.nn.embeddings import Embedding, OutputProjection
from regard.nn.initialization import initialise
from regard.nn.recurrent.cells import CellKind
from regard.nn.recurrent.layers import CellStates, Recurrent

Kept = tuple[tuple[Tensor, ...], ...]
"""The layers' states and, in a model that points, a `Memory` after them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentLanguageConfig:
    """`tied` makes the head's matrix the embedding's.

    With `scale_embedding` token vectors are multiplied by the root of their width on the way in. Without it an update
    moves what a word says to the cell no further than what it says to the head, which is better where they are `tied`.

    A window of text starts from a state of zeros, unless `data.carry` lets it start from where the one before ended.

    Against overfitting: `dropout` after the embedding and before the head, `layer_dropout` between layers, by default
    as much, both taking the same features from every position of a row where they are `variational`; `token_dropout`
    the vectors of that share of the vocabulary, and `weight_drop` that share of the weights over the state.

    `pointer` is how many of the last tokens a prediction may point at instead of writing one (Merity et al. 2017).
    """

    vocab_size: int
    width: int = 256
    cell: CellKind = "lstm"
    layers: int = 2
    tied: bool = True
    output_bias: bool = True
    dropout: float = 0.1
    layer_dropout: float | None = None
    scale_embedding: bool = True
    variational: bool = False
    token_dropout: float = 0.0
    weight_drop: float = 0.0
    pointer: int = 0
    max_len: int = 1024

    def __post_init__(self) -> None:
        check_at_least(self, 1, "vocab_size", "width", "layers", "max_len")
        check_at_least(self, 0, "pointer")
        check_fractions(self, "dropout", "layer_dropout", "token_dropout", "weight_drop")


@dataclass(frozen=True, slots=True)
class TextState:
    """All that the model remembers of what each row has read: its layers' states and, where it points, a `Memory`."""

    states: Kept

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " N"] | None = None) -> "TextState":
        return TextState(tuple(tuple(part[rows] for part in state) for state in self.states))


class RecurrentLanguageModel(nn.Module):
    """An embedding, layers of a recurrent cell, and a head over the vocabulary."""

    # It packs no rows: a recurrence runs on past the end of a document, into the next of its row.
    capabilities: ClassVar[Capabilities] = Capabilities(tasks=("language",))

    def __init__(self, config: RecurrentLanguageConfig) -> None:
        super().__init__()
        self.config = config
        dropout, shared = config.dropout, config.variational
        self.embedding = Embedding(
            config.vocab_size,
            config.width,
            scale=config.scale_embedding,
            dropout=dropout,
            token_dropout=config.token_dropout,
            shared=shared,
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
        head = CopyProjection if config.pointer else OutputProjection
        self.head = head(config.width, config.vocab_size, bias=config.output_bias, tied=tied)
        self.sentinel = PointerSentinel(config.width) if config.pointer else None
        self.dropout = SharedDropout(dropout) if shared else Dropout(dropout)
        initialise(self)

    def forward(self, batch: Windows | StreamedWindows | Pairs) -> Float[Tensor, "B T P"]:
        """For each token read, the vector from which `head` predicts the next one."""
        assert isinstance(batch.inputs, Tokens), "a recurrent model reads one sequence per row"
        return self.carry(batch.inputs)[0]

    def read(self, inputs: Tokens) -> Float[Tensor, "B T P"]:
        """The same of tokens alone."""
        return self.carry(inputs)[0]

    def carry(self, inputs: Tokens, states: Kept | None = None) -> tuple[Float[Tensor, "B T P"], Kept]:
        """The same from `states` on, and the states after it."""
        layers, past = self._apart(states)
        outputs, ends = self.layers(self.embedding(inputs.ids), None, layers)
        outputs = self.dropout(outputs)
        if self.sentinel is None:
            return outputs, ends
        packed, memory = self._pointing(outputs, inputs.ids, past)
        return packed, (*ends, memory)

    def logits(self, batch: Windows | StreamedWindows | Pairs) -> Float[Tensor, "B T V"]:
        """The scores of every next token, given the true ones before it."""
        return self.head(self(batch))

    def start(self, batch: Tokens) -> TextState:
        """Prompts, all but the last token of each read: `step` with those last tokens continues from here."""
        if int(batch.lengths.min()) < 1:
            raise DataError("a prompt without a token cannot be continued")
        words = self.embedding(batch.ids)
        read = batch.lengths - 1
        if batch.ids.shape[1] == 1:
            zeros = tuple(layer.zeros(words) for layer in self.layers.layers)
            return TextState(zeros if self.sentinel is None else (*zeros, empty_memory(words, self.config.pointer)))
        outputs, states = self.layers(words[:, :-1], read.clamp(min=1) if batch.padded else None)
        # A prompt of one token has read nothing yet.
        begun = (read > 0)[:, None]
        states = tuple(tuple(torch.where(begun, part, 0.0) for part in state) for state in states)
        if self.sentinel is None:
            return TextState(states)
        return TextState((*states, last_entries(self.dropout(outputs), batch.ids[:, :-1], read, self.config.pointer)))

    def step(self, choices: Int[Tensor, " R"], state: TextState) -> tuple[Float[Tensor, "R V"], TextState]:
        """Log-probabilities of the tokens that may follow `choices`."""
        layers, past = self._apart(state.states)
        assert layers is not None
        output, states = self.layers.step(self.embedding(choices[:, None]).squeeze(1), layers)
        output = self.dropout(output)
        if self.sentinel is None:
            return self.head(output).log_softmax(-1), TextState(states)
        packed, memory = self._pointing(output[:, None], choices[:, None], past)
        return self.head(packed).squeeze(1), TextState((*states, memory))

    def _apart(self, states: Kept | None) -> tuple[CellStates | None, Memory | None]:
        """The layers' states, and what there is to point at."""
        if states is None or self.sentinel is None:
            return states, None
        memory, ids, real = states[-1]
        return states[:-1], (memory, ids, real)

    def _pointing(self, outputs: Tensor, ids: Tensor, past: Memory | None) -> tuple[Tensor, Memory]:
        """The head's input for these outputs, and what can be pointed at after them."""
        assert self.sentinel is not None
        assert isinstance(self.head, CopyProjection)
        memory, words, real = appended(past, outputs, ids)
        visible = window_mask(real, outputs.shape[1], self.config.pointer)
        gate, weights = self.sentinel(outputs, memory, visible)
        lengths = torch.full_like(ids[:, 0], words.shape[1])
        kept = last_entries(memory, words, lengths, self.config.pointer, real)
        return self.head.packed(outputs, gate, weights, words), kept


MODEL = RecurrentLanguageConfig, RecurrentLanguageModel
