"""Images with captions: tables of image files and texts, folders of images with texts beside them; and batches."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int, UInt8

from regard.data.batches import epoch_order, evaluation_order, padded
from regard.data.file_tables import file_rows, open_part, texts_beside
from regard.data.formats import Columns, Header, lines
from regard.data.images.augmentation import Floats, ImageRandom, augment, normalise
from regard.data.images.config import ImageConfig
from regard.data.images.image_files import SUFFIXES, ImageFiles, ImageSource, Part
from regard.data.pair_store import Rows
from regard.errors import DataError
from regard.nn.batch import CaptionedImages

Box = tuple[int, int, int, int]
"""Left, top, right, bottom, in pixels of an image; right and bottom are outside."""


@dataclass(frozen=True, slots=True)
class NounBoxes:
    """The characters of a caption that name objects, and the boxes of these."""

    start: int
    end: int
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Caption:
    """A caption whose nouns have known boxes."""

    text: str
    nouns: tuple[NounBoxes, ...]

    def scaled(self, by: int) -> "Caption":
        """The same of an image so many times as large."""
        return self.moved(lambda box: (by * box[0], by * box[1], by * box[2], by * box[3]))

    def moved(self, to: Callable[[Box], Box]) -> "Caption":
        nouns = (NounBoxes(one.start, one.end, tuple(map(to, one.boxes))) for one in self.nouns)
        return Caption(self.text, tuple(nouns))


@dataclass(frozen=True, slots=True)
class CaptionSource:
    """Images, and the captions of each: one or several, all equally right. `notes` are to be said once.

    `gold` is, for each image, one of its captions with the boxes of its nouns, or None; empty where none is known.
    """

    images: ImageSource
    captions: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    gold: tuple[Caption | None, ...] = ()

    def __post_init__(self) -> None:
        if len(self.images.names) != len(self.captions):
            raise DataError(f"{len(self.images.names)} images and captions of {len(self.captions)}")

    def select(self, chosen: Sequence[int]) -> "CaptionSource":
        captions = tuple(self.captions[row] for row in chosen)
        gold = tuple(self.gold[row] for row in chosen) if self.gold else ()
        return CaptionSource(self.images.select(chosen), captions, self.notes, gold)

    def with_gold(self) -> "CaptionSource":
        """Those images alone whose nouns have boxes."""
        return self.select([row for row, gold in enumerate(self.gold) if gold is not None and gold.nouns])


def open_captioned(
    name: str | Path,
    part: Part | None = None,
    *,
    keys: tuple[str | int, str | int] = ("image", "caption"),
    header: Header = "auto",
) -> CaptionSource | None:
    """The images and captions of a table or a folder; None where it has no such part.

    A table (`.tsv`, `.csv`, `.jsonl`, `.parquet`) has an image file, named from the table's own folder, and a caption
    in each row; rows of one image are its several captions. A `.jsonl` of its name beside it may have the boxes of
    nouns. A folder has such a table, `captions.tsv` say, or one for
    each part, `train.tsv`, `valid.tsv` and `test.tsv`; or else images, each with its captions, one per line, in a
    `.txt` of its name beside it.
    """
    return open_part(
        name,
        part,
        table=lambda path: _table(path, keys, header),
        folder=lambda path: open_captioned(path, keys=keys, header=header),
        whole=lambda path, tables: _table(tables["captions"], keys, header) if "captions" in tables else _beside(path),
    )


def _table(path: Path, keys: tuple[str | int, str | int], header: Header) -> CaptionSource:
    pairs, notes = file_rows(path, Columns(keys, ("data.image", "data.caption"), header), "an image", "a caption")
    found: dict[str, list[str]] = {}
    for image, caption in pairs:
        found.setdefault(image, []).append(caption)
    gold, said = _gold(path, found)
    return CaptionSource(
        ImageFiles(tuple(path.parent / name for name in found)),
        tuple(map(tuple, found.values())),
        (*notes, *said),
        gold,
    )


def _gold(table: Path, captions: Mapping[str, Sequence[str]]) -> tuple[tuple[Caption | None, ...], tuple[str, ...]]:
    """The boxes of nouns in the `.jsonl` beside a table, as `regard data scenes` writes it; and what to say of it."""
    path = table.with_suffix(".jsonl")
    if path == table or not path.is_file():
        return (), ()
    found: dict[str, Caption] = {}
    strange = 0
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{where} is not JSON: {error}") from None
        if not isinstance(record, dict) or "captions" not in record:
            return (), (f"{path} has no boxes of nouns in its line {number}, so none is read",)
        known = captions.get(record.get("image", ""), ())
        of = [one for one in _captions_of(record["captions"], where) if one.text in known]
        if of:
            found[record["image"]] = of[0]
        else:
            strange += 1
    notes = (f"{path}: {strange:,} lines are of no image and caption of {table.name}",) if strange else ()
    return tuple(map(found.get, captions)), notes


def _captions_of(given: Any, where: str) -> list[Caption]:
    try:
        return [
            Caption(
                one["text"],
                tuple(
                    NounBoxes(noun["start"], noun["end"], tuple(_box(box) for box in noun["boxes"]))
                    for noun in one["nouns"]
                    if 0 <= noun["start"] < noun["end"] <= len(one["text"]) and noun["boxes"]
                ),
            )
            for one in given
        ]
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f'{where}: "captions" must be a list of {{"text": ..., "nouns": [{{"start": 2, "end": 8, "boxes": '
            "[[left, top, right, bottom]]}]}, boxes in pixels"
        ) from None


def _box(given: Sequence[int]) -> Box:
    left, top, right, bottom = map(int, given)
    if not (left < right and top < bottom):
        raise ValueError
    return left, top, right, bottom


def _beside(path: Path) -> CaptionSource:
    tables = "captions.tsv, or train.tsv and its like"
    found, notes = texts_beside(path, SUFFIXES, "an image", "a caption", tables)
    return CaptionSource(ImageFiles(tuple(found)), tuple(map(tuple, found.values())), notes)


@runtime_checkable
class PixelRows(Protocol):
    """The pixels of images of one size, by their numbers: an array, or what renders them when they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> UInt8[np.ndarray, "N C Y X"]: ...


