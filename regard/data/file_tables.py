"""Files with texts: tables that name a file in each row, folders of such tables, and files with a text beside each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from regard.data.formats import Columns, format_of, lines, notes_on, rows
from regard.errors import DataError

Part = Literal["train", "valid", "test"]
Opened = TypeVar("Opened")

TABLES = (".tsv", ".csv", ".jsonl", ".parquet")
PART_NAMES: dict[str, tuple[str, ...]] = {
    "train": ("train",),
    "valid": ("valid", "val", "validation", "dev"),
    "test": ("test",),
}
"""What the tables or folders of a part may be called."""


def open_part(
    name: str | Path,
    part: Part | None,
    *,
    table: Callable[[Path], Opened],
    folder: Callable[[Path], Opened | None],
    whole: Callable[[Path, Mapping[str, Path]], Opened],
) -> Opened | None:
    """A table, or the part of a folder; None where it has no such part.

    A folder has a table for each part, or a `folder` for each; else it is the `whole` of the training data, with the
    tables that it has by name.
    """
    path = Path(name)
    if not path.exists():
        raise DataError(f"no such file or folder: {path}")
    if not path.is_dir():
        return table(path) if part in (None, "train") else None
    tables = {one.stem: one for suffix in reversed(TABLES) for one in path.glob(f"*{suffix}")}
    named = PART_NAMES[part or "train"]
    if any(stem in tables for stem in PART_NAMES["train"]):
        found = [tables[stem] for stem in named if stem in tables]
        return table(found[0]) if found else None
    if any((path / stem).is_dir() for stem in PART_NAMES["train"]):
        folders = [path / stem for stem in named if (path / stem).is_dir()]
        return folder(folders[0]) if folders else None
    return whole(path, tables) if part in (None, "train") else None


def file_rows(path: Path, columns: Columns, file: str, text: str) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """The file and the text of each row that has both, and what to say of the table; `file` and `text` are what they
    are called, with their article: `an image`, `a caption`."""
    format, (one, other) = format_of(path), (file.partition(" ")[2], text.partition(" ")[2])
    if format == "lines":
        raise DataError(f"{path}: {one}s and {other}s are in a {', '.join(TABLES)} file, or in a folder")
    every = list(rows(path, format, columns))
    found = [(name, said) for name, said in every if name.strip() and said.strip()]
    if not found:
        raise DataError(f"{path} has no {one} with {text}")
    missing = [name for name in dict.fromkeys(name for name, _ in found) if not (path.parent / name).is_file()]
    if missing:
        more = f", and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise DataError(f"{path} names {path.parent / missing[0]}, which is no file{more}")
    notes = notes_on(path, format, columns)
    if blank := len(every) - len(found):
        notes = (*notes, f"{path}: {blank:,} rows without {file} or {text} are skipped")
    return found, tuple(notes)


def texts_beside(
    path: Path, suffixes: Iterable[str], file: str, text: str, tables: str
) -> tuple[dict[Path, Sequence[str]], tuple[str, ...]]:
    """The files of a folder with the lines of the `.txt` beside each, and what to say of those that have none."""
    files = sorted(one for one in path.rglob("*") if one.suffix.lower() in suffixes)
    found = {}
    for one in files:
        beside = one.with_suffix(".txt")
        if beside.is_file() and (said := tuple(line for line in lines(beside) if line.strip())):
            found[one] = said
    name, said = file.partition(" ")[2], text.partition(" ")[2]
    if not found:
        raise DataError(
            f"{path} has no {said}s: neither a table ({tables}) nor {file} with a .txt of its name beside it"
        )
    left = len(files) - len(found)
    return found, (f"{path}: {left:,} {name}s without {text} are left out",) if left else ()
