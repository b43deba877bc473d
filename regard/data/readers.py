"""Readers of text: pairs, single texts and whole documents, in files or in memory, read with flat memory."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from regard.data.file_names import matching_all
from regard.data.formats import (
    COMPRESSED,
    Columns,
    Format,
    Header,
    format_of,
    lines,
    notes_on,
    rows,
    table_header,
    whole_lines,
)
from regard.errors import ConfigError, DataError

SUFFIXES = (".txt", ".text", ".md", ".jsonl", ".parquet")
"""What is read of a folder, the first kinds also compressed."""

PART_SIZE = 1 << 16
"""Characters of a part of a long text, about: enough that cutting there does not matter, few enough to hold many."""


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

    The format is the suffix's (`.tsv`, `.csv`, `.jsonl`, `.parquet`, else lines; what is compressed is read as what it
    holds) unless given. `keys` name the source's and the target's JSON key or column, a column also by its
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
    """The texts of one or more files, one per line, under one key of JSONL or in one column of a table."""

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


def folded(text: str) -> str:
    """What two texts have in common that are the same but for case and spaces."""
    return " ".join(text.casefold().split())


def is_held_out(text: str, share: float) -> bool:
    """Whether a text is in the share that is held out: a function of the text, case and spaces aside.

    So a text and its copies are always on one side of a split, whatever else there is and in whatever order.
    """
    return _lot([text]) < share * LOTS


LOTS = 2**64


def _lot(parts: Iterable[str]) -> int:
    """A number below `LOTS` that a text has by its words, case aside, however it is cut in parts between them."""
    digest = hashlib.blake2b(digest_size=8)
    begun = False
    for words in filter(None, map(folded, parts)):
        digest.update(f" {words}".encode() if begun else words.encode())
        begun = True
    return int.from_bytes(digest.digest(), "big")


@dataclass(frozen=True, slots=True)
class SplitPairs:
    """The pairs of a corpus whose source is in the share that is held out, or all the others.

    A source and all its targets are on one side.
    """

    pairs: Corpus
    share: float
    held_out: bool

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return (pair for pair in self.pairs if is_held_out(pair[0], self.share) == self.held_out)

    def digest(self) -> str:
        which = "held out" if self.held_out else "the rest"
        return hashlib.sha256(json.dumps([self.pairs.digest(), self.share, which]).encode()).hexdigest()


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


class DocumentPart(NamedTuple):
    """A part of a document, whole lines of it; `last` where the document ends with it."""

    text: str
    last: bool


@dataclass(frozen=True, slots=True)
class Documents:
    """The texts of files: a plain file is one document, a row of JSONL, Parquet or CSV is one under `key`.

    A TSV is a table where its header has the column `key`, or where `key` is a column's number; else it is plain text,
    tabs and all.

    Long texts come in parts, so that memory stays flat, cut only after a line break with text on both sides: there
    tokenizers cut anyway. Their characters are left as they are, line breaks included. Blank documents are left out.
    """

    paths: tuple[Path, ...]
    key: str | int = "text"
    header: Header = "auto"
    share: float = 0.0
    """The share that is held out: documents of a table by their text, of a plain file its end."""
    held_out: bool = False
    """Whether it is that share, or the rest."""
    whole_files: bool = False
    """Whether a plain file is held out by its text too, as a whole."""
    limit: float | int = 0.0
    """What the lot of a document is below that is held out."""
    corpora: tuple[int, ...] = ()
    """How many of the files are of each of several corpora; empty where there is one."""

    @classmethod
    def of(cls, names: Sequence[str | Path], key: str | int = "text", header: Header = "auto") -> "Documents":
        """The documents of these files, of the files in these folders and below, and of all that match these patterns,
        in order of their names."""
        paths: list[Path] = []
        for path in matching_all(names):
            if path.is_dir():
                inside = sorted(file for file in path.rglob("*") if _readable(file, path))
                if not inside:
                    raise DataError(f"{path} holds no file to read; known kinds: {', '.join(SUFFIXES)}")
                _refuse_twice(inside)
                paths += inside
            else:
                paths.append(path)
        return cls(tuple(paths), key, header)

    @classmethod
    def together(cls, documents: "Sequence[Documents]") -> "Documents":
        """Several corpora, one after the other."""
        paths = tuple(path for one in documents for path in one.paths)
        return replace(documents[0], paths=paths, corpora=tuple(len(one.paths) for one in documents))

    def corpus_of(self, file: int) -> int:
        """Which of the corpora a file is of, by its number."""
        ends = accumulate(self.corpora or (len(self.paths),))
        return next(number for number, end in enumerate(ends) if file < end)

    def __iter__(self) -> Iterator[DocumentPart]:
        for path in self.paths:
            if self.tabular(path):
                found = (row[0] for row in rows(path, format_of(path), self.columns) if row[0].strip())
                yield from (DocumentPart(text, True) for text in found if self._has([text]))
            elif not self.share:
                yield from _document_parts(path)
            elif not self.whole_files:
                yield from _split_parts(path, self.share, self.held_out)
            else:
                yield from self._whole(path)

    def _whole(self, path: Path) -> Iterator[DocumentPart]:
        """All of a plain file, where it is on this side."""
        parts = _document_parts(path)
        first = next(parts, None)
        if first is not None and first.last:  # which need not be read twice
            yield from [first] if self._has([first.text]) else []
        elif first is not None and self._has(part.text for part in chain([first], parts)):
            yield from _document_parts(path)

    def _has(self, parts: Iterable[str]) -> bool:
        return not self.share or (_lot(parts) < self.limit) == self.held_out

    def split(self, share: float, held_out: bool, *, whole_files: bool = False) -> "Documents":
        """The share that is held out, or the rest; of plain files their ends, or `whole_files`.

        Of whole documents at least one is held out, and one is not, unless all are alike.
        """
        if not share:
            return self
        split = replace(self, share=share, held_out=held_out, whole_files=whole_files)
        return replace(split, limit=split._limit())

    def _limit(self) -> float | int:
        usual = self.share * LOTS
        if not self.whole_files and not all(map(self.tabular, self.paths)):
            return usual
        least, most = LOTS, 0
        for lot in self._lots():
            least, most = min(least, lot), max(most, lot)
            if least < usual <= most:
                return usual
        if least >= most:
            return usual
        return least + 1 if least >= usual else most

    def _lots(self) -> Iterator[int]:
        for path in self.paths:
            if self.tabular(path):
                found = (row[0] for row in rows(path, format_of(path), self.columns) if row[0].strip())
                yield from (_lot([text]) for text in found)
            else:
                parts = _document_parts(path)
                if (first := next(parts, None)) is not None:
                    yield _lot(part.text for part in chain([first], parts))

    def none_left(self) -> str:
        """What is said where one side of a split has no document."""
        side = "held out to validate on" if self.held_out else "left to train on"
        plain = sum(not self.tabular(path) for path in self.paths)
        if self.whole_files or not plain:
            said = "documents aside by their text, and these are too few, alike or blank; give more"
        else:
            said = "the end of a plain file aside, from a line break on, of which there are too few; give more text"
            said += ", set data.held_out_by=file to set whole files aside" * (plain > 1)
        return f"no text is {side}: data.held_out={self.share:g} sets {said}, or give files to validate on"

    @property
    def columns(self) -> Columns:
        return Columns((self.key,), ("data.text",), self.header)

    def tabular(self, path: Path) -> bool:
        """Whether a document of this file is a row of it."""
        format = format_of(path)
        if format != "tsv":
            return format != "lines"
        if isinstance(self.key, int) or self.header is True:
            return True
        first = next(lines(path))
        return self.header == "auto" and self.key in [cell.strip() for cell in first.split("\t")]

    def notes(self) -> tuple[str, ...]:
        """What should be said once before the texts are read."""
        found: list[str] = []
        for path in self.paths:
            if self.tabular(path):
                found += notes_on(path, format_of(path), self.columns)
            elif format_of(path) == "tsv":
                found.append(f"{path} has no header with a column '{self.key}' (data.text): it is read as plain text")
        return tuple(found)

    def texts(self) -> Iterator[str]:
        return (part.text for part in self)

    def digest(self) -> str:
        """The same for two that yield the same documents from files of the same kinds."""
        more = [str(self.share), str(self.held_out), *["whole files"] * self.whole_files] if self.share else []
        more += ["corpora", *map(str, self.corpora)] if self.corpora else []
        return content_digest(self.paths, ["documents", *map(self._kind, self.paths), str(self.key), *more])

    def _kind(self, path: Path) -> str:
        """What a digest says of how a file is read: of files that were always read so, what it always said."""
        format: Format = format_of(path)
        if format in ("tsv", "csv"):
            header = self.tabular(path) and table_header(path, format, self.columns)
            return f"{format}, rows{', header' if header else ''}" if self.tabular(path) else format
        return format


def _readable(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return not hidden and _inner(file).suffix.lower() in SUFFIXES and file.is_file()


def _inner(file: Path) -> Path:
    """The name without the suffix of a compression; Parquet is not compressed from outside."""
    inner = file.with_suffix("")
    return inner if file.suffix.lower() in COMPRESSED and inner.suffix.lower() != ".parquet" else file


def _refuse_twice(files: Sequence[Path]) -> None:
    kept = set(files)
    for file in files:
        if _inner(file) != file and _inner(file) in kept:
            raise DataError(f"{_inner(file)} and {file} would be read as two texts: remove one")


def _document_parts(path: Path) -> Iterator[DocumentPart]:
    held = ""
    try:
        for _, line in whole_lines(path):
            if held and len(held) >= PART_SIZE and _between(held, line):
                yield DocumentPart(held, False)
                held = ""
            held += line
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    if held.strip():
        yield DocumentPart(held, True)
    elif held == "":
        raise DataError(f"{path} is empty")


UNBROKEN = 10_000
"""Characters of a line above which it may be cut, at a space, where text is split."""


def _split_parts(path: Path, share: float, held_out: bool) -> Iterator[DocumentPart]:
    """The end of a plain file with this share of its characters, or what comes before it, cut between lines."""
    limit = (1 - share) * sum(len(part.text) for part in _document_parts(path))
    done, ended = 0, False
    for part in _document_parts(path):
        before, after = part.text, ""
        if done >= limit:
            before, after = "", part.text
        elif done + len(before) > limit:
            place = before.find("\n", int(limit - done)) + 1
            ends = part.last and not before[place:].strip()  # with the line, of which nothing is left
            if (not place or ends) and len(before) > UNBROKEN:
                place = before.find(" ", int(limit - done)) + 1 or place
            before, after = (before[:place], before[place:]) if place else (before, "")
        done += len(part.text)
        text = after if held_out else before
        # What comes first ends with the part that the rest begins in, or with the file.
        last = part.last or (not held_out and done >= limit)
        if text and not ended:
            yield DocumentPart(text, last)
            ended = last


def _between(before: str, after: str) -> bool:
    """Whether a single line break stands between text here."""
    return before[-1] == "\n" and not before[-2:-1].isspace() and not after[0].isspace()


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
