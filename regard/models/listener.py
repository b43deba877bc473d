"""Speech to text: a convolution over log-mel frames, a Transformer or pyramidal recurrent encoder, and a decoder.

With `encoder="pyramidal"` and `decoder="recurrent"` it is Listen, Attend and Spell (Chan et al. 2015), its attention
aware of where it looked before. Connectionist temporal classification can be trained beside the decoder.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.audio.log_mel import MelConfig, MelScale
from regard.errors import ConfigError, DataError, check_at_least, check_fractions
from regard.models.captioner import TransformerDecoder
from regard.models.protocols import Capabilities
from regard.nn.attention import ACROSS, BEFORE, WITHIN
from regard.nn.attention_scores import LocationAwareAttention, ScoredAttention
from regard.nn.batch import Points, TranscribedSounds
from regard.nn.blocks import Activation, BlockConfig, EncoderBlock, NormKind, Stack, check_layer_heads, make_norm
from regard.nn.dropout import Dropout
from regard.nn.embeddings import Embedding, OutputProjection
from regard.nn.initialization import initialise
from regard.nn.kv_cache import DecoderState
from regard.nn.losses.cross_entropy import widened
from regard.nn.masks import Visible
from regard.nn.positions import Positions
from regard.nn.recurrent.cells import CellKind
from regard.nn.recurrent.layers import CellStates, Recurrent, RecurrentLayer

SoundScore = Literal["location-aware", "cosine", "additive", "general", "dot", "scaled-dot"]

BLANK = 0
"""The class of CTC for no token at all: the id of padding, which no text has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ListenerConfig:
    """Log-mel frames of `bands` numbers, one for every `hop` samples at `rate` per second, and a text of at most
    `max_len` tokens.

    Layers of convolution, each of stride 2, keep one position for every `subsampling` frames. The encoder is a
    `transformer`, or `pyramidal`: bidirectional recurrent layers, each above the first on half as many positions as the
    one below. The decoder is a `transformer`, or `recurrent`: cells that attend after each token. `ctc` is the share of
    the CTC loss; 0 leaves it out. At most `max_frames` frames are read at a time.
    """

    vocab_size: int
    rate: int = 16000
    window: int = 400
    hop: int = 160
    bands: int = 80
    mel_scale: MelScale = "slaney"
    max_frames: int = 3000
    subsampling: int = 4
    encoder: Literal["transformer", "pyramidal"] = "transformer"
    decoder: Literal["transformer", "recurrent"] = "transformer"
    width: int = 128
    heads: int = 4
    encoder_heads: tuple[int, ...] | None = None
    decoder_heads: tuple[int, ...] | None = None
    cross_heads: tuple[int, ...] | None = None
    encoder_layers: int = 4
    decoder_layers: int = 2
    feed_forward: int = 512
    activation: Activation = "gelu"
    gated: bool = False
    norm: NormKind = "layer"
    norm_epsilon: float = 1e-5
    qk_norm: bool = False
    bias: bool = True
    cell: CellKind = "lstm"
    attention: SoundScore = "location-aware"
    ctc: float = 0.3
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    max_len: int = 256

    def __post_init__(self) -> None:
        check_at_least(
            self, 1, "vocab_size", "max_frames", "subsampling", "decoder_layers", "encoder_layers", "max_len"
        )
        check_fractions(self, "dropout", "ctc")
        if self.subsampling & (self.subsampling - 1):
            raise ConfigError(f"subsampling={self.subsampling} must be a power of 2")
        if self.max_frames > LONGEST:
            raise ConfigError(f"max_frames={self.max_frames:,} must be at most {LONGEST:,}")
        self.mel()
        if self.encoder == "pyramidal" and self.encoder_heads is not None:
            raise ConfigError("encoder_heads is for encoder='transformer'")
        check_layer_heads("encoder_heads", self.encoder_heads, self.encoder_layers, self.block())
        for name in ("decoder_heads", "cross_heads"):
            counts = getattr(self, name)
            if counts is not None and self.decoder == "recurrent":
                raise ConfigError(f"{name} is for decoder='transformer'")
            check_layer_heads(name, counts, self.decoder_layers, self.block())

    def mel(self) -> MelConfig:
        """How a sound becomes frames."""
        return MelConfig(rate=self.rate, window=self.window, hop=self.hop, bands=self.bands, scale=self.mel_scale)

    @property
    def reduction(self) -> int:
        """Frames of one position that the decoder attends to."""
        return self.subsampling * (2 ** (self.encoder_layers - 1) if self.encoder == "pyramidal" else 1)

    @property
    def seconds(self) -> float:
        """How long a sound can be that is read at a time."""
        return self.max_frames * self.hop / self.rate

    def block(self) -> BlockConfig:
        """The settings that concern a block, checked; norms always come first."""
        return BlockConfig.of(self, norm_first=True)


