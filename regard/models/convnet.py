"""A small convolutional network of images, to stand beside the Vision Transformer: residual blocks (He et al. 2016)."""

from dataclasses import dataclass
from math import gcd
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, DataError, RunError, check_at_least, check_fractions
from regard.models.protocols import Capabilities
from regard.nn.batch import Images
from regard.nn.blocks import Stack
from regard.nn.dropout import Dropout
from regard.nn.embeddings import OutputProjection

MOST_STAGES = 16
GROUPS = 8
"""Groups of channels that are normalised together, where the width can be divided into as many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvNetConfig:
    """An image has `channels` and is `image_size` pixels high and wide.

    The first of the `stages` is `width` channels wide; each later one halves the image's sides and has twice as many.
    A stage has `layers` residual blocks of two convolutions of 3 x 3, norms and ReLU before each. The mean over the
    places of the last stage is what the head reads. `labels` are the names of the classes.
    """

    labels: tuple[str, ...] = ()
    image_size: int = 32
    channels: int = 3
    width: int = 32
    stages: int = 3
    layers: int = 2
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_at_least(self, 1, "image_size", "channels", "width", "stages", "layers")
        check_fractions(self, "dropout")
        if len(set(self.labels)) < len(self.labels):
            raise ConfigError("labels must differ from each other")
        if self.channels not in (1, 3):
            raise ConfigError(f"channels={self.channels} must be 1 (grey) or 3 (red, green and blue)")
        if self.stages > MOST_STAGES:
            raise ConfigError(f"stages={self.stages} must be at most {MOST_STAGES}")
        if self.image_size % self.shrinking:
            raise ConfigError(
                f"image_size={self.image_size} must be a multiple of {self.shrinking}: "
                f"stages={self.stages} halve it {self.stages - 1} times"
            )

    @property
    def shrinking(self) -> int:
        """How many pixels on a side become one place of the last stage."""
        return 2 ** (self.stages - 1)

    @property
    def max_len(self) -> int:
        """Places of the last stage: what an image counts in `train.batch_tokens`."""
        return (self.image_size // self.shrinking) ** 2


def _convolution(before: int, after: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return layer


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(gcd(GROUPS, width), width)


class ResidualBlock(nn.Module):
    """x + f(x), f two convolutions with norm and ReLU before each; where the shape changes, x has one of 1 x 1."""

    def __init__(self, before: int, after: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.norms = Stack((_norm(before), _norm(after)))
        self.convolutions = Stack((_convolution(before, after, stride=stride), _convolution(after, after)))
        self.shortcut = _convolution(before, after, 1, stride) if before != after or stride != 1 else None
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D V U"]:
        first = self.norms[0](x).relu()
        inner = self.norms[1](self.convolutions[0](first)).relu()
        return (x if self.shortcut is None else self.shortcut(first)) + self.convolutions[1](self.dropout(inner))


class ConvNet(nn.Module):
    """Stages of residual blocks, the mean over all places, and a head."""

    capabilities: ClassVar[Capabilities] = Capabilities(tasks=("images",), resizes=("image_size",))

    def __init__(self, config: ConvNetConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = _convolution(config.channels, config.width)
        blocks, width = [], config.width
        for stage in range(config.stages):
            for layer in range(config.layers):
                halves = stage > 0 and layer == 0
                wider = 2 * width if halves else width
                blocks.append(ResidualBlock(width, wider, 2 if halves else 1, config.dropout))
                width = wider
        self.blocks = Stack(blocks)
        self.norm = _norm(width)
        self.head = OutputProjection(width, len(config.labels), bias=True) if config.labels else None
        if self.head is not None:  # first predictions are near uniform
            nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, batch: Images) -> Float[Tensor, "B D"]:
        """For each image, the vector from which `head` predicts its class."""
        return self.read(batch.pixels).mean((2, 3))

    def logits(self, batch: Images) -> Float[Tensor, "B N"]:
        """The scores of every class."""
        if self.head is None:
            raise RunError("this model has no head to classify with: train one on top of it with --from")
        return self.head(self(batch))

    def read(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D V U"]:
        """The vectors of every place of the last stage."""
        if pixels.shape[1] != self.config.channels:
            raise DataError(f"an image with {pixels.shape[1]} channels; the model reads {self.config.channels}")
        x = self.stem(pixels)
        for block in self.blocks:
            x = block(x)
        return self.norm(x).relu()


MODEL = ConvNetConfig, ConvNet
