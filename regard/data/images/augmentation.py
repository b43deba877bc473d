"""Augmentation and batches of images: each change is a function of (seed, epoch, image), so none has to be stored."""

import math
import zlib
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from regard.data.batches import random_of, shuffled
from regard.data.images.config import ImageConfig
from regard.data.images.image_store import ImageStore
from regard.nn.batch import Images

PerImage = Float[np.ndarray, " B"]
Floats = Float[Tensor, "B C Y X"]


class ImageRandom:
    """Numbers between 0 and 1, one per image for each name asked for; a function of seed, epoch, image and name."""

    def __init__(self, seed: int, epoch: int, rows: Int[np.ndarray, " B"]) -> None:
        base = _splitmix(np.array([seed], dtype=np.uint64))
        base = _splitmix(base + np.array([epoch], dtype=np.uint64))
        self._rows = _splitmix(base + rows.astype(np.uint64))

    def __call__(self, name: str) -> PerImage:
        bits = _splitmix(self._rows + np.array([zlib.crc32(name.encode())], dtype=np.uint64))
        return (bits >> np.uint64(11)).astype(np.float64) / 2**53

    def between(self, name: str, low: float | PerImage, high: float | PerImage) -> PerImage:
        return low + (high - low) * self(name)

    def around(self, name: str, by: float) -> PerImage:
        """From `-by` to `by`."""
        return self.between(name, -by, by)


def _splitmix(bits: np.ndarray) -> np.ndarray:
    """Bits that depend on all bits given (the finaliser of SplitMix64)."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def normalise(pixels: UInt8[np.ndarray, "B C Y X"], config: ImageConfig) -> Floats:
    """Values about 0, as a model reads them."""
    return _standardised(_fractions(pixels), config)


def augment(pixels: UInt8[np.ndarray, "B C Y X"], config: ImageConfig, random: ImageRandom) -> Floats:
    """The same after the changes that the settings ask for, all but mixing."""
    x = random_affine(_fractions(pixels), config, random)
    x = _standardised(color_jitter(x, config, random), config)
    if config.erase:
        area, aspect = random.between("erased area", 0.02, 0.33), np.exp(random.around("erased aspect", math.log(3.3)))
        blotted = rectangles(x, random, "erased", np.sqrt(area * aspect), np.sqrt(area / aspect))
        x = x.masked_fill(blotted & _column(random("erase") < config.erase), 0.0)
    return x


def random_affine(x: Floats, config: ImageConfig, random: ImageRandom) -> Floats:
    """Cut out, zoomed, turned, shifted and flipped, in one resampling; what lies outside is black."""
    motions = (config.flip, config.crop_padding, config.least_area < 1, config.rotate, config.shift, config.zoom)
    if not any(motions):
        return x
    Y, X = x.shape[2:]
    area, aspect = random.between("area", config.least_area, 1.0), np.ones(len(x))
    if config.least_area < 1:
        aspect = np.exp(random.around("aspect", math.log(4 / 3)))
    tall, wide = np.minimum(1.0, np.sqrt(area * aspect)), np.minimum(1.0, np.sqrt(area / aspect))
    # In the grid's units an image reaches from -1 to 1.
    right, down = random.around("left", 1.0) * (1 - wide), random.around("top", 1.0) * (1 - tall)
    right = right + 2 * random.around("shift x", config.shift) + 2 / X * _whole(random("pad x"), config.crop_padding)
    down = down + 2 * random.around("shift y", config.shift) + 2 / Y * _whole(random("pad y"), config.crop_padding)
    zoom = 1 + random.around("zoom", config.zoom)
    flip = np.where(random("flip") < 0.5, -1.0, 1.0) if config.flip else 1.0
    angle = np.deg2rad(random.around("rotate", config.rotate))
    cos, sin = np.cos(angle), np.sin(angle)
    across, along = wide / zoom * flip, tall / zoom
    # A turn is one of pixels, which are not as tall as they are wide where the image is not square.
    rows = [[cos * across, -sin * along * Y / X, right], [sin * across * X / Y, cos * along, down]]
    matrix = torch.from_numpy(np.stack([np.stack(np.broadcast_arrays(*row), -1) for row in rows], 1)).float()
    grid = F.affine_grid(matrix, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def color_jitter(x: Floats, config: ImageConfig, random: ImageRandom) -> Floats:
    """Brighter or darker, with more or less contrast and colour."""
    if not any((config.brightness, config.contrast, config.saturation)):
        return x
    x = (x * _column(1 + random.around("brightness", config.brightness))).clamp(0, 1)
    grey = x.mean(1, keepdim=True)
    mean = grey.mean((2, 3), keepdim=True)
    x = (mean + (x - mean) * _column(1 + random.around("contrast", config.contrast))).clamp(0, 1)
    grey = x.mean(1, keepdim=True)
    return (grey + (x - grey) * _column(1 + random.around("saturation", config.saturation))).clamp(0, 1)


def mix(x: Floats, config: ImageConfig, random: ImageRandom) -> tuple[Floats, Float[Tensor, " B"]]:
    """Each image mixed with the one before it in the batch, and the share that is its own."""
    other = x.roll(1, 0)
    cut = random("mix") < (0.5 if config.mixup else 1.0) if config.cutmix else np.zeros(len(x), dtype=bool)
    own = _column(beta_quantile(random("mixup"), config.mixup) if config.mixup else np.ones(len(x)))
    blended = own * x + (1 - own) * other
    side = np.sqrt(1 - beta_quantile(random("cutmix"), config.cutmix)) if config.cutmix else np.zeros(len(x))
    pasted = rectangles(x, random, "pasted", side, side)
    kept = 1 - pasted.float().mean((1, 2, 3))  # a rectangle at the edge is smaller than was asked for
    chosen = _column(cut)
    result = torch.where(chosen, torch.where(pasted, other, x), blended)
    return result, torch.where(chosen.flatten(), kept, own.flatten())


def rectangles(x: Floats, random: ImageRandom, name: str, tall: PerImage, wide: PerImage) -> Bool[Tensor, "B 1 Y X"]:
    """True inside a rectangle about a point anywhere in the image; its sides are shares of the image's."""

    def inside(length: int, middle: PerImage, side: PerImage) -> np.ndarray:
        places = (np.arange(length) + 0.5) / length
        return np.abs(places - middle[:, None]) < side[:, None] / 2

    down = inside(x.shape[2], random(f"{name} y"), tall)
    across = inside(x.shape[3], random(f"{name} x"), wide)
    return torch.from_numpy(down[:, None, :, None] & across[:, None, None, :])


