"""Language-model data: documents tokenised once into one long row of ids, and windows of it without padding."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, UInt
from torch import Tensor

from regard.data.batches import random_of, shuffled
from regard.data.cache import kept_in
from regard.data.documents import Documents, Piece
from regard.errors import ConfigError, DataError
from regard.nn.batch import Packed, Tokens, Windows
from regard.nn.losses.cross_entropy import IGNORE
from regard.text import Tokenizer

VERSION = 1
CHUNK = 64  # pieces tokenised at a time


@dataclass(frozen=True, slots=True)
class TextCounts:
    """What was read; tokens count the `eos` before the first document and after each."""

    documents: int
    tokens: int
    characters: int
    bytes: int

    def describe(self) -> str:
        """One line for a person."""
        documents = f"{self.documents:,} document" + "s" * (self.documents != 1)
        return f"{documents}, {self.characters:,} characters in {self.tokens:,} tokens"


@dataclass(frozen=True)
class TextStore:
    """Documents as one row of ids: `eos`, then each document and `eos`."""

    ids: UInt[np.ndarray, " tokens"]
    eos: int
    counts: TextCounts

    @classmethod
    def of(cls, pieces: Iterator[Piece] | list[Piece], tokenizer: Tokenizer) -> "TextStore":
        """A store in memory."""
        parts = list(_encoded(iter(pieces), tokenizer))
        ids = np.concatenate([np.array([tokenizer.eos], dtype=np.uint32), *(ids for ids, _ in parts)])
        counts = _sum([counts for _, counts in parts])
        return cls(ids.astype(np.uint32), tokenizer.eos, counts)

    @classmethod
    def open(cls, folder: Path) -> "TextStore":
        """The store that `prepare_text` left in `folder`."""
        try:
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            counts = TextCounts(**meta["counts"])
            ids = np.asarray(np.memmap(folder / "text.tokens", dtype=meta["dtype"], mode="r"))
            if meta["version"] != VERSION or len(ids) != counts.tokens:
                raise ValueError("it is cut short or of another version")
            return cls(ids, meta["eos"], counts)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{folder} holds no prepared text: {error}") from None


def prepare_text(
    documents: Documents, tokenizer: Tokenizer, cache: Path, progress: Callable[[int], None] | None = None
) -> TextStore:
    """The documents as ids, from a folder under `cache`: reused when nothing changed, else written now.

    `progress` is called with the number of tokens written so far.
    """

    def write(folder: Path) -> None:
        dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32)
        counts: list[TextCounts] = []
        with (folder / "text.tokens").open("wb") as file:
            file.write(np.array([tokenizer.eos], dtype=dtype).tobytes())
            for ids, found in _encoded(iter(documents), tokenizer):
                file.write(ids.astype(dtype).tobytes())
                counts.append(found)
                if progress is not None:
                    progress(sum(one.tokens for one in counts))
        meta = {"version": VERSION, "dtype": dtype.name, "eos": tokenizer.eos, "counts": asdict(_sum(counts))}
        (folder / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")

    return kept_in(cache, ["text", VERSION, documents.digest(), tokenizer.digest()], TextStore.open, write)


class WindowLayout:
    """Batches of `rows` windows, each of `length` tokens and the one after it; no padding anywhere.

    An epoch cuts the text into windows from a place of its own, so that over epochs a token stands at every place of
    a window, and takes them in an order of its own. What does not fill a batch is left to other epochs. `isolate`
    hides documents from each other: a document begins with the `eos` before it.
    """

    def __init__(self, store: TextStore, length: int, *, budget: int, isolate: bool = False) -> None:
        if len(store.ids) <= length:
            raise DataError(
                f"the text has {len(store.ids):,} tokens, too few for one window of {length} and the token after it; "
                f"lower data.max_len"
            )
        if budget < length:
            raise ConfigError(f"budget={budget} tokens per batch is less than one window, which has {length}")
        self.store, self.length, self.isolate = store, length, isolate
        self.rows = budget // length

    def order(self, seed: int, epoch: int) -> list[Int[np.ndarray, " rows"]]:
        """Where the windows of each batch begin."""
        random = random_of(seed, epoch)
        spare = len(self.store.ids) - 1 - self.length
        first = int(random.random_raw() % min(self.length, spare + 1))
        starts = np.arange(first, spare + 1, self.length)
        starts = starts[shuffled(len(starts), random)]
        if len(starts) < self.rows:
            return [starts]
        full = len(starts) - len(starts) % self.rows
        return list(starts[:full].reshape(-1, self.rows))

    def batch(self, rows: Int[np.ndarray, " rows"]) -> Windows:
        ids = _gather(self.store, rows, self.length + 1)
        return Windows(_inputs(ids[:, :-1], self.store.eos, self.isolate), ids[:, 1:], ids[:, 1:].numel())


def strided_windows(
    store: TextStore, length: int, *, stride: int, budget: int, isolate: bool = False
) -> Iterator[Windows]:
    """Every token but the first predicted once, in windows of `length` that begin `stride` tokens apart.

    The first window predicts all its tokens, each later one its last `stride`: those before only give context. So
    a token is predicted from at least `length - stride` tokens, where the text has them.
    """
    if not 1 <= stride <= length:
        raise ConfigError(f"stride={stride} must be from 1 to the window's length of {length}")
    last = len(store.ids) - 1  # predictions to make
    length = min(length, last)
    starts = np.arange(0, last - length + 1, stride)
    for begin in range(0, len(starts), max(1, budget // length)):
        rows = starts[begin : begin + max(1, budget // length)]
        ids = _gather(store, rows, length + 1)
        labels = ids[:, 1:].clone()
        labels[1 if begin == 0 else 0 :, : length - stride] = IGNORE
        yield Windows(_inputs(ids[:, :-1], store.eos, isolate), labels, int((labels != IGNORE).sum()))
    done = int(starts[-1]) + length
    if done < last:  # one more, as far back as a full window reaches
        ids = _gather(store, np.array([last - length]), length + 1)
        labels = ids[:, 1:].clone()
        labels[:, : length - (last - done)] = IGNORE
        yield Windows(_inputs(ids[:, :-1], store.eos, isolate), labels, last - done)


def backward_windows(store: TextStore, length: int, *, stride: int, budget: int) -> Iterator[Windows]:
    """The same for a model that reads from the end: `labels` are the tokens before those of `inputs`.

    The last window predicts all its tokens, each earlier one its first `stride`, from at least `length - stride` tokens
    after them, where the text has them.
    """
    mirrored = replace(store, ids=store.ids[::-1])
    for batch in strided_windows(mirrored, length, stride=stride, budget=budget):
        inputs = replace(batch.inputs, ids=batch.inputs.ids.flip(1))
        yield Windows(inputs, batch.labels.flip(1), batch.count)


def _gather(store: TextStore, starts: Int[np.ndarray, " rows"], length: int) -> Int[Tensor, "rows length"]:
    return torch.from_numpy(store.ids[starts[:, None] + np.arange(length)].astype(np.int64))


def _inputs(ids: Int[Tensor, "B T"], eos: int, isolate: bool) -> Tokens | Packed:
    B, T = ids.shape
    if not isolate:
        return Tokens(ids, torch.full((B,), T), padded=False)
    begins = ids == eos
    columns = torch.arange(T).expand(B, T)
    places = columns - torch.where(begins, columns, 0).cummax(1).values
    return Packed(ids, places, 1 + begins.cumsum(1))


def _encoded(pieces: Iterator[Piece], tokenizer: Tokenizer) -> Iterator[tuple[UInt[np.ndarray, " tokens"], TextCounts]]:
    """The ids of a few pieces at a time, an `eos` after each document."""
    found = False
    while chunk := list(islice(pieces, CHUNK)):
        found = True
        rows = tokenizer.encode_batch([piece.text for piece in chunk])
        ids = [token for row, piece in zip(rows, chunk, strict=True) for token in _closed(row, piece, tokenizer.eos)]
        yield (
            np.array(ids, dtype=np.uint32),
            TextCounts(
                documents=sum(piece.last for piece in chunk),
                tokens=len(ids),
                characters=sum(len(piece.text) for piece in chunk),
                bytes=sum(len(piece.text.encode()) for piece in chunk),
            ),
        )
    if not found:
        raise DataError("there is no text: every document is blank")


def _closed(row: list[int], piece: Piece, eos: int) -> list[int]:
    return [*row, eos] if piece.last else row


def _sum(counts: list[TextCounts]) -> TextCounts:
    names = ("documents", "tokens", "characters", "bytes")
    total = {name: sum(getattr(one, name) for one in counts) for name in names}
    return TextCounts(**{**total, "tokens": total["tokens"] + 1})  # the eos that opens the text
