"""Where text comes from: pairs and single texts, in files or in memory, read with flat memory as often as needed."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from regard.data.formats import Format, format_of, rows
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
    """The pairs in two line-aligned files, or in one TSV, JSONL or Parquet file.

    The format is the suffix's (`.tsv`, `.jsonl`, `.parquet`, else lines) unless given. `keys` name the source's and
    the target's JSON key or Parquet column; a TSV has them in that order and no others. Only a newline ends a line,
    with or without a carriage return. Blank texts are yielded like any other; `prepare` skips and counts them.
    """

    source: Path
    target: Path | None = None
    format: Format | None = None
    keys: tuple[str, str] = ("source", "target")

    def __post_init__(self) -> None:
        if self.target is not None and self.format not in (None, "lines"):
            raise ConfigError(f"two files are read as lines, not as {self.format}; give one file for {self.format}")
        if self.target is None and self._format() == "lines":
            raise ConfigError(
                f"{self.source} is one side of the pairs: name the other, or give .tsv, .jsonl or .parquet"
            )

    def __iter__(self) -> Iterator[tuple[str, str]]:
        if self.target is not None:
            return self._aligned(self.target)
        return ((source, target) for source, target in rows(self.source, self._format(), self.keys))

    def digest(self) -> str:
        paths = [self.source] if self.target is None else [self.source, self.target]
        return content_digest(paths, [self._format(), *self.keys])

    def _format(self) -> Format:
        return self.format or ("lines" if self.target else format_of(self.source))

    def _aligned(self, target: Path) -> Iterator[tuple[str, str]]:
        sources, targets = rows(self.source, "lines", ["text"]), rows(target, "lines", ["text"])
        pairs = 0
        while True:
            source, other = next(sources, None), next(targets, None)
            if source is None or other is None:
                break
            pairs += 1
            yield source[0], other[0]
        if source is not None or other is not None:
            lines = pairs + (source is not None) + sum(1 for _ in sources)
            others = pairs + (other is not None) + sum(1 for _ in targets)
            longer = self.source if lines > others else target
            raise DataError(
                f"{self.source} has {lines} lines and {target} has {others}: "
                f"line {pairs + 1} of {longer} has no partner"
            )


@dataclass(frozen=True, slots=True)
class TextFiles:
    """The texts of one or more files, one a line, or under one key of JSONL or Parquet."""

    paths: tuple[Path, ...]
    format: Format | None = None
    key: str = "text"

    def __iter__(self) -> Iterator[str]:
        return (row[0] for path in self.paths for row in rows(path, self.format or format_of(path), [self.key]))

    def digest(self) -> str:
        return content_digest(self.paths, [*(self.format or format_of(path) for path in self.paths), self.key])


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
