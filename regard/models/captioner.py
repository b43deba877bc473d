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
from regard.nn.attention import ACROSS, BEFORE, WITHIN
from regard.nn.attention_scores import ScoredAttention
from regard.nn.batch import CaptionedImages, Tokens
from regard.nn.blocks import (
    Activation,
    BlockConfig,
    DecoderBlock,
    EncoderBlock,
    NormKind,
    Stack,
    check_layer_heads,
    make_norm,
)
from regard.nn.dropout import Dropout
from regard.nn.embeddings import Embedding, OutputProjection, PatchEmbedding, resized_positions
from regard.nn.initialization import initialise
from regard.nn.kv_cache import DecoderState, KVCache, SourceMemory
from regard.nn.masks import CAUSAL, EVERYTHING, Visible
from regard.nn.positions import Positions
from regard.nn.recurrent.cells import CellKind
from regard.nn.recurrent.layers import CellStates, Recurrent

PlaceScore = Literal["cosine", "additive", "general", "dot", "scaled-dot"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptionConfig:
    """An image of `image_size` pixels on a side, read in places of `patch_size` pixels, and a caption of at most
    `max_len` tokens.

    The encoder cuts `patches`, each a vector by one matrix, or is a `convolution`: layers of stride 2, one for each
    time that the patch size can be halved, then one of stride 1 over `last_kernel` places on a side; 1 leaves what a
    place holds near it. `encoder_layers` blocks of self-attention follow, or none. The decoder is a `transformer`, or
    `recurrent`: cells that look at the image for each word, by their state `before` they read the last word (Xu et al.
    2015) or `after` it (Lu et al. 2017), as `attend` says. A word is read out of state, image and last word by their
    sum, `linear` as published, or by its `tanh`; `place_penalty` is the weight of the penalty on places that no word
    looked at. `encoder_heads`, `decoder_heads` and `cross_heads` give layers fewer heads, of the same width; 0 is none
    at all. `word_dropout` is the share of a caption's words that the decoder does not get to read while it is trained,
    so that it has to look.
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
    attend: Literal["before", "after"] = "before"
    readout: Literal["tanh", "linear"] = "tanh"
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
        for name, usual in (("attend", "before"), ("readout", "tanh")):
            if self.decoder == "transformer" and getattr(self, name) != usual:
                raise ConfigError(f"{name}={getattr(self, name)!r} is for decoder='recurrent'")
        check_layer_heads("encoder_heads", self.encoder_heads, self.encoder_layers, self.block())
        for name in ("decoder_heads", "cross_heads"):
            counts = getattr(self, name)
            if counts is not None and self.decoder == "recurrent":
                raise ConfigError(f"{name} is for decoder='transformer'")
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
        self.begin = nn.Linear(D, D * config.decoder_layers * self.parts)
        self.cross_attention = ScoredAttention(config.attention, D, D, config.places)
        self.gate = nn.Linear(D, D)
        self.readout = nn.Linear(3 * D, D)
        self.dropout = Dropout(config.dropout)
        self.after, self.linear = config.attend == "after", config.readout == "linear"

    def start(self, memory: Float[Tensor, "B P D"]) -> AttentiveState:
        """The first states from the mean of all places."""
        made = self.begin(memory.mean(1)).tanh().chunk(len(self.cells.layers) * self.parts, dim=-1)
        states = tuple(made[self.parts * layer : self.parts * (layer + 1)] for layer in range(len(self.cells.layers)))
        return AttentiveState(states, torch.zeros_like(made[0]), memory, self.cross_attention.keys(memory))

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
        return self.gate(query).sigmoid() * context

    def _read_out(self, output: Tensor, context: Tensor, words: Tensor) -> Tensor:
        # What was said is dropped, not what was seen: words that never stood side by side can be read off an image.
        found = self.readout(torch.cat((self.dropout(output), context, self.dropout(words)), dim=-1))
        return found if self.linear else found.tanh()


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
        return found if isinstance(self.decoder, TransformerDecoder) else found[0]

    def attended(self, batch: CaptionedImages) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T P"]]:
        """The same, and where each step of a recurrent decoder looked."""
        assert isinstance(self.decoder, AttentiveDecoder), "only a recurrent decoder has one attention to the image"
        return self.decoder(self._words(batch.inputs), self.encode(batch.pixels))

    def logits(self, batch: CaptionedImages) -> Float[Tensor, "B T V"]:
        """The scores of every next token, given the true ones before it."""
        return self.head(self(batch))

    def encode(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B P D"]:
        """A vector for every place of the image."""
        x = self.image(pixels)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def start(self, batch: CaptionedImages) -> "DecoderState | AttentiveState":
        """The images, encoded: what decoding starts from."""
        return self.decoder.start(self.encode(batch.pixels))

    def step(
        self, choices: Int[Tensor, " R"], state: "DecoderState | AttentiveState"
    ) -> "tuple[Float[Tensor, 'R V'], DecoderState | AttentiveState]":
        """Log-probabilities of the tokens that may follow `choices`."""
        past = state.caches[0].length if isinstance(state, DecoderState) else 0
        vectors, after = self.decoder.step(self.target(choices[:, None], past=past), state)  # type: ignore[arg-type]
        return self.head(vectors).log_softmax(-1), after

    def _words(self, inputs: Tokens) -> Float[Tensor, "B T D"]:
        return self.target(inputs.ids)


MODEL = CaptionConfig, CaptionModel
