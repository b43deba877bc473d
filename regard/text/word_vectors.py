"""Word vectors in files, word2vec's text and binary forms and GloVe's text; what is near, what lies on a plane."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Float

from regard.errors import ConfigError, DataError, nearest

MOST_FEATURES = 4096
LONGEST_WORD = 1024  # bytes
MOST_NUMBERS = 1 << 31
"""Numbers of one file: 8 GiB of them."""


@dataclass(frozen=True)
class WordVectors:
    """Words, each with a vector."""

    words: tuple[str, ...]
    matrix: Float[np.ndarray, "V D"]

    def __len__(self) -> int:
        return len(self.words)

    @property
    def width(self) -> int:
        return self.matrix.shape[1]

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each word stands; of a word that comes twice, the first."""
        return {word: place for place, word in reversed(list(enumerate(self.words)))}

    def __contains__(self, word: object) -> bool:
        return word in self.places

    def __getitem__(self, word: str) -> Float[np.ndarray, " D"]:
        if word not in self.places:
            raise DataError(f"there is no vector of '{word}'{self._like(word)}")
        return self.matrix[self.places[word]]

    def near(
        self,
        to: str | Float[np.ndarray, " D"],
        count: int = 10,
        *,
        metric: str = "cosine",
        without: Iterable[str] = (),
    ) -> list[tuple[str, float]]:
        """The words nearest to a word or a point, itself left out: by cosine, 1 at most, or by distance."""
        if metric not in ("cosine", "euclidean"):
            raise ConfigError(f"unknown metric '{metric}'{nearest(metric, ['cosine', 'euclidean'])}")
        point, left_out = (self[to], {to, *without}) if isinstance(to, str) else (to, set(without))
        if metric == "cosine":
            values = self._units @ (point / max(float(np.linalg.norm(point)), 1e-12))
        else:
            values = np.linalg.norm(self.matrix - point, axis=1)
        order = np.argsort(-values if metric == "cosine" else values, kind="stable")
        found = []
        for place in order.tolist():
            if len(found) == count:
                break
            if self.words[place] not in left_out and self.places[self.words[place]] == place:
                found.append((self.words[place], float(values[place])))
        return found

    def analogy(self, a: str, b: str, c: str, count: int = 10) -> list[tuple[str, float]]:
        """What is to `c` as `b` is to `a`: the words nearest to b - a + c, of unit vectors, those three left out."""
        a_, b_, c_ = (self._units[self.places[word]] if word in self else self[word] for word in (a, b, c))
        return self.near(b_ - a_ + c_, count, without=(a, b, c))

    def plane(self, words: Sequence[str]) -> Float[np.ndarray, "W 2"]:
        """Where the words lie on the plane that keeps most of how they differ (principal components).

        Signs are settled: the component's largest entry is positive.
        """
        if len(words) < 3:
            raise DataError(f"{len(words)} words do not span a plane; give at least 3")
        points = np.stack([self[word] for word in words]).astype(np.float64)
        points = points - points.mean(0)
        _, _, axes = np.linalg.svd(points, full_matrices=False)
        axes = axes[:2] if len(axes) > 1 else np.concatenate((axes, np.zeros_like(axes)))
        axes = axes * np.sign(axes[np.arange(2), np.abs(axes).argmax(1)])[:, None]
        return points @ axes.T

    def spread(self, words: Sequence[str]) -> float:
        """How much of the words' variance their plane keeps, from 0 to 1."""
        points = np.stack([self[word] for word in words]).astype(np.float64)
        whole = float(((points - points.mean(0)) ** 2).sum())
        return float((self.plane(words) ** 2).sum()) / whole if whole else 1.0

    def _like(self, word: str) -> str:
        other = next((form for form in (word.lower(), word.capitalize(), word.upper()) if form in self.places), None)
        return f"; there is one of '{other}'" if other else ""

    @cached_property
    def _units(self) -> Float[np.ndarray, "V D"]:
        return self.matrix / np.linalg.norm(self.matrix, axis=1, keepdims=True).clip(1e-12)


