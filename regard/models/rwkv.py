"""RWKV as a language model: trained over whole windows at once like a Transformer, run step by step like a cell."""

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
from regard.nn.recurrent.layers import CellStates
from regard.nn.rwkv import RWKVBlock, after


@dataclass(frozen=True, kw_only=True, slots=True)
class RWKVConfig:
    """`max_len` bounds windows of training alone: what the model remembers has one size, however much it has read."""

    vocab_size: int
    width: int = 256
    layers: int = 6
    feed_forward: int = 1024
    tied: bool = False
    dropout: float = 0.0
    max_len: int = 1024

    def __post_init__(self) -> None:
        for name in ("vocab_size", "width", "layers", "feed_forward", "max_len"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout={self.dropout} must be at least 0 and below 1")


class RWKV(nn.Module):
    """An embedding, blocks that mix over time and over channels, and a head over the vocabulary."""

    # It packs no rows: a recurrence runs on past the end of a document, into the next of its row.
    capabilities: ClassVar[Capabilities] = Capabilities(tasks=("language",))

    def __init__(self, config: RWKVConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.width, scale=False, dropout=config.dropout)
        self.first_norm, self.norm = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        dropout = Dropout(config.dropout)
        self.blocks = Stack(
            RWKVBlock(config.width, config.feed_forward, layer, config.layers, dropout)
            for layer in range(config.layers)
        )
        tied = self.embedding.tokens.weight if config.tied else None
        self.head = OutputProjection(config.width, config.vocab_size, tied=tied)
        initialise(self)
        for block in self.blocks:
            # What a block adds starts as nothing, so that a deep stack starts as a shallow one.
            nn.init.zeros_(block.time.output.weight)
            nn.init.zeros_(block.channel.value.weight)

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

    def carry(self, inputs: Tokens, states: CellStates | None = None) -> tuple[Float[Tensor, "B T D"], CellStates]:
        """The same from `states` on, and the states after it."""
        return self._read(inputs.ids, inputs.lengths - 1, states)

    def start(self, batch: Tokens) -> TextState:
        """Prompts, all but the last token of each read: `step` with those last tokens goes on from here."""
        if int(batch.lengths.min()) < 1:
            raise DataError("a prompt without a token has nothing to go on from")
        nothing = self._nothing(batch.ids)
        if batch.ids.shape[1] == 1:
            return TextState(nothing)
        read = batch.lengths - 1
        _, states = self._read(batch.ids[:, :-1], (read - 1).clamp(min=0), None)
        begun = (read > 0)[:, None]  # a prompt of one token has read nothing yet
        pairs = (zip(own, empty, strict=True) for own, empty in zip(states, nothing, strict=True))
        return TextState(tuple(tuple(torch.where(begun, one, none) for one, none in own) for own in pairs))

    def step(self, choices: Int[Tensor, " R"], state: TextState) -> tuple[Float[Tensor, "R V"], TextState]:
        """Log-probabilities of the tokens that may follow `choices`."""
        x, ends = self.first_norm(self.embedding(choices[:, None]).squeeze(1)), []
        for block, own in zip(self.blocks, state.states, strict=True):
            x, end = block.step(x, own)
            ends.append(end)
        return self.head(self.norm(x)).log_softmax(-1), TextState(tuple(ends))

    def _read(self, ids: Tensor, last: Tensor, states: CellStates | None) -> tuple[Tensor, CellStates]:
        x, ends = self.first_norm(self.embedding(ids)), []
        for block, own in zip(self.blocks, states or self._nothing(ids), strict=True):
            x, everywhere = block(x, own)
            ends.append(after(everywhere, last))
        return self.norm(x), tuple(ends)

    def _nothing(self, ids: Tensor) -> CellStates:
        like = self.embedding.tokens.weight.new_zeros(ids.shape[0], 1)
        return tuple(block.zeros(like, self.config.width) for block in self.blocks)


MODEL = RWKVConfig, RWKV
