"""Images with their classes: a folder with a sub-folder for each class, or arrays. Files are decoded with Pillow."""

import hashlib
import io
import json
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
from jaxtyping import UInt8

from regard.data.readers import content_digest
from regard.errors import ConfigError, DataError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")

LARGEST = 64_000_000
"""Pixels of an image: a small file may claim to hold any number of them."""

Pixels = UInt8[np.ndarray, "Y X C"]
Made = TypeVar("Made")
"""What is made of the pixels of an image when it is read."""

Part = Literal["train", "valid", "test"]
NAMES: dict[str, tuple[str, ...]] = {"train": ("train",), "valid": ("valid", "val", "validation"), "test": ("test",)}
IMAGES, LABELS = ("images", "x", "data"), ("labels", "y", "target")

LARGEST_ARRAY = 16 << 30
"""Bytes of an array, unpacked."""

SEVERAL, STRIP = 4_000_000, 1 << 20
"""Pixels of an image of which several are decoded at once; pixels that are converted at a time."""


class Large(Exception):
    """An image of so many pixels that it is decoded by itself: in every thread one, they would fill the memory."""


CHUNK = 256  # images decoded at a time

BROKEN = 3
"""How many unreadable images are named."""


@runtime_checkable
class ImageSource(Protocol):
    """Images and, where they are known, the names of their classes."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def labels(self) -> Sequence[str] | None: ...

    def read(self, channels: int, then: Callable[[Pixels], Made]) -> Iterator[Made]:
        """What `then` makes of the pixels of each, in order; several threads may call it, in any order."""
        ...

    def select(self, rows: Sequence[int]) -> "ImageSource": ...

    def digest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """Image files; decoded several at a time."""

    paths: tuple[Path, ...]
    labels: tuple[str, ...] | None = None

    @property
    def names(self) -> list[str]:
        return [str(path) for path in self.paths]

    def read(self, channels: int, then: Callable[[Pixels], Made]) -> Iterator[Made]:
        check_pillow()
        broken: list[str] = []
        paths = iter(self.paths)
        with ThreadPoolExecutor() as pool:
            while part := list(islice(paths, CHUNK)):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of large images and odd headers: our own limit is stricter
                    tried = pool.map(lambda path: _tried(path, channels, then, several=True), part)
                    results = [
                        _tried(path, channels, then) if isinstance(found, Large) else found
                        for path, found in zip(part, tried, strict=True)
                    ]
                broken += [str(found) for found in results if isinstance(found, DataError)]
                if not broken:  # else go on only to name what else cannot be read
                    yield from (found for found in results if not isinstance(found, DataError | Large))
        if broken:
            more = f"; and {len(broken) - BROKEN} more" if len(broken) > BROKEN else ""
            raise DataError("; ".join(broken[:BROKEN]) + more)

    def select(self, rows: Sequence[int]) -> "ImageFiles":
        labels = None if self.labels is None else tuple(self.labels[row] for row in rows)
        return ImageFiles(tuple(self.paths[row] for row in rows), labels)

    def digest(self) -> str:
        return content_digest(self.paths, ["pictures", *(self.labels or ())])


@dataclass(frozen=True, slots=True)
class ImageArray:
    """Images in an array: image, row, column and, with colours, channel."""

    pixels: np.ndarray
    labels: tuple[str, ...] | None = None
    where: str = "array"

    def __post_init__(self) -> None:
        if self.labels is not None and len(self.labels) != len(self.pixels):
            raise DataError(f"{self.where} has {len(self.pixels)} images and {len(self.labels)} labels")

    @classmethod
    def of(cls, values: npt.ArrayLike, labels: npt.ArrayLike | None = None, where: str = "array") -> "ImageArray":
        """From whole numbers up to 255, or fractions up to 1; channels first, last, or none."""
        array = _bytes(np.asarray(values), where)
        if array.ndim == 3:
            array = array[..., None]
        elif array.ndim == 4 and array.shape[-1] not in (1, 3) and array.shape[1] in (1, 3):
            array = array.transpose(0, 2, 3, 1)
        if array.ndim != 4 or array.shape[-1] not in (1, 3) or not array.size:
            raise DataError(f"{where} has shape {np.shape(values)}; must be images, rows, columns and 1 or 3 channels")
        return cls(array, None if labels is None else _label_names(np.asarray(labels), where), where)

    @property
    def names(self) -> list[str]:
        return [f"{self.where}[{row}]" for row in range(len(self.pixels))]

    def read(self, channels: int, then: Callable[[Pixels], Made]) -> Iterator[Made]:
        for image in self.pixels:
            if image.shape[-1] == channels:
                yield then(image)
            elif channels == 3:
                yield then(image.repeat(3, axis=-1))
            else:  # how bright a colour looks
                yield then((image @ np.array([0.299, 0.587, 0.114])).round().astype(np.uint8)[..., None])

    def select(self, rows: Sequence[int]) -> "ImageArray":
        chosen = np.asarray(rows, dtype=np.int64)
        labels = None if self.labels is None else tuple(self.labels[row] for row in rows)
        return replace(self, pixels=self.pixels[chosen], labels=labels)

    def digest(self) -> str:
        digest = hashlib.sha256(json.dumps(["array", self.pixels.shape, *(self.labels or ())]).encode())
        digest.update(np.ascontiguousarray(self.pixels).data)
        return digest.hexdigest()


def copied(images: ImageSource, others: ImageSource) -> list[bool]:
    """Which of the images are among the others too: the same file, byte for byte, or the same pixels of an array."""
    if isinstance(images, ImageFiles) and isinstance(others, ImageFiles):
        # Most files differ in their size or at their beginning: few are read whole.
        begun = {path: _file_digest(path, BEGINNING) for path in (*images.paths, *others.paths)}
        alike = {begun[path] for path in images.paths} & {begun[path] for path in others.paths}
        whole = {_file_digest(path) for path in others.paths if begun[path] in alike}
        return [begun[path] in alike and _file_digest(path) in whole for path in images.paths]
    if isinstance(images, ImageArray) and isinstance(others, ImageArray):
        known = {_digest(one.tobytes()) for one in others.pixels}
        return [_digest(one.tobytes()) in known for one in images.pixels]
    return [False] * len(images.names)


def repeated(images: ImageSource) -> list[list[int]]:
    """Rows of images that are the same, the same file byte for byte or the same pixels of an array."""
    if isinstance(images, ImageFiles):
        begun = _rows_by([_file_digest(path, BEGINNING) for path in images.paths])
        alike = [row for rows in begun for row in rows]
        whole = _rows_by([_file_digest(images.paths[row]) for row in alike])
        return [[alike[place] for place in places] for places in whole]
    return _rows_by([_digest(one.tobytes()) for one in images.pixels]) if isinstance(images, ImageArray) else []


def _rows_by(digests: Sequence[bytes]) -> list[list[int]]:
    """The rows that have a digest in common with another."""
    rows: dict[bytes, list[int]] = {}
    for row, digest in enumerate(digests):
        rows.setdefault(digest, []).append(row)
    return [found for found in rows.values() if len(found) > 1]


BEGINNING = 4096
"""Bytes of a file by which it is told from others of its size."""


def _file_digest(path: Path, most: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            return _digest(b"%d " % path.stat().st_size + file.read(most))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def open_images(names: Sequence[str | Path], part: Part | None = None, *, labelled: bool = True) -> ImageSource | None:
    """The images of a folder, an `.npz`, or an `.npy` with one of labels; None where they have no such part.

    A folder of `train`, `valid` and `test`, or an `.npz` whose names say so, holds several parts; with `part=None` one
    that holds no parts is asked for. `labelled=False` takes images without classes, and single files too.
    """
    paths = [Path(name) for name in names]
    for path in paths:
        if not path.exists():
            raise DataError(f"no such file or folder: {path}")
    if all(path.suffix == ".npy" for path in paths) and len(paths) in ((2,) if labelled else (1,)):
        if part not in (None, "train"):
            return None
        labels = _load(paths[1]) if labelled else None
        return ImageArray.of(_load(paths[0]), labels, str(paths[0]))
    if len(paths) == 1 and paths[0].suffix == ".npz":
        return _archive(paths[0], part, labelled)
    if len(paths) == 1 and paths[0].is_dir() and labelled:
        return _folder(paths[0], part)
    if not labelled:
        return ImageFiles(tuple(file for path in paths for file in _inside(path)))
    shown = ", ".join(map(str, paths[:4]))
    raise DataError(f"images are in one folder, one .npz, or two .npy (images, then labels), not in: {shown}")


def parts_of(path: Path) -> bool:
    """Whether a folder holds parts, each with classes, rather than classes."""
    return any((path / name).is_dir() and _folders(path / name) for name in NAMES["train"])


def class_names(labels: Sequence[str]) -> tuple[str, ...]:
    """Every class once, in order: numbers as numbers, else by name."""
    found = set(labels)
    numbers = all(name.lstrip("-").isdigit() for name in found)
    return tuple(sorted(found, key=int) if numbers else sorted(found))


def _folder(path: Path, part: Part | None) -> ImageFiles | None:
    if part is not None and parts_of(path):
        found = [path / name for name in NAMES[part] if (path / name).is_dir()]
        if not found:
            return None
        path = found[0]
    elif part not in (None, "train"):
        return None
    files, labels = [], []
    for folder in _folders(path):
        inside = _inside(folder, required=False)
        files += inside
        labels += [folder.name] * len(inside)
    if not files:
        raise DataError(f"{path} has no sub-folders with images, one for each class; known: {', '.join(SUFFIXES)}")
    return ImageFiles(tuple(files), tuple(labels))


def _folders(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _inside(path: Path, *, required: bool = True) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(
        file
        for file in path.rglob("*")
        if file.suffix.lower() in SUFFIXES and not any(p.startswith(".") for p in file.relative_to(path).parts)
    )
    if required and not found:
        raise DataError(f"{path} holds no images; known kinds: {', '.join(SUFFIXES)}")
    return found


def _archive(path: Path, part: Part | None, labelled: bool) -> ImageArray | None:
    _check_members(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            keys = list(archive.files)
            split = any(_key(keys, IMAGES, name) for name in NAMES["train"])
            prefixes: tuple[str, ...] = NAMES[part] if split and part is not None else ("",)
            if not split and part not in (None, "train"):
                return None
            for prefix in prefixes:
                images, labels = _key(keys, IMAGES, prefix), _key(keys, LABELS, prefix)
                if images is not None and (labels is not None or not labelled):
                    named = archive[labels] if labels is not None else None
                    if named is not None and "classes" in keys and named.dtype.kind in "iu":
                        named = _named(named, archive["classes"], path)
                    return ImageArray.of(archive[images], named, str(path))
    except DataError:
        raise
    except Exception as error:  # of the archive, of what packed it, of an array's header, of the memory it claims
        raise DataError(f"{path} cannot be read: {error}") from None
    if split and part is not None and part != "train":
        return None
    wanted = "images and labels" if labelled else "images"
    raise DataError(f"{path} holds {', '.join(keys) or 'nothing'}; needs {wanted} (or train_images, test_images, ...)")


def _key(keys: Sequence[str], known: Sequence[str], prefix: str) -> str | None:
    """The name that an array has, such as `images`, `train_images` or `x_train`."""
    for name in known:
        for key in (f"{prefix}_{name}", f"{name}_{prefix}") if prefix else (name,):
            if key in keys:
                return key
    return None


def _load(path: Path) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False, mmap_mode="r")
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if array.nbytes > LARGEST_ARRAY:
        raise DataError(f"{path} holds {array.nbytes:,} bytes; {LARGEST_ARRAY:,} is the most")
    return array


def _check_members(path: Path) -> None:
    """Refuse an archive that would unpack to more than it should, before anything is unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if sum(sizes.values()) > LARGEST_ARRAY:
        raise DataError(f"{path} would unpack to {sum(sizes.values()):,} bytes; {LARGEST_ARRAY:,} is the most")


