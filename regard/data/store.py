"""Prepared pairs: token ids on disk, mapped into memory, read without copies."""

import json
import operator
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import SupportsIndex

import numpy as np
from jaxtyping import Int32, Int64, UInt

from regard.errors import DataError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the pairs that were read."""

    read: int
    kept: int
    blank: int
    overlong: int
    truncated: int
    source_tokens: int
    target_tokens: int

    def describe(self) -> str:
        """One line for a person: what was kept, and what was not and why."""
        pairs = "pair" + "s" * (self.kept != 1)
        parts = [f"{self.kept:,} {pairs} ({self.source_tokens:,} source and {self.target_tokens:,} target tokens)"]
        if self.blank:
            parts.append(f"{self.blank:,} skipped with a blank side")
        if self.overlong:
            parts.append(f"{self.overlong:,} skipped as too long")
        if self.truncated:
            parts.append(f"{self.truncated:,} cut to the longest length allowed")
        return "; ".join(parts)


@dataclass(frozen=True)
class Rows:
    """Rows of token ids, one after another in one array; row `i` lies between `offsets[i]` and `offsets[i + 1]`."""

    tokens: UInt[np.ndarray, " tokens"]
    offsets: Int64[np.ndarray, " bounds"]
    pad: int = 0

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], pad: int = 0) -> "Rows":
        """These rows, held in memory."""
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        return cls(np.array([token for row in rows for token in row], dtype=np.uint32), offsets, pad)

    @cached_property
    def lengths(self) -> Int32[np.ndarray, " rows"]:
        return np.diff(self.offsets).astype(np.int32)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: SupportsIndex) -> UInt[np.ndarray, " length"]:
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        index %= len(self)
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


@dataclass(frozen=True)
class PairStore:
    """Pairs of rows: each source ends with `eos`, each target is whole, from `bos` to `eos`."""

    source: Rows
    target: Rows
    counts: Counts

    @classmethod
    def of(cls, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], pad: int = 0) -> "PairStore":
        """A store in memory of rows that already carry their `bos` and `eos`."""
        source, target = (Rows.of([pair[side] for pair in pairs], pad) for side in (0, 1))
        kept = len(pairs)
        return cls(source, target, Counts(kept, kept, 0, 0, 0, len(source.tokens), len(target.tokens)))

    @classmethod
    def open(cls, folder: Path) -> "PairStore":
        """The store that `prepare` left in `folder`."""
        try:
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            if meta["version"] != VERSION:
                raise DataError(f"{folder} was prepared by another version of regard; prepare it again")
            counts = Counts(**meta["counts"])
            source, target = (
                _map(folder, side, meta["dtype"], counts.kept, tokens, meta["pad"][side])
                for side, tokens in (("source", counts.source_tokens), ("target", counts.target_tokens))
            )
            return cls(source, target, counts)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{folder} holds no prepared data: {error}") from None

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: SupportsIndex) -> tuple[UInt[np.ndarray, " source"], UInt[np.ndarray, " target"]]:
        return self.source[index], self.target[index]


def write_meta(folder: Path, *, dtype: str, pad: dict[str, int], counts: Counts) -> None:
    """Describe the arrays in `folder`; what `PairStore.open` reads."""
    meta = {"version": VERSION, "dtype": dtype, "pad": pad, "counts": asdict(counts)}
    (folder / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")


def _map(folder: Path, side: str, dtype: str, rows: int, tokens: int, pad: int) -> Rows:
    # asarray: the plain array over the same mapped pages, since every slice of a memmap pays for being one.
    ids = np.asarray(np.memmap(folder / f"{side}.tokens", dtype=dtype, mode="r"))
    offsets = np.asarray(np.memmap(folder / f"{side}.offsets", dtype=np.int64, mode="r"))
    if len(ids) != tokens or len(offsets) != rows + 1:
        raise ValueError(f"{side} is cut short")
    return Rows(ids, offsets, pad)
