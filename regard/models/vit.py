"""The Vision Transformer: an image cut into patches, read by blocks in which every patch attends to every other."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, RunError, check_at_least, check_fractions
from regard.models.protocols import Capabilities
from regard.nn.attention import WITHIN
from regard.nn.batch import Images
from regard.nn.blocks import (
    Activation,
    BlockConfig,
    EncoderBlock,
    NormKind,
    Stack,
    check_layer_heads,
    make_norm,
    through,
)
from regard.nn.embeddings import OutputProjection, PatchEmbedding, resized_positions
from regard.nn.initialization import initialise

LARGEST_GRID = 1 << 16
"""No more patches than this: attention over them would not fit any memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ViTConfig:
    """An image has `channels` and is `image_size` pixels high and wide; norms come before each sublayer.

    `labels` are the names of the classes; without any there is no head. `pooler` puts a layer with tanh after [CLS],
    before the head. `layer_heads` gives layers fewer heads, of the same width; 0 is none at all.
    """

    labels: tuple[str, ...] = ()
    image_size: int = 224
    patch_size: int = 16
    channels: int = 3
    width: int = 384
    heads: int = 6
    layer_heads: tuple[int, ...] | None = None
    layers: int = 12
    feed_forward: int = 1536
    activation: Activation = "gelu"
    gated: bool = False
    norm: NormKind = "layer"
    norm_epsilon: float = 1e-6
    qk_norm: bool = False
    bias: bool = True
    pooler: bool = False
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    layer_drop: float = 0.0

    def __post_init__(self) -> None:
        check_at_least(self, 1, "layers", "image_size", "patch_size", "channels")
        if len(set(self.labels)) < len(self.labels):
            raise ConfigError("labels must differ from each other")
        if self.image_size % self.patch_size:
            raise ConfigError(f"image_size={self.image_size} must be a multiple of patch_size={self.patch_size}")
        if self.patches > LARGEST_GRID:
            raise ConfigError(f"image_size={self.image_size} makes {self.patches:,} patches; {LARGEST_GRID:,} is most")
        if self.channels not in (1, 3):
            raise ConfigError(f"channels={self.channels} must be 1 (grey) or 3 (red, green and blue)")
        check_fractions(self, "layer_drop")
        check_layer_heads("layer_heads", self.layer_heads, self.layers, self.block())

    @property
    def patches(self) -> int:
        return (self.image_size // self.patch_size) ** 2

    @property
    def max_len(self) -> int:
        """Places of a sequence: [CLS] and the patches."""
        return 1 + self.patches

    def block(self) -> BlockConfig:
        """The settings that concern a block, checked; norms always come first."""
        return BlockConfig.of(self, norm_first=True)


class ViT(nn.Module):
    """A stack of blocks over [CLS] and the patches of an image, and a head that reads [CLS]."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        tasks=("images",),
        packs=True,
        tunes=("layer_drop",),
        resizes=("image_size",),
        layer_heads={WITHIN: "layer_heads"},
    )

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        heads = config.layer_heads or (None,) * config.layers
        self.blocks = Stack(EncoderBlock(config.block(), heads=own) for own in heads)
        self.norm = make_norm(config.norm, config.width, config.norm_epsilon)
        self.pooler = nn.Linear(config.width, config.width) if config.pooler else None
        initialise(self)
        self.embedding = PatchEmbedding(
            config.image_size, config.patch_size, config.channels, config.width, dropout=config.dropout
        )
        self.head = OutputProjection(config.width, len(config.labels), bias=True) if config.labels else None
        if self.head is not None:  # first predictions are near uniform
            nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, batch: Images) -> Float[Tensor, "B D"]:
        """For each image, the vector from which `head` predicts its class."""
        whole = self.read(batch.pixels)[:, 0]
        return whole if self.pooler is None else self.pooler(whole).tanh()

    def logits(self, batch: Images) -> Float[Tensor, "B N"]:
        """The scores of every class."""
        if self.head is None:
            raise RunError("this model has no head to classify with: train one on top of it with --from")
        return self.head(self(batch))

    def refitted(self, name: str, weight: Tensor) -> Tensor:
        """A weight of a model for images of another size, for this one: positions are interpolated."""
        if name != "embedding.positions":
            return weight
        side = round((weight.shape[1] - 1) ** 0.5)
        return resized_positions(weight, (side, side), (self.embedding.side, self.embedding.side))

    def read(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B T D"]:
        """The vectors of [CLS] and of every patch after all blocks."""
        x = self.embedding(pixels)
        for block in self.blocks:
            x = through(block, self.config.layer_drop, x)
        return self.norm(x)


MODEL = ViTConfig, ViT