def _bytes(array: np.ndarray, where: str) -> np.ndarray:
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind not in "biuf":
        raise DataError(f"{where} holds {array.dtype}, not numbers")
    if array.dtype.kind == "b":
        return array.astype(np.uint8) * 255
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    largest = 1.0 if array.dtype.kind == "f" else 255
    if not (low >= 0 and high <= largest):
        kind = "fractions" if array.dtype.kind == "f" else "whole numbers"
        raise DataError(f"{where} has values from {low:g} to {high:g}; {kind} must be from 0 to {largest:g}")
    return (array * 255).round().astype(np.uint8) if array.dtype.kind == "f" else array.astype(np.uint8)


def _label_names(labels: np.ndarray, where: str) -> tuple[str, ...]:
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "iuU":
        found = f"{labels.dtype} of shape {labels.shape}"
        raise DataError(f"the labels of {where} are {found}; must be a row of whole numbers or names")
    return tuple(map(str, labels.tolist()))


def _named(labels: np.ndarray, classes: np.ndarray, path: Path) -> np.ndarray:
    if classes.dtype.kind != "U" or classes.ndim != 1:
        raise DataError(f"the classes of {path} must be a row of names")
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < len(classes):
        raise DataError(f"the labels of {path} run to {int(labels.max())}; it names {len(classes)} classes")
    return classes[labels]


