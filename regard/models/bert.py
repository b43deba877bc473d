"""The encoder-only Transformer: BERT, and by its settings MiniLM, DistilBERT and RoBERTa."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, check_at_least, check_fractions
from regard.models.protocols import Capabilities
from regard.nn.attention import WITHIN
from regard.nn.batch import LabelledTexts, MaskedTexts, Texts
from regard.nn.blocks import Activation, BlockConfig, EncoderBlock, Stack, activate, check_layer_heads
from regard.nn.dropout import Dropout
from regard.nn.embeddings import OutputProjection
from regard.nn.initialization import initialise_small
from regard.nn.positions import PositionKind, Positions, Rotary, check_buckets, check_rotary_base, distance_bias

HeadKind = Literal["none", "pretraining", "words", "classes", "tags", "spans"]
PoolerKind = Literal["none", "tanh", "relu"]
Pooling = Literal["mean", "first"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BertConfig:
    """The defaults are BERT-base's. DistilBERT has no `segments`, RoBERTa one and a `position_offset` of 2.

    `head` is what stands on the encoder: `pretraining` predicts masked words and whether one text follows another,
    `words` the words alone, `classes` a label of the whole, `tags` a label of each token, `spans` where an answer
    begins and ends. `labels` are the names of classes or tags. `pooling` is how a text becomes one vector, by which it
    is also classified where there is no `pooler`.
    `layer_heads` gives layers fewer heads, of the same width; 0 is none at all.
    """

    vocab_size: int
    width: int = 768
    heads: int = 12
    layer_heads: tuple[int, ...] | None = None
    layers: int = 12
    feed_forward: int = 3072
    activation: Activation = "gelu"
    norm_epsilon: float = 1e-12
    segments: int = 2
    positions: PositionKind = "learned"
    rotary_base: float = 10000.0
    relative_buckets: int = 32
    relative_distance: int = 128
    position_offset: int = 0
    pooler: PoolerKind = "tanh"
    head: HeadKind = "pretraining"
    labels: tuple[str, ...] = ()
    pooling: Pooling = "mean"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation_dropout: float = 0.0
    head_dropout: float = 0.1
    max_len: int = 512

    def __post_init__(self) -> None:
        check_at_least(self, 1, "layers", "max_len", "vocab_size")
        check_at_least(self, 0, "segments", "position_offset")
        check_fractions(self, "head_dropout")
        if self.head == "pretraining" and self.pooler == "none":
            raise ConfigError("head='pretraining' needs a pooler to tell whether a text follows: set pooler='tanh'")
        if len(set(self.labels)) < len(self.labels):
            raise ConfigError(f"labels={list(self.labels)} must differ from each other")
        if self.labels and self.head not in ("classes", "tags"):
            raise ConfigError(f"labels are for head='classes' or 'tags', not for '{self.head}'")
        check_layer_heads("layer_heads", self.layer_heads, self.layers, self.block())
        check_rotary_base(self.rotary_base)
        check_buckets(self.positions, self.relative_buckets, self.relative_distance)
        if self.positions in ("linear", "linear-unscaled"):
            raise ConfigError(
                f"positions='{self.positions}' adds the same number to every feature, and the layer norm of BERT's "
                "embedding takes it away again: set 'none', or one of the other kinds"
            )
        if self.position_offset and self.positions != "learned":
            raise ConfigError(f"position_offset={self.position_offset} is for learned positions, not {self.positions}")
        if self.layer_heads is not None and self.positions in ("alibi", "relative"):
            raise ConfigError(f"layer_heads cannot differ between layers with {self.positions} positions")

    def block(self) -> BlockConfig:
        """The settings that concern a block, checked; norms always come after."""
        return BlockConfig.of(self, norm_first=False)


class TextEmbedding(nn.Module):
    """The sum of a token's vector, its position's where that is added, and its segment's, normed."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.positions = None
        if config.positions in ("learned", "sinusoidal"):
            self.positions = Positions(config.positions, config.width, config.max_len + config.position_offset)
        self.segments = nn.Embedding(config.segments, config.width) if config.segments else None
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.dropout = Dropout(config.dropout)
        self.offset = config.position_offset

    def forward(self, texts: Texts) -> Float[Tensor, "B S D"]:
        x = self.tokens(texts.ids)
        if self.segments is not None:
            x = x + (self.segments.weight[0] if texts.segments is None else self.segments(texts.segments))
        if self.positions is not None:
            x = self.positions(x, past=self.offset)
        return self.dropout(self.norm(x))


