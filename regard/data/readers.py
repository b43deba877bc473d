"""Where text comes from: pairs and single texts, in files or in memory, read with flat memory as often as needed."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from regard.data.formats import Columns, Format, Header, format_of, lines, notes_on, rows, table_header
from regard.errors import ConfigError, DataError


@runtime_checkable
class Corpus(Protocol):
    """Pairs that can be iterated more than once and know a name for their content."""

    def __iter__(self) -> Iterator[tuple[str, str]]: ...

    def digest(self) -> str:
        """The same for two corpora exactly when they yield the same pairs."""
        ...


@dataclass(frozen=True, slots=True)
class PairFiles:
    """The pairs in two line-aligned files, or in one TSV, CSV, JSONL or Parquet file.

    The format is the suffix's (`.tsv`, `.csv`, `.jsonl`, `.parquet`, else lines; `.gz`, `.bz2` and `.xz` are read as
    what they hold) unless given. `keys` name the source's and the target's JSON key or column, a column also by its
    number from 1; a TSV or CSV without a header has them in that order and no others. Only a newline ends a line, with
    or without a carriage return. Blank texts are yielded like any other; `prepare` skips and counts them.
    """

    source: Path
    target: Path | None = None
    format: Format | None = None
    keys: tuple[str | int, str | int] = ("source", "target")
    header: Header = "auto"

    def __post_init__(self) -> None:
        if self.target is not None and self.format not in (None, "lines"):
            raise ConfigError(f"two files are read as lines, not as {self.format}; give one file for {self.format}")
        if self.target is None and self._format() == "lines":
            raise ConfigError(
                f"{self.source} is one side of the pairs: name the other, or give .tsv, .csv, .jsonl or .parquet"
            )

    def __iter__(self) -> Iterator[tuple[str, str]]:
        if self.target is not None:
            return self._aligned(self.target)
        return ((source, target) for source, target in rows(self.source, self._format(), self.columns))

    @property
    def columns(self) -> Columns:
        return Columns(self.keys, ("data.source", "data.target"), self.header)

    def notes(self) -> tuple[str, ...]:
        """What should be said once before the pairs are read."""
        return notes_on(self.source, self._format(), self.columns)

    def digest(self) -> str:
        paths = [self.source] if self.target is None else [self.source, self.target]
        settings = [self._format(), *map(str, self.keys)]
        # A row that is not read makes other pairs of the same bytes.
        settings += ["header"] if table_header(self.source, self._format(), self.columns) else []
        return content_digest(paths, settings)

    def _format(self) -> Format:
        return self.format or ("lines" if self.target else format_of(self.source))

    def _aligned(self, target: Path) -> Iterator[tuple[str, str]]:
        sources, targets = lines(self.source), lines(target)
        pairs = 0
        while True:
            source, other = next(sources, None), next(targets, None)
            if source is None or other is None:
                break
            pairs += 1
            yield source, other
        if source is not None or other is not None:
            ours = pairs + (source is not None) + sum(1 for _ in sources)
            others = pairs + (other is not None) + sum(1 for _ in targets)
            longer = self.source if ours > others else target
            raise DataError(
                f"{self.source} has {ours} lines and {target} has {others}: line {pairs + 1} of {longer} has no partner"
            )


@dataclass(frozen=True, slots=True)
class TextFiles:
    """The texts of one or more files, one a line, under one key of JSONL or in one column of a table."""

    paths: tuple[Path, ...]
    format: Format | None = None
    key: str | int = "text"
    header: Header = "auto"

    def __iter__(self) -> Iterator[str]:
        wanted = Columns((self.key,), ("data.text",), self.header)
        return (row[0] for path in self.paths for row in rows(path, self.format or format_of(path), wanted))

    def digest(self) -> str:
        formats = (self.format or format_of(path) for path in self.paths)
        return content_digest(self.paths, [*formats, str(self.key), str(self.header)])


@dataclass(frozen=True, slots=True)
class PairList:
    """Pairs held in memory."""

    pairs: Sequence[tuple[str, str]]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def digest(self) -> str:
        digest = hashlib.sha256()
        for pair in self.pairs:
            digest.update(json.dumps(pair).encode())
        return digest.hexdigest()


def content_digest(paths: Sequence[Path], settings: Sequence[str]) -> str:
    """Content, not names or times: a file moved or touched is the same, one edited in place is not."""
    digest = hashlib.sha256(json.dumps(list(settings)).encode())
    for path in paths:
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except FileNotFoundError:
            raise DataError(f"no such file: {path}") from None
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}") from None
    return digest.hexdigest()
