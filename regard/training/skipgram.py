"""Word vectors by skip-gram or CBOW with negative sampling (Mikolov 2013), a few thousand words per update.

By skip-gram a word's vector is trained to tell the words around it from randomly sampled ones; by CBOW the mean of the
vectors around a word is trained to tell that word from sampled ones. The usual program goes pair by pair.
Here a block of running text is one product: the vectors of its words against the second vectors of all words of the
block and a window around it, of which the pairs nearer than each word's own window count. The negative samples are
shared by all words of an update, each weighing as much less as there are more of them, so the loss is the same on
average.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ConfigError, DataError, check_at_least

BLOCK = 64
"""Words of one product: fewer waste more of it on the windows at its sides, more on pairs too far apart."""

BLOCKS = 16
"""Blocks of one update."""

NEGATIVES = 192
"""Negative samples of one update."""


METHODS = ("skip-gram", "cbow")


@dataclass(frozen=True, kw_only=True, slots=True)
class SkipGramConfig:
    """A word's window is sampled from 1 to `window`. A word that makes up more than `subsample` of the text is
    subsampled to bring it nearer to that. There are `negatives` negative samples per pair, by their counts to the power
    of 3/4. The learning rate of Adagrad, one for each word, goes down to 0. `method` is what predicts what: by
    `skip-gram` a word those around it, by `cbow` those around it the word.
    """

    width: int = 100
    window: int = 5
    negatives: int = 5
    subsample: float = 1e-3
    epochs: int = 5
    learning_rate: float = 0.2
    seed: int = 1
    method: str = "skip-gram"

    def __post_init__(self) -> None:
        check_at_least(self, 1, "width", "window", "negatives", "epochs")
        if self.method not in METHODS:
            raise ConfigError(f"method='{self.method}' must be one of {', '.join(METHODS)}")
        if self.window >= BLOCK:
            raise ConfigError(f"window={self.window} must be below {BLOCK}")
        if self.subsample < 0 or self.learning_rate <= 0 or self.seed < 0:
            raise ConfigError("subsample and seed must not be negative, and learning_rate must be above 0")


def train_skip_gram(
    ids: Int[np.ndarray, " tokens"],
    vocab_size: int,
    config: SkipGramConfig,
    progress: Callable[[int, int], None] | None = None,
) -> Float[np.ndarray, "V D"]:
    """A vector for each id. The same text and settings give the same vectors, with as many threads.

    `progress` is called with how many words have been read, of how many.
    """
    counts = np.bincount(ids, minlength=vocab_size)
    if len(ids) < 2:
        raise DataError("a text of less than two words has no words around a word")
    words, contexts = _Table.random(vocab_size, config), _Table.zeros(vocab_size, config)
    chosen = np.cumsum(counts**0.75)
    total, done = config.epochs * len(ids), 0
    with torch.no_grad():
        for epoch in range(config.epochs):
            uniforms = _Uniforms(config.seed, epoch)
            kept, share = _subsampled(ids, counts, config.subsample, uniforms)
            for text, centre, near in _blocks(kept, config.window, uniforms):
                negative_ids = torch.from_numpy(
                    np.searchsorted(chosen, uniforms.uniform(NEGATIVES) * chosen[-1], side="right")
                )
                rate = config.learning_rate * max(1e-3, 1 - done / total)
                update = _update if config.method == "skip-gram" else _update_by_mean
                update(words, contexts, text, centre, near, negative_ids, config.negatives, rate)
                done = min(total, done + round(BLOCK * BLOCKS / share))
                if progress is not None:
                    progress(done, total)
            done = (epoch + 1) * len(ids)
    return words.weight.numpy()


def _update(
    words: "_Table",
    contexts: "_Table",
    text: Int[Tensor, "N M"],
    centre: Int[Tensor, "N C"],
    near: Float[Tensor, "N C M"],
    negative_ids: Int[Tensor, " K"],
    negatives: int,
    rate: float,
) -> None:
    """One update from `centre`, blocks of words, and `text`, the same with a window on each side."""
    v, u, w = words.weight[centre], contexts.weight[text], contexts.weight[negative_ids]
    pairs = near.sum(-1, keepdim=True)
    # The gradient of -log sigmoid(x) is sigmoid(x) - 1, that of -log sigmoid(-x) is sigmoid(x).
    pull = (v @ u.mT).sigmoid_().sub_(1).mul_(near)
    push = (v @ w.mT).sigmoid_().mul_(pairs * (negatives / len(negative_ids)))
    words.descend(centre, pull @ u + push @ w, rate)
    contexts.descend(
        torch.cat((text.flatten(), negative_ids)),
        torch.cat(((pull.mT @ v).flatten(0, 1), push.flatten(0, 1).T @ v.flatten(0, 1))),
        rate,
    )


def _update_by_mean(
    words: "_Table",
    contexts: "_Table",
    text: Int[Tensor, "N M"],
    centre: Int[Tensor, "N C"],
    near: Float[Tensor, "N C M"],
    negative_ids: Int[Tensor, " K"],
    negatives: int,
    rate: float,
) -> None:
    """The same by CBOW: the mean of the vectors around each word against the second vectors of the word and others."""
    count = near.sum(-1, keepdim=True)
    shares = near / count.clamp_min(1)
    mean, o, w = shares @ words.weight[text], contexts.weight[centre], contexts.weight[negative_ids]
    there = (count > 0).to(mean.dtype)
    pull = ((mean * o).sum(-1, keepdim=True).sigmoid_() - 1) * there
    push = (mean @ w.mT).sigmoid_().mul_(there * (negatives / len(negative_ids)))
    words.descend(text, shares.mT @ (pull * o + push @ w), rate)
    contexts.descend(
        torch.cat((centre.flatten(), negative_ids)),
        torch.cat(((pull * mean).flatten(0, 1), push.flatten(0, 1).T @ mean.flatten(0, 1))),
        rate,
    )


class _Table:
    """Vectors with one learning rate per row, which falls with what the row has been changed by (Adagrad)."""

    def __init__(self, weight: Float[Tensor, "V D"]) -> None:
        self.weight, self.squares = weight, weight.new_zeros(weight.shape[0], 1)

    @classmethod
    def random(cls, vocab_size: int, config: SkipGramConfig) -> "_Table":
        values = _Uniforms(config.seed, -1).uniform(vocab_size * config.width).reshape(vocab_size, config.width)
        return cls(torch.from_numpy(((values - 0.5) / config.width).astype(np.float32)))

    @classmethod
    def zeros(cls, vocab_size: int, config: SkipGramConfig) -> "_Table":
        return cls(torch.zeros(vocab_size, config.width))

    def descend(self, rows: Tensor, gradients: Tensor, rate: float) -> None:
        rows, places = rows.flatten().unique(return_inverse=True)
        total = gradients.new_zeros(len(rows), gradients.shape[-1]).index_add_(0, places, gradients.flatten(0, -2))
        squares = self.squares[rows] + total.square().mean(-1, keepdim=True)
        self.squares[rows] = squares
        self.weight[rows] -= rate * total / squares.sqrt().add_(1e-8)


class _Uniforms:
    """Numbers from raw bits, which numpy promises never to change."""

    def __init__(self, seed: int, epoch: int) -> None:
        self._bits = np.random.Philox(key=np.array([seed, epoch + 1], dtype=np.uint64))

    def uniform(self, count: int) -> Float[np.ndarray, " count"]:
        return (self._bits.random_raw(count) >> np.uint64(11)) * 2.0**-53


def _subsampled(
    ids: Int[np.ndarray, " tokens"], counts: Int[np.ndarray, " V"], subsample: float, uniforms: _Uniforms
) -> tuple[Int[np.ndarray, " kept"], float]:
    """The text without some of its frequent words, and how much of it is left."""
    if not subsample:
        return ids, 1.0
    shares = counts / len(ids)
    with np.errstate(divide="ignore"):
        keep = np.minimum(1.0, np.sqrt(subsample / shares) + subsample / shares)
    kept = ids[uniforms.uniform(len(ids)) < keep[ids]]
    return (ids, 1.0) if len(kept) < 2 else (kept, len(kept) / len(ids))


def _blocks(
    ids: Int[np.ndarray, " tokens"], window: int, uniforms: _Uniforms
) -> Iterator[tuple[Int[Tensor, "N M"], Int[Tensor, "N C"], Float[Tensor, "N C M"]]]:
    """The text in updates: blocks with a window on each side, their words, and which pairs count."""
    places = np.arange(-window, BLOCK + window)
    distance = np.abs(np.arange(BLOCK)[:, None] - places)
    for start in range(0, len(ids), BLOCK * BLOCKS):
        begins = np.arange(start, min(start + BLOCK * BLOCKS, len(ids)), BLOCK)
        where = begins[:, None] + places
        inside = (where >= 0) & (where < len(ids))
        text = ids[where.clip(0, len(ids) - 1)].astype(np.int64)
        reach = 1 + (uniforms.uniform(len(begins) * BLOCK) * window).astype(np.int64).reshape(-1, BLOCK, 1)
        near = (distance > 0) & (distance <= reach) & inside[:, None, :]
        near &= inside[:, window : window + BLOCK, None]
        centre = text[:, window : window + BLOCK]
        yield torch.from_numpy(text), torch.from_numpy(centre), torch.from_numpy(near.astype(np.float32))
