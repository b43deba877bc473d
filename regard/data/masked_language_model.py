"""Rows for pre-training a masked language model: which tokens are masked, and pairs for next-sentence prediction."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from regard.data.batches import random_of, shuffled
from regard.data.sentence_store import SentenceStore
from regard.errors import DataError
from regard.nn.batch import MaskedTexts, Texts, Tokens
from regard.nn.losses.cross_entropy import IGNORE
from regard.text.encoder_inputs import InputTemplate

SHORT = 0.1  # of rows aim at a random length, as texts will have when the model is used

MASKED, RANDOM = 0.8, 0.1  # of the tokens chosen; the rest stay as they are


@dataclass(frozen=True)
class Masking:
    """`share` of the tokens are chosen: 80 % of them become `mask`, 10 % a random one of `ordinary`, 10 % stay as they
    are. `whole_words` chooses all pieces of a word or none."""

    mask: int
    ordinary: Int[np.ndarray, " V"]
    share: float = 0.15
    whole_words: bool = False

    def mask_tokens(
        self,
        ids: Int[np.ndarray, "B S"],
        maskable: Bool[np.ndarray, "B S"],
        begins: Bool[np.ndarray, "B S"],
        random: np.random.Philox,
    ) -> tuple[Int[np.ndarray, "B S"], Bool[np.ndarray, "B S"]]:
        """The ids after masking, and where tokens were chosen, of `maskable` ones; `begins` says where words begin."""
        masked = self._chosen(maskable, begins, uniform(random, ids.shape))
        what = uniform(random, ids.shape)
        words = self.ordinary[random.random_raw(ids.size).reshape(ids.shape) % len(self.ordinary)]
        changed = np.where(masked & (what < MASKED), self.mask, ids)
        return np.where(masked & (what >= MASKED) & (what < MASKED + RANDOM), words, changed), masked

    def _chosen(
        self, maskable: Bool[np.ndarray, "B S"], begins: Bool[np.ndarray, "B S"], keys: Float[np.ndarray, "B S"]
    ) -> Bool[np.ndarray, "B S"]:
        """Of each row the `share` of its tokens with the lowest sort keys, rounded, and at least one."""
        counts = np.maximum(1, np.rint(self.share * maskable.sum(1))).astype(np.int64)
        if self.whole_words:
            # The pieces of a word share the key of its first, so that they stand together in the order below.
            columns = np.broadcast_to(np.arange(maskable.shape[1]), maskable.shape)
            first = np.maximum.accumulate(np.where(begins | ~maskable, columns, 0), axis=1)
            keys = np.take_along_axis(keys, first, 1)
        keys = np.where(maskable, keys, 2.0)
        order = np.argsort(keys, axis=1, kind="stable")
        sorted_keys = np.take_along_axis(keys, order, 1)
        taken = np.broadcast_to(np.arange(maskable.shape[1]), maskable.shape) < counts[:, None]
        if self.whole_words:
            beyond = np.minimum(counts, maskable.shape[1] - 1)[:, None]
            cut = np.take_along_axis(sorted_keys, beyond, 1)  # a word that does not fit whole is left alone
            taken &= (sorted_keys != cut) | (counts[:, None] >= maskable.shape[1])
            taken |= sorted_keys == sorted_keys[:, :1]  # but one word is masked in any case
        chosen = np.zeros_like(maskable)
        np.put_along_axis(chosen, order, taken, 1)
        return chosen & maskable


class MaskedLayout:
    """Batches of rows with masked words. Which spans make a row, and which words are masked, are a function of the
    seed and of the batch's place in the stream.

    With `pairs`, a row is two spans of whole sentences: half of the time the second goes on from the first, half
    of the time it is from another document. Without, a row is as much of one document as fits.
    """

    def __init__(
        self,
        store: SentenceStore,
        template: InputTemplate,
        masking: Masking,
        *,
        length: int,
        budget: int,
        pairs: bool,
        pad: int,
        segmented: bool,
    ) -> None:
        self.store, self.template, self.masking, self.pairs = store, template, masking, pairs
        self.room = template.room(length, pairs)
        self.rows, self.pad, self.segmented = max(1, budget // length), pad, segmented
        self.sizes = np.diff(store.offsets)
        counts = np.diff(store.documents)
        # A heading alone has nothing to go on with, and would give itself away.
        self.usable = np.flatnonzero(counts >= (2 if pairs else 1))
        if self.room < (8 if pairs else 2):
            raise DataError(f"data.max_len={length} leaves room for {self.room} tokens of text; raise it")
        if len(self.usable) < (2 if pairs else 1):
            raise DataError(
                "next-sentence pairs need at least two documents of two sentences: put a blank line between documents, "
                "or set model.head='words' to learn words alone"
            )

    def order(self, seed: int, epoch: int) -> list[np.ndarray]:
        """The rows of each batch of one epoch; the first line of each says the seed, the epoch and its number.

        A row is where its two spans begin and end in the store, and whether the second is from elsewhere.
        """
        random = random_of(seed, epoch)
        rows = np.array(list(self._pairs(random) if self.pairs else self._single_spans(random)), dtype=np.int64)
        rows = rows[shuffled(len(rows), random)]
        groups = []
        for number, start in enumerate(range(0, max(1, len(rows) - len(rows) % self.rows), self.rows)):
            name = np.array([[seed, epoch, number, 0, 0]], dtype=np.int64)
            groups.append(np.concatenate((name, rows[start : start + self.rows])))
        return groups

    def batch(self, group: np.ndarray) -> MaskedTexts:
        (seed, epoch, number), rows = group[0, :3], group[1:]
        ids, segments, maskable, begins, lengths = self._framed(rows)
        # A stream of bits of its own, so that a batch is the same wherever training was taken up.
        random = np.random.Philox(key=np.array([seed, (epoch << 32) + number + 1], dtype=np.uint64), counter=1 << 64)
        changed, masked = self.masking.mask_tokens(ids, maskable, begins, random)
        places, labels = _gathered(ids, masked)
        tokens = Tokens(torch.from_numpy(changed), torch.from_numpy(lengths), bool(lengths.min() < ids.shape[1]))
        count = int(masked.sum())
        return MaskedTexts(
            Texts(tokens, torch.from_numpy(segments) if self.segmented else None),
            torch.from_numpy(places),
            torch.from_numpy(labels),
            torch.from_numpy(rows[:, 4].copy()) if self.pairs else None,
            count,
            count / len(rows),
        )

    def evaluation(self) -> Iterator[MaskedTexts]:
        """Every row once, with the same words masked every time; a pair weighs the same in whichever batch it is."""
        order = self.order(0, 0)
        share = None
        if self.pairs:
            sizes = [(batch.count, batch.labels.shape[0]) for batch in map(self.batch, order)]
            share = sum(count for count, _ in sizes) / sum(rows for _, rows in sizes)
        for batch in map(self.batch, order):
            yield batch if share is None else replace(batch, share=share)

    def _framed(self, rows: Int[np.ndarray, "B columns"]) -> tuple[np.ndarray, ...]:
        """Ids, segments, which tokens are text, which begin a word, and lengths: the template for many rows at once."""
        frame, store = self.template, self.store
        a, b, c, d = rows[:, :4, None].transpose(1, 0, 2)
        between, after = (frame.between, frame.after) if self.pairs else ((), frame.alone)
        start, middle = len(frame.before), len(frame.before) + b - a
        second = middle + len(between)
        end = second + d - c
        lengths = (end + len(after))[:, 0]
        columns = np.arange(int(lengths.max()))[None]
        first, other = (columns >= start) & (columns < middle), (columns >= second) & (columns < end)
        maskable = first | other
        places = np.where(first, a + columns - start, np.where(other, c + columns - second, 0))
        ids = np.where(maskable, store.tokens[places], self.pad).astype(np.int64)
        begins = np.where(maskable, store.begins[places], True)
        segments = np.full(ids.shape, frame.segments[0], dtype=np.int64)
        for kind, begin in enumerate((start, middle, second, end), 1):
            segments = np.where(columns >= begin, frame.segments[kind if self.pairs else min(kind, 2)], segments)
        segments[columns >= lengths[:, None]] = 0
        for begin, tokens in ((start - len(frame.before), frame.before), (middle, between), (end, after)):
            for offset, token in enumerate(tokens):
                ids = np.where(columns == begin + offset, token, ids)
        return ids, segments, maskable, begins, lengths

    def _pairs(self, random: np.random.Philox) -> Iterator[tuple[int, ...]]:
        documents, sizes = self.store.documents, self.sizes.tolist()
        chances = _chances(random)
        for place, document in enumerate(self.usable.tolist()):
            here, end = int(documents[document]), int(documents[document + 1])
            while end - here >= 2:
                target = self.room if next(chances) >= SHORT else 2 + int(next(chances) * (self.room - 1))
                stop = _reached(sizes, here + 1, end, target - sizes[here])
                middle = here + 1 + int(next(chances) * (stop - here - 1))
                if next(chances) < 0.5:
                    yield self._row(here, middle, middle, stop, target, 0)
                    here = stop
                    continue
                pick = int(next(chances) * (len(self.usable) - 1))
                other = self.usable[pick + (pick >= place)]
                low, high = int(documents[other]), int(documents[other + 1])
                start = low + int(next(chances) * (high - low))
                until = _reached(sizes, start, high, target - sum(sizes[here:middle]))
                yield self._row(here, middle, start, until, target, 1)
                here = middle  # what was not used is used next

    def _row(self, a: int, b: int, c: int, d: int, target: int, elsewhere: int) -> tuple[int, ...]:
        """Sentences to tokens. The first span loses its beginning and the second its end, so that where one went on
        from the other it still does."""
        offsets = self.store.offsets
        begin, middle, start, end = (int(offsets[place]) for place in (a, b, c, d))
        first, second = middle - begin, end - start
        half = min(first, max(target // 2, target - second))
        second = min(second, target - half)
        return middle - half, middle, start, start + second, elsewhere

    def _single_spans(self, random: np.random.Philox) -> Iterator[tuple[int, ...]]:
        bounds = self.store.offsets[self.store.documents]
        chances = _chances(random)
        for document in self.usable.tolist():
            here, end = int(bounds[document]), int(bounds[document + 1])
            while here < end:
                size = self.room if next(chances) >= SHORT else 2 + int(next(chances) * (self.room - 1))
                yield here, min(end, here + size), 0, 0, 0
                here += size


def _reached(sizes: list[int], start: int, end: int, wanted: int) -> int:
    """Where the sentences from `start` on have as many tokens as `wanted`: after at least one, and by `end`."""
    stop, size = start + 1, sizes[start]
    while stop < end and size < wanted:
        size += sizes[stop]
        stop += 1
    return stop


def _gathered(ids: Int[np.ndarray, "B S"], masked: np.ndarray) -> tuple[Int[np.ndarray, "B M"], Int[np.ndarray, "B M"]]:
    """Where in each row masked words stand, and which they are; filled up with 0 and IGNORE."""
    counts = masked.sum(1)
    most = max(1, int(counts.max()))
    places = np.zeros((len(ids), most), dtype=np.int64)
    labels = np.full((len(ids), most), IGNORE, dtype=np.int64)
    filled = np.arange(most) < counts[:, None]
    rows, columns = masked.nonzero()
    places[filled], labels[filled] = columns, ids[rows, columns]
    return places, labels


def uniform(random: np.random.Philox, shape: tuple[int, ...]) -> Float[np.ndarray, "*shape"]:
    """Numbers from 0 to below 1, made of raw bits, which numpy promises never to change."""
    raw = random.random_raw(int(np.prod(shape)))
    return (raw >> np.uint64(11)).astype(np.float64).reshape(shape) * 2.0**-53


def _chances(random: np.random.Philox, size: int = 4096) -> Iterator[float]:
    while True:
        yield from uniform(random, (size,)).tolist()