class Pooler(nn.Module):
    """The first token's vector through one more layer: what the whole text is classified by."""

    def __init__(self, width: int, kind: PoolerKind) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.kind: PoolerKind = kind

    def forward(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B D"]:
        first = self.dense(x[:, 0])
        return first.tanh() if self.kind == "tanh" else first.relu()


class MaskedLMHead(nn.Module):
    """The head of a masked language model: a vector through one more layer, compared with the vectors of all tokens."""

    def __init__(self, config: BertConfig, table: Tensor) -> None:
        super().__init__()
        self.activation: Activation = config.activation
        self.dense = nn.Linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.output = OutputProjection(config.width, config.vocab_size, bias=True, tied=table)

    def vectors(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
        return self.norm(activate(self.dense(x), self.activation))

    def forward(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch V"]:
        return self.output(self.vectors(x))


class Bert(nn.Module):
    """A stack of blocks in which every token sees every other, and on it the head that the settings name."""

    # It packs no rows: a row is one text or pair, and its first token represents it.
    capabilities: ClassVar[Capabilities] = Capabilities(
        tasks=("masking", "classification", "tagging", "answering", "embedding"),
        tunes=("head", "pooler", "labels", "pooling"),
        layer_heads={WITHIN: "layer_heads"},
    )

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = TextEmbedding(config)
        heads, block = config.layer_heads or (None,) * config.layers, config.block()
        rotary = Rotary(block.per_head, config.max_len, config.rotary_base) if config.positions == "rotary" else None
        distances = distance_bias(
            config.positions, config.heads, config.relative_buckets, config.relative_distance, both_ways=True
        )
        self.encoder = Stack(EncoderBlock(block, rotary, distances, own) for own in heads)
        self.pooler = None if config.pooler == "none" else Pooler(config.width, config.pooler)
        self.words = self.next_text = self.classifier = None
        if config.head in ("pretraining", "words"):
            self.words = MaskedLMHead(config, self.embedding.tokens.weight)
        if config.head == "pretraining":
            self.next_text = nn.Linear(config.width, 2)
        if config.head in ("classes", "tags", "spans"):
            outputs = 2 if config.head == "spans" else len(config.labels)
            if not outputs:
                raise ConfigError(f"head='{config.head}' needs labels: the names of its classes or tags")
            self.classifier = nn.Linear(config.width, outputs)
        self.dropout = Dropout(config.head_dropout)
        initialise_small(self)

    def forward(self, batch: Texts | MaskedTexts | LabelledTexts) -> Float[Tensor, "B S D"]:
        """A vector for each token, which has seen all the others."""
        texts = batch if isinstance(batch, Texts) else batch.inputs
        x, visible = self.embedding(texts), texts.tokens.visible()
        for block in self.encoder:
            x = block(x, visible)
        return x

    def logits(self, batch: Texts | MaskedTexts | LabelledTexts) -> Float[Tensor, " B *more"]:
        """The head's scores: for every token words, tags or start and end; for the whole text, its classes."""
        x = self(batch)
        if self.words is not None:
            return self.words(x)
        if self.classifier is None:
            return x
        return self.classes(x, batch) if self.config.head == "classes" else self.classifier(self.dropout(x))

    def classes(self, x: Float[Tensor, "B S D"], batch: Texts | MaskedTexts | LabelledTexts) -> Float[Tensor, "B C"]:
        """The scores of the classes of each text, from its tokens' vectors `x`."""
        assert self.classifier is not None
        texts = batch if isinstance(batch, Texts) else batch.inputs
        whole = pooled(x, texts, self.config.pooling) if self.pooler is None else self.pooler(x)
        return self.classifier(self.dropout(whole))

    def next_logits(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B 2"]:
        """Next-sentence scores: that the second text follows the first, and that it is from elsewhere."""
        assert self.pooler is not None
        assert self.next_text is not None
        return self.next_text(self.pooler(x))

    def text_vectors(self, texts: Texts, pooling: Pooling | None = None) -> Float[Tensor, "B D"]:
        """One vector per text: the mean of its tokens' vectors, or the first one."""
        return pooled(self(texts), texts, pooling or self.config.pooling)


def pooled(x: Float[Tensor, "B S D"], texts: Texts, pooling: Pooling) -> Float[Tensor, "B D"]:
    """The mean of each text's vectors, or the first of them."""
    if pooling == "first":
        return x[:, 0]
    real = texts.tokens.mask()[..., None].to(x.dtype)
    return (x * real).sum(1) / real.sum(1)


MODEL = BertConfig, Bert
