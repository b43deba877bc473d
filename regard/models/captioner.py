"""An image encoder and a decoder that writes what it sees: a Transformer's, or a recurrent one with soft attention."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, DataError, check_at_least, check_fractions
from regard.models.protocols import Capabilities
from regard.models.vit import LARGEST_GRID
from regard.nn.attention import ACROSS, BEFORE, WITHIN, NoHeads
from regard.nn.attention_scores import ScoredAttention
from regard.nn.batch import CaptionedImages, Tokens
from regard.nn.blocks import (
    Activation,
    BlockConfig,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    NormKind,
    Stack,
    Sublayer,
    check_layer_heads,
    make_norm,
    self_attention,
)
from regard.nn.dropout import Dropout
from regard.nn.embeddings import Embedding, OutputProjection, PatchEmbedding, resized_positions
from regard.nn.initialization import initialise
from regard.nn.kv_cache import DecoderState, KVCache, SourceMemory
from regard.nn.masks import CAUSAL, EVERYTHING, Visible
from regard.nn.positions import Positions
from regard.nn.recurrent.cells import CellKind, CellState
from regard.nn.recurrent.layers import CellStates, Recurrent, RecurrentLayer

PlaceScore = Literal["cosine", "additive", "general", "dot", "scaled-dot"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionConfig:
    """An image of `image_size` pixels on a side, read in places of `patch_size` pixels, and a caption of at most
    `max_len` tokens.

    The encoder cuts `patches`, each a vector by one matrix, or is a `convolution`: layers of stride 2, one for each
    time that the patch size can be halved, then one of stride 1 over `last_kernel` places on a side; 1 leaves what a
    place holds near it. `encoder_layers` blocks of self-attention follow, or none. The decoder is a `transformer`, or
    `recurrent`: cells that look at the image for each word, by their state `before` they read the last word (Xu et al.
    2015), `after` it (Lu et al. 2017), or between `layers` of cells, of which the next one reads what was gathered
    (Anderson et al. 2018), as `attend` says; between layers with `heads` heads, else with one. A word is read out of
    state, image and last word by their sum, `linear` as published, or by its `tanh`, or between layers out of what was
    gathered last alone, `context`. `start` says whether cells begin with the `mean` of all places or with `zeros`,
    `gate` whether they choose how much of what was gathered to use; `place_penalty` is the weight of the penalty on
    places that no word looked at, by the mean of all heads. `encoder_heads`, `decoder_heads` and `cross_heads` give
    layers fewer heads, of the same width; 0 is none at all. `word_dropout` is the share of a caption's words that the
    decoder does not get to read while it is trained, so that it has to look.
    """

    vocab_size: int
    image_size: int = 64
    patch_size: int = 8
    channels: int = 3
    encoder: Literal["patches", "convolution"] = "patches"
    last_kernel: int = 3
    decoder: Literal["transformer", "recurrent"] = "transformer"
    width: int = 128
    heads: int = 4
    encoder_heads: tuple[int, ...] | None = None
    decoder_heads: tuple[int, ...] | None = None
    cross_heads: tuple[int, ...] | None = None
    encoder_layers: int = 3
    decoder_layers: int = 3
    feed_forward: int = 512
    activation: Activation = "gelu"
    gated: bool = False
    norm: NormKind = "layer"
    norm_epsilon: float = 1e-5
    qk_norm: bool = False
    bias: bool = True
    cell: CellKind = "lstm"
    attention: PlaceScore = "additive"
    attend: Literal["before", "after", "layers"] = "before"
    readout: Literal["tanh", "linear", "context"] = "tanh"
    start: Literal["mean", "zeros"] = "mean"
    gate: bool = True
    place_penalty: float = 0.0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    word_dropout: float = 0.0
    max_len: int = 256

    def __post_init__(self) -> None:
        check_at_least(self, 1, "vocab_size", "image_size", "patch_size", "channels", "decoder_layers", "max_len")
        check_at_least(self, 0, "encoder_layers", "place_penalty")
        check_fractions(self, "dropout", "word_dropout")
        if self.image_size % self.patch_size:
            raise ConfigError(f"image_size={self.image_size} must be a multiple of patch_size={self.patch_size}")
        if self.grid**2 > LARGEST_GRID:
            raise ConfigError(f"image_size={self.image_size} makes {self.grid**2:,} patches; {LARGEST_GRID:,} is most")
        if self.channels not in (1, 3):
            raise ConfigError(f"channels={self.channels} must be 1 (grey) or 3 (red, green and blue)")
        if self.encoder == "convolution" and (self.patch_size < 2 or self.patch_size & (self.patch_size - 1)):
            raise ConfigError(f"patch_size={self.patch_size} must be a power of 2 for encoder='convolution'")
        if self.last_kernel < 1 or self.last_kernel % 2 == 0:
            raise ConfigError(f"last_kernel={self.last_kernel} must be odd, so that it has a middle")
        if self.encoder == "patches" and self.last_kernel != 3:
            raise ConfigError(f"last_kernel={self.last_kernel} is for encoder='convolution'")
        if self.decoder == "transformer" and self.place_penalty:
            raise ConfigError(f"place_penalty={self.place_penalty} is for decoder='recurrent'")
        layered = self.decoder == "recurrent" and self.attend == "layers"
        if layered and self.attention != "scaled-dot":
            raise ConfigError(f"attention={self.attention!r} has one head; attend='layers' needs 'scaled-dot'")
        if layered and self.place_penalty and self.cross_heads is not None and not any(self.cross_heads):
            raise ConfigError(f"place_penalty={self.place_penalty} needs a head that looks: cross_heads has none")
        if not layered and self.readout == "context":
            raise ConfigError("readout='context' is for attend='layers'")
        for name, usual in (("attend", "before"), ("readout", "tanh"), ("start", "mean"), ("gate", True)):
            if self.decoder == "transformer" and getattr(self, name) != usual:
                raise ConfigError(f"{name}={getattr(self, name)!r} is for decoder='recurrent'")
        check_layer_heads("encoder_heads", self.encoder_heads, self.encoder_layers, self.block())
        for name in ("decoder_heads", "cross_heads"):
            counts = getattr(self, name)
            if counts is not None and self.decoder == "recurrent" and not (layered and name == "cross_heads"):
                also = " or attend='layers'" if name == "cross_heads" else ""
                raise ConfigError(f"{name} is for decoder='transformer'{also}")
            check_layer_heads(name, counts, self.decoder_layers, self.block())

    @property
    def grid(self) -> int:
        """Places of the image on a side."""
        return self.image_size // self.patch_size

    @property
    def first(self) -> int:
        """The place of the first patch: [CLS] stands before the patches."""
        return 1 if self.encoder == "patches" else 0

    @property
    def places(self) -> int:
        """What the decoder attends to: the patches, and [CLS] where there is one."""
        return self.first + self.grid**2

    def block(self) -> BlockConfig:
        """The settings that concern a block, checked; norms always come first."""
        return BlockConfig.of(self, norm_first=True)


class ConvolutionalStem(nn.Module):
    """Places of an image as vectors: layers of stride 2 with norm and ReLU, one more of stride 1, then positions."""

    def __init__(self, config: CaptionConfig) -> None:
        super().__init__()
        layers = config.patch_size.bit_length() - 1
        widths = [config.channels, *(max(8, config.width >> (layers - 1 - layer)) for layer in range(layers))]
        widths[-1] = config.width
        self.convolutions = Stack(nn.Conv2d(before, after, 3, stride=2) for before, after in pairwise(widths))
        self.convolutions.append(nn.Conv2d(config.width, config.width, config.last_kernel))
        self.norms = Stack(nn.GroupNorm(1, width) for width in (*widths[1:], config.width))
        self.grid = config.grid
        self.positions = nn.Parameter(torch.empty(1, config.grid**2, config.width))
        self.dropout = Dropout(config.dropout)
        nn.init.normal_(self.positions, std=0.1)
        for layer in self.convolutions:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)

    def forward(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B P D"]:
        x, wanted = pixels, self.convolutions[0].in_channels
        if pixels.shape[1] != wanted:
            raise DataError(f"an image with {pixels.shape[1]} channels; the model reads {wanted}")
        # A window of 3 at stride 2 lies off its place's middle, to the right in all layers but the last: together they
        # then look at the middle of the place, not at its corner.
        side = self.convolutions[-1].kernel_size[0] // 2
        edges = iter([(0, 1, 0, 1)] * (len(self.convolutions) - 2) + [(1, 0, 1, 0), (side, side, side, side)])
        x = x.contiguous(memory_format=torch.channels_last)  # faster on a CPU
        for layer, norm in zip(self.convolutions, self.norms, strict=True):
            x = norm(layer(F.pad(x, next(edges)))).relu()
        grid = (x.shape[2], x.shape[3])
        positions = resized_positions(self.positions, (self.grid, self.grid), grid, leading=0)
        return self.dropout(x.flatten(2).mT + positions)


class TransformerDecoder(nn.Module):
    """Blocks of causal self-attention and attention to what was encoded."""

    def __init__(
        self,
        config: BlockConfig,
        layers: int,
        heads: tuple[int, ...] | None = None,
        cross_heads: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        usual = (None,) * layers
        own = zip(heads or usual, cross_heads or usual, strict=True)
        self.blocks = Stack(DecoderBlock(config, None, None, *counts) for counts in own)
        self.norm = make_norm(config.norm, config.width, config.norm_epsilon)

    def forward(
        self, x: Float[Tensor, "B T D"], memory: Float[Tensor, "B P D"], visible: Visible = EVERYTHING
    ) -> Float[Tensor, "B T D"]:
        for block in self.blocks:
            x = block(x, memory, CAUSAL, visible)
        return self.norm(x)

    def start(self, memory: Float[Tensor, "B P D"], visible: Visible = EVERYTHING) -> DecoderState:
        return DecoderState(
            caches=tuple(KVCache(None, block.attention.joined()) for block in self.blocks),
            memories=tuple(SourceMemory(*block.cross_attention.keys_values(memory), visible) for block in self.blocks),
        )

    def step(self, x: Float[Tensor, "R 1 D"], state: DecoderState) -> tuple[Float[Tensor, "R D"], DecoderState]:
        for block, cache, memory in zip(self.blocks, state.caches, state.memories, strict=True):
            x = block.step(x, cache, memory)
        return self.norm(x).squeeze(1), state


def first_states(begin: nn.Linear | None, memory: Float[Tensor, "B P D"], layers: int, parts: int) -> CellStates:
    """The states of cells before the first word, each of so many `parts`: from the mean of all places, or zeros."""
    B, _, D = memory.shape
    made = memory.new_zeros(B, layers * parts * D) if begin is None else begin(memory.mean(1)).tanh()
    split = made.split(D, dim=-1)
    return tuple(split[parts * layer : parts * (layer + 1)] for layer in range(layers))


@dataclass(frozen=True, slots=True)
class AttentiveState:
    """A recurrent decoder between two steps: by row the `states` of its layers and what it gathered last; the image
    once, by source."""

    states: CellStates
    context: Float[Tensor, "R D"]
    memory: Float[Tensor, "N P D"]
    keys: Float[Tensor, "N P D"]

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " N"] | None = None) -> "AttentiveState":
        states, context = tuple(tuple(part[rows] for part in state) for state in self.states), self.context[rows]
        if sources is None:
            return AttentiveState(states, context, self.memory, self.keys)
        return AttentiveState(states, context, self.memory[sources], self.keys[sources])


class AttentiveDecoder(nn.Module):
    """Show, attend and tell: for each word the state looks at the image, and a gate says how much of it to use.

    It looks `before` the cell reads the last word, or `after` that, by what the cell then knows; the cell in turn reads
    what was gathered, in the same step or in the next one.
    """

    def __init__(self, config: CaptionConfig) -> None:
        super().__init__()
        D = config.width
        self.cells = Recurrent(config.cell, 2 * D, D, config.decoder_layers, dropout=config.dropout, reads="prefix")
        self.parts = self.cells.layers[0].parts
        self.begin = nn.Linear(D, D * config.decoder_layers * self.parts) if config.start == "mean" else None
        self.cross_attention = ScoredAttention(config.attention, D, D, config.places)
        self.gate = nn.Linear(D, D) if config.gate else None
        self.readout = nn.Linear(3 * D, D)
        self.dropout = Dropout(config.dropout)
        self.after, self.linear = config.attend == "after", config.readout == "linear"

    def start(self, memory: Float[Tensor, "B P D"]) -> AttentiveState:
        states = first_states(self.begin, memory, len(self.cells.layers), self.parts)
        return AttentiveState(states, torch.zeros_like(states[0][0]), memory, self.cross_attention.keys(memory))

    def forward(
        self, words: Float[Tensor, "B T D"], memory: Float[Tensor, "B P D"]
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T P"]]:
        """The vectors of all predictions, and where each looked.

        A watcher sees the weights of all steps as one matrix; if it changes that, they run again.
        """
        begun = self.start(memory)
        vectors, queries, weights = self._steps(words, begun)
        seen = self.cross_attention.watched(queries, begun.keys, memory, weights)
        if not (seen is weights or torch.equal(seen, weights)):
            self.cells.seen_again(words.shape[1])
            vectors, _, weights = self._steps(words, begun, seen)
        return vectors, weights

    def step(self, x: Float[Tensor, "R 1 D"], state: AttentiveState) -> tuple[Float[Tensor, "R D"], AttentiveState]:
        word, B = x.squeeze(1), state.memory.shape[0]

        def look(query: Tensor) -> Tensor:
            queries = query.unflatten(0, (B, -1))  # rows of one image stand side by side as its queries
            weights = self.cross_attention.weights(queries, state.keys)
            weights = self.cross_attention.watched(queries, state.keys, state.memory, weights)
            return (weights @ state.memory).flatten(0, 1)

        ahead = self._projected(word)
        output, context, states = self._advance(ahead, state.context, state.states, look)
        return self._read_out(output, context, word), AttentiveState(states, context, state.memory, state.keys)

    def _steps(
        self, words: Tensor, begun: AttentiveState, forced: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The vectors, queries and weights of every step; `forced` weights are used as they are."""
        states, context, outputs, contexts, queries, kept = begun.states, begun.context, [], [], [], []

        def look(query: Tensor) -> Tensor:
            t = len(queries)
            queries.append(query)
            kept.append(
                self.cross_attention.weights(query[:, None], begun.keys) if forced is None else forced[:, t : t + 1]
            )
            return (kept[-1] @ begun.memory).squeeze(1)

        for ahead in self._projected(words).unbind(1):
            output, context, states = self._advance(ahead, context, states, look)
            outputs.append(output)
            contexts.append(context)
        vectors = self._read_out(torch.stack(outputs, 1), torch.stack(contexts, 1), words)
        return vectors, torch.stack(queries, 1), torch.cat(kept, 1)

    def _advance(
        self, word: Tensor, context: Tensor, states: CellStates, look: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor, CellStates]:
        """The output after one more word, as `_projected` gives it, what was gathered, and the states."""
        if self.after:
            output, states = self._read(word, context, states)
            return output, self._gated(look(output), output), states
        query = states[-1][0]
        context = self._gated(look(query), query)
        output, states = self._read(word, context, states)
        return output, context, states

    def _projected(self, words: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows G"]:
        """The words' part of what the first cell projects, for all positions at once; the words, where it widens."""
        cell, D = self.cells.layers[0].cells[0], words.shape[-1]
        return words if cell.widens else F.linear(words, cell.inputs.weight[:, :D], cell.inputs.bias)

    def _read(self, word: Tensor, context: Tensor, states: CellStates) -> tuple[Tensor, CellStates]:
        cell, D = self.cells.layers[0].cells[0], context.shape[-1]
        if cell.widens:
            return self.cells.step(torch.cat((word, context), dim=-1), states)
        return self.cells.step(word + F.linear(context, cell.inputs.weight[:, -D:]), states, projected=True)

    def _gated(self, context: Tensor, query: Tensor) -> Tensor:
        return context if self.gate is None else self.gate(query).sigmoid() * context

    def _read_out(self, output: Tensor, context: Tensor, words: Tensor) -> Tensor:
        # What was said is dropped, not what was seen: words that never stood side by side can be read off an image.
        found = self.readout(torch.cat((self.dropout(output), context, self.dropout(words)), dim=-1))
        return found if self.linear else found.tanh()


@dataclass(frozen=True, slots=True)
class LayeredState:
    """A recurrent decoder that looks between layers, between two steps: states by row, the image by source; of both
    one per layer."""

    states: CellStates
    memories: tuple[SourceMemory, ...]

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " N"] | None = None) -> "LayeredState":
        states = tuple(tuple(part[rows] for part in state) for state in self.states)
        if sources is None:
            return LayeredState(states, self.memories)
        return LayeredState(states, tuple(memory.select(sources) for memory in self.memories))


