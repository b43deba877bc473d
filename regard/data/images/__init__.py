"""Pictures to batches: folders and arrays in, one size, augmented as a function of seed, epoch and picture."""

from regard.data.images.batches import ImageLayout, picture_batches
from regard.data.images.config import ImageConfig
from regard.data.images.sources import PictureArray, PictureFiles, Pictures, open_pictures
from regard.data.images.store import ImageStore, fitted, prepare_pictures

__all__ = [
    "ImageConfig",
    "ImageLayout",
    "ImageStore",
    "PictureArray",
    "PictureFiles",
    "Pictures",
    "fitted",
    "open_pictures",
    "picture_batches",
    "prepare_pictures",
]
