"""Folders of texts and tables: which of their files are to train on, for validation and for testing, and which are not
read."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from regard.data.file_names import inner_suffix
from regard.data.formats import COMPRESSED
from regard.data.images.image_files import SUFFIXES as IMAGES
from regard.data.shards import TABLES
from regard.tasks.plans.columns import ARRAYS, all_columns

PARTS = {"train": ("train", "training"), "valid": ("valid", "val", "validation", "dev"), "test": ("test",)}
"""What files and folders of a part are called, beside digits and other words: `train-00000-of-00002.parquet`."""

_ABOUT = re.compile(r"(readme|licen[cs]e|citation|changelog)\b.*|dataset_infos?\.json|state\.json", re.IGNORECASE)
"""Files that are about data, and none themselves."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Files and folders of each part of a folder, and those of no part, or of a kind that training does not have."""

    folder: Path
    files: Mapping[str, tuple[Path, ...]]
    passed_over: tuple[str, ...] = ()

    def names(self, part: str) -> tuple[str, ...]:
        return tuple(map(str, self.files.get(part, ())))

    @property
    def line(self) -> str:
        """Which files are for what."""
        uses = {"train": "to train on", "valid": "for validation", "test": "for testing"}
        return "; ".join(f"{listed(self.files[part])} {use}" for part, use in uses.items() if self.files.get(part))

    def with_columns(self, keys: Sequence[str | int]) -> "Parts":
        """Without tables for validation or testing that lack one of these columns, as those of a contest do."""
        kept, left = dict(self.files), list(self.passed_over)
        for part in ("valid", "test"):
            for file in self.files.get(part, ()):
                if file.is_file() and inner_suffix(file) in TABLES and (missing := _missing(file, keys)):
                    kept.pop(part, None)
                    left.append(f"{file.name} (it has no {missing})")
        return replace(self, files=kept, passed_over=tuple(left))


def parts_in(folder: Path) -> Parts | None:
    """The parts of a folder whose files, or folders of files, are called after them; None where there are none."""
    inside = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    entries = [entry for entry in inside if entry.is_dir() or not _ABOUT.fullmatch(entry.name)]
    if len(entries) == 1 and entries[0].is_dir() and _part(entries[0]) is None:
        return parts_in(entries[0])
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for entry in entries:
        if (part := _part(entry)) and _of_texts(entry):
            found[part].append(entry)
    if "train" not in found:
        return None
    chosen = _alike(found)
    if len(chosen) < 2:
        return None
    read = {file for files in chosen.values() for file in files}
    return Parts(folder, chosen, tuple(entry.name for entry in entries if entry not in read))


def tables_in(folder: Path) -> list[Path]:
    """The tables or records that a folder holds and nothing else; none where it holds other data too."""
    inside = sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
    files = [file for file in inside if not _ABOUT.fullmatch(file.name)]
    return files if files and all(inner_suffix(file) in TABLES for file in files) else []


def _part(entry: Path) -> str | None:
    """The part that a name says, and only one."""
    words = {*re.split(r"[^a-z]+", entry.name.lower())}
    said = [part for part, names in PARTS.items() if words & {*names}]
    return said[0] if len(said) == 1 else None


def _of_texts(entry: Path) -> bool:
    """Whether it is a file of texts, or a folder of such; a folder of folders has classes."""
    files = [entry] if entry.is_file() else [one for one in entry.iterdir() if not one.name.startswith(".")]
    return bool(files) and not any(file.is_dir() or inner_suffix(file) in (*IMAGES, *ARRAYS) for file in files)


def _alike(found: Mapping[str, Sequence[Path]]) -> dict[str, tuple[Path, ...]]:
    """Of each part what is of the kind that is trained on: folders, tables, two line-aligned files, or texts."""
    train = found["train"]
    if all(entry.is_dir() for entry in train):
        return {part: tuple(one for one in entries if one.is_dir()) for part, entries in found.items()}
    train = [entry for entry in train if entry.is_file()]
    kinds = sorted({inner_suffix(file) for file in train})
    aligned = len(kinds) == len(train) == 2 and len({_stem(file) for file in train}) == 1
    if aligned and not {*kinds} & {*TABLES, ".txt", ".md", ".json"}:
        chosen = {part: _two(entries, kinds) for part, entries in found.items()}
    else:
        kind = next((one for one in TABLES if one in kinds), inner_suffix(train[0]))
        chosen = {
            part: tuple(one for one in entries if one.is_file() and inner_suffix(one) == kind)
            for part, entries in found.items()
        }
    return {part: files for part, files in chosen.items() if files}


def _two(entries: Sequence[Path], kinds: Sequence[str]) -> tuple[Path, ...]:
    """The first two files that differ in these endings alone."""
    named: defaultdict[str, dict[str, Path]] = defaultdict(dict)
    for entry in entries:
        named[_stem(entry)][inner_suffix(entry)] = entry
    return next((tuple(one[kind] for kind in kinds) for one in named.values() if {*kinds} <= {*one}), ())


def _stem(file: Path) -> str:
    return Path(file.stem).stem if file.suffix.lower() in COMPRESSED else file.stem


def _missing(file: Path, keys: Sequence[str | int]) -> str:
    """Which of these columns a table lacks."""
    found, _ = all_columns(file)
    known = {column.key for column in found} | {*range(1, len(found) + 1)}
    return ", ".join(f"column {key}" for key in keys if key not in known)


def listed(files: Sequence[Path]) -> str:
    """The first names, and how many more."""
    names = [file.name for file in files]
    return ", ".join(names[:3]) + f" and {len(names) - 3:,} more" * (len(names) > 3)
