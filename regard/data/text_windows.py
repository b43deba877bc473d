"""Language-model data: documents as one long row of ids, cut into windows in random order or into parallel streams."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, UInt
from torch import Tensor

from regard.data.mixing import random_of, shuffled
from regard.data.prepared_cache import cached, opened, stored, token_dtype, write_meta
from regard.data.readers import DocumentPart, Documents
from regard.data.sharing import bounds
from regard.errors import ConfigError, DataError
from regard.nn.batch import Packed, StreamedWindows, Tokens, Windows
from regard.nn.losses.cross_entropy import IGNORE
from regard.text import Tokenizer

VERSION = 1
CHUNK = 64  # parts tokenised at a time


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
    def of(cls, parts: Iterator[DocumentPart] | list[DocumentPart], tokenizer: Tokenizer) -> "TextStore":
        """A store in memory."""
        encoded, counts = zip(*_encoded(iter(parts), tokenizer), strict=True)
        ids = np.concatenate([np.array([tokenizer.eos], dtype=np.uint32), *encoded])
        return cls(ids.astype(np.uint32), tokenizer.eos, _sum(counts))

    @classmethod
    def open(cls, folder: Path) -> "TextStore":
        """The store that `prepare_text` left in `folder`."""
        with opened(folder, "text", VERSION) as meta:
            counts = TextCounts(**meta["counts"])
            return cls(stored(folder / "text.tokens", meta["dtype"], counts.tokens), meta["eos"], counts)


def prepare_text(
    documents: Documents,
    tokenizer: Tokenizer,
    cache: Path,
    progress: Callable[[int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> TextStore:
    """The documents as ids, from a folder under `cache`: reused when nothing changed, else written now.

    `progress` is called with the number of tokens written so far, `say` told where a folder is damaged.
    """

    def write(folder: Path) -> None:
        dtype = token_dtype(tokenizer.vocab_size)
        counts: list[TextCounts] = []
        with (folder / "text.tokens").open("wb") as file:
            file.write(np.array([tokenizer.eos], dtype=dtype).tobytes())
            for ids, found in _encoded(iter(documents), tokenizer):
                file.write(ids.astype(dtype).tobytes())
                counts.append(found)
                if progress is not None:
                    progress(sum(one.tokens for one in counts))
        write_meta(folder, VERSION, dtype=dtype.name, eos=tokenizer.eos, counts=asdict(_sum(counts)))

    return cached(cache, ["text", VERSION, documents.digest(), tokenizer.digest()], TextStore.open, write, say)


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

    def share(self, rows: Int[np.ndarray, " rows"], member: int, members: int) -> Windows | None:
        first, last = bounds(len(rows), member, members)
        return self.batch(rows[first:last]) if first < last else None


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


class StreamLayout:
    """The text in equal streams, one per row; batch after batch takes the next `length` tokens of each.

    An epoch cuts the text from a place of its own, so that windows end elsewhere each time. What does not fill a
    window, before the first and after the last of a stream, is left to other epochs.
    """

    def __init__(self, store: TextStore, length: int, *, budget: int) -> None:
        if budget < length:
            raise ConfigError(f"budget={budget} tokens per batch is less than one window, which has {length}")
        self.store, self.length, self.streams = store, length, budget // length
        if len(store.ids) <= self.streams * length:
            raise DataError(
                f"the text has {len(store.ids):,} tokens, too few for {self.streams} streams of at least {length} and "
                f"the token after them; lower train.batch_tokens or data.max_len"
            )

    def order(self, seed: int, epoch: int) -> list[Int[np.ndarray, " numbers"]]:
        """For each batch its number in the epoch, the length of its windows, and where they begin."""
        random = random_of(seed, epoch)
        spare = len(self.store.ids) - 1 - self.streams * self.length
        first = int(random.random_raw() % min(self.length, spare + 1))
        cuts = _cuts(len(self.store.ids) - 1 - first, self.length, self.streams, first)
        return [cut for cut in cuts if cut[1] == self.length]

    def batch(self, rows: Int[np.ndarray, " numbers"]) -> StreamedWindows:
        return _stream_batch(self.store, rows)


def streamed_windows(store: TextStore, length: int, *, streams: int = 1) -> Iterator[StreamedWindows]:
    """Every token but the first predicted once, each from all that its stream has read before it.

    One stream reads the whole text. More read it faster, each from a beginning of its own, and so do the few tokens
    that are left over when the text is cut in equal parts.
    """
    predictions = len(store.ids) - 1
    streams = max(1, min(streams, predictions // length))
    for rows in _cuts(predictions, length, streams, 0):
        yield _stream_batch(store, rows)
    if rest := predictions % streams:
        yield _stream_batch(store, np.array([0, rest, predictions - rest]))


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


def _encoded(
    parts: Iterator[DocumentPart], tokenizer: Tokenizer
) -> Iterator[tuple[UInt[np.ndarray, " tokens"], TextCounts]]:
    """The ids of a few parts at a time, an `eos` after each document."""
    found = False
    while chunk := list(islice(parts, CHUNK)):
        found = True
        rows = tokenizer.encode_batch([part.text for part in chunk])
        closed = ([*row, tokenizer.eos] if part.last else row for row, part in zip(rows, chunk, strict=True))
        ids = [token for row in closed for token in row]
        yield (
            np.array(ids, dtype=np.uint32),
            TextCounts(
                documents=sum(part.last for part in chunk),
                tokens=len(ids),
                characters=sum(len(part.text) for part in chunk),
                bytes=sum(len(part.text.encode()) for part in chunk),
            ),
        )
    if not found:
        raise DataError("there is no text: every document is blank")


def _sum(counts: Sequence[TextCounts]) -> TextCounts:
    total = TextCounts(*(sum(column) for column in zip(*map(astuple, counts), strict=True)))
    return replace(total, tokens=total.tokens + 1)  # the eos that opens the text


def _cuts(predictions: int, length: int, streams: int, first: int) -> list[Int[np.ndarray, " numbers"]]:
    """Number, length and starts of each batch of streams that begin at `first`."""
    each = predictions // streams
    starts = first + each * np.arange(streams)
    return [
        np.concatenate(([number, min(length, each - begin)], starts + begin))
        for number, begin in enumerate(range(0, each, length))
    ]


def _stream_batch(store: TextStore, rows: Int[np.ndarray, " numbers"]) -> StreamedWindows:
    (number, length), starts = rows[:2].tolist(), rows[2:]
    ids = torch.from_numpy(store.ids[starts[:, None] + np.arange(length + 1)].astype(np.int64))
    B = len(starts)
    inputs = Tokens(ids[:, :-1], torch.full((B,), length), padded=False)
    return StreamedWindows(inputs, ids[:, 1:], B * length, torch.arange(B), streams=B, number=number)
