"""Prepared pairs: tokenised once, token ids on disk, held in memory or mapped into it, read without copies."""

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any, SupportsIndex

import numpy as np
from jaxtyping import Int32, Int64, UInt

from regard.data.prepared_cache import cached, opened, stored, token_dtype, write_meta
from regard.data.readers import Corpus
from regard.errors import ConfigError, DataError
from regard.text import Vocabularies
from regard.text.bpe_dropout import SPELLINGS, MergeDropout
from regard.text.encoder_inputs import Overlong
from regard.text.vocabularies import encode_with_copies

VERSION = 1
CHUNK = 4096  # pairs tokenised at a time: enough to keep every core busy, a few megabytes of text


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
        with opened(folder, "data", VERSION) as meta:
            counts = Counts(**meta["counts"])
            source, target = (
                Rows(
                    stored(folder / f"{side}.tokens", meta["dtype"], tokens),
                    stored(folder / f"{side}.offsets", np.int64, counts.kept + 1),
                    meta["pad"][side],
                )
                for side, tokens in (("source", counts.source_tokens), ("target", counts.target_tokens))
            )
            return cls(source, target, counts)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: SupportsIndex) -> tuple[UInt[np.ndarray, " source"], UInt[np.ndarray, " target"]]:
        return self.source[index], self.target[index]


def prepare(
    corpus: Corpus,
    vocabularies: Vocabularies,
    cache: Path,
    *,
    max_len: int = 256,
    overlong: Overlong = "skip",
    progress: Callable[[int], None] | None = None,
    drop: MergeDropout | None = None,
    copying: bool = False,
    say: Callable[[str], None] | None = None,
) -> PairStore:
    """The corpus as token ids, from a folder under `cache`: reused when nothing changed, else written now.

    `max_len` is the longest row a model may be given: a source's pieces and `eos`, or `bos` and a target's pieces.
    Pairs with a longer side are skipped, cut or refused as `overlong` says; pairs with a blank side are skipped;
    the store's `counts` tell how many. Tokenises on all cores in memory that does not grow with the corpus.
    `progress` is called with the number of pairs read so far. `drop` asks for a variant with merges left out,
    which takes one core.
    With `copying`, words of a source that a joint word vocabulary does not know are numbered after it.
    `say` is told where a folder is damaged, and prepared again.
    """
    if max_len < 2:
        raise ConfigError(f"max_len={max_len} must be at least 2: one piece and a special token")
    varied: list[Any] = [] if drop is None else [drop.rate, drop.variant, SPELLINGS]
    varied += ["copying"] if copying else []
    return cached(
        cache,
        [VERSION, corpus.digest(), vocabularies.digest(), max_len, overlong, *varied],
        PairStore.open,
        lambda folder: _write(folder, corpus, vocabularies, max_len, overlong, progress, drop, copying),
        say,
    )


def _write(
    folder: Path,
    corpus: Corpus,
    vocabularies: Vocabularies,
    max_len: int,
    overlong: Overlong,
    progress: Callable[[int], None] | None,
    drop: MergeDropout | None,
    copying: bool,
) -> None:
    source, target = vocabularies.source, vocabularies.target
    encode_source, encode_target = (
        side.encode_batch if drop is None else drop.encoder(side) for side in (source, target)
    )
    largest = max(source.vocab_size, target.vocab_size) + (max_len if copying else 0)
    dtype = token_dtype(largest)
    read = kept = blank = long = cut = 0
    with ExitStack() as stack:
        sources = _Writer(folder, "source", dtype, stack)
        targets = _Writer(folder, "target", dtype, stack)
        for chunk in _chunks(corpus):
            full = [(read + row, pair) for row, pair in enumerate(chunk, 1) if pair[0].strip() and pair[1].strip()]
            read, blank = read + len(chunk), blank + len(chunk) - len(full)
            texts = [pair for _, pair in full]
            if copying:
                encoded = [encode_with_copies(vocabularies, *pair) for pair in texts]
            else:
                sides = encode_source([one for one, _ in texts]), encode_target([other for _, other in texts])
                encoded = list(zip(*sides, strict=True))
            rows: list[tuple[list[int], list[int]]] = []
            for (number, _), (ids, other) in zip(full, encoded, strict=True):
                longest = max(len(source.opening) + len(ids), len(target.opening) + len(other)) + 1
                if longest > max_len:
                    if overlong == "refuse":
                        raise DataError(f"pair {number} is {longest} tokens long; max_len={max_len} is the most")
                    if overlong == "skip":
                        long += 1
                        continue
                    cut += 1
                    ids, other = (
                        row[: max_len - 1 - len(side.opening)] for row, side in ((ids, source), (other, target))
                    )
                    if copying:  # what stood in the part of the source that was cut cannot be copied
                        here = {*ids, *range(source.vocab_size)}
                        other = [index if index in here else source.unk for index in other]
                rows.append((vocabularies.source_row(ids), vocabularies.target_row(other)))
            kept += len(rows)
            sources.append([row[0] for row in rows])
            targets.append([row[1] for row in rows])
            if progress is not None:
                progress(read)
    if not kept:
        raise DataError(f"none of {read} pairs can be used: {blank} have a blank side, {long} exceed max_len={max_len}")
    counts = Counts(read, kept, blank, long, cut, sources.tokens, targets.tokens)
    pads = {"source": source.pad, "target": target.pad}
    write_meta(folder, VERSION, dtype=dtype.name, pad=pads, counts=asdict(counts))


class _Writer:
    """One side's token and offset files, appended to."""

    def __init__(self, folder: Path, side: str, dtype: np.dtype, stack: ExitStack) -> None:
        self._dtype = dtype
        self._tokens: IO[bytes] = stack.enter_context((folder / f"{side}.tokens").open("wb"))
        self._offsets: IO[bytes] = stack.enter_context((folder / f"{side}.offsets").open("wb"))
        self._offsets.write(np.zeros(1, dtype=np.int64).tobytes())
        self.tokens = 0

    def append(self, rows: list[list[int]]) -> None:
        ends = self.tokens + np.cumsum([len(row) for row in rows], dtype=np.int64)
        self._tokens.write(np.array([token for row in rows for token in row], dtype=self._dtype).tobytes())
        self._offsets.write(ends.tobytes())
        self.tokens = int(ends[-1]) if len(ends) else self.tokens


def _chunks(corpus: Corpus) -> Iterator[list[tuple[str, str]]]:
    pairs = iter(corpus)
    while chunk := list(islice(pairs, CHUNK)):
        yield chunk
