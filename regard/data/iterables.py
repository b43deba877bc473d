"""Rows that Python gives, as a file to train from: lists, generators, frames, and what the `datasets` library yields.

They are written once, as JSONL, and from then on are a file like any other: a run resumes from it, several processes
read it, a generator is never asked twice, and memory does not grow with it.
"""

import gzip
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import DataError

DEFAULT_COLUMNS: dict[int, tuple[str, ...]] = {1: ("text",), 2: ("source", "target")}
"""What rows without names are taken for, by how many values they have."""


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """A file of rows: how many, and the names of their columns."""

    path: Path
    rows: int
    columns: tuple[str, ...]


def is_rows(data: object) -> bool:
    """Whether this gives rows: it can be iterated or called, and is no file name, nor a list or tuple of file names.

    A list of strings is names of files where its first is the name of a file, folder or pattern, else texts.
    """
    if isinstance(data, (str, bytes, os.PathLike)) or data is None:
        return False
    if isinstance(data, Sequence) and data and all(isinstance(one, (str, os.PathLike)) for one in data):
        from regard.data.file_names import is_there

        return not any(isinstance(one, os.PathLike) or is_there(str(one)) for one in data[:1])
    frame = any(callable(getattr(data, name, None)) for name in ("itertuples", "iter_rows", "to_batches"))
    return frame or isinstance(data, Iterable) or callable(data)


def write_rows(
    data: object, path: Path, *, columns: Sequence[str] = (), progress: Callable[[int], None] | None = None
) -> WrittenRows:
    """Every row of `data` as a line of JSON in `path`, which then is a file to train from.

    `data` gives mappings, tuples or lists whose values `columns` names, or plain texts; it may be a function without
    arguments that returns them, a frame of pandas or polars, a table of pyarrow, or a `Dataset` or `IterableDataset` of
    the `datasets` library. All rows must have the same columns; their values are text, numbers, lists or nothing.
    The file is written aside and renamed, so it is there whole or not at all; one that ends in `.gz` is compressed.
    `progress` is called with the number of rows so far.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.partial")
    count, known = 0, tuple[str, ...]()
    try:
        with gzip.open(aside, "wb", 3) if path.suffix == ".gz" else aside.open("wb") as file:
            for count, record in enumerate(records(data, columns), 1):
                if not known:
                    known = tuple(record)
                elif tuple(record) != known and set(record) != set(known):
                    raise DataError(f"row {count} has the columns {_listed(record)}, the first row {_listed(known)}")
                file.write(_line(record, count))
                if progress is not None and count % 1000 == 0:
                    progress(count)
            if not count:
                raise DataError("there are no rows to train on: what was given yields none")
            file.flush()
        with aside.open("r+b") as written:
            os.fsync(written.fileno())
        os.replace(aside, path)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        aside.unlink(missing_ok=True)
    return WrittenRows(path, count, known)


def records(data: object, columns: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Every row as a mapping from the names of its columns."""
    for number, row in enumerate(_iterated(data), 1):
        yield _record(row, columns, number)


def _iterated(data: object) -> Iterator[Any]:
    """The rows of whatever gives rows."""
    if isinstance(data, Mapping):
        if all(isinstance(one, (list, tuple)) for one in data.values()) and data:
            return _of_columns(data)
        splits = ", ".join(map(str, data))
        raise DataError(f"give the rows of one split, not a mapping of them: data[...] with one of {splits}")
    if callable(getattr(data, "itertuples", None)):  # a frame of pandas
        names = [str(name) for name in getattr(data, "columns", ())]
        return (dict(zip(names, row, strict=True)) for row in data.itertuples(index=False, name=None))  # type: ignore[attr-defined]
    if callable(getattr(data, "iter_rows", None)):  # of polars
        return iter(data.iter_rows(named=True))  # type: ignore[attr-defined]
    if callable(getattr(data, "to_batches", None)):  # a table of pyarrow
        return (row for batch in data.to_batches(max_chunksize=1024) for row in batch.to_pylist())  # type: ignore[attr-defined]
    if callable(data) and not isinstance(data, Iterable):
        return _iterated(data())
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise DataError(f"rows are given as an iterable of them, such as a list, not as {type(data).__name__}")
    return iter(data)


def _of_columns(data: Mapping[Any, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a mapping from names to columns of values."""
    lengths = {str(name): len(column) for name, column in data.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise DataError(f"columns of one table are equally long, not {said}")
    return (dict(zip(lengths, row, strict=True)) for row in zip(*data.values(), strict=True))


def _record(row: Any, columns: Sequence[str], number: int) -> dict[str, Any]:
    if isinstance(row, str):
        row = (row,)
    if isinstance(row, Mapping):
        # As corpora of translations are kept: {"translation": {"en": ..., "fr": ...}}.
        inner = row.get("translation")
        given = inner if isinstance(inner, Mapping) and len(row) <= 2 else row
        return {str(name): value for name, value in given.items()}
    if callable(getattr(row, "_asdict", None)) and not columns:
        return dict(row._asdict())
    if not isinstance(row, (tuple, list)):
        raise DataError(f"row {number} is a {type(row).__name__}, not a mapping, a tuple or a text")
    names = tuple(columns) or DEFAULT_COLUMNS.get(len(row))
    if names is None:
        raise DataError(f"row {number} has {len(row)} values without names: give mappings, or the names of the columns")
    if len(names) != len(row):
        raise DataError(f"row {number} has {len(row)} values where {len(names)} should be ({', '.join(names)})")
    return dict(zip(names, row, strict=True))


def _line(record: Mapping[str, Any], number: int) -> bytes:
    plain = {name: _plain(value, name, number) for name, value in record.items()}
    try:
        return json.dumps(plain, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        raise DataError(f"row {number} is not Unicode text: it holds half of a surrogate pair") from None


def _plain(value: Any, name: str, number: int) -> Any:
    """The value as JSON has it; a missing one, NaN as in frames, is an empty text."""
    if isinstance(value, (str, bool, int)):
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(one, name, number) for one in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(one, name, number) for key, one in value.items()}
    for way in ("tolist", "item"):  # an array, or a number of one
        if callable(convert := getattr(value, way, None)):
            return _plain(convert(), name, number)
    raise DataError(f"row {number}: '{name}' is a {type(value).__name__}; text, numbers and lists of them are written")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
