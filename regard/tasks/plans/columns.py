"""What the columns of a file hold: texts, labels, lists of words; told from its first rows."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.formats import KNOWN, SECOND, format_of, unnamed_index
from regard.data.images.image_files import SUFFIXES as IMAGES
from regard.data.inspection import NUMBER, Peek, peek, side_statistics
from regard.data.record_keys import PATH, inner_names, inner_value

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
    parent: str = ""
    """What the object is called that holds it, if one does."""

    @property
    def texts(self) -> list[str]:
        return [value for value in self.values if isinstance(value, str)]

    @property
    def textual(self) -> bool:
        """Whether the cells are texts, those aside that a few rows have not."""
        there = sum(value is not None for value in self.values)
        return 2 * there > len(self.values) and len(self.texts) > 0.9 * there

    @property
    def blank(self) -> bool:
        return all(value is None or (isinstance(value, str) and not value.strip()) for value in self.values)

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
        return str(self.key) if self.name else f"column {self.key}"

    @property
    def kind(self) -> str:
        """What the cells are, in a word."""
        if self.blank:
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
        if 2 * sum(not value.strip() for value in plain) > len(plain):
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
    every, seen = all_columns(path)
    # What is inside objects is mostly about a row, unless it is called a label, or there is nothing else.
    outer = [column for column in every if not column.parent or column.name.casefold() in LABELS]
    found = outer if any(column.textual and not column.parent and not column.numbering for column in outer) else every
    found = [column for column in found if not column.blank] or found
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
        named = [(name, [row[place] for row in rows]) for place, name in enumerate(names)]
        return [column for name, values in named for column in _inside(name, values)], found
    return [
        DataColumn(key, name, tuple(row[place] for row in rows))
        for place, (key, name) in enumerate(zip(keys, names, strict=True))
    ], found


def _inside(name: str, values: Sequence[Any]) -> Iterator[DataColumn]:
    """The column of records under a name; of objects one for each of their keys."""
    for path in inner_names(name, values):
        inner = path != name
        cells = tuple(inner_value(value, name, path) for value in values)
        yield DataColumn(path, path.removeprefix(f"{name}{PATH}") if inner else name, cells, name if inner else "")


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


DATES = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}")
_FRACTION = re.compile(r"[-+]?\d*[.,]\d*[1-9]\d*(e[-+]?\d+)?", re.IGNORECASE)


def free_numbers(column: DataColumn) -> bool:
    """Whether the cells are numbers or dates of too many values to be labels: for a column that is called a label only
    where they have fractions, since labels may be many and numbered."""
    cells = [str(value).strip() for value in column.values if value not in (None, "")]
    if column.label_like or len(cells) < FEWEST_ROWS or len(cells) < 0.9 * len(column.values):
        return False
    if not (column.numeric or all(map(DATES.fullmatch, cells))):
        return False
    if column.name.casefold() not in LABELS:
        return True
    fractions = sum(_FRACTION.fullmatch(cell) is not None for cell in cells)
    return fractions > 0.2 * len(cells) and len({*cells}) > min(MOST_LABELS, 0.5 * len(cells))


def told_in(texts: DataColumn, numbers: DataColumn) -> bool:
    """Whether numbers may follow from texts by a rule, as sums and dates that are written otherwise do: they share
    digits with their texts, or these have few words beside numbers."""
    rows = [(text, str(number)) for text, number in zip(texts.values, numbers.values, strict=True) if text]
    shared = sum(bool({*_DIGITS.findall(text)} & {*_DIGITS.findall(number)}) for text, number in rows)
    words = side_statistics([_DIGITS.sub("0", text) for text, _ in rows])
    return shared > 0.5 * len(rows) or words.distinct_words <= max(3, 0.05 * words.words)


def regression(found: Sequence[DataColumn]) -> bool:
    """Whether these columns are a text and numbers or dates that only a measurement could tell."""
    numbers = [column for column in found if free_numbers(column)]
    texts = [column for column in found if column.textual and column not in numbers]
    return len(found) == 2 and len(texts) == len(numbers) == 1 and not told_in(texts[0], numbers[0])


_DIGITS = re.compile(r"\d+")


def second_text(column: DataColumn) -> bool:
    return column.name.casefold() in SECOND