def _tried(
    path: Path, channels: int, then: Callable[[Pixels], Made], *, several: bool = False
) -> Made | DataError | Large:
    try:
        return made_of(path, channels, then, several=several)
    except (DataError, Large) as error:
        return error


def check_pillow() -> None:
    """Refuse to go on where Pillow is missing."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise ConfigError(
            "reading images needs Pillow: pip install 'regard[images]'; arrays (.npy, .npz) do without it"
        ) from None


def read_image(path: Path, channels: int = 3) -> Pixels:
    """The pixels of a file, upright as its camera says, transparent parts on white, grey where `channels` is 1."""
    return made_of(path, channels, np.asarray)


def made_of(path: Path, channels: int, then: Callable[[Pixels], Made], *, several: bool = False) -> Made:
    """What `then` makes of the pixels of a file; raises `Large` where `several` are decoded at once and it has many."""
    try:
        return _decoded(path, str(path), channels, LARGEST, then, several)
    except FileNotFoundError:
        raise DataError(f"no such file: {path}") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder, not an image") from None


def decode_image(data: bytes, where: str, channels: int = 3, largest: int = LARGEST) -> Pixels:
    """The same of the bytes of a file, called `where`, with at most `largest` pixels."""
    return _decoded(io.BytesIO(data), where, channels, largest, np.asarray)


def _decoded(
    source: Path | io.BytesIO,
    where: str,
    channels: int,
    largest: int,
    then: Callable[[Pixels], Made],
    several: bool = False,
) -> Made:
    check_pillow()
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(source, formats=FORMATS) as image:
            width, height = image.size
            if width * height > largest:
                raise DataError(f"{where} has {width:,} x {height:,} pixels; {largest:,} in all is the most")
            if several and width * height > SEVERAL:
                raise Large
            ImageOps.exif_transpose(image, in_place=True)
            pixels = _array(image, "L" if channels == 1 else "RGB", where)
    except (DataError, Large, FileNotFoundError, IsADirectoryError):
        raise
    except Image.DecompressionBombError:  # Pillow's own limit, which is far beyond ours
        raise DataError(f"{where} has far more than {largest:,} pixels, which is the most") from None
    except UnidentifiedImageError:  # whose own words name an object
        known = ", ".join(FORMATS)
        raise DataError(f"{where} cannot be read as an image: it is none of the known kinds ({known})") from None
    except Exception as error:  # every format fails in its own way
        reason = str(error).splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"{where} cannot be read as an image: {reason}") from None
    return then(pixels)


def is_pillow(image: object) -> bool:
    """Whether an object is an image of Pillow's, which is not imported for that."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(image, module.Image)


