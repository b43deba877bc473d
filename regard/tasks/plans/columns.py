"""What the columns of a file hold: texts, labels, lists of words; told from its first rows."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.formats import KNOWN, SECOND, format_of, unnamed_index
from regard.data.images.image_files import SUFFIXES as IMAGES
from regard.data.inspection import NUMBER, Peek, peek
from regard.data.readers import SUFFIXES

LABELS = ("label", "labels", "class", "category", "sentiment")
TEXTS = ("text", "sentence", "sentence1", "text1", "premise", "question1", "review", "title", "input")
IDS = ("id", "idx", "index", "guid", "uid", "row", "_id")
MOST_LABELS = 60
FEWEST_ROWS = 8
"""By which it is told that a first row is not like them."""
_IDS = re.compile(r"([A-Za-z]*)[-_:#]?\d+"), re.compile(r"()[0-9a-fA-F-]{16,}")
"""Ids: numbers with letters before them, or digests."""
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
    def numeric(self) -> bool:
        """Whether the cells are numbers, as ids and scores are."""
        return bool(self.values) and all(
            (isinstance(value, int | float) and not isinstance(value, bool))
            or (isinstance(value, str) and NUMBER.fullmatch(value.strip()) is not None)
            for value in self.values
        )

    @property
    def numbering(self) -> bool:
        """Whether the cells number the rows: whole numbers or ids such as T-0012, no two alike, or called so."""
        if self.name.casefold() in IDS and not self.lists:
            return True
        cells = [str(value).strip() for value in self.values if isinstance(value, str | int)]
        if not len({*cells}) == len(self.values) > 3:
            return False
        found = [[form.fullmatch(cell) for cell in cells] for form in _IDS]
        return any(all(ids) and len({one and one[1] for one in ids}) == 1 for ids in found)

    @property
    def codes(self) -> bool:
        """Whether the cells are codes, as of products and users: single words of letters and digits."""
        coded = sum(
            len(text.split()) == 1 and any(map(str.isdigit, text)) and any(map(str.isalpha, text))
            for text in self.texts
        )
        return coded > 0.9 * len(self.values)

    @property
    def title(self) -> str:
        return self.name or f"column {self.key}"

    @property
    def kind(self) -> str:
        """What the cells are, in a word."""
        if not self.values:
            return "nothing"
        if self.numeric:
            return "numbers"
        if self.label_like:
            return "labels"
        if self.textual:
            return "texts"
        kinds = {list: "lists", dict: "objects", bool: "true or false", type(None): "nothing", int: "numbers"}
        found = Counter(kinds.get(type(value), "values") for value in self.values)
        return found.most_common(1)[0][0]

    @property
    def label_like(self) -> bool:
        """Whether the cells are labels: short, few, and each many times."""
        plain = [str(value) for value in self.values if isinstance(value, str | int | float)]
        if len(plain) < 0.9 * len(self.values) or len(plain) < 4:
            return False
        distinct = {value.strip() for value in plain}
        if distinct == {""}:
            return False
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
    """The columns of a file's first rows that tell what it is for: not those that number its rows, beside two others or
    by their name."""
    found, seen = all_columns(path)
    kept = [column for column in found if not column.numbering]
    named = all(column.name.casefold() in IDS or column.key == "" for column in found if column.numbering)
    return (kept if kept and (len(kept) > 1 or named) else found), seen


def all_columns(path: Path) -> tuple[list[DataColumn], Peek]:
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


MARKS = {"tsv": (" ||| ", "|", ";"), "csv": ("\t", ";", "|")}
"""What may separate the columns of a table where it is not what its name says."""


def separated(seen: Peek) -> str:
    """What seems to separate the columns of a table that has one by its name; empty where nothing does."""
    rows = [row for row in seen.rows if len(row) == 1 and str(row[0]).strip()]
    if seen.format not in MARKS or len(rows) < max(1, 0.9 * len(seen.rows)):
        return ""
    return next((mark for mark in MARKS[seen.format] if all(mark in row[0] for row in rows)), "")


def described(path: Path) -> str:
    """What was seen in a file or folder that no task takes for its own, and what may be done about it."""
    if path.is_dir():
        kinds = Counter(file.suffix.lower() or "no suffix" for file in path.rglob("*") if file.is_file())
        listed = ", ".join(f"{count:,} of {kind}" for kind, count in kinds.most_common(4)) or "no files"
        hint = (
            "images to classify stand in a folder for each class"
            if {*kinds} & {*IMAGES}
            else f"of a folder files that end in {', '.join(SUFFIXES)} are read, or tables where all are tables: "
            f"rename the files, or name those to read with --data"
        )
        return f"a folder with {listed}; {hint}"
    found, seen = all_columns(path)
    if not found:
        return "it has no rows; give another file"
    widths = Counter(len(row) for row in seen.rows if any(str(cell).strip() for cell in row))
    if seen.format in ("tsv", "csv") and len(widths) > 1:
        listed = ", ".join(f"{count:,} of {width}" for width, count in widths.most_common(3))
        return f"its rows have different numbers of columns ({listed}); give all as many"
    if mark := separated(seen):
        wanted = "tabs" if seen.format == "tsv" else "commas"
        return f"it has one column, whose cells all hold {mark!r}; separate columns by {wanted}"
    if not found[0].values:
        return f"it names columns ({', '.join(column.name for column in found)}) and has no rows; give another file"
    shown = [f"{column.title}: {column.kind}" for column in found[:8]]
    what = f"it has {len(found)} column{'s' * (len(found) != 1)} ({', '.join(shown)}{', ...' * (len(found) > 8)})"
    if len(found) == 1:
        return f"{what}; give texts, and what belongs to each, columns of their own"
    texts = [column.key for column in found if column.kind == "texts"]
    one, other = (texts[0], texts[-1]) if len(texts) > 1 else (found[0].key, found[1].key)
    return f"{what}; name columns, as --set data.source={one} --set data.target={other}, or data.text and data.label"


def _names_columns(first: Sequence[str], others: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a first row names columns: by names that columns often have, by one such and others that never recur, or
    by what is below them."""
    if unnamed_index(first):
        if not others or not all(row[0].strip().isdigit() for row in others):
            return False
        first, others = first[1:], [row[1:] for row in others]
    if len(set(first)) < len(first) or not all(word.isidentifier() for cell in first for word in cell.split() or "?"):
        return False
    known = [cell.casefold() in KNOWN for cell in first]
    fresh = all(cell not in {row[place] for row in others if len(row) > place} for place, cell in enumerate(first))
    return all(known) or (
        fresh and ((any(known) and all(map(str.isidentifier, first))) or _above_others(first, others))
    )


