"""The first rows of a file, from which it is told what the file holds."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.formats import Format, format_of, lines, objects, parquet_file, raw_rows

PEEKED = 2000
"""Rows that tell what a file holds."""


@dataclass(frozen=True, slots=True)
class Peek:
    """The first rows of a file: cells of a table, or values of records under `names`."""

    path: Path
    format: Format
    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def peek(path: Path, most: int = PEEKED) -> Peek:
    """The first rows of a file, to tell what it holds."""
    format = format_of(path)
    rows: list[tuple[Any, ...]] = []
    names: tuple[str, ...] = ()
    if format in ("tsv", "csv"):
        found: Iterator[Any] = (tuple(cells) for _, cells in raw_rows(path, format))
    elif format == "jsonl":
        records = [
            record for (_, record), _ in zip(objects(path, enumerate(lines(path), 1)), range(most), strict=False)
        ]
        names = tuple(dict.fromkeys(name for record in records for name in record))
        found = (tuple(record.get(name) for name in names) for record in records)
    elif format == "parquet":
        with parquet_file(path) as file:
            names = tuple(file.schema_arrow.names)
            first = next(file.iter_batches(batch_size=most), None)
            found = iter([] if first is None else [tuple(row[name] for name in names) for row in first.to_pylist()])
    else:
        found = ((line,) for line in lines(path))
    for row, _ in zip(found, range(most), strict=False):
        rows.append(row)
    return Peek(path, format, names, tuple(rows))