def read_vectors(
    path: str | Path,
    *,
    keep: Callable[[str], bool] | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> WordVectors:
    """The vectors in a file: word2vec's binary or text form, with its line of two counts, or GloVe's text without.

    Which one it is the file itself shows. `keep` says which words to hold in memory, by default all. Memory is taken
    as vectors are read, never as a file's first line promises.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            rows = _rows(file, path)
            return _collected(rows, path, keep, progress)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None


def write_vectors(vectors: WordVectors, path: Path, *, binary: bool = False) -> None:
    """The vectors in word2vec's text form, or its binary one; reading either gives the same numbers again."""
    with path.open("wb") as file:
        file.write(f"{len(vectors)} {vectors.width}\n".encode())
        for word, row in zip(vectors.words, vectors.matrix.astype("<f4"), strict=True):
            if not word or any(character.isspace() for character in word):
                raise DataError(f"{word!r} cannot be written: the format has spaces between word and numbers")
            if binary:
                file.write(word.encode() + b" " + row.tobytes() + b"\n")
            else:
                numbers = " ".join(np.format_float_positional(value, unique=True, trim="-") for value in row)
                file.write(f"{word} {numbers}\n".encode())


def _collected(
    rows: Iterator[tuple[str, Float[np.ndarray, " D"]]],
    path: Path,
    keep: Callable[[str], bool] | None,
    progress: Callable[[int, int | None], None] | None,
) -> WordVectors:
    words, kept, read = [], [], 0
    for read, (word, row) in enumerate(rows, 1):
        if keep is None or keep(word):
            if not np.isfinite(row).all():
                raise DataError(f"{path}: the vector of '{word}' holds what is not a finite number")
            words.append(word)
            kept.append(row)
            if len(kept) * len(row) > MOST_NUMBERS:
                raise DataError(f"{path} holds more than {MOST_NUMBERS:,} numbers")
        if progress is not None and read % 10_000 == 0:
            progress(read, None)
    if not read:
        raise DataError(f"{path} holds no vectors")
    if not kept:
        raise DataError(f"{path} holds none of the words that are wanted, of {read:,}")
    return WordVectors(tuple(words), np.stack(kept))


def _rows(file: BinaryIO, path: Path) -> Iterator[tuple[str, Float[np.ndarray, " D"]]]:
    longest = LONGEST_WORD + 32 * MOST_FEATURES
    first = file.readline(longest)
    counts = first.split()
    if len(counts) == 2 and all(count.isdigit() for count in counts):
        count, width = int(counts[0]), int(counts[1])
        if not 1 <= width <= MOST_FEATURES:
            raise DataError(f"{path}: vectors of {width} numbers; they must have 1 to {MOST_FEATURES}")
        start = file.tell()
        second = file.readline(longest)
        file.seek(start)
        if _parsed(second, width) is None and second:
            return _binary_rows(file, path, count, width)
        return _text_rows(file, path, width, 2, count)
    file.seek(0)
    width = len(first.split()) - 1
    if _parsed(first, width) is None or not 1 <= width <= MOST_FEATURES:
        raise DataError(f"{path} holds no vectors: its first line is neither two counts nor a word and its numbers")
    return _text_rows(file, path, width, 1, None)


def _text_rows(
    file: BinaryIO, path: Path, width: int, line: int, count: int | None
) -> Iterator[tuple[str, Float[np.ndarray, " D"]]]:
    longest, read = LONGEST_WORD + 32 * MOST_FEATURES, 0
    while raw := file.readline(longest):
        if not raw.strip():
            line += 1
            continue
        parsed = _parsed(raw, width)
        if parsed is None:
            raise DataError(f"{path}, line {line}: not a word and {width} numbers")
        yield parsed
        read, line = read + 1, line + 1
    if count is not None and read != count:
        raise DataError(f"{path} was cut short: it says {count:,} vectors and holds {read:,}")


def _parsed(raw: bytes, width: int) -> tuple[str, Float[np.ndarray, " D"]] | None:
    """The word and its numbers; a few of GloVe's words have spaces in them."""
    try:
        *word, _ = parts = raw.decode("utf-8").rstrip("\r\n ").split(" ")
        name, numbers = " ".join(parts[:-width]), parts[-width:]
        if width < 1 or not word or not name:
            return None
        return name, np.array(numbers, dtype=np.float32)
    except (ValueError, UnicodeDecodeError):
        return None


def _binary_rows(file: BinaryIO, path: Path, count: int, width: int) -> Iterator[tuple[str, Float[np.ndarray, " D"]]]:
    for number in range(count):
        name = bytearray()
        while (byte := file.read(1)) != b" ":
            if not byte:
                raise DataError(f"{path} was cut short: it says {count:,} vectors and holds {number:,}")
            if byte != b"\n":  # some writers end each row with one
                name += byte
            if len(name) > LONGEST_WORD:
                raise DataError(f"{path} is no file of vectors: a word of more than {LONGEST_WORD} bytes")
        raw = file.read(4 * width)
        if len(raw) < 4 * width:
            raise DataError(f"{path} was cut short: it says {count:,} vectors and holds {number:,}")
        # A few words of well-known files are cut inside a character.
        yield name.decode("utf-8", errors="replace"), np.frombuffer(raw, dtype="<f4").astype(np.float32)
