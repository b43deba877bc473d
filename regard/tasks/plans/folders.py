"""Folders of texts and tables: which of their files are to train on, for validation and for testing, and which are not
read."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.data.audio.sound import SUFFIXES as SOUNDS
from regard.data.file_names import inner_suffix
from regard.data.formats import COMPRESSED, Columns, first_layout, format_of
from regard.data.images.image_files import SUFFIXES as IMAGES
from regard.data.labelled_texts import TEXT_PARTS
from regard.data.shards import TABLES
from regard.errors import DataError
from regard.tasks.plans.columns import ARRAYS, all_columns

RECORDS = ("jsonl", "parquet")

_ABOUT = re.compile(r"(readme|licen[cs]e|citation|changelog)\b.*|dataset_infos?\.json|state\.json", re.IGNORECASE)
"""Files that are about data, and none themselves."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Files and folders of each part of a folder, and those of no part, or of a kind that training does not have."""

    folder: Path
    files: Mapping[str, tuple[Path, ...]]
    passed_over: tuple[str, ...] = ()
    aligned: bool = False
    """Whether the two files of each part are line-aligned, in the order of their names."""

    def names(self, part: str) -> tuple[str, ...]:
        return tuple(map(str, self.files.get(part, ())))

    @property
    def line(self) -> str:
        """Which files are for what."""
        uses = {"train": "to train on", "valid": "for validation", "test": "for testing"}
        said = {
            part: listed(self.files[part], " to " if self.aligned else ", ") for part in uses if self.files.get(part)
        }
        return "; ".join(f"{names} {uses[part]}" for part, names in said.items())

    def with_columns(self, data: Mapping[str, Any]) -> "Parts":
        """Without tables for validation or testing that cannot be read by these settings, as those of a contest, which
        have no labels."""
        keys = {f"data.{name}": key for name, key in data.items() if isinstance(key, str | int)}
        kept, left = dict(self.files), list(self.passed_over)
        for part in ("valid", "test"):
            wrong = {
                file: missing
                for file in self.files.get(part, ())
                if file.is_file() and inner_suffix(file) in TABLES and (missing := _missing(file, keys))
            }
            kept[part] = tuple(file for file in self.files.get(part, ()) if file not in wrong)
            left += [f"{file.name} ({missing})" for file, missing in wrong.items()]
        return replace(self, files=kept, passed_over=tuple(left))

    def without(self, given: Mapping[str, Sequence[str]]) -> "Parts":
        """Without those parts that were given otherwise."""
        others = {part: files for part, files in self.files.items() if part in given}
        known = {Path(name).resolve() for names in given.values() for name in names}
        left = [
            f"{file.name} (others were given)"
            for files in others.values()
            for file in files
            if file.resolve() not in known
        ]
        kept = {part: files for part, files in self.files.items() if part not in given}
        return replace(self, files=kept, passed_over=(*self.passed_over, *left))


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
    two = _two_kinds(found["train"])
    chosen = {part: _two(files, two) for part, files in found.items()} if two else _alike(found)
    chosen = {part: files for part, files in chosen.items() if files}
    if len(chosen) < 2 or _with_media(folder):
        return None
    read = {file for files in chosen.values() for file in files}
    return Parts(folder, chosen, tuple(entry.name for entry in entries if entry not in read), aligned=bool(two))


def tables_in(folder: Path) -> list[Path]:
    """The tables or records that a folder holds and nothing else; none where it holds other data too."""
    found: list[Path] = []
    for file in folder.rglob("*"):
        if file.name.startswith(".") or _ABOUT.fullmatch(file.name) or not file.is_file():
            continue
        if inner_suffix(file) not in TABLES:
            return []
        found.append(file)
    return sorted(found)


def _part(entry: Path) -> str | None:
    """The part that a name says, and only one."""
    words = {*re.split(r"[^a-z]+", entry.name.lower())}
    said = [part for part, names in TEXT_PARTS.items() if words & {*names}]
    return said[0] if len(said) == 1 else None


def _with_media(folder: Path) -> bool:
    """Whether images, sounds or arrays are below it, which tables then are about."""
    kinds = (*IMAGES, *SOUNDS, *ARRAYS)
    return any(file.suffix.lower() in kinds and file.is_file() for file in folder.rglob("*"))


def _of_texts(entry: Path) -> bool:
    """Whether it is a file of texts, or a folder of such; a folder of folders has classes."""
    files = [entry] if entry.is_file() else [one for one in entry.iterdir() if not one.name.startswith(".")]
    return bool(files) and not any(file.is_dir() or inner_suffix(file) in (*IMAGES, *ARRAYS) for file in files)


def _two_kinds(train: Sequence[Path]) -> tuple[str, ...]:
    """The endings of two files that differ in these alone, as line-aligned ones do."""
    kinds = tuple(sorted({inner_suffix(file) for file in train}))
    aligned = len(kinds) == len(train) == 2 and len({_stem(file) for file in train}) == 1
    others = {*TABLES, ".txt", ".md", ".json"}
    return kinds if aligned and all(file.is_file() for file in train) and not others & {*kinds} else ()


def _alike(found: Mapping[str, Sequence[Path]]) -> dict[str, tuple[Path, ...]]:
    """Of each part what is of the kind that is trained on: folders, tables or texts."""
    train = found["train"]
    if all(entry.is_dir() for entry in train):
        return {part: tuple(one for one in entries if one.is_dir()) for part, entries in found.items()}
    kinds = [inner_suffix(entry) for entry in train if entry.is_file()]
    kind = next((one for one in TABLES if one in kinds), kinds[0])
    chosen = {
        part: tuple(one for one in entries if one.is_file() and inner_suffix(one) == kind)
        for part, entries in found.items()
    }
    for part, entries in found.items():  # tables of another format have the same columns
        if not chosen[part] and kind in TABLES:
            chosen[part] = tuple(one for one in entries if one.is_file() and inner_suffix(one) in TABLES)
    return chosen


def _two(entries: Sequence[Path], kinds: Sequence[str]) -> tuple[Path, ...]:
    """The first two files that differ in these endings alone."""
    named: defaultdict[str, dict[str, Path]] = defaultdict(dict)
    for entry in entries:
        named[_stem(entry)][inner_suffix(entry)] = entry
    return next((tuple(one[kind] for kind in kinds) for one in named.values() if {*kinds} <= {*one}), ())


def _stem(file: Path) -> str:
    return Path(file.stem).stem if file.suffix.lower() in COMPRESSED else file.stem


def _missing(file: Path, keys: Mapping[str, str | int]) -> str:
    """What is wrong with a table that has not the columns that settings name, as its reader has it."""
    format, found = format_of(file), all_columns(file)[0]
    known = [str(column.key) for column in found if column.name] + [column.parent for column in found]
    strict = {"data.label"} if format in ("tsv", "csv") and any(known) else {*keys} if format in RECORDS else set()
    if lacks := [
        f"'{key}'" for name, key in keys.items() if name in strict and isinstance(key, str) and key not in known
    ]:
        return f"it has no {', '.join(lacks)}"
    if format in ("tsv", "csv") and keys:
        try:  # a text may be called otherwise
            first_layout(file, format, Columns(tuple(keys.values()), tuple(keys)))
        except DataError:
            return f"its columns are others: {', '.join(filter(None, known)) or len(found)}"
    return ""


def listed(files: Sequence[Path], mark: str = ", ") -> str:
    """The first names, and how many more."""
    names = [file.name for file in files]
    return mark.join(names[:3]) + f" and {len(names) - 3:,} more" * (len(names) > 3)
