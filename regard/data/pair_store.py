"""Prepared pairs: tokenised once, token ids on disk, held in memory or mapped into it, read without copies."""

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from jaxtyping import Int32, Int64, UInt

from regard import config as settings
from regard.data.prepared_cache import AppendedFiles, cached, opened, stored, token_dtype, write_meta
from regard.data.readers import Corpus, SplitPairs
from regard.data.shards import Cursor, Unchanged, chunks_from, files_read, shards_by_corpus
from regard.errors import ConfigError, DataError
from regard.text import Vocabularies
from regard.text.bpe_dropout import SPELLINGS, MergeDropout
from regard.text.encoder_inputs import Overlong
from regard.text.tokenizing import EncodedTexts, Tokenizing, check_workers
from regard.text.vocabularies import encode_with_copies

VERSION = 1
CHUNK = 4096  # pairs tokenised at a time: enough to keep every core busy, a few megabytes of text
COMMIT = 64  # chunks after which what is written is synced, so that a preparation that is killed goes on from there


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

    @property
    def whole(self) -> bool:
        """Whether every pair was kept, and none was cut."""
        return not (self.blank or self.overlong or self.truncated)

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
    parts: tuple[int, ...] = ()
    """How many pairs each of several corpora has, one after the other; empty where there is one."""

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
            return cls(source, target, counts, tuple(meta.get("parts", ())))

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
    workers: int = 0,
    say: Callable[[str], None] | None = None,
) -> PairStore:
    """The corpus as token ids, from a folder under `cache`: reused when nothing changed, else written now.

    `max_len` is the longest row a model may be given: a source's pieces and `eos`, or `bos` and a target's pieces.
    Pairs with a longer side are skipped, cut or refused as `overlong` says; pairs with a blank side are skipped;
    the store's `counts` tell how many. Memory does not grow with the corpus. Shards are read one after the other; a
    preparation that is killed goes on in the midst of a shard, from what was last synced, and ends in the same bytes.
    `workers` processes tokenise, or with 0 this one, on all cores. `progress` is called with the number of pairs read
    so far. `drop` asks for a variant with merges left out, which takes one core unless there are `workers`.
    With `copying`, words of a source that a joint word vocabulary does not know are numbered after it.
    `say` is told where a folder is damaged, and prepared again.
    """
    if max_len < 2:
        raise ConfigError(f"max_len={max_len} must be at least 2: one piece and a special token")
    check_workers(workers)
    if copying and workers:
        raise ConfigError(f"data.workers={workers} is not for models that copy: each pair extends the vocabulary")
    varied: list[Any] = [] if drop is None else [drop.rate, drop.variant, SPELLINGS]
    varied += ["copying"] if copying else []
    unchanged = Unchanged(files_read(corpus))
    preparation = _Preparation(corpus, vocabularies, max_len, overlong, drop, copying, workers, progress, say)

    def write(folder: Path) -> None:
        preparation.write(folder)
        unchanged.check()

    key = [VERSION, corpus.digest(), vocabularies.digest(), max_len, overlong, *varied]
    return cached(cache, key, PairStore.open, write, say, resumes=True)


@dataclass(frozen=True, slots=True)
class _Written:
    """What has been written, and where reading then stood."""

    shard: int = 0
    row: int = 0
    read: int = 0
    blank: int = 0
    overlong: int = 0
    truncated: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    kept: tuple[int, ...] = ()
    """Of each corpus."""


