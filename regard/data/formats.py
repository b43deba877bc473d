"""The rows of one file, one at a time: lines, TSV, JSONL, Parquet. What is wrong is said with its place."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from regard.errors import DataError, nearest

Format = Literal["lines", "tsv", "jsonl", "parquet"]

_SUFFIXES: dict[str, Format] = {".tsv": "tsv", ".jsonl": "jsonl", ".parquet": "parquet"}


def format_of(path: Path) -> Format:
    """The format that the file's suffix names; lines when it names none."""
    return _SUFFIXES.get(path.suffix.lower(), "lines")


def rows(path: Path, format: Format, keys: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """One tuple of texts for each row, as many as there are `keys`; at least one row."""
    if not path.is_file():
        raise DataError(f"no such file: {path}" if not path.exists() else f"{path} is not a file")
    readers = {"lines": _lines, "tsv": _tsv, "jsonl": _jsonl, "parquet": _parquet}
    empty = True
    try:
        for row in readers[format](path, keys):
            empty = False
            yield row
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    if empty:
        raise DataError(f"{path} is empty")


def numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Each line with its number, without its end."""
    for number, line in whole_lines(path):
        yield number, line.removesuffix("\n").removesuffix("\r")


def whole_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Each line, its end included, with its number. Only a newline ends one: other separators of Unicode are text."""
    offset = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                place = offset + error.start
                raise DataError(f"{path} is not UTF-8 text: byte {place}, on line {number}") from None
            offset += len(raw)
            yield number, line.removeprefix("\ufeff") if number == 1 else line


def _lines(path: Path, keys: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for _, line in numbered(path):
        yield (line,)


def _tsv(path: Path, keys: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for number, line in numbered(path):
        cells = tuple(line.split("\t"))
        if len(cells) != len(keys):
            raise DataError(f"{path}, line {number}: {_columns(len(cells))} where {_columns(len(keys))} should be")
        yield cells


def _jsonl(path: Path, keys: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for number, record in objects(path, numbered(path)):
        yield tuple(_field(record, key, f"{path}, line {number}") for key in keys)


def objects(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON object of each numbered line of a file; blank lines are passed over."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {number} is not JSON: {error}") from None
        if not isinstance(record, dict):
            raise DataError(f"{path}, line {number} is not a JSON object: {line[:40]}")
        yield number, record


def _field(record: dict[str, Any], key: str, where: str) -> str:
    if key not in record:
        raise DataError(f"{where} has no key '{key}'{nearest(key, record)}")
    value = record[key]
    if not isinstance(value, str):
        raise DataError(f"{where}: '{key}' is {shown(value)}, not text")
    return whole_characters(value, f"{where}: '{key}'")


def shown(value: Any) -> str:
    """The beginning of a value, as JSON where it can be."""
    return json.dumps(value, default=str)[:40]


def whole_characters(text: str, where: str) -> str:
    """The text itself; one with half of a character, which JSON can spell, is refused."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise DataError(f"{where} is not Unicode text: it holds half of a surrogate pair")
    return text


def _parquet(path: Path, keys: Sequence[str]) -> Iterator[tuple[str, ...]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise DataError(f"reading {path} needs pyarrow: pip install 'regard[parquet]'") from None
    try:
        with parquet.ParquetFile(path) as file:
            for key in keys:
                if key not in file.schema_arrow.names:
                    raise DataError(f"{path} has no column '{key}'{nearest(key, file.schema_arrow.names)}")
                kind = file.schema_arrow.field(key).type
                if pyarrow.types.is_dictionary(kind):
                    kind = kind.value_type
                if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
                    raise DataError(f"{path}: column '{key}' holds {kind}, not text")
            for batch in file.iter_batches(batch_size=4096, columns=list(keys)):
                columns = (batch.column(key).to_pylist() for key in keys)
                # A missing value is an empty text: blank rows are dealt with, and counted, further on.
                yield from (tuple(cell or "" for cell in row) for row in zip(*columns, strict=True))
    except UnicodeDecodeError:
        raise DataError(f"{path} holds text that is not UTF-8") from None
    except pyarrow.ArrowException as error:  # damaged, or packed in a way that this build does not read
        raise DataError(f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}") from None


def _columns(count: int) -> str:
    return f"{count} column" + "s" * (count != 1)