LONGEST = 60_000
"""Frames that any model reads at a time: ten minutes of the usual hundred per second."""


class Subsampling(nn.Module):
    """Convolutions over time, each of stride 2 (a single one of stride 1 where nothing is left out), with GELU."""

    def __init__(self, config: ListenerConfig) -> None:
        super().__init__()
        layers = max(1, config.subsampling.bit_length() - 1)
        stride = 2 if config.subsampling > 1 else 1
        widths = [config.bands, *[config.width] * layers]
        self.convolutions = Stack(
            nn.Conv1d(before, after, 3, stride=stride, padding=1) for before, after in pairwise(widths)
        )
        self.stride = stride
        for layer in self.convolutions:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)

    def forward(self, source: Points) -> Points:
        """Past its length a row is zeros in every layer, so that padding changes nothing."""
        x, lengths = source.values, source.lengths
        if x.shape[2] != self.convolutions[0].in_channels:
            raise DataError(f"frames of {x.shape[2]} bands; the model reads {self.convolutions[0].in_channels}")
        for layer in self.convolutions:
            lengths = (lengths + self.stride - 1).div(self.stride, rounding_mode="floor")
            x = F.gelu(layer(x.mT).mT)
            x = _silenced(x, lengths) if source.padded else x
        return Points(x, lengths, source.padded)


class PyramidalEncoder(nn.Module):
    """Bidirectional layers; each above the first reads the outputs of two neighbours below as one position."""

    def __init__(self, config: ListenerConfig) -> None:
        super().__init__()
        D = config.width
        self.layers = Stack(
            RecurrentLayer(config.cell, D if number == 0 else 2 * D, D, direction="both")
            for number in range(config.encoder_layers)
        )
        self.dropout = Dropout(config.dropout)

    def forward(self, source: Points) -> Points:
        x, lengths = source.values, source.lengths
        for number, layer in enumerate(self.layers):
            if number:
                x = F.pad(x, (0, 0, 0, x.shape[1] % 2)).unflatten(1, (-1, 2)).flatten(2)
                lengths = (lengths + 1).div(2, rounding_mode="floor")
            x, _ = layer(self.dropout(x), lengths if source.padded else None)
        return Points(x, lengths, source.padded)


class TransformerEncoder(nn.Module):
    """Blocks of self-attention over positions that are told where they stand."""

    def __init__(self, config: ListenerConfig) -> None:
        super().__init__()
        heads = config.encoder_heads or (None,) * config.encoder_layers
        self.positions = Positions("sinusoidal", config.width, -(-config.max_frames // config.subsampling))
        self.blocks = Stack(EncoderBlock(config.block(), heads=own) for own in heads)
        self.norm = make_norm(config.norm, config.width, config.norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, source: Points) -> Points:
        x, visible = self.dropout(self.positions(source.values)), _visible(source)
        for block in self.blocks:
            x = block(x, visible)
        return Points(self.norm(x), source.lengths, source.padded)


@dataclass(frozen=True, slots=True)
class SpellingState:
    """A recurrent decoder between two steps: by row its `states`, what it gathered last, and where it has looked so
    far; by source, the sound."""

    states: CellStates
    context: Float[Tensor, "R D"]
    before: Float[Tensor, "R S"]
    memory: Float[Tensor, "N S D"]
    keys: Float[Tensor, "N S D"]
    visible: Visible

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " N"] | None = None) -> "SpellingState":
        states = tuple(tuple(part[rows] for part in state) for state in self.states)
        own = self.context[rows], self.before[rows]
        if sources is None:
            return SpellingState(states, *own, self.memory, self.keys, self.visible)
        lengths = self.visible.lengths
        visible = self.visible if lengths is None else Visible(lengths=lengths[sources])
        return SpellingState(states, *own, self.memory[sources], self.keys[sources], visible)


