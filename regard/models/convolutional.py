"""The convolutional encoder-decoder (Gehring 2017): gated convolutions with attention to the source in every layer."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, check_at_least, check_fractions
from regard.models.protocols import Capabilities, check_shared_vocabulary
from regard.nn.attention_scores import ScoredAttention
from regard.nn.batch import Pairs, Tokens
from regard.nn.blocks import GatedConvolution, Stack
from regard.nn.dropout import Dropout
from regard.nn.embeddings import Embedding, OutputProjection
from regard.nn.initialization import initialise
from regard.nn.masks import Visible
from regard.nn.positions import Positions

HALF = 0.5**0.5  # a sum of two vectors of variance one, times this, has variance one


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvolutionalConfig:
    """`encoder_kernel` and `decoder_kernel` are how many positions a layer sees at once; the encoder's must be odd."""

    source_vocab_size: int
    target_vocab_size: int
    width: int = 512
    encoder_layers: int = 4
    decoder_layers: int = 4
    encoder_kernel: int = 3
    decoder_kernel: int = 3
    attention: Literal["cosine", "additive", "location", "general", "dot", "scaled-dot"] = "dot"
    share: Literal["all", "output", "none"] = "all"
    output_bias: bool = False
    dropout: float = 0.1
    max_len: int = 1024

    def __post_init__(self) -> None:
        check_shared_vocabulary(self)
        check_at_least(self, 1, "width", "encoder_layers", "decoder_layers", "encoder_kernel", "decoder_kernel")
        check_at_least(self, 1, "max_len", "source_vocab_size", "target_vocab_size")
        if self.encoder_kernel % 2 == 0:
            raise ConfigError(f"encoder_kernel={self.encoder_kernel} must be odd, to have a middle")
        check_fractions(self, "dropout")


@dataclass(frozen=True, slots=True)
class ConvolutionalSource:
    """The encoded sources of a batch, one row per source: `keys` per layer, and the values that all layers share.

    A mean of many values is small, so attention's output is multiplied by `scale`, the root of the source's length.
    """

    keys: tuple[Float[Tensor, "B S D"], ...]
    values: Float[Tensor, "B S D"]
    visible: Visible
    scale: Float[Tensor, "B 1 1"]

    def select(self, sources: Int[Tensor, " N"]) -> "ConvolutionalSource":
        lengths = self.visible.lengths
        visible = self.visible if lengths is None else Visible(lengths=lengths[sources])
        return ConvolutionalSource(
            tuple(keys[sources] for keys in self.keys), self.values[sources], visible, self.scale[sources]
        )


@dataclass(frozen=True, slots=True)
class ConvolutionalState:
    """The decoder after `past` steps: each layer's window of its last inputs by row, and the source."""

    windows: tuple[Float[Tensor, "R N D"], ...]
    past: int
    source: ConvolutionalSource

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " N"] | None = None) -> "ConvolutionalState":
        source = self.source if sources is None else self.source.select(sources)
        return ConvolutionalState(tuple(window[rows] for window in self.windows), self.past, source)


class ConvolutionalBlock(nn.Module):
    """A causal convolution, and an attention to the source whose query is its output and the word just read."""

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        D = config.width
        self.convolution = GatedConvolution(D, config.decoder_kernel, causal=True, dropout=config.dropout)
        self.query = nn.Linear(D, D)
        self.cross_attention = ScoredAttention(config.attention, D, D, config.max_len)
        self.output = nn.Linear(D, D)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        words: Float[Tensor, "B T D"],
        keys: Float[Tensor, "B S D"],
        source: ConvolutionalSource,
    ) -> Float[Tensor, "B T D"]:
        return self.join(x, self.convolution(x), words, keys, source)

    def join(self, x: Tensor, mixed: Tensor, words: Tensor, keys: Tensor, source: ConvolutionalSource) -> Tensor:
        """`x` with the output of the convolution and the context that this found in the source."""
        query = (self.query(mixed) + words) * HALF
        found = self.cross_attention(query, keys, source.values, source.visible) * source.scale
        return (x + (mixed + self.output(found)) * HALF) * HALF


