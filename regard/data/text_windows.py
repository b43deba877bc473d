"""Language-model data: documents as one long row of ids, cut into windows in random order or into parallel streams."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, UInt
from torch import Tensor

from regard import config as settings
from regard.data.mixing import Mix, random_of, shuffled
from regard.data.prepared_cache import AppendedFiles, cached, opened, stored, token_dtype, write_meta
from regard.data.readers import DocumentPart, Documents
from regard.data.shards import Unchanged
from regard.data.sharing import bounds
from regard.errors import ConfigError, DataError
from regard.nn.batch import Packed, StreamedWindows, Tokens, Windows
from regard.nn.losses.cross_entropy import IGNORE
from regard.text import Tokenizer
from regard.text.tokenizing import EncodedTexts, Tokenizing

VERSION = 1
CHUNK = 64  # parts tokenised at a time
COMMIT = 64  # chunks after which what is written is synced
NO_TEXT = "there is no text: every document is blank"


@dataclass(frozen=True, slots=True)
class TextCounts:
    """What was read; tokens count the `eos` before the first document and after each."""

    documents: int
    tokens: int
    characters: int
    bytes: int

    def plus(self, parts: Sequence[DocumentPart], tokens: int) -> "TextCounts":
        """With these parts of documents, of so many tokens."""
        return TextCounts(
            self.documents + sum(part.last for part in parts),
            self.tokens + tokens,
            self.characters + sum(len(part.text) for part in parts),
            self.bytes + sum(len(part.text.encode()) for part in parts),
        )

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
    parts: tuple[int, ...] = ()
    """How many tokens each of several corpora has, one after the other; empty where there is one."""

    @classmethod
    def of(cls, parts: Iterator[DocumentPart] | list[DocumentPart], tokenizer: Tokenizer) -> "TextStore":
        """A store in memory."""
        rows, total = [np.array([tokenizer.eos], dtype=np.uint32)], TextCounts(0, 1, 0, 0)
        following = iter(parts)
        while chunk := list(islice(following, CHUNK)):
            ids = _closed(EncodedTexts.of(tokenizer.encode_batch([part.text for part in chunk])), chunk, tokenizer.eos)
            rows.append(ids)
            total = total.plus(chunk, len(ids))
        if len(rows) == 1:
            raise DataError(NO_TEXT)
        return cls(np.concatenate(rows), tokenizer.eos, total)

    @classmethod
    def open(cls, folder: Path) -> "TextStore":
        """The store that `prepare_text` left in `folder`."""
        with opened(folder, "text", VERSION) as meta:
            counts = TextCounts(**meta["counts"])
            ids = stored(folder / "text.tokens", meta["dtype"], counts.tokens)
            return cls(ids, meta["eos"], counts, tuple(meta.get("parts", ())))


@dataclass(frozen=True, slots=True)
class _WrittenText:
    """What has been written, and where reading then stood: after so many parts of a file."""

    counts: TextCounts
    parts: tuple[int, ...]
    file: int = 0
    part: int = 0


def prepare_text(
    documents: Documents,
    tokenizer: Tokenizer,
    cache: Path,
    progress: Callable[[int], None] | None = None,
    say: Callable[[str], None] | None = None,
    workers: int = 0,
) -> TextStore:
    """The documents as ids, from a folder under `cache`: reused when nothing changed, else written now.

    Memory does not grow with the text. A preparation that is killed goes on in the midst of a file, from what was last
    synced. `workers` processes tokenise, or with 0 this one, on all cores. `progress` is called with the number of
    tokens written so far, `say` told where a folder is damaged.
    """
    unchanged = Unchanged(documents.paths)

    def chunks(done: _WrittenText) -> Iterator[tuple[tuple[int, int, list[DocumentPart]], list[list[str]]]]:
        for file in range(done.file, len(documents.paths)):
            place = done.part if file == done.file else 0
            parts = islice(iter(replace(documents, paths=(documents.paths[file],), corpora=())), place, None)
            while chunk := list(islice(parts, CHUNK)):
                place += len(chunk)
                yield (file, place, chunk), [[part.text for part in chunk]]

    def write(folder: Path) -> None:
        dtype = token_dtype(tokenizer.vocab_size)
        with ExitStack() as stack:
            files = AppendedFiles(folder, ["text.tokens"], VERSION, stack)
            if (state := files.take_up()) is not None:
                done = settings.from_mapping(_WrittenText, state)
                if say is not None:
                    say(f"going on after the {done.counts.tokens:,} tokens that were written before a kill")
            else:
                files.write("text.tokens", np.array([tokenizer.eos], dtype=dtype).tobytes())
                done = _WrittenText(TextCounts(0, 1, 0, 0), (1, *[0] * (max(1, len(documents.corpora)) - 1)))
            tokenizing = stack.enter_context(Tokenizing([tokenizer], workers))
            for number, ((file, place, chunk), (encoded,)) in enumerate(tokenizing.encode(chunks(done)), 1):
                ids = _closed(encoded, chunk, tokenizer.eos)
                files.write("text.tokens", ids.astype(dtype).tobytes())
                parts = list(done.parts)
                parts[documents.corpus_of(file)] += len(ids)
                done = _WrittenText(done.counts.plus(chunk, len(ids)), tuple(parts), file, place)
                if number % COMMIT == 0:
                    files.commit(asdict(done))
                if progress is not None:
                    progress(done.counts.tokens)
        if not done.counts.documents:
            raise DataError(documents.none_left() if documents.share else NO_TEXT)
        unchanged.check()
        more = {"parts": done.parts} if documents.corpora else {}
        write_meta(folder, VERSION, dtype=dtype.name, eos=tokenizer.eos, counts=asdict(done.counts), **more)

    key = ["text", VERSION, documents.digest(), tokenizer.digest()]
    return cached(cache, key, TextStore.open, write, say, resumes=True)


def _closed(encoded: EncodedTexts, parts: Sequence[DocumentPart], eos: int) -> UInt[np.ndarray, " tokens"]:
    """The ids of some parts, an `eos` after each document."""
    ends = np.cumsum(encoded.lengths)[[part.last for part in parts]]
    return np.insert(encoded.ids, ends, np.uint32(eos))


class WindowLayout:
    """Batches of `rows` windows, each of `length` tokens and the one after it; no padding anywhere.

    An epoch cuts the text into windows from a place of its own, so that over epochs a token stands at every place of
    a window, and takes them in an order of its own. What does not fill a batch is left to other epochs. `isolate`
    hides documents from each other: a document begins with the `eos` before it. Of several corpora a `mix` says how
    many windows of each an epoch has; none then reaches from one corpus into another.
    """

    def __init__(
        self, store: TextStore, length: int, *, budget: int, isolate: bool = False, mix: Mix | None = None
    ) -> None:
        if len(store.ids) <= length:
            raise DataError(
                f"the text has {len(store.ids):,} tokens, too few for one window of {length} and the token after it; "
                f"lower data.max_len"
            )
        if budget < length:
            raise ConfigError(f"budget={budget} tokens per batch is less than one window, which has {length}")
        self.store, self.length, self.isolate = store, length, isolate
        self.rows = budget // length
        self.mixture = None if mix is None else mix.of(self._windows(mix.names))

    def _windows(self, names: Sequence[str]) -> list[int]:
        """How many windows of each corpus there are, from whatever place they are cut."""
        found = [(tokens - 1) // self.length for tokens in self.store.parts]
        for name, tokens, windows in zip(names, self.store.parts, found, strict=True):
            if not windows:
                raise DataError(
                    f"the corpus '{name}' has {tokens:,} tokens, too few for one window of {self.length} and the token "
                    f"after it; lower data.max_len"
                )
        return found

    def order(self, seed: int, epoch: int) -> list[Int[np.ndarray, " rows"]]:
        """Where the windows of each batch begin."""
        random = random_of(seed, epoch)
        if self.mixture is None:
            spare = len(self.store.ids) - 1 - self.length
            first = int(random.random_raw() % min(self.length, spare + 1))
            starts = np.arange(first, spare + 1, self.length)
        else:
            starts = self._mixed_starts(seed, epoch, random)
        starts = starts[shuffled(len(starts), random)]
        if len(starts) < self.rows:
            return [starts]
        full = len(starts) - len(starts) % self.rows
        return list(starts[:full].reshape(-1, self.rows))

    def _mixed_starts(self, seed: int, epoch: int, random: np.random.Philox) -> Int[np.ndarray, " rows"]:
        """Where the windows of an epoch begin, those of each corpus from a place of its own."""
        assert self.mixture is not None
        tokens, windows = np.array(self.store.parts), np.array(self.mixture.sizes)
        begins, firsts = np.cumsum(tokens) - tokens, np.cumsum(windows) - windows
        spare = tokens - 1 - windows * self.length
        places = begins + (random.random_raw(len(tokens)) % (spare + 1).astype(np.uint64)).astype(np.int64)
        rows = self.mixture.rows(seed, epoch)
        corpus = np.searchsorted(firsts, rows, "right") - 1
        return places[corpus] + (rows - firsts[corpus]) * self.length

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
