"""Images of one size as one array of bytes, made once and kept in a folder."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int, UInt8

from regard.data.batches import random_of, shuffled
from regard.data.images.config import Filter, ImageConfig, Resize
from regard.data.images.image_files import ImageSource, Pixels
from regard.data.prepared_cache import cached, opened, stored, write_meta
from regard.errors import DataError

VERSION = 1


@dataclass(frozen=True)
class ImageStore:
    """Images of one size, and the number of each one's class."""

    pixels: UInt8[np.ndarray, "N C Y X"]
    labels: Int[np.ndarray, " N"]

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def open(cls, folder: Path) -> "ImageStore":
        """The store that `prepare_images` left in `folder`."""
        with opened(folder, "images", VERSION) as meta:
            shape = meta["shape"]
            pixels = stored(folder / "pixels", np.uint8, int(np.prod(shape)))
            return cls(pixels.reshape(shape), np.fromfile(folder / "labels", dtype=np.int64))

    def mean_and_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Of each channel, over all images, of values between 0 and 1."""
        sums, squares = np.zeros(self.pixels.shape[1]), np.zeros(self.pixels.shape[1])
        for start in range(0, len(self), 1024):
            part = self.pixels[start : start + 1024].astype(np.float64) / 255
            sums += part.sum((0, 2, 3))
            squares += (part**2).sum((0, 2, 3))
        count = self.pixels.size / self.pixels.shape[1]
        mean = sums / count
        std = np.sqrt(np.maximum(0.0, squares / count - mean**2))
        # A channel that never changes carries no information, whatever it is divided by.
        return _rounded(mean), _rounded(np.where(std < 1e-3, 1.0, std))


def prepare_images(
    images: ImageSource,
    classes: Sequence[str],
    config: ImageConfig,
    cache: Path,
    *,
    size: int,
    channels: int,
    progress: Callable[[int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> ImageStore:
    """The images at one size, from a folder under `cache`: reused when nothing changed, else written now.

    `say` is told where a folder is damaged, and prepared again. Without `classes` their labels mean nothing.
    """
    labels = class_numbers(images, classes) if classes else np.zeros(len(images.names), dtype=np.int64)

    def write(folder: Path) -> None:
        fit = partial(resized, size=size, resize=config.resize, filter=config.filter)
        with (folder / "pixels").open("wb") as file:
            for number, image in enumerate(images.read(channels, fit), 1):
                file.write(image.transpose(2, 0, 1).tobytes())
                if progress is not None and number % 100 == 0:
                    progress(number)
        labels.tofile(folder / "labels")
        write_meta(folder, VERSION, shape=[len(labels), channels, size, size])

    key = ["pictures", VERSION, images.digest(), list(classes), size, channels, config.resize, config.filter]
    return cached(cache, key, ImageStore.open, write, say)


def class_numbers(images: ImageSource, classes: Sequence[str]) -> Int[np.ndarray, " N"]:
    """The number of each image's class, which must be one of `classes`."""
    numbers = {name: number for number, name in enumerate(classes)}
    labels = images.labels
    if labels is None:
        raise DataError("these images have no classes")
    if strange := sorted({label for label in labels if label not in numbers}):
        raise DataError(f"class '{strange[0]}' is not one of those trained on: {', '.join(classes[:12])}")
    return np.array([numbers[label] for label in labels], dtype=np.int64)


def held_out(labels: Sequence[str], share: float, seed: int) -> list[bool]:
    """Which images to set aside: this share of each class, at least one of each that has two, at random."""
    left = {label: min(count - 1, max(1, round(share * count))) for label, count in Counter(labels).items()}
    aside = [False] * len(labels)
    for row in map(int, shuffled(len(labels), random_of(seed, 0))):
        if left[labels[row]] > 0:
            left[labels[row]] -= 1
            aside[row] = True
    return aside


LONGEST = 16
"""How many times as long as wide an image is scaled: of a longer one the ends, which are cut off anyway, go before."""


def resized(
    image: Pixels, size: int, resize: Resize = "crop", filter: Filter = "bilinear"
) -> UInt8[np.ndarray, "N N C"]:
    """The image at `size` x `size` pixels."""
    Y, X = image.shape[:2]
    if resize == "crop" and max(Y, X) > (most := LONGEST * min(Y, X)):
        top, left = max(0, (Y - most) // 2), max(0, (X - most) // 2)
        image = image[top : top + most, left : left + most]
        Y, X = image.shape[:2]
    if resize == "crop":
        scale = size / min(Y, X)
        wanted = (max(size, round(Y * scale)), max(size, round(X * scale)))
    else:
        wanted = (size, size)
    if wanted != (Y, X):
        pixels = torch.from_numpy(np.array(image.transpose(2, 0, 1)))[None]
        pixels = F.interpolate(pixels, size=wanted, mode=filter, align_corners=False, antialias=True)
        image = pixels[0].permute(1, 2, 0).numpy()
    top, left = (wanted[0] - size) // 2, (wanted[1] - size) // 2
    return image[top : top + size, left : left + size]


def resized_box(
    box: tuple[int, int, int, int], shape: tuple[int, int], size: int, resize: Resize = "crop"
) -> tuple[int, int, int, int]:
    """Where a box of an image of this shape lies after `resized`; what is cut away leaves it outside, or empty."""
    Y, X = shape
    least = min(Y, X)
    down, across = (size / least, size / least) if resize == "crop" else (size / Y, size / X)
    top, left = ((Y - least) // 2, (X - least) // 2) if resize == "crop" else (0, 0)
    x0, y0, x1, y1 = box
    return round((x0 - left) * across), round((y0 - top) * down), round((x1 - left) * across), round((y1 - top) * down)


def _rounded(values: np.ndarray) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in values)
