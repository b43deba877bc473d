"""What the columns of a file hold: texts, labels, lists of words; told from its first rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.formats import KNOWN, SECOND, format_of
from regard.data.images.image_files import SUFFIXES as IMAGES
from regard.data.inspection import Peek, peek

LABELS = ("label", "labels", "class", "category", "sentiment")
TEXTS = ("text", "sentence", "sentence1", "text1", "premise", "question1", "review", "title", "input")
MOST_LABELS = 60
ARRAYS = (".npy", ".npz")


@dataclass(frozen=True, slots=True)
class DataColumn:
    """A column: what it is called, by name or number, and what its cells are like."""

    key: str | int
    name: str
    values: tuple[Any, ...]

    @property
    def texts(self) -> list[str]:
        return [value for value in self.values if isinstance(value, str)]

    @property
    def textual(self) -> bool:
        return len(self.texts) > 0.9 * len(self.values)

    @property
    def lists(self) -> bool:
        return all(isinstance(value, list) for value in self.values)

    @property
    def label_like(self) -> bool:
        """Whether the cells are labels: short, few, and each many times."""
        plain = [str(value) for value in self.values if isinstance(value, str | int) and not isinstance(value, bool)]
        if len(plain) < 0.9 * len(self.values) or len(plain) < 4:
            return False
        distinct = {value.strip() for value in plain}
        short = sum(len(value.split()) for value in plain) <= 3 * len(plain)
        few = len(distinct) <= min(MOST_LABELS, max(2, len(plain) / 8))
        return short and few


def plain(path: Path) -> bool:
    """Whether a file is lines of text, as its name says."""
    return path.is_file() and format_of(path) == "lines" and path.suffix.lower() not in (*ARRAYS, *IMAGES)


def tabular(path: Path) -> bool:
    """Whether a file is a table or records."""
    return path.is_file() and format_of(path) != "lines"


def columns(path: Path) -> tuple[list[DataColumn], Peek]:
    """The columns of a file's first rows; a table's are numbered unless its first row names them."""
    found = peek(path)
    rows: Sequence[tuple[Any, ...]] = found.rows
    if not rows:
        return [], found
    names = found.names
    if found.format in ("tsv", "csv"):
        rows = [row for row in rows if any(cell.strip() for cell in row)]
        if not rows:
            return [], found
        first = [cell.strip() for cell in rows[0]]
        named = _names_columns(first, rows[1:])
        width = len(first)
        rows = [row for row in rows[named:] if len(row) == width]
        keys: list[str | int] = list(first) if named else list(range(1, width + 1))
        names = tuple(first) if named else ("",) * width
    else:
        keys = list(names)
    return [
        DataColumn(key, name, tuple(row[place] for row in rows))
        for place, (key, name) in enumerate(zip(keys, names, strict=True))
    ], found


def _names_columns(first: Sequence[str], others: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a first row names columns: by names that columns often have, or one such and others that never recur."""
    if len(set(first)) < len(first) or not all(cell.isidentifier() for cell in first):
        return False
    known = [cell.casefold() in KNOWN for cell in first]
    fresh = all(cell not in {row[place] for row in others if len(row) > place} for place, cell in enumerate(first))
    return all(known) or (any(known) and fresh)


def label_column(found: Sequence[DataColumn]) -> DataColumn | None:
    """The column of labels: the one that is called so, or the only one that looks like it, the last of several."""
    named = [column for column in found if column.name.casefold() in LABELS]
    if named:
        return named[0]
    like = [column for column in found if column.label_like]
    return like[-1] if like and len(like) < len(found) else None


def second_text(column: DataColumn) -> bool:
    return column.name.casefold() in SECOND