def _above_others(first: Sequence[str], others: Sequence[tuple[Any, ...]]) -> bool:
    """Whether words of a first row stand above what they may name: numbers, ids or labels, and texts that are longer.

    Texts alone do not tell: the first of them may be short.
    """
    rows = [row for row in others if len(row) == len(first)]
    told = 0
    for place, cell in enumerate(first):
        column = DataColumn(place + 1, "", tuple(row[place] for row in rows))
        words = [text.split() for text in column.texts]
        if column.codes and any(map(str.isdigit, cell)):
            return False
        if (
            column.codes
            or column.label_like
            or column.numbering
            or not any(word.isidentifier() for text in words for word in text)
        ):
            told += 1
        elif sum(map(len, words)) <= 2 * len(cell.split()) * len(words):
            return False
    return told > 0 and len(rows) >= FEWEST_ROWS


def label_column(found: Sequence[DataColumn]) -> DataColumn | None:
    """The column of labels: the one that is called so, or the only one that looks like it, the last of several."""
    named = [column for column in found if column.name.casefold() in LABELS]
    if named:
        return named[0]
    like = [column for column in found if column.label_like]
    # Truth values are often marks of something else, beside labels that have names.
    like.sort(key=lambda column: not any(isinstance(value, bool) for value in column.values))
    return like[-1] if like and len(like) < len(found) else None


def second_text(column: DataColumn) -> bool:
    return column.name.casefold() in SECOND