def pillow_pixels(image, where: str) -> Pixels:
    """The pixels of an image that Pillow has opened, as those of its file would be read, in colour."""
    from PIL import ImageOps

    try:
        return _array(ImageOps.exif_transpose(image), "RGB", where)
    except OSError as error:  # a file that ends too early says so only now
        raise DataError(f"{where} cannot be read as an image: {error}") from None


def _array(image, mode: str, where: str) -> Pixels:
    """The pixels, converted in strips, so that what a conversion needs beside them stays small."""
    if image.mode == "F":
        raise DataError(f"{where} has floats for pixels, whose white nothing says: convert it to 8 or 16 bits")
    width, height = image.size
    found = np.empty((height, width, 1 if mode == "L" else 3), dtype=np.uint8)
    rows = max(1, STRIP // width)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        found[top:bottom] = _strip(image.crop((0, top, width, bottom)), mode, where)
    return found


def _strip(image, mode: str, where: str) -> Pixels:
    from PIL import Image

    if image.mode.startswith("I"):  # sixteen bits: the upper eight are what a screen shows
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise DataError(
                f"{where} has pixels from {values.min():,} to {values.max():,}, more than 16 bits hold: convert it"
            )
        image = Image.fromarray((values >> 8).astype(np.uint8))
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    pixels = np.asarray(image.convert(mode), dtype=np.uint8)
    return pixels[..., None] if pixels.ndim == 2 else pixels
