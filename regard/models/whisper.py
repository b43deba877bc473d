"""Whisper (Radford et al. 2022): two convolutions over a window of log-mel frames, and a Transformer that writes.

What is its own: keys have no bias, the encoder's sinusoids are stored, and a window always has the same length.
"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, DataError, check_at_least, check_fractions
from regard.models.protocols import Capabilities
from regard.models.size_limits import LARGEST_TABLE
from regard.nn.attention import ACROSS, BEFORE, WITHIN
from regard.nn.batch import TranscribedSounds
from regard.nn.blocks import (
    Activation,
    BlockConfig,
    DecoderBlock,
    EncoderBlock,
    Stack,
    activate,
    check_layer_heads,
    make_norm,
    through,
)
from regard.nn.dropout import Dropout
from regard.nn.embeddings import Embedding, OutputProjection
from regard.nn.initialization import initialise
from regard.nn.kv_cache import DecoderState, KVCache, SourceMemory
from regard.nn.masks import CAUSAL, EVERYTHING
from regard.nn.positions import Positions, sinusoidal

STRIDE = 2
"""Frames of a window for each position that the decoder attends to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WhisperConfig:
    """A window of `frames` frames of `bands` log-mel numbers, and a text of at most `max_len` tokens, prompt included.

    A `multilingual` model is told a language and whether to transcribe or to translate; another is told neither.
    `begin_suppress` are tokens that no text begins with, `max_initial_timestamp` is the latest first timestamp, counted
    in positions of the encoder. `alignment_heads` are the (layer, head) pairs of the decoder whose attention to the
    sound follows the words in time; without any, all heads of the upper half of the decoder are taken.
    `encoder_heads`, `decoder_heads` and `cross_heads` give layers fewer heads, of the same width; 0 is none at all.
    """

    vocab_size: int
    bands: int = 80
    frames: int = 3000
    width: int = 384
    heads: int = 6
    encoder_heads: tuple[int, ...] | None = None
    decoder_heads: tuple[int, ...] | None = None
    cross_heads: tuple[int, ...] | None = None
    encoder_layers: int = 4
    decoder_layers: int = 4
    feed_forward: int = 1536
    activation: Activation = "gelu"
    scale_embedding: bool = False
    multilingual: bool = True
    begin_suppress: tuple[int, ...] = ()
    max_initial_timestamp: int | None = 50
    alignment_heads: tuple[tuple[int, int], ...] = ()
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    layer_drop: float = 0.0
    max_len: int = 448

    def __post_init__(self) -> None:
        check_at_least(self, 1, "vocab_size", "bands", "encoder_layers", "decoder_layers")
        check_at_least(self, 4, "width")
        check_at_least(self, 8, "max_len")
        check_at_least(self, 0, "max_initial_timestamp")
        check_fractions(self, "layer_drop")
        if self.frames < STRIDE or self.frames % STRIDE:
            raise ConfigError(f"frames={self.frames} must be a multiple of {STRIDE}, at least {STRIDE}")
        for name, layers in (("encoder", self.encoder_layers), ("decoder", self.decoder_layers)):
            check_layer_heads(f"{name}_heads", getattr(self, f"{name}_heads"), layers, self.block())
        check_layer_heads("cross_heads", self.cross_heads, self.decoder_layers, self.block())
        if self.places * self.width > LARGEST_TABLE:
            raise ConfigError(
                f"frames={self.frames} makes a table of {self.places * self.width:,} numbers; at most {LARGEST_TABLE:,}"
            )
        if any(not 0 <= token < self.vocab_size for token in self.begin_suppress):
            raise ConfigError(f"begin_suppress must have tokens from 0 to {self.vocab_size - 1} alone")
        for layer, head in self.alignment_heads:
            if not (0 <= layer < self.decoder_layers and 0 <= head < self.heads):
                raise ConfigError(
                    f"alignment_heads has layer {layer}, head {head}; the decoder has {self.decoder_layers} layers of "
                    f"{self.heads} heads, both counted from 0"
                )

    @property
    def places(self) -> int:
        """What the decoder attends to: positions of the encoder."""
        return self.frames // STRIDE

    def block(self) -> BlockConfig:
        """The settings that concern a block, checked; norms come first and keys have no bias."""
        return BlockConfig.of(self, norm_first=True, key_bias=False)


