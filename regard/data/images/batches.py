"""Pictures to batches, in an order and with changes that are a function of seed and epoch."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Int

from regard.data.batches import random_of, shuffled
from regard.data.images.augment import Luck, augmented, mixed, normalised
from regard.data.images.config import ImageConfig
from regard.data.images.store import ImageStore
from regard.nn.batch import Images


class ImageLayout:
    """Batches of `rows` pictures, changed as the settings say. What does not fill a batch is left to other epochs.

    Batches are of one shape, so a compiled model is compiled once.
    """

    def __init__(self, store: ImageStore, config: ImageConfig, *, rows: int, seed: int, patches: int = 1) -> None:
        self.store, self.config, self.seed, self.patches = store, config, seed, patches
        self.rows = min(rows, len(store))

    def order(self, seed: int, epoch: int) -> list[Int[np.ndarray, "rows 2"]]:
        """Of each batch the pictures and, beside each, the epoch, by which it will be changed."""
        rows = shuffled(len(self.store), random_of(seed, epoch))
        rows = rows[: len(rows) - len(rows) % self.rows]
        marked = np.stack((rows, np.full_like(rows, epoch)), axis=1)
        return list(marked.reshape(-1, self.rows, 2))

    def batch(self, rows: Int[np.ndarray, "rows 2"]) -> Images:
        chosen, epoch = rows[:, 0], int(rows[0, 1])
        luck = Luck(self.seed, epoch, chosen)
        pixels = augmented(self.store.pixels[chosen], self.config, luck)
        labels = torch.from_numpy(self.store.labels[chosen])
        if not (self.config.mixup or self.config.cutmix):
            return Images(pixels, labels, len(chosen), self.patches)
        pixels, shares = mixed(pixels, self.config, luck)
        return Images(pixels, labels, len(chosen), self.patches, labels.roll(1, 0), shares)


def picture_batches(store: ImageStore, config: ImageConfig, *, rows: int, patches: int = 1) -> Iterator[Images]:
    """Every picture once, as it is."""
    for start in range(0, len(store), rows):
        part = slice(start, start + rows)
        labels = torch.from_numpy(store.labels[part].copy())
        yield Images(normalised(store.pixels[part], config), labels, len(labels), patches)
