"""The encoder-decoder Transformer of 2017, with the choices people have made since as settings."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, check_at_least, check_fractions
from regard.models.protocols import Capabilities, check_coverage, check_shared_vocabulary
from regard.nn.attention import ACROSS, BEFORE, WITHIN
from regard.nn.batch import PackedPairs, Pairs, Sequences
from regard.nn.blocks import (
    Activation,
    BlockConfig,
    DecoderBlock,
    Distances,
    EncoderBlock,
    NormKind,
    Stack,
    check_layer_heads,
    make_norm,
    through,
)
from regard.nn.copy_mechanism import CopyProjection, known_only
from regard.nn.embeddings import Embedding, OutputProjection
from regard.nn.fixed_cache import FixedState, Room, float32_logits
from regard.nn.initialization import initialise
from regard.nn.kv_cache import DecoderState, KVCache, SourceMemory
from regard.nn.lean_decoder import LeanState, lean
from regard.nn.positions import (
    AddedKind,
    Layout,
    PositionKind,
    Positions,
    Rotary,
    check_buckets,
    check_rotary_base,
    distance_bias,
)
from regard.text.config import SPECIALS

UNKNOWN = SPECIALS.index("<unk>")


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerConfig:
    """`encoder_heads`, `decoder_heads` and `cross_heads` give layers fewer heads, of the same width; 0 is none at all.

    `share` ties tables: `all` is one for source, target and output, `output` one for target and output, `input` one for
    source and target. Where these two share theirs, they share learned positions and the embedding's norm, unless they
    have `own_positions`.

    With `copy` each prediction is a mixture of generating a word and copying one that is attended to (See et al. 2017),
    by head `copy_head` of the cross-attention of layer `copy_layer`, counted from 0 or, below 0, from the last.
    `coverage` is the weight of their coverage loss on that head: of attending again to what was attended to before."""

    source_vocab_size: int
    target_vocab_size: int
    width: int = 512
    heads: int = 8
    kv_heads: int | None = None
    head_width: int | None = None
    encoder_heads: tuple[int, ...] | None = None
    decoder_heads: tuple[int, ...] | None = None
    cross_heads: tuple[int, ...] | None = None
    encoder_layers: int = 6
    decoder_layers: int = 6
    feed_forward: int = 2048
    activation: Activation = "relu"
    gated: bool = False
    norm: NormKind = "layer"
    norm_first: bool = False
    norm_epsilon: float = 1e-5
    residual: bool = True
    scaled: bool = True
    qk_norm: bool = False
    bias: bool = True
    positions: PositionKind = "sinusoidal"
    position_layout: Layout = "interleaved"
    position_how: Literal["add", "concatenate"] = "add"
    position_width: int = 32
    position_offset: int = 0
    own_positions: bool = False
    rotary_base: float = 10000.0
    relative_buckets: int = 32
    relative_distance: int = 128
    window: int | None = None
    share: Literal["all", "input", "output", "none"] = "all"
    output_bias: bool = False
    scale_embedding: bool = True
    norm_embedding: bool = False
    scale_output: bool = False
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    layer_drop: float = 0.0
    copy: bool = False
    copy_layer: int = -1
    copy_head: int = 0
    coverage: float = 0.0
    max_len: int = 1024

    def __post_init__(self) -> None:
        check_shared_vocabulary(self)
        check_at_least(self, 1, "encoder_layers", "decoder_layers", "max_len", "source_vocab_size", "target_vocab_size")
        if self.position_how == "concatenate" and not 0 < self.position_width < self.width:
            raise ConfigError(f"position_width={self.position_width} must be between 0 and width={self.width}")
        check_fractions(self, "layer_drop")
        check_coverage(self.coverage)
        self._check_positions()
        self._check_heads()
        if self.points:
            self._check_copying()

    @property
    def points(self) -> bool:
        """Whether it matters where one head looks: to copying, or to coverage."""
        return self.copy or self.coverage > 0

    def _check_copying(self) -> None:
        layers = self.decoder_layers
        if not -layers <= self.copy_layer < layers:
            raise ConfigError(f"copy_layer={self.copy_layer} must be one of {layers} layers, from {-layers} on")
        heads = self.heads_of("cross")[self.copy_layer]
        if not 0 <= self.copy_head < (self.heads if heads is None else heads):
            raise ConfigError(f"copy_head={self.copy_head} must be a cross-attention head of layer {self.copy_layer}")
        if self.copy and self.source_vocab_size != self.target_vocab_size:
            raise ConfigError("copy=true needs one vocabulary for both sides")

    def _check_positions(self) -> None:
        if self.position_offset < 0:
            raise ConfigError(f"position_offset={self.position_offset} must be 0 or more")
        check_rotary_base(self.rotary_base)
        check_buckets(self.positions, self.relative_buckets, self.relative_distance)

    def _check_heads(self) -> None:
        block = self.block()
        for name in ("encoder", "decoder", "cross"):
            layers = self.encoder_layers if name == "encoder" else self.decoder_layers
            counts = getattr(self, f"{name}_heads")
            check_layer_heads(f"{name}_heads", counts, layers, block)
            if counts is not None and self.positions in ("alibi", "relative"):
                raise ConfigError(f"{name}_heads cannot differ between layers with {self.positions} positions")

    @property
    def shares_tokens(self) -> bool:
        """Whether source and target have one table of tokens."""
        return self.share in ("all", "input")

    def heads_of(self, name: Literal["encoder", "decoder", "cross"]) -> tuple[int | None, ...]:
        """How many heads each layer of a stack has; None where it is the usual number."""
        layers = self.encoder_layers if name == "encoder" else self.decoder_layers
        return getattr(self, f"{name}_heads") or (None,) * layers

    def block(self) -> BlockConfig:
        """The settings that concern a block, checked."""
        return BlockConfig.of(self)


class Transformer(nn.Module):
    """A stack of encoder blocks, a stack of decoder blocks that attend to it, and a head over the target vocabulary."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        tasks=("translation", "summarization"),
        packs=True,
        halves=True,
        stacks={"encoder_layers": "encoder", "decoder_layers": "decoder"},
        layer_heads={WITHIN: "encoder_heads", BEFORE: "decoder_heads", ACROSS: "cross_heads"},
    )

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        block = config.block()
        self.source = _embedding(config, config.source_vocab_size)
        self.target = self.source
        if config.own_positions or not config.shares_tokens:
            tokens = self.source.tokens if config.shares_tokens else None
            self.target = _embedding(config, config.target_vocab_size, tokens)
        tied = None if config.share in ("input", "none") or _concatenates(config) else self.target.tokens.weight
        head = CopyProjection if config.copy else OutputProjection
        self.head = head(
            config.width, config.target_vocab_size, bias=config.output_bias, tied=tied, scale=config.scale_output
        )
        self.gate = nn.Linear(config.width, 1) if config.copy else None
        self.points_at = config.copy_layer % config.decoder_layers if config.points else None
        rotary = Rotary(block.per_head, config.max_len, config.rotary_base) if config.positions == "rotary" else None
        self.encoder_distances = _distances(config, both_ways=True)
        self.decoder_distances = _distances(config, both_ways=False)
        self.encoder = Stack(
            EncoderBlock(block, rotary, self.encoder_distances, heads) for heads in config.heads_of("encoder")
        )
        decoder_heads = zip(config.heads_of("decoder"), config.heads_of("cross"), strict=True)
        self.decoder = Stack(DecoderBlock(block, rotary, self.decoder_distances, *heads) for heads in decoder_heads)
        # Where norms come first, what leaves a stack has not been through one yet.
        final = config.norm if config.norm_first else "none"
        self.encoder_norm = make_norm(final, config.width, config.norm_epsilon)
        self.decoder_norm = make_norm(final, config.width, config.norm_epsilon)
        initialise(self)

    def forward(self, batch: Pairs | PackedPairs) -> Float[Tensor, "B T P"]:
        """For each token that the decoder reads, the vector from which `head` predicts the next one.

        Its width is D; with `copy` it also says what may be copied.
        """
        if self.gate is not None:
            return self.attended(batch)[0]
        return self.decode(batch.inputs, self.encode(batch.source), batch.source)

    def attended(self, batch: Pairs | PackedPairs) -> tuple[Float[Tensor, "B T P"], Float[Tensor, "B T S"]]:
        """The same, and where the head that copies looked."""
        inputs, source = batch.inputs, batch.source
        memory = self.encode(source)
        x, found = self.target(self._known(inputs.ids), places=inputs.places), None
        visible, of_source = inputs.visible(causal=True, window=self.config.window), source.seen_from(inputs)
        for layer, block in enumerate(self.decoder):
            if layer == self.points_at:  # never dropped: nothing could be copied then
                x, found = block.forward_and_point(x, memory, visible, of_source, self.config.copy_head)
            else:
                x = through(block, self.config.layer_drop, x, memory, visible, of_source)
        assert found is not None, "a model without copying and coverage points nowhere"
        return self._with_copies(self.decoder_norm(x), found, source.ids), found

    def _with_copies(self, x: Float[Tensor, "B T D"], weights: Float[Tensor, "B T S"], ids: Int[Tensor, "B S"]):
        """The head's input: with copying, also the gate, the weights of each prediction and the ids attended to."""
        if self.gate is None:
            return x
        assert isinstance(self.head, CopyProjection)
        return self.head.packed(x, self.gate(x), weights, ids)

    def _known(self, ids: Tensor) -> Tensor:
        return ids if self.gate is None else known_only(ids, self.config.target_vocab_size, UNKNOWN)

    def logits(self, batch: Pairs | PackedPairs) -> Float[Tensor, "B T V"]:
        """The scores of every next token, given the true ones before it."""
        return self.head(self(batch))

    def encode(self, source: Sequences) -> Float[Tensor, "B S D"]:
        x = self.source(self._known(source.ids), places=source.places)
        visible = source.visible(window=self.config.window)
        for block in self.encoder:
            x = through(block, self.config.layer_drop, x, visible)
        return self.encoder_norm(x)

    def decode(self, inputs: Sequences, memory: Float[Tensor, "B S D"], source: Sequences) -> Float[Tensor, "B T D"]:
        x = self.target(inputs.ids, places=inputs.places)
        visible, of_source = inputs.visible(causal=True, window=self.config.window), source.seen_from(inputs)
        for block in self.decoder:
            x = through(block, self.config.layer_drop, x, memory, visible, of_source)
        return self.decoder_norm(x)

    def start(self, batch: Pairs) -> DecoderState | LeanState:
        """The source, encoded: what decoding starts from. On a CPU, where nobody watches, in the form of few calls."""
        memory, visible = self.encode(batch.source), batch.source.seen_from(batch.source)
        memories = tuple(SourceMemory(*block.cross_attention.keys_values(memory), visible) for block in self.decoder)
        decoder = None
        if memory.device.type == "cpu" and self.config.window is None and self.gate is None:
            decoder = lean([*self.decoder], self.target, self.head, lengths=visible.lengths)
        if decoder is not None:
            return decoder.start(memories)
        caches = tuple(KVCache(self.config.window, block.attention.joined()) for block in self.decoder)
        return DecoderState(caches, memories, None if self.gate is None else batch.source.ids)

    def step(
        self, choices: Int[Tensor, " R"], state: DecoderState | LeanState
    ) -> tuple[Float[Tensor, "R C"], DecoderState | LeanState]:
        """Log-probabilities of the tokens that may follow `choices`."""
        if isinstance(state, DecoderState) and state.ids is not None:
            return self._copying_step(choices, state, state.ids), state
        x, state = self.advance(choices, state)
        return self.head.log_probs(x, unseen=isinstance(state, LeanState)), state

    def advance(
        self, choices: Int[Tensor, " R"], state: DecoderState | LeanState
    ) -> tuple[Float[Tensor, "R D"], DecoderState | LeanState]:
        """The vectors from which `head` predicts what follows `choices`."""
        if isinstance(state, LeanState):
            x = state.decoder.step(self.target.step(choices, state.length), state)
            return self.decoder_norm(x), state
        x = self.target(choices[:, None], past=state.caches[0].length)
        for block, cache, memory in zip(self.decoder, state.caches, state.memories, strict=True):
            x = block.step(x, cache, memory)
        return self.decoder_norm(x).squeeze(1), state

    def _copying_step(
        self, choices: Int[Tensor, " R"], state: DecoderState, ids: Int[Tensor, "B S"]
    ) -> Float[Tensor, "R C"]:
        x, found = self.target(self._known(choices)[:, None], past=state.caches[0].length), None
        for layer, (block, cache, memory) in enumerate(zip(self.decoder, state.caches, state.memories, strict=True)):
            if layer == self.points_at:
                x, found = block.step_and_point(x, cache, memory, self.config.copy_head)
            else:
                x = block.step(x, cache, memory)
        assert found is not None
        vectors = self.decoder_norm(x).view(ids.shape[0], -1, x.shape[-1])
        return self.head.log_probs(self._with_copies(vectors, found, ids)).flatten(0, 1)

    @property
    def choices(self) -> int:
        return self.config.target_vocab_size

    def allocate(self, room: Room) -> FixedState:
        """Memory of fixed size for decoding so many sources, still empty."""
        return FixedState(
            [block.attention for block in self.decoder],
            [block.cross_attention for block in self.decoder],
            room=room,
            longest=self.config.max_len,
            window=self.config.window,
            distances=self.decoder_distances,
            like=self.target.tokens.weight,
        )

    def fill(self, batch: Pairs, state: FixedState, slots: Int[Tensor, " N"]) -> None:
        """Read these sources into these slots."""
        memory = self.encode(batch.source)
        state.empty(slots)
        state.read_sources(slots, batch.source.lengths)
        for layer, block in enumerate(self.decoder):
            state.write_source(layer, slots, *block.cross_attention.keys_values(memory))

    def fixed_step(
        self, choices: Int[Tensor, "B W"], state: FixedState, reach: int, source_reach: int
    ) -> Float[Tensor, "R V"]:
        """The scores of what may follow `choices`, of sources that have made fewer than `reach` steps."""
        step = state.begin(reach, source_reach)
        x = self.target(choices, places=step.places)
        for layer, block in enumerate(self.decoder):
            x = block.fixed_step(x, layer, state, step)
        return float32_logits(self.head, self.decoder_norm(x).flatten(0, 1))


def _concatenates(config: TransformerConfig) -> bool:
    return config.position_how == "concatenate" and config.positions in get_args(AddedKind)


def _embedding(config: TransformerConfig, vocab_size: int, tokens: nn.Embedding | None = None) -> Embedding:
    positions, width = None, config.width
    if config.positions in ("sinusoidal", "learned", "linear", "linear-unscaled"):
        beside = _concatenates(config)
        place_width = config.position_width if beside else config.width
        width = config.width - place_width if beside else config.width
        positions = Positions(
            config.positions,
            place_width,
            config.max_len,
            layout=config.position_layout,
            how=config.position_how,
            offset=config.position_offset,
        )
    return Embedding(
        vocab_size,
        width,
        positions=positions,
        scale=config.scale_embedding,
        dropout=config.dropout,
        norm=make_norm(config.norm, config.width, config.norm_epsilon) if config.norm_embedding else None,
        tokens=tokens,
    )


def _distances(config: TransformerConfig, *, both_ways: bool) -> Distances | None:
    """What one stack's scores owe to distance alone."""
    return distance_bias(
        config.positions, config.heads, config.relative_buckets, config.relative_distance, both_ways=both_ways
    )


MODEL = TransformerConfig, Transformer