class SpellingDecoder(nn.Module):
    """Attend and spell: a cell reads the last token and what was gathered, then looks for what to gather next."""

    def __init__(self, config: ListenerConfig) -> None:
        super().__init__()
        D = config.width
        self.cells = Recurrent(config.cell, 2 * D, D, config.decoder_layers, dropout=config.dropout, reads="prefix")
        self.cross_attention = (
            LocationAwareAttention(D, D)
            if config.attention == "location-aware"
            else ScoredAttention(config.attention, D, D)
        )
        self.readout = nn.Linear(2 * D, D)
        self.dropout = Dropout(config.dropout)

    def start(self, memory: Float[Tensor, "B S D"], visible: Visible) -> SpellingState:
        states = tuple(layer.zeros(memory) for layer in self.cells.layers)
        empty = memory.new_zeros(memory.shape[0], memory.shape[2])
        return SpellingState(
            states, empty, memory.new_zeros(memory.shape[:2]), memory, self.cross_attention.keys(memory), visible
        )

    def forward(
        self, words: Float[Tensor, "B T D"], memory: Float[Tensor, "B S D"], visible: Visible
    ) -> Float[Tensor, "B T D"]:
        """The vectors of all predictions.

        A watcher sees the weights of all steps as one matrix; if it changes that, they run again.
        """
        begun = self.start(memory, visible)
        vectors, queries, weights = self._steps(words, begun)
        seen = self.cross_attention.watched(queries, begun.keys, memory, weights)
        if not (seen is weights or torch.equal(seen, weights)):
            self.cells.seen_again(words.shape[1])
            vectors, _, _ = self._steps(words, begun, seen)
        return vectors

    def step(self, x: Float[Tensor, "R 1 D"], state: SpellingState) -> tuple[Float[Tensor, "R D"], SpellingState]:
        output, states = self.cells.step(torch.cat((x.squeeze(1), state.context), dim=-1), state.states)
        B = state.memory.shape[0]  # rows of one sound stand side by side as its queries
        queries, before = output.unflatten(0, (B, -1)), state.before.unflatten(0, (B, -1))
        weights = self._weights(queries, before, state)
        weights = self.cross_attention.watched(queries, state.keys, state.memory, weights)
        context = (weights @ state.memory).flatten(0, 1)
        after = SpellingState(
            states, context, state.before + weights.flatten(0, 1), state.memory, state.keys, state.visible
        )
        return self._read_out(output, context), after

    def _steps(
        self, words: Tensor, begun: SpellingState, forced: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The vectors, queries and weights of every step; `forced` weights are used as they are."""
        states, context, before = begun.states, begun.context, begun.before
        outputs, contexts, kept = [], [], []
        for t, word in enumerate(words.unbind(1)):
            output, states = self.cells.step(torch.cat((word, context), dim=-1), states)
            found = self._weights(output[:, None], before[:, None], begun) if forced is None else forced[:, t : t + 1]
            context, before = (found @ begun.memory).squeeze(1), before + found.squeeze(1)
            outputs.append(output)
            contexts.append(context)
            kept.append(found)
        queries = torch.stack(outputs, 1)
        return self._read_out(queries, torch.stack(contexts, 1)), queries, torch.cat(kept, 1)

    def _weights(self, queries: Tensor, before: Tensor, state: SpellingState) -> Tensor:
        if isinstance(self.cross_attention, LocationAwareAttention):
            return self.cross_attention.weights(queries, state.keys, state.visible, before)
        return self.cross_attention.weights(queries, state.keys, state.visible)

    def _read_out(self, output: Tensor, context: Tensor) -> Tensor:
        return self.dropout(self.readout(torch.cat((output, context), dim=-1)).tanh())


@dataclass(frozen=True, slots=True)
class PositionScores:
    """What CTC says: log-probabilities of every token, and of none, at each position."""

    log_probs: Float[Tensor, "B S V"]
    lengths: Int[Tensor, " B"]

    def loss(self, batch: TranscribedSounds) -> Float[Tensor, ""]:
        """Of the texts without their first and last token. A text that has more tokens than positions counts as 0."""
        assert batch.target is not None
        texts = batch.target.ids[:, 1:]
        return F.ctc_loss(
            self.log_probs.transpose(0, 1),
            texts,
            self.lengths,
            batch.target.lengths - 2,
            blank=BLANK,
            reduction="sum",
            zero_infinity=True,
        )


class SpeechModel(nn.Module):
    """An encoder of sound, a decoder that attends to its positions, and a head over the vocabulary."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        tasks=("transcribing",),
        layer_heads={WITHIN: "encoder_heads", BEFORE: "decoder_heads", ACROSS: "cross_heads"},
    )

    def __init__(self, config: ListenerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = TransformerEncoder(config) if config.encoder == "transformer" else PyramidalEncoder(config)
        transformer = config.decoder == "transformer"
        self.target = Embedding(
            config.vocab_size,
            config.width,
            positions=Positions("learned", config.width, config.max_len) if transformer else None,
            dropout=config.dropout,
        )
        self.decoder = (
            TransformerDecoder(config.block(), config.decoder_layers, config.decoder_heads, config.cross_heads)
            if transformer
            else SpellingDecoder(config)
        )
        self.head = OutputProjection(config.width, config.vocab_size, tied=self.target.tokens.weight)
        self.ctc = nn.Linear(config.width, config.vocab_size) if config.ctc else None
        initialise(self)
        self.subsampling = Subsampling(config)

    def forward(self, batch: TranscribedSounds) -> Float[Tensor, "B T D"]:
        """For each token that the decoder reads, the vector from which `head` predicts the next one."""
        return self._decoded(batch, self.encode(batch.source))

    def joint(self, batch: TranscribedSounds) -> tuple[Float[Tensor, "B T D"], PositionScores]:
        """The same, and what the encoder's positions say by themselves."""
        memory = self.encode(batch.source)
        return self._decoded(batch, memory), self._by_position(memory)

    def logits(self, batch: TranscribedSounds) -> Float[Tensor, "B T V"]:
        """The scores of every next token, given the true ones before it."""
        return self.head(self(batch))

    def encode(self, source: Points) -> Points:
        """A vector for every position of the sound."""
        if source.values.shape[1] > self.config.max_frames:
            raise DataError(
                f"a sound of {source.values.shape[1]:,} frames is longer than the model's max_frames="
                f"{self.config.max_frames:,}"
            )
        return self.encoder(self.subsampling(source))

    def by_position(self, source: Points) -> PositionScores:
        """What CTC says of a sound."""
        return self._by_position(self.encode(source))

    def start(self, batch: TranscribedSounds) -> "DecoderState | SpellingState":
        """The sounds, encoded: what decoding starts from."""
        memory = self.encode(batch.source)
        return self.decoder.start(memory.values, _visible(memory))

    def step(
        self, choices: Int[Tensor, " R"], state: "DecoderState | SpellingState"
    ) -> "tuple[Float[Tensor, 'R V'], DecoderState | SpellingState]":
        """Log-probabilities of the tokens that may follow `choices`."""
        past = state.caches[0].length if isinstance(state, DecoderState) else 0
        vectors, after = self.decoder.step(self.target(choices[:, None], past=past), state)  # type: ignore[arg-type]
        return self.head.log_probs(vectors), after

    def _decoded(self, batch: TranscribedSounds, memory: Points) -> Float[Tensor, "B T D"]:
        return self.decoder(self.target(batch.inputs.ids), memory.values, _visible(memory))

    def _by_position(self, memory: Points) -> PositionScores:
        if self.ctc is None:
            raise ConfigError("this model was not trained with CTC: model.ctc=0")
        return PositionScores(widened(self.ctc(memory.values)).log_softmax(-1), memory.lengths)


def _visible(source: Points) -> Visible:
    return Visible(lengths=source.lengths if source.padded else None)


def _silenced(x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S D"]:
    real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    return x * real[..., None]


MODEL = ListenerConfig, SpeechModel