@dataclass(frozen=True, slots=True)
class _Preparation:
    """Pairs to token ids in a folder."""

    corpus: Corpus
    vocabularies: Vocabularies
    max_len: int
    overlong: Overlong
    drop: MergeDropout | None
    copying: bool
    workers: int
    progress: Callable[[int], None] | None
    say: Callable[[str], None] | None

    @property
    def dtype(self) -> np.dtype:
        source, target = self.vocabularies.source, self.vocabularies.target
        return token_dtype(max(source.vocab_size, target.vocab_size) + (self.max_len if self.copying else 0))

    def write(self, folder: Path) -> None:
        """All pairs, or those that are left after what the folder has."""
        named = shards_by_corpus(self.corpus)
        shards = [shard for some in named.values() for shard in some]
        corpus_of = np.repeat(np.arange(len(named)), [len(some) for some in named.values()])
        with ExitStack() as stack:
            files = _PairWriter(folder, self.dtype, stack)
            done = files.take_up(len(named))
            if done.read and self.say is not None:
                self.say(f"going on after the {done.read:,} pairs that were tokenised before a kill")
            chunks = chunks_from(shards, Cursor(done.shard, done.row), CHUNK)
            for number, (cursor, chunk, encoded) in enumerate(self._encoded(chunks, done.read), 1):
                done = self._appended(files, done, cursor, chunk, encoded, int(corpus_of[cursor.shard]))
                if number % COMMIT == 0:
                    files.commit(done)
                if self.progress is not None:
                    self.progress(done.read)
        kept = sum(done.kept)
        if not done.read and isinstance(split := self.corpus, SplitPairs):
            side = "held out to validate on" if split.held_out else "left to train on"
            raise DataError(
                f"no pair is {side}: data.held_out={split.share:g} sets sources aside, each with all its targets, and "
                f"these are too few or alike; give more pairs, or files to validate on"
            )
        if not kept:
            raise DataError(
                f"none of {done.read} pairs can be used: {done.blank} have a blank side, {done.overlong} exceed "
                f"max_len={self.max_len}"
            )
        if empty := [name for name, count in zip(named, done.kept, strict=True) if name and not count]:
            raise DataError(f"no pair of the corpus '{empty[0]}' can be used: blank, or longer than {self.max_len}")
        sizes = done.source_tokens, done.target_tokens
        counts = Counts(done.read, kept, done.blank, done.overlong, done.truncated, *sizes)
        pads = {"source": self.vocabularies.source.pad, "target": self.vocabularies.target.pad}
        parts = {"parts": list(done.kept)} if len(named) > 1 else {}
        write_meta(folder, VERSION, dtype=self.dtype.name, pad=pads, counts=asdict(counts), **parts)

    def _encoded(
        self, chunks: Iterator[tuple[Cursor, list[tuple[str, str]]]], read: int
    ) -> "Iterator[tuple[Cursor, _Chunk, list[EncodedTexts]]]":
        """The chunks in their order, each with the ids of both its sides."""

        def jobs() -> "Iterator[tuple[tuple[Cursor, _Chunk], tuple[list[str], list[str]]]]":
            first = read
            for cursor, pairs in chunks:
                full = [row for row, pair in enumerate(pairs) if pair[0].strip() and pair[1].strip()]
                texts = [pairs[row][0] for row in full], [pairs[row][1] for row in full]
                yield (cursor, _Chunk(first, len(pairs), np.array(full, dtype=np.int64))), texts
                first += len(pairs)

        if self.copying:
            for (cursor, chunk), texts in jobs():
                yield cursor, chunk, self._with_copies(*texts)
            return
        sides = self.vocabularies.source, self.vocabularies.target
        with Tokenizing(sides, self.workers, self.drop) as tokenizing:
            for (cursor, chunk), encoded in tokenizing.encode(jobs()):
                yield cursor, chunk, encoded

    def _with_copies(self, sources: list[str], targets: list[str]) -> list[EncodedTexts]:
        rows = [encode_with_copies(self.vocabularies, *pair) for pair in zip(sources, targets, strict=True)]
        source = self.vocabularies.source
        most = self.max_len - 1 - len(source.opening)
        for number, (ids, other) in enumerate(rows):
            if len(ids) > most:  # what stood in the part of the source that is cut cannot be copied
                here = {*ids[:most], *range(source.vocab_size)}
                rows[number] = ids, [index if index in here else source.unk for index in other]
        return [EncodedTexts.of([row[side] for row in rows]) for side in (0, 1)]

    def _appended(
        self,
        files: "_PairWriter",
        done: _Written,
        cursor: Cursor,
        chunk: "_Chunk",
        encoded: list[EncodedTexts],
        corpus: int,
    ) -> _Written:
        """The pairs of a chunk written, and what has been written then."""
        source, target = self.vocabularies.source, self.vocabularies.target
        around = np.array([len(source.opening) + 1, len(target.opening) + 1])
        lengths = np.stack([side.lengths for side in encoded], 1) + around
        longest = lengths.max(1)
        long: np.ndarray = longest > self.max_len
        if self.overlong == "refuse" and long.any():
            first = int(long.argmax())
            raise DataError(
                f"pair {chunk.first + int(chunk.full[first]) + 1} is {longest[first]} tokens long; "
                f"max_len={self.max_len} is the most"
            )
        skipped = int(long.sum()) if self.overlong == "skip" else 0
        kept = ~long if skipped else np.ones_like(long)
        prefixes = source.opening, (target.bos, *target.opening)
        for name, side, prefix, one in zip(("source", "target"), encoded, prefixes, (source, target), strict=True):
            files.append(name, _rows(side, kept, prefix, one.eos, self.max_len - 1 - len(one.opening)))
        counts = list(done.kept)
        counts[corpus] += int(kept.sum())
        return replace(
            done,
            **asdict(cursor),
            read=done.read + chunk.size,
            blank=done.blank + chunk.size - len(chunk.full),
            overlong=done.overlong + skipped,
            truncated=done.truncated + int(long.sum()) - skipped,
            source_tokens=files.tokens["source"],
            target_tokens=files.tokens["target"],
            kept=tuple(counts),
        )


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some pairs: how many were read before them, how many they are, and which of them have two sides."""

    first: int
    size: int
    full: np.ndarray


def _rows(side: EncodedTexts, kept: np.ndarray, prefix: Sequence[int], eos: int, most: int) -> EncodedTexts:
    """The texts that are kept, each cut to so many pieces, with what stands before and after them."""
    ends = np.cumsum(side.lengths)
    places = np.arange(len(side.ids)) - np.repeat(ends - side.lengths, side.lengths)
    ids = side.ids[np.repeat(kept, side.lengths) & (places < most)]
    lengths = np.minimum(side.lengths[kept], most) + len(prefix) + 1
    ends = np.cumsum(lengths)
    rows = np.empty(int(lengths.sum()), dtype=np.uint32)
    inside = np.ones(len(rows), dtype=bool)
    for place, token in enumerate(prefix):
        rows[ends - lengths + place], inside[ends - lengths + place] = token, False
    rows[ends - 1], inside[ends - 1] = eos, False
    rows[inside] = ids
    return EncodedTexts(rows, lengths)


class _PairWriter:
    """The token and offset files of both sides, appended to."""

    def __init__(self, folder: Path, dtype: np.dtype, stack: ExitStack) -> None:
        self._dtype = dtype
        self.tokens = {"source": 0, "target": 0}
        names = [f"{side}.{kind}" for side in self.tokens for kind in ("tokens", "offsets")]
        self._files = AppendedFiles(folder, names, VERSION, stack)

    def take_up(self, corpora: int) -> _Written:
        """What an earlier process had committed to the folder, or nothing."""
        if (state := self._files.take_up()) is not None:
            done = settings.from_mapping(_Written, state)
            self.tokens = {"source": done.source_tokens, "target": done.target_tokens}
            return done
        for side in self.tokens:
            self._files.write(f"{side}.offsets", np.zeros(1, dtype=np.int64).tobytes())
        return _Written(kept=(0,) * corpora)

    def append(self, side: str, rows: EncodedTexts) -> None:
        self._files.write(f"{side}.tokens", rows.ids.astype(self._dtype).tobytes())
        ends = self.tokens[side] + np.cumsum(rows.lengths, dtype=np.int64)
        self._files.write(f"{side}.offsets", ends.tobytes())
        self.tokens[side] = int(ends[-1]) if len(ends) else self.tokens[side]

    def commit(self, done: _Written) -> None:
        self._files.commit(asdict(done))