class Convolutional(nn.Module):
    """Gated convolutions over the source, and causal ones over the target, each with attention to the source."""

    # It packs no rows: a convolution reaches over the end of a sequence, into the next of its row.
    capabilities: ClassVar[Capabilities] = Capabilities(tasks=("translation", "summarization"))

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        self.config = config
        self.source = _embedding(config, config.source_vocab_size)
        self.target = self.source if config.share == "all" else _embedding(config, config.target_vocab_size)
        tied = None if config.share == "none" else self.target.tokens.weight
        self.head = OutputProjection(config.width, config.target_vocab_size, bias=config.output_bias, tied=tied)
        self.encoder = Stack(
            GatedConvolution(config.width, config.encoder_kernel, dropout=config.dropout)
            for _ in range(config.encoder_layers)
        )
        self.decoder = Stack(ConvolutionalBlock(config) for _ in range(config.decoder_layers))
        self.dropout = Dropout(config.dropout)
        initialise(self)

    def forward(self, batch: Pairs) -> Float[Tensor, "B T D"]:
        """For each token that the decoder reads, the vector from which `head` predicts the next one."""
        return self.decode(batch.inputs, self.encode(batch.source))

    def logits(self, batch: Pairs) -> Float[Tensor, "B T V"]:
        """The scores of every next token, given the true ones before it."""
        return self.head(self(batch))

    def encode(self, source: Tokens) -> ConvolutionalSource:
        assert isinstance(source, Tokens), "a convolutional model reads one sequence per row"
        words = self.source(source.ids)
        # A convolution must find zeros past a row's end, as it does past the longest row's.
        real = source.mask()[..., None] if source.padded else None
        x = words
        for block in self.encoder:
            x = x if real is None else x * real
            x = (x + block(x)) * HALF
        keys = tuple(block.cross_attention.keys(x) for block in self.decoder)
        scale = source.lengths.to(x.dtype).sqrt()[:, None, None]
        return ConvolutionalSource(keys, (x + words) * HALF, source.seen_from(source), scale)

    def decode(self, inputs: Tokens, source: ConvolutionalSource) -> Float[Tensor, "B T D"]:
        x = words = self.target(inputs.ids)
        for block, keys in zip(self.decoder, source.keys, strict=True):
            x = block(x, words, keys, source)
        return self.dropout(x)

    def start(self, batch: Pairs) -> ConvolutionalState:
        """The source, encoded: what decoding starts from."""
        source = self.encode(batch.source)
        first = source.values[:, 0]
        windows = tuple(block.convolution.window(first) for block in self.decoder)
        return ConvolutionalState(windows, 0, source)

    def step(
        self, choices: Int[Tensor, " R"], state: ConvolutionalState
    ) -> tuple[Float[Tensor, "R V"], ConvolutionalState]:
        """Log-probabilities of the tokens that may follow `choices`."""
        source, windows = state.source, []
        words = self.target(choices[:, None], past=state.past).squeeze(1)
        # A source's rows stand side by side as its queries.
        beside = (source.values.shape[0], -1)
        x = words
        for block, keys, window in zip(self.decoder, source.keys, state.windows, strict=True):
            mixed, window = block.convolution.step(x, window)
            windows.append(window)
            rows = (tensor.unflatten(0, beside) for tensor in (x, mixed, words))
            x = block.join(*rows, keys, source).flatten(0, 1)
        return self.head(self.dropout(x)).log_softmax(-1), ConvolutionalState(tuple(windows), state.past + 1, source)


def _embedding(config: ConvolutionalConfig, vocab_size: int) -> Embedding:
    positions = Positions("learned", config.width, config.max_len)
    return Embedding(vocab_size, config.width, positions=positions, dropout=config.dropout)


MODEL = ConvolutionalConfig, Convolutional
