"""Running text as a few long streams, read side by side window after window, so that a state can be carried on."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Int

from regard.data.batches import random_of
from regard.data.windows import TextStore
from regard.errors import ConfigError, DataError
from regard.nn.batch import StreamedWindows, Tokens


class StreamLayout:
    """The text in equal streams, one a row; batch after batch takes the next `length` tokens of each.

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
        return _stretch(self.store, rows)


def streamed_windows(store: TextStore, length: int, *, streams: int = 1) -> Iterator[StreamedWindows]:
    """Every token but the first predicted once, each from all that its stream has read before it.

    One stream reads the whole text. More read it faster, each from a beginning of its own, and so do the few tokens
    that are left over when the text is cut in equal parts.
    """
    predictions = len(store.ids) - 1
    streams = max(1, min(streams, predictions // length))
    for rows in _cuts(predictions, length, streams, 0):
        yield _stretch(store, rows)
    if rest := predictions % streams:
        yield _stretch(store, np.array([0, rest, predictions - rest]))


def _cuts(predictions: int, length: int, streams: int, first: int) -> list[Int[np.ndarray, " numbers"]]:
    """Number, length and starts of each batch of streams that begin at `first`."""
    each = predictions // streams
    starts = first + each * np.arange(streams)
    return [
        np.concatenate(([number, min(length, each - begin)], starts + begin))
        for number, begin in enumerate(range(0, each, length))
    ]


def _stretch(store: TextStore, rows: Int[np.ndarray, " numbers"]) -> StreamedWindows:
    (number, length), starts = rows[:2].tolist(), rows[2:]
    ids = torch.from_numpy(store.ids[starts[:, None] + np.arange(length + 1)].astype(np.int64))
    B = len(starts)
    inputs = Tokens(ids[:, :-1], torch.full((B,), length), padded=False)
    return StreamedWindows(inputs, ids[:, 1:], B * length, torch.arange(B), streams=B, number=number)