class AttentiveBlock(nn.Module):
    """A layer of cells, a look at the image by what they then know, and feed-forward, each inside a residual.

    `ends` is one whose look is the last thing that is done: it has no feed-forward.
    """

    def __init__(self, config: CaptionConfig, heads: int | None = None, *, ends: bool = False) -> None:
        super().__init__()
        block = config.block()
        self.cells = RecurrentLayer(config.cell, config.width, config.width, reads="prefix")
        self.cross_attention = self_attention(block, heads=heads, sides=ACROSS)
        self.gate = nn.Linear(config.width, config.width) if config.gate else None
        self.feed_forward = None if ends else FeedForward(block)
        self.around_cells = Sublayer(block)
        self.around_cross_attention = Sublayer(block)
        self.around_feed_forward = None if ends else Sublayer(block)

    def read(self, x: Float[Tensor, "B T D"], state: CellState) -> Float[Tensor, "B T D"]:
        """With what the cells make of all positions."""
        return self.around_cells.leave(x, self.cells(self.around_cells.enter(x), None, state)[0])

    def read_one(self, x: Float[Tensor, "R 1 D"], state: CellState) -> tuple[Float[Tensor, "R 1 D"], CellState]:
        """The same of one more position, and the state after it."""
        state = self.cells.step(self.around_cells.enter(x).squeeze(1), state)
        return self.around_cells.leave(x, state[0][:, None]), state

    def look(
        self, x: Float[Tensor, "R T D"], memory: SourceMemory, *, tell: bool = False
    ) -> tuple[Float[Tensor, "R T D"], Float[Tensor, "B N P"] | None]:
        """What the gate lets through of what every position gathered, and to `tell` the mean weights of the heads.

        The rows of one image stand side by side as its queries.
        """
        query, across = self.around_cross_attention.enter(x), self.cross_attention
        weights = None
        if isinstance(across, NoHeads):
            found = across(query)
        else:
            given = across.queries(query.reshape(memory.keys.shape[0], -1, x.shape[-1])), memory.keys, memory.values
            if tell:
                found, weights = across.gather_and_point(*given, memory.visible, None)
            else:
                found = across.gather(*given, memory.visible)
        found = found.view(x.shape)
        return found if self.gate is None else self.gate(query).sigmoid() * found, weights

    def join(self, x: Float[Tensor, "R T D"], gathered: Float[Tensor, "R T D"]) -> Float[Tensor, "R T D"]:
        """What was gathered, with what was known before and what feed-forward makes of both; at the end it alone."""
        if self.feed_forward is None or self.around_feed_forward is None:
            return gathered
        x, around = self.around_cross_attention.leave(x, gathered), self.around_feed_forward
        return around.leave(x, self.feed_forward(around.enter(x)))


