"""Tokenise once: a corpus to a folder of mapped arrays, named by everything that could change them."""

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from regard.data.readers import Corpus
from regard.data.store import VERSION, Counts, PairStore, write_meta
from regard.errors import ConfigError, DataError
from regard.text import Vocabularies
from regard.text.bpe_dropout import SPELLINGS, MergeDropout
from regard.text.encoder_inputs import Overlong
from regard.text.vocabularies import encode_with_copies

Store = TypeVar("Store")

CHUNK = 4096  # pairs tokenised at a time: enough to keep every core busy, a few megabytes of text
_ABANDONED = 3600.0  # seconds without a write after which an unfinished folder belongs to no one


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
) -> PairStore:
    """The corpus as token ids, from a folder under `cache`: reused when nothing changed, else written now.

    `max_len` is the longest row a model may be given: a source's pieces and `eos`, or `bos` and a target's pieces.
    Pairs with a longer side are skipped, cut or refused as `overlong` says; pairs with a blank side are skipped;
    the store's `counts` tell how many. Tokenises on all cores in memory that does not grow with the corpus.
    `progress` is called with the number of pairs read so far. `drop` asks for a variant with merges left out,
    which takes one core.
    With `copying`, words of a source that a joint word vocabulary does not know are numbered after it.
    """
    if max_len < 2:
        raise ConfigError(f"max_len={max_len} must be at least 2: one piece and a special token")
    varied: list[Any] = [] if drop is None else [drop.rate, drop.variant, SPELLINGS]
    varied += ["copying"] if copying else []
    return kept_in(
        cache,
        [VERSION, corpus.digest(), vocabularies.digest(), max_len, overlong, *varied],
        PairStore.open,
        lambda folder: _write(folder, corpus, vocabularies, max_len, overlong, progress, drop, copying),
    )


def kept_in(cache: Path, key: list[Any], open: Callable[[Path], Store], write: Callable[[Path], None]) -> Store:
    """What `open` finds in the folder of `cache` that `key` names; if that is not there or not whole, `write` it first.

    `open` raises a DataError where something is missing. Two processes may prepare the same at once.
    """
    folder = cache / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
    try:
        return open(folder)
    except DataError:
        pass
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _sweep(cache)
        aside = cache / f".partial-{secrets.token_hex(8)}"
        aside.mkdir()
        try:
            write(aside)
            _settle(aside, folder, open)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise DataError(f"cannot write prepared data to {cache}: {error.strerror or error}") from None
    return open(folder)


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
    dtype = np.dtype(np.uint16 if largest <= 2**16 else np.uint32)
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
                rows.append((vocabularies.source_row(ids), vocabularies.target_row(other)))
            kept += len(rows)
            sources.append([row[0] for row in rows])
            targets.append([row[1] for row in rows])
            if progress is not None:
                progress(read)
    if not kept:
        raise DataError(f"none of {read} pairs can be used: {blank} have a blank side, {long} exceed max_len={max_len}")
    counts = Counts(read, kept, blank, long, cut, sources.tokens, targets.tokens)
    write_meta(folder, dtype=dtype.name, pad={"source": source.pad, "target": target.pad}, counts=counts)


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


def _settle(aside: Path, folder: Path, open: Callable[[Path], Any]) -> None:
    """Give the finished folder its name, once its bytes are on the disk."""
    for path in aside.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    if folder.exists() and not _complete(folder, open):
        shutil.rmtree(folder)
    try:
        aside.rename(folder)
    except OSError:
        # Another process prepared the same data meanwhile: its folder holds the same bytes.
        if not _complete(folder, open):
            raise


def _complete(folder: Path, open: Callable[[Path], Any]) -> bool:
    try:
        open(folder)
    except DataError:
        return False
    return True


def _sweep(cache: Path) -> None:
    """Remove what preparations that were killed left behind."""
    for aside in cache.glob(".partial-*"):
        with suppress(FileNotFoundError):  # finished meanwhile
            newest = max(path.stat().st_mtime for path in [aside, *aside.iterdir()])
            if time.time() - newest > _ABANDONED:
                shutil.rmtree(aside, ignore_errors=True)
