"""The settings of images: a configuration's `[images]` section."""

from dataclasses import dataclass
from typing import Literal

from regard.errors import ConfigError

Resize = Literal["crop", "stretch"]
Filter = Literal["bilinear", "bicubic"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageConfig:
    """How images are brought to one size, and how they are changed while training. By default nothing is changed."""

    resize: Resize = "crop"
    """`crop` scales the shorter side and takes the middle; `stretch` scales both."""
    filter: Filter = "bilinear"
    mean: tuple[float, ...] = ()
    """Of each channel, subtracted from values between 0 and 1; found from the training images unless given."""
    std: tuple[float, ...] = ()
    held_out: float = 0.1
    """The share of each class that is validated on where no validation images are given; 0 for none."""
    split_seed: int = 1

    flip: bool = False
    """Left and right change places, half of the time."""
    crop_padding: int = 0
    """Pad by so many black pixels on every side, and cut the image's size out of that anywhere."""
    least_area: float = 1.0
    """Cut out a part with at least this share of the area, and scale it to the whole."""
    rotate: float = 0.0
    """Turn by up to so many degrees either way."""
    shift: float = 0.0
    """Move by up to this share of the side."""
    zoom: float = 0.0
    """Scale by up to this share, larger or smaller."""
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    erase: float = 0.0
    """How often a rectangle is blotted out with the mean colour."""
    mixup: float = 0.0
    """Mix each image with another, by shares sampled from Beta(mixup, mixup); 0 does not."""
    cutmix: float = 0.0
    """Paste a rectangle of another image in, of a share sampled likewise; with both, each half of the time."""

    def __post_init__(self) -> None:
        for name in ("crop_padding", "rotate", "mixup", "cutmix", "split_seed"):
            if getattr(self, name) < 0:
                raise ConfigError(f"images.{name}={getattr(self, name)} must not be negative")
        for name in ("held_out", "shift", "zoom", "brightness", "contrast", "saturation"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"images.{name}={getattr(self, name)} must be at least 0 and below 1")
        if not 0.0 <= self.erase <= 1.0:
            raise ConfigError(f"images.erase={self.erase} must be between 0 and 1")
        if not 0.0 < self.least_area <= 1.0:
            raise ConfigError(f"images.least_area={self.least_area} must be above 0 and at most 1")
        if len(self.mean) != len(self.std) or len(self.mean) not in (0, 1, 3):
            raise ConfigError("images.mean and images.std go together: one number per channel in both, or none")
        if any(value <= 0 for value in self.std):
            raise ConfigError(f"images.std={list(self.std)} must be above 0")
