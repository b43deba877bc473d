"""Corpora in many files: shards read one after the other, where reading stands, and several corpora together."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from regard.data.file_names import files_of, inner_suffix, is_there
from regard.data.formats import Header, TableLayout, first_layout, format_of
from regard.data.lexical_swaps import SwappedCorpus
from regard.data.readers import Corpus, PairFiles, SplitPairs
from regard.errors import ConfigError, DataError

TABLES = (".tsv", ".csv", ".jsonl", ".parquet")
"""What is read of a folder of pairs, all but the last also compressed."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class PairShards:
    """Pairs in several files, or pairs of files, that are read one after the other."""

    shards: tuple[PairFiles, ...]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for shard in self.shards:
            yield from shard

    def digest(self) -> str:
        return combined_digest(["shards", *(shard.digest() for shard in self.shards)])

    def notes(self) -> tuple[str, ...]:
        """What should be said once before the pairs are read: of the first shard, for all are read alike."""
        first, last = self.shards[0], self.shards[-1]
        return (*first.notes(), f"{len(self.shards)} shards of pairs, from {first.source} to {last.source}")


@dataclass(frozen=True, slots=True)
class Corpora:
    """Several corpora by name, one after the other: what a mixture is made of."""

    corpora: Mapping[str, Corpus]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for corpus in self.corpora.values():
            yield from corpus

    def digest(self) -> str:
        return combined_digest(["corpora", *(corpus.digest() for corpus in self.corpora.values())])


def combined_digest(parts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()


def pair_corpus(
    names: Sequence[str], keys: tuple[str | int, str | int], header: Header = "auto", setting: str = "data.train"
) -> PairFiles | PairShards:
    """The pairs that names stand for: tables of pairs in any number, or two lists of line-aligned files.

    A name is a file, a folder, or a pattern such as `shards/*.jsonl.zst`. Two names of text that is no table are the
    two sides, file by file in order of their names.
    """
    if not names:
        raise ConfigError(f"{setting} names no files")
    if len(names) == 2 and not any(_is_table(name) for name in names):
        sides = [files_of(name) for name in names]
        if len(sides[0]) != len(sides[1]):
            raise DataError(
                f"{names[0]} stands for {len(sides[0])} files and {names[1]} for {len(sides[1])}: "
                f"line-aligned shards come in pairs"
            )
        shards = [PairFiles(source, target, keys=keys, header=header) for source, target in zip(*sides, strict=True)]
        return shards[0] if len(shards) == 1 else PairShards(tuple(shards))
    if len(names) > 2 and (plain := [name for name in names if not _is_table(name)]):
        raise ConfigError(
            f"{setting}: pairs are in any number of tables (.tsv, .csv, .jsonl, .parquet), or in two line-aligned "
            f"files, folders or patterns, one for each side; {plain[0]} is no table"
        )
    files = [file for name in names for file in files_of(name, TABLES)]
    if twice := next((file for file, count in Counter(files).items() if count > 1), None):
        raise ConfigError(f"{setting}: {twice} is named twice")
    shards = [PairFiles(file, keys=keys, header=header) for file in files]
    return shards[0] if len(shards) == 1 else PairShards(tuple(shards))


def _is_table(name: str) -> bool:
    """Whether a name stands for tables; of a folder or a pattern by the first file."""
    if not is_there(name):
        return inner_suffix(Path(name)) in TABLES
    first = files_of(name)[0]
    return inner_suffix(first) in TABLES


def check_shards(corpus: PairFiles | PairShards) -> None:
    """Read the first pair of every shard; all tables must have the same columns."""
    shards = corpus.shards if isinstance(corpus, PairShards) else (corpus,)
    known: dict[str, tuple[Path, TableLayout]] = {}
    for shard in shards:
        next(iter(shard))
        format = format_of(shard.source)
        if shard.target is not None or format not in ("tsv", "csv"):
            continue
        layout = first_layout(shard.source, format, shard.columns)
        first, before = known.setdefault(format, (shard.source, layout))
        if before[:3] != layout[:3]:
            raise DataError(
                f"{shard.source} has other columns than {first}: {_columns(layout)} against {_columns(before)}; "
                f"shards of one corpus must be alike"
            )


def _columns(layout: TableLayout) -> str:
    header = "with a header" if layout.header else "without a header"
    return f"{layout.width} {header}"


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where reading stands: `row` rows of shard number `shard` have been read, and all of those before it."""

    shard: int = 0
    row: int = 0


def shards_by_corpus(corpus: Corpus) -> dict[str, list[Corpus]]:
    """The shards of each corpus that a corpus is made of; of one that is not, its own under an empty name."""
    if isinstance(corpus, SplitPairs):
        return {
            name: [SplitPairs(shard, corpus.share, corpus.held_out) for shard in shards]
            for name, shards in shards_by_corpus(corpus.pairs).items()
        }
    if isinstance(corpus, Corpora):
        return {name: shards_by_corpus(one)[""] for name, one in corpus.corpora.items()}
    return {"": list(corpus.shards) if isinstance(corpus, PairShards) else [corpus]}


def chunks_from(shards: Sequence[Corpus], cursor: Cursor, size: int) -> Iterator[tuple[Cursor, list[tuple[str, str]]]]:
    """The rows after the cursor, so many at a time, none over the end of a shard; with where reading then stands.

    Shards before the cursor's are not opened; in its own, rows are read past.
    """
    for number in range(cursor.shard, len(shards)):
        done = cursor.row if number == cursor.shard else 0
        rows = islice(iter(shards[number]), done, None)
        while chunk := list(islice(rows, size)):
            done += len(chunk)
            yield Cursor(number, done), chunk


def files_read(corpus: Corpus) -> list[Path]:
    """The files that the rows of a corpus come from."""
    if isinstance(corpus, PairFiles):
        return [corpus.source] if corpus.target is None else [corpus.source, corpus.target]
    if isinstance(corpus, SwappedCorpus):
        return files_read(corpus.corpus)
    found = [shard for shards in shards_by_corpus(corpus).values() for shard in shards]
    if found == [corpus]:
        return []
    return [file for shard in found for file in files_read(shard.pairs if isinstance(shard, SplitPairs) else shard)]


class Unchanged:
    """Notices files that change while they are read: by size and time of change."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._before = {file: _stamp(file) for file in files}

    def check(self) -> None:
        for file, before in self._before.items():
            if _stamp(file) != before:
                raise DataError(f"{file} was changed or removed while it was being read: start again once it is whole")


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