class CaptionLayout:
    """Batches of images with a caption each, captions of like length together, images changed as the settings say.

    An image with several captions comes once with each of them in an epoch.
    """

    def __init__(
        self,
        pixels: PixelRows,
        captions: Rows,
        of: Int[np.ndarray, " N"],
        config: ImageConfig,
        *,
        budget: int,
        seed: int,
        patches: int,
    ) -> None:
        self.pixels, self.captions, self.of, self.config = pixels, captions, of, config
        self.budget, self.seed, self.patches = budget, seed, patches

    def order(self, seed: int, epoch: int) -> list[Int[np.ndarray, "rows 2"]]:
        """Of each batch the captions and, beside each, the epoch, by which its image will be changed."""
        sizes = np.full(len(self.of), self.patches, dtype=np.int32)
        found = epoch_order(sizes, self.captions.lengths, budget=self.budget, seed=seed, epoch=epoch)
        return [np.stack((chosen, np.full_like(chosen, epoch)), axis=1) for chosen in found]

    def batch(self, rows: Int[np.ndarray, "rows 2"]) -> CaptionedImages:
        chosen, epoch = rows[:, 0], int(rows[0, 1])
        changed = augment(self.pixels[self.of[chosen]], self.config, ImageRandom(self.seed, epoch, chosen))
        return _batch(changed, self.captions, chosen, self.patches)


def caption_batches(
    pixels: PixelRows, captions: Rows, of: Int[np.ndarray, " N"], config: ImageConfig, *, budget: int, patches: int
) -> Iterator[CaptionedImages]:
    """Every caption once with its image as it is, shortest first."""
    sizes = np.full(len(of), patches, dtype=np.int32)
    least = patches + int(captions.lengths.max())
    for chosen in evaluation_order(sizes, captions.lengths, budget=max(budget, least)):
        yield _batch(normalise(pixels[of[chosen]], config), captions, chosen, patches)


def _batch(pixels: Floats, captions: Rows, rows: np.ndarray, patches: int) -> CaptionedImages:
    count = int(captions.lengths[rows].sum()) - len(rows)
    return CaptionedImages(pixels, padded(captions, rows), count, patches)