def beta_quantile(chance: PerImage, alpha: float) -> PerImage:
    """The number below which a sample of Beta(alpha, alpha) lies with this chance, to about a millionth."""
    # Below a half the number is t^(1/alpha) / 2, with a density in t that has no pole, so a sum of small steps will do;
    # above a half it is the same turned round.
    t = np.linspace(0, 1, 1025)
    density = (1 - t ** (1 / alpha) / 2) ** (alpha - 1)
    below = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2)))
    smaller = np.interp(2 * np.minimum(chance, 1 - chance), below / below[-1], t) ** (1 / alpha) / 2
    return np.where(chance < 0.5, smaller, 1 - smaller)


def _fractions(pixels: UInt8[np.ndarray, "B C Y X"]) -> Floats:
    return torch.from_numpy(pixels.astype(np.float32)) / 255


def _standardised(x: Floats, config: ImageConfig) -> Floats:
    if not config.mean:
        return x
    mean, std = (torch.tensor(values)[:, None, None] for values in (config.mean, config.std))
    return (x - mean) / std


def _whole(chance: PerImage, most: int) -> PerImage:
    """A whole number from `-most` to `most`."""
    return np.floor(chance * (2 * most + 1)) - most


def _column(values: np.ndarray) -> Tensor:
    """A number per image, to meet its pixels."""
    column = torch.from_numpy(values)[:, None, None, None]
    return column if values.dtype == bool else column.float()


class ImageLayout:
    """Batches of `rows` images, changed as the settings say. What does not fill a batch is left to other epochs.

    Batches are of one shape, so a compiled model is compiled once.
    """

    def __init__(self, store: ImageStore, config: ImageConfig, *, rows: int, seed: int, patches: int = 1) -> None:
        self.store, self.config, self.seed, self.patches = store, config, seed, patches
        self.rows = min(rows, len(store))

    def order(self, seed: int, epoch: int) -> list[Int[np.ndarray, "rows 2"]]:
        """Of each batch the images and, beside each, the epoch, by which it will be changed."""
        rows = shuffled(len(self.store), random_of(seed, epoch))
        rows = rows[: len(rows) - len(rows) % self.rows]
        marked = np.stack((rows, np.full_like(rows, epoch)), axis=1)
        return list(marked.reshape(-1, self.rows, 2))

    def batch(self, rows: Int[np.ndarray, "rows 2"]) -> Images:
        chosen, epoch = rows[:, 0], int(rows[0, 1])
        random = ImageRandom(self.seed, epoch, chosen)
        pixels = augment(self.store.pixels[chosen], self.config, random)
        labels = torch.from_numpy(self.store.labels[chosen])
        if not (self.config.mixup or self.config.cutmix):
            return Images(pixels, labels, len(chosen), self.patches)
        pixels, shares = mix(pixels, self.config, random)
        return Images(pixels, labels, len(chosen), self.patches, labels.roll(1, 0), shares)


def image_batches(store: ImageStore, config: ImageConfig, *, rows: int, patches: int = 1) -> Iterator[Images]:
    """Every image once, as it is."""
    for start in range(0, len(store), rows):
        part = slice(start, start + rows)
        labels = torch.from_numpy(store.labels[part].copy())
        yield Images(normalise(store.pixels[part], config), labels, len(labels), patches)
