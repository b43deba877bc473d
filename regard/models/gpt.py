"""The decoder-only Transformer: GPT-2 and the Llama type alike, by their settings."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, DataError, check_at_least
from regard.models.protocols import Capabilities
from regard.nn.attention import WITHIN
from regard.nn.batch import Pairs, Sequences, Tokens, Windows
from regard.nn.blocks import Activation, BlockConfig, EncoderBlock, NormKind, Stack, check_layer_heads, make_norm
from regard.nn.embeddings import Embedding, OutputProjection
from regard.nn.fixed_cache import FixedState, Room, float32_logits
from regard.nn.initialization import initialise_small
from regard.nn.kv_cache import KVCache, PromptState
from regard.nn.positions import PositionKind, Positions, Rotary, check_buckets, check_rotary_base, distance_bias

PIECE = 2048
"""Tokens of a prompt that are read at a time, so that what one reading needs does not grow with the prompt squared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GPTConfig:
    """The defaults are GPT-2's parts. The Llama type has `rms` norms, `silu`, `gated`, `rotary` and no biases.

    `layer_heads` gives layers fewer heads, of the same width; 0 is none at all."""

    vocab_size: int
    width: int = 384
    heads: int = 6
    kv_heads: int | None = None
    head_width: int | None = None
    layer_heads: tuple[int, ...] | None = None
    layers: int = 6
    feed_forward: int = 1536
    activation: Activation = "gelu-tanh"
    gated: bool = False
    norm: NormKind = "layer"
    norm_epsilon: float = 1e-5
    bias: bool = True
    positions: PositionKind = "learned"
    rotary_base: float = 10000.0
    relative_buckets: int = 32
    relative_distance: int = 128
    window: int | None = None
    tied: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    max_len: int = 1024

    def __post_init__(self) -> None:
        check_at_least(self, 1, "layers", "max_len", "vocab_size")
        check_at_least(self, 1, "window")
        check_rotary_base(self.rotary_base)
        check_layer_heads("layer_heads", self.layer_heads, self.layers, self.block())
        check_buckets(self.positions, self.relative_buckets, self.relative_distance)
        if self.layer_heads is not None and self.positions in ("alibi", "relative"):
            raise ConfigError(f"layer_heads cannot differ between layers with {self.positions} positions")

    def block(self) -> BlockConfig:
        """The settings that concern a block, checked; norms always come first."""
        return BlockConfig.of(self, norm_first=True)


class GPT(nn.Module):
    """A stack of blocks that see only what came before, and a head that predicts what comes next."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        tasks=("language",), packs=True, halves=True, layer_heads={WITHIN: "layer_heads"}
    )

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        added = None
        if config.positions in ("sinusoidal", "learned", "linear", "linear-unscaled"):
            added = Positions(config.positions, config.width, config.max_len)
        self.embedding = Embedding(
            config.vocab_size, config.width, positions=added, scale=False, dropout=config.dropout
        )
        rotary = None
        if config.positions == "rotary":
            rotary = Rotary(config.block().per_head, config.max_len, config.rotary_base)
        self.distances = distance_bias(
            config.positions, config.heads, config.relative_buckets, config.relative_distance, both_ways=False
        )
        heads = config.layer_heads or (None,) * config.layers
        self.blocks = Stack(EncoderBlock(config.block(), rotary, self.distances, own) for own in heads)
        self.norm = make_norm(config.norm, config.width, config.norm_epsilon)
        self.head = OutputProjection(
            config.width, config.vocab_size, tied=self.embedding.tokens.weight if config.tied else None
        )
        initialise_small(self, config.layers)

    def forward(self, batch: Windows | Pairs) -> Float[Tensor, "B T D"]:
        """For each token read, the vector from which `head` predicts the next one."""
        return self.read(batch.inputs)

    def logits(self, batch: Windows | Pairs) -> Float[Tensor, "B T V"]:
        """The scores of every next token, given the true ones before it."""
        return self.head(self(batch))

    def read(self, inputs: Sequences) -> Float[Tensor, "B T D"]:
        x = self.embedding(inputs.ids, places=inputs.places)
        visible = inputs.visible(causal=True, window=self.config.window)
        for block in self.blocks:
            x = block(x, visible)
        return self.norm(x)

    def start(self, batch: Tokens) -> PromptState:
        """Prompts, all but the last token of each read: `step` with those last tokens continues from here."""
        if int(batch.lengths.min()) < 1:
            raise DataError("a prompt without a token cannot be continued")
        columns = batch.ids.shape[1] - 1
        return PromptState(self._read_prompts(batch), columns, batch.lengths - 1 if batch.padded else None)

    def _read_prompts(self, batch: Tokens) -> tuple[KVCache, ...]:
        caches = tuple(KVCache(self.config.window, block.attention.joined()) for block in self.blocks)
        columns = batch.ids.shape[1] - 1
        for start in range(0, columns, PIECE):
            x = self.embedding(batch.ids[:, start : min(start + PIECE, columns)], past=start)
            for block, cache in zip(self.blocks, caches, strict=True):
                x = block.step(x, cache)
        return caches

    def step(self, choices: Int[Tensor, " R"], state: PromptState) -> tuple[Float[Tensor, "R V"], PromptState]:
        """Log-probabilities of the tokens that may follow `choices`."""
        places, visible = state.places(), state.visible()
        longest = self.config.max_len
        if places is not None and state.caches[0].length >= longest and int(places.max()) >= longest:
            raise DataError(
                f"a sequence of {int(places.max()) + 1} tokens is longer than the model's max_len={longest}"
            )
        x = self.embedding(choices[:, None], past=state.caches[0].length, places=places)
        for block, cache in zip(self.blocks, state.caches, strict=True):
            x = block.step(x, cache, places, visible)
        return self.head.log_probs(self.norm(x).squeeze(1)), state

    @property
    def choices(self) -> int:
        return self.config.vocab_size

    def allocate(self, room: Room) -> FixedState:
        """Memory of fixed size for continuing so many prompts, still empty."""
        return FixedState(
            [block.attention for block in self.blocks],
            room=room,
            longest=self.config.max_len,
            window=self.config.window,
            distances=self.distances,
            like=self.embedding.tokens.weight,
        )

    def fill(self, batch: Tokens, state: FixedState, slots: Int[Tensor, " N"]) -> None:
        """Read these prompts into these slots, all but the last token of each."""
        caches = self._read_prompts(batch)
        state.empty(slots)
        state.prompt_lengths[slots] = batch.lengths - 1
        for layer, cache in enumerate(caches):
            if cache.filled is not None:
                state.write_prompt(layer, slots, *cache.filled)

    def fixed_step(
        self, choices: Int[Tensor, "B W"], state: FixedState, reach: int, source_reach: int
    ) -> Float[Tensor, "R V"]:
        """The scores of what may follow `choices`, of prompts after which fewer than `reach` steps were made."""
        step = state.begin(reach, source_reach)
        x = self.embedding(choices, places=step.places)
        for layer, block in enumerate(self.blocks):
            x = block.fixed_step(x, layer, state, step)
        return float32_logits(self.head, self.norm(x).flatten(0, 1))


MODEL = GPTConfig, GPT
