"""Pictures in, classes out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.formats import lines
from regard.data.images import PictureArray, PictureFiles, Pictures, fitted, open_pictures
from regard.data.images.augment import normalised
from regard.errors import DataError
from regard.nn.batch import Images
from regard.tasks.classifying import Choice, ranked
from regard.tasks.config import RunConfig

BATCH = 32
ARRAYS = (".npy", ".npz")


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture: its name, and its pixels where they are not in the file of that name."""

    name: str
    pixels: np.ndarray | None = None


class ImageClassifier:
    """A model of pictures, with the classes that it tells apart. An input is a path, an array or a `Picture`."""

    named = True

    def __init__(self, model: nn.Module, config: RunConfig) -> None:
        self.model, self.config = model, config
        shape: Any = config.model_config()
        self.labels: tuple[str, ...] = shape.labels
        self.channels, self.patches = shape.channels, shape.max_len
        images = config.images
        self.fit = partial(fitted, size=shape.image_size, resize=images.resize, filter=images.filter)

    def arguments(self, words: Sequence[str]) -> list[Picture]:
        """Picture files, the pictures in folders, and those of arrays."""
        return [picture for word in words for picture in self._named(Path(word))]

    def file(self, path: Path) -> Iterator[Picture]:
        """The pictures of an array, or those whose paths stand in a file, one a line."""
        if path.suffix in ARRAYS:
            yield from self._named(path)
            return
        for name in lines(path):
            yield from self._named(Path(name))

    def shown(self, item: Any) -> str:
        return item.name if isinstance(item, Picture) else str(item)

    def classify(self, items: Sequence[Any], progress: Callable[[int, int], None] | None = None) -> list[list[Choice]]:
        """For each picture every class, the likeliest first."""
        found: list[list[Choice]] = []
        for pictures in _runs_of(items):
            for images in self.batches(pictures):
                found += [ranked(self.labels, row) for row in self.probabilities(images).tolist()]
                if progress is not None:
                    progress(len(found), len(items))
        return found

    def pixels(self, items: Sequence[Any]) -> list[np.ndarray]:
        """The pictures at the model's size, as bytes."""
        return [picture for pictures in _runs_of(items) for picture in pictures.read(self.channels, self.fit)]

    @torch.inference_mode()
    def probabilities(self, images: Images) -> Float[Tensor, "B N"]:
        """Of every class, a row a picture."""
        device = next(self.model.parameters()).device
        return self.model.logits(images.to(device)).float().softmax(-1).cpu()  # type: ignore[operator]

    def batches(self, pictures: Pictures) -> Iterator[Images]:
        """The pictures as the model reads them, a few at a time."""
        read = pictures.read(self.channels, self.fit)
        while part := list(islice(read, BATCH)):
            yield self.images(part)

    def images(self, pictures: Sequence[np.ndarray]) -> Images:
        """Pictures of the model's size as a batch."""
        pixels = np.stack([picture.transpose(2, 0, 1) for picture in pictures])
        labels = torch.zeros(len(pixels), dtype=torch.long)
        return Images(normalised(pixels, self.config.images), labels, len(pixels), self.patches)

    def _named(self, path: Path) -> list[Picture]:
        pictures = open_pictures([path], labelled=False)
        assert pictures is not None
        pixels = pictures.pixels if isinstance(pictures, PictureArray) else [None] * len(pictures.names)
        return [Picture(name, values) for name, values in zip(pictures.names, pixels, strict=True)]


def _runs_of(items: Sequence[Any]) -> Iterator[Pictures]:
    """The items in order, files that follow one another together."""
    files: list[Path] = []
    for item in items:
        pixels = item.pixels if isinstance(item, Picture) else item
        if pixels is None or isinstance(item, (str, Path)):
            files.append(Path(item.name if isinstance(item, Picture) else item))
            continue
        if files:
            yield PictureFiles(tuple(files))
            files = []
        if not isinstance(pixels, np.ndarray) or pixels.ndim not in (2, 3):
            raise DataError("a picture is a path, or an array of rows, columns and perhaps channels")
        yield PictureArray.of(pixels[None])
    if files:
        yield PictureFiles(tuple(files))