class ConvolutionsOverTime(nn.Module):
    """Log-mel frames to vectors, one for two frames: two convolutions over three frames each, then positions.

    The table of positions is kept with the weights: checkpoints hold it, in whatever precision.
    """

    table: Tensor

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        self.frames = config.frames
        self.activation: Activation = config.activation
        self.first = nn.Conv1d(config.bands, config.width, 3, padding=1)
        self.second = nn.Conv1d(config.width, config.width, 3, stride=STRIDE, padding=1)
        self.dropout = Dropout(config.dropout)
        self.register_buffer("table", sinusoidal(config.places, config.width, "halves", slowest=True))

    def forward(self, frames: Float[Tensor, "B N M"]) -> Float[Tensor, "B S D"]:
        wanted = self.frames, self.first.in_channels
        if frames.shape[1:] != wanted:
            found = " x ".join(map(str, frames.shape[1:]))
            raise DataError(f"a window of {found} log-mel numbers; the model reads {wanted[0]} frames of {wanted[1]}")
        x = activate(self.first(frames.mT), self.activation)
        x = activate(self.second(x), self.activation)
        return self.dropout(x.mT + self.table.to(x.dtype))


class Whisper(nn.Module):
    """An encoder of windows of sound, a decoder that attends to them, and a head tied to the decoder's tokens."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        tasks=("whisper",),
        layer_heads={WITHIN: "encoder_heads", BEFORE: "decoder_heads", ACROSS: "cross_heads"},
    )

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        self.config, block = config, config.block()
        self.target = Embedding(
            config.vocab_size,
            config.width,
            positions=Positions("learned", config.width, config.max_len),
            scale=config.scale_embedding,
            dropout=config.dropout,
        )
        self.head = OutputProjection(config.width, config.vocab_size, tied=self.target.tokens.weight)
        usual = (None,) * config.encoder_layers, (None,) * config.decoder_layers
        self.encoder = Stack(EncoderBlock(block, heads=own) for own in config.encoder_heads or usual[0])
        pairs = zip(config.decoder_heads or usual[1], config.cross_heads or usual[1], strict=True)
        self.decoder = Stack(DecoderBlock(block, None, None, *own) for own in pairs)
        self.encoder_norm, self.decoder_norm = (make_norm("layer", config.width) for _ in range(2))
        initialise(self)
        self.source = ConvolutionsOverTime(config)

    def forward(self, batch: TranscribedSounds) -> Float[Tensor, "B T D"]:
        """For each token that the decoder reads, the vector from which `head` predicts the next one."""
        return self.decode(batch.inputs.ids, self.encode(batch.source.values))

    def decode(self, ids: Int[Tensor, "B T"], memory: Float[Tensor, "B S D"]) -> Float[Tensor, "B T D"]:
        """The same, the windows being encoded."""
        x = self.target(ids)
        for block in self.decoder:
            x = through(block, self.config.layer_drop, x, memory, CAUSAL, EVERYTHING)
        return self.decoder_norm(x)

    def logits(self, batch: TranscribedSounds) -> Float[Tensor, "B T V"]:
        """The scores of every next token, given the true ones before it."""
        return self.head(self(batch))

    def encode(self, frames: Float[Tensor, "B N M"]) -> Float[Tensor, "B S D"]:
        """A vector for every two frames of a window."""
        x = self.source(frames)
        for block in self.encoder:
            x = through(block, self.config.layer_drop, x)
        return self.encoder_norm(x)

    def start(self, batch: TranscribedSounds) -> DecoderState:
        """The windows, encoded: what decoding starts from."""
        return self.begin(self.encode(batch.source.values))

    def begin(self, memory: Float[Tensor, "B S D"]) -> DecoderState:
        """The same, the windows being encoded."""
        return DecoderState(
            caches=tuple(KVCache(None, block.attention.joined()) for block in self.decoder),
            memories=tuple(
                SourceMemory(*block.cross_attention.keys_values(memory), EVERYTHING) for block in self.decoder
            ),
        )

    def step(self, choices: Int[Tensor, " R"], state: DecoderState) -> tuple[Float[Tensor, "R V"], DecoderState]:
        """Log-probabilities of the tokens that may follow `choices`."""
        x = self.target(choices[:, None], past=state.caches[0].length)
        for block, cache, memory in zip(self.decoder, state.caches, state.memories, strict=True):
            x = block.step(x, cache, memory)
        return self.head.log_probs(self.decoder_norm(x).squeeze(1)), state


MODEL = WhisperConfig, Whisper
