"""One picture file to its pixels, with Pillow; nothing larger than LARGEST is ever decoded."""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from regard.errors import ConfigError, DataError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")

LARGEST = 64_000_000
"""Pixels of a picture: a small file may claim to hold any number of them."""

Pixels = UInt8[np.ndarray, "Y X C"]


def check_pillow() -> None:
    """Refuse to go on where Pillow is missing."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise ConfigError(
            "reading pictures needs Pillow: pip install 'regard[images]'; arrays (.npy, .npz) do without it"
        ) from None


def read_picture(path: Path, channels: int = 3) -> Pixels:
    """The pixels of a file, upright as its camera says, transparent parts on white, grey where `channels` is 1."""
    check_pillow()
    from PIL import Image, ImageOps

    try:
        with Image.open(path, formats=FORMATS) as image:
            width, height = image.size
            if width * height > LARGEST:
                raise DataError(f"{path} has {width:,} x {height:,} pixels; {LARGEST:,} in all is the most")
            upright = ImageOps.exif_transpose(image)
            return _array(upright, "L" if channels == 1 else "RGB")
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"no such file: {path}") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder, not a picture") from None
    except Exception as error:  # every format fails in its own way
        reason = str(error).splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"{path} cannot be read as a picture: {reason}") from None


def _array(image, mode: str) -> Pixels:
    from PIL import Image

    if image.mode.startswith("I"):  # sixteen bits: the upper eight are what a screen shows
        image = Image.fromarray((np.asarray(image).astype(np.int64).clip(0, 65535) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    pixels = np.array(image.convert(mode), dtype=np.uint8)
    return pixels[..., None] if pixels.ndim == 2 else pixels