class LayeredDecoder(nn.Module):
    """Show, attend and tell with several looks for each word: one after each layer of cells, by several heads.

    What a look gathers, as much of it as a gate lets through, joins what the next layer reads.
    """

    def __init__(self, config: CaptionConfig) -> None:
        super().__init__()
        counts = config.cross_heads or (None,) * config.decoder_layers
        self.tanh = config.readout == "tanh"
        ends = [config.readout == "context" and number == len(counts) for number in range(1, len(counts) + 1)]
        self.blocks = Stack(AttentiveBlock(config, heads, ends=end) for heads, end in zip(counts, ends, strict=True))
        self.parts = self.blocks[0].cells.parts
        width = config.width
        self.begin = nn.Linear(width, width * len(counts) * self.parts) if config.start == "mean" else None
        self.norm = make_norm(config.norm, width, config.norm_epsilon)

    def start(self, memory: Float[Tensor, "B P D"]) -> LayeredState:
        return LayeredState(
            first_states(self.begin, memory, len(self.blocks), self.parts),
            tuple(SourceMemory(*block.cross_attention.keys_values(memory), EVERYTHING) for block in self.blocks),
        )

    def forward(self, words: Float[Tensor, "B T D"], memory: Float[Tensor, "B P D"]) -> Float[Tensor, "B T D"]:
        """The vectors of all predictions."""
        return self._run(words, self.start(memory), tell=False)[0]

    def attended(
        self, words: Float[Tensor, "B T D"], memory: Float[Tensor, "B P D"]
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T P"]]:
        """The same, and where each looked: the mean of all heads of all layers."""
        vectors, weights = self._run(words, self.start(memory), tell=True)
        return vectors, torch.stack(weights).mean(0)

    def step(self, x: Float[Tensor, "R 1 D"], state: LayeredState) -> tuple[Float[Tensor, "R D"], LayeredState]:
        states = []
        for block, before, memory in zip(self.blocks, state.states, state.memories, strict=True):
            x, after = block.read_one(x, before)
            states.append(after)
            x = block.join(x, block.look(x, memory)[0])
        return self._read_out(x).squeeze(1), LayeredState(tuple(states), state.memories)

    def _run(self, x: Tensor, begun: LayeredState, *, tell: bool) -> tuple[Tensor, list[Tensor]]:
        weights = []
        for block, state, memory in zip(self.blocks, begun.states, begun.memories, strict=True):
            x = block.read(x, state)
            gathered, seen = block.look(x, memory, tell=tell)
            x = block.join(x, gathered)
            weights += [] if seen is None else [seen]
        return self._read_out(x), weights

    def _read_out(self, x: Tensor) -> Tensor:
        found = self.norm(x)
        return found.tanh() if self.tanh else found


class CaptionModel(nn.Module):
    """An encoder of images, a decoder that attends to their places, and a head over the vocabulary."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        tasks=("captioning",),
        layer_heads={WITHIN: "encoder_heads", BEFORE: "decoder_heads", ACROSS: "cross_heads"},
    )

    def __init__(self, config: CaptionConfig) -> None:
        super().__init__()
        self.config = config
        transformer = config.decoder == "transformer"
        heads = config.encoder_heads or (None,) * config.encoder_layers
        self.blocks = Stack(EncoderBlock(config.block(), heads=own) for own in heads)
        self.norm = make_norm(config.norm, config.width, config.norm_epsilon)
        self.target = Embedding(
            config.vocab_size,
            config.width,
            positions=Positions("learned", config.width, config.max_len) if transformer else None,
            dropout=config.dropout,
            word_dropout=config.word_dropout,
        )
        self.decoder = (
            TransformerDecoder(config.block(), config.decoder_layers, config.decoder_heads, config.cross_heads)
            if transformer
            else LayeredDecoder(config)
            if config.attend == "layers"
            else AttentiveDecoder(config)
        )
        self.head = OutputProjection(config.width, config.vocab_size, tied=self.target.tokens.weight)
        initialise(self)
        shape = config.image_size, config.patch_size, config.channels, config.width
        self.image = (
            PatchEmbedding(*shape, dropout=config.dropout) if config.encoder == "patches" else ConvolutionalStem(config)
        )

    def forward(self, batch: CaptionedImages) -> Float[Tensor, "B T D"]:
        """For each token that the decoder reads, the vector from which `head` predicts the next one."""
        found = self.decoder(self._words(batch.inputs), self.encode(batch.pixels))
        return found[0] if isinstance(self.decoder, AttentiveDecoder) else found

    def attended(self, batch: CaptionedImages) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T P"]]:
        """The same, and where each step of a recurrent decoder looked."""
        assert not isinstance(self.decoder, TransformerDecoder), "a Transformer does not say where it looked"
        look = self.decoder.attended if isinstance(self.decoder, LayeredDecoder) else self.decoder
        return look(self._words(batch.inputs), self.encode(batch.pixels))

    def logits(self, batch: CaptionedImages) -> Float[Tensor, "B T V"]:
        """The scores of every next token, given the true ones before it."""
        return self.head(self(batch))

    def encode(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B P D"]:
        """A vector for every place of the image."""
        x = self.image(pixels)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def start(self, batch: CaptionedImages) -> "DecoderState | AttentiveState | LayeredState":
        """The images, encoded: what decoding starts from."""
        return self.decoder.start(self.encode(batch.pixels))

    def step(
        self, choices: Int[Tensor, " R"], state: "DecoderState | AttentiveState | LayeredState"
    ) -> "tuple[Float[Tensor, 'R V'], DecoderState | AttentiveState | LayeredState]":
        """Log-probabilities of the tokens that may follow `choices`."""
        past = state.caches[0].length if isinstance(state, DecoderState) else 0
        vectors, after = self.decoder.step(self.target(choices[:, None], past=past), state)  # type: ignore[arg-type]
        return self.head(vectors).log_softmax(-1), after

    def _words(self, inputs: Tokens) -> Float[Tensor, "B T D"]:
        return self.target(inputs.ids)


MODEL = CaptionConfig, CaptionModel
