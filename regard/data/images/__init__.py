"""Images to batches: folders and arrays in, one size, augmented as a function of seed, epoch and image."""

from regard.data.images.augmentation import ImageLayout, image_batches
from regard.data.images.config import ImageConfig
from regard.data.images.image_files import ImageArray, ImageFiles, ImageSource, open_images
from regard.data.images.image_store import ImageStore, prepare_images, resized

__all__ = [
    "ImageArray",
    "ImageConfig",
    "ImageFiles",
    "ImageLayout",
    "ImageSource",
    "ImageStore",
    "image_batches",
    "open_images",
    "prepare_images",
    "resized",
]
