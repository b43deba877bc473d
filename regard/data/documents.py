"""Running text for language models: whole files, folders of them, and the rows of JSONL and Parquet."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from regard.data.formats import format_of, rows, whole_lines
from regard.data.readers import content_digest
from regard.errors import DataError

SUFFIXES = (".txt", ".text", ".md", ".jsonl", ".parquet")
"""What is read of a folder."""

PIECE = 1 << 16
"""Characters of a piece of a long text, about: enough that cutting there does not matter, few enough to hold many."""


class Piece(NamedTuple):
    """A part of a document, whole lines of it; `last` where the document ends with it."""

    text: str
    last: bool


@dataclass(frozen=True, slots=True)
class Documents:
    """The texts of files: a plain file is one document, a row of JSONL or Parquet is one under `key`.

    Long texts come in pieces, so that memory stays flat, cut only after a line break with text on both sides: there
    tokenizers cut anyway. Their characters are left as they are, line breaks included. Blank documents are left out.
    """

    paths: tuple[Path, ...]
    key: str = "text"

    @classmethod
    def of(cls, names: Sequence[str | Path], key: str = "text") -> "Documents":
        """The documents of these files, and of the files in these folders and below, in order of their names."""
        paths: list[Path] = []
        for path in map(Path, names):
            if not path.exists():
                raise DataError(f"no such file or folder: {path}")
            if path.is_dir():
                inside = sorted(file for file in path.rglob("*") if _readable(file, path))
                if not inside:
                    raise DataError(f"{path} holds no file to read; known kinds: {', '.join(SUFFIXES)}")
                paths += inside
            else:
                paths.append(path)
        return cls(tuple(paths), key)

    def __iter__(self) -> Iterator[Piece]:
        for path in self.paths:
            format = format_of(path)
            if format in ("jsonl", "parquet"):
                yield from (Piece(row[0], True) for row in rows(path, format, [self.key]) if row[0].strip())
            else:
                yield from _pieces(path)

    def texts(self) -> Iterator[str]:
        return (piece.text for piece in self)

    def digest(self) -> str:
        """The same for two that yield the same documents from files of the same kinds."""
        return content_digest(self.paths, ["documents", *(format_of(path) for path in self.paths), self.key])


def _readable(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return not hidden and file.suffix.lower() in SUFFIXES and file.is_file()


def _pieces(path: Path) -> Iterator[Piece]:
    held = ""
    try:
        for _, line in whole_lines(path):
            if held and len(held) >= PIECE and _between(held, line):
                yield Piece(held, False)
                held = ""
            held += line
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    if held.strip():
        yield Piece(held, True)
    elif held == "":
        raise DataError(f"{path} is empty")


def _between(before: str, after: str) -> bool:
    """Whether a single line break stands between text here."""
    return before[-1] == "\n" and not before[-2:-1].isspace() and not after[0].isspace()
