"""Which rows go together: batches filled to a token budget, in an order that is a function of seed and epoch."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from regard.errors import ConfigError

Lengths = Int[np.ndarray, " rows"]


@dataclass(frozen=True, slots=True)
class Position:
    """The next batch of an endless stream: batch `index` of epoch `epoch`, counted over all processes."""

    epoch: int = 0
    index: int = 0


def epoch_order(source: Lengths, target: Lengths, *, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
    """The rows of each batch of one epoch, every row once; the same on every machine, whatever came before.

    A batch holds at most `budget` source and target tokens, padding included. Rows of equal source length come
    together where the corpus has enough of them, so that most batches need no mask over the source.
    """
    check_budget(source, target, budget)
    random = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64))
    # Raw bits only: numpy promises that these never change, which it does not promise of its distributions.
    noise = random.random_raw(len(source)) * (JITTER / 2**64)
    groups = _cut(_by_length(source, target + noise), source, target, budget)
    return [groups[index] for index in np.argsort(random.random_raw(len(groups)), kind="stable")]


def evaluation_order(source: Lengths, target: Lengths, *, budget: int) -> list[np.ndarray]:
    """The rows of each batch, shortest first, every row once."""
    check_budget(source, target, budget)
    return _cut(_by_length(source, target), source, target, budget)


def check_budget(source: Lengths, target: Lengths, budget: int) -> None:
    """Refuse a budget that the longest pair alone would exceed."""
    if not len(source):
        raise ConfigError("no pairs to make batches of")
    longest = int((source + target).max())
    if budget < longest:
        raise ConfigError(f"budget={budget} tokens a batch is less than the longest pair, which has {longest}")


def _by_length(source: Lengths, target: np.ndarray) -> np.ndarray:
    # Targets rise through one source length and fall through the next, so that a batch which crosses from one
    # length to the other meets similar targets on both sides.
    return np.lexsort((np.where(source % 2, target, -target), source))


def _cut(rows: np.ndarray, source: Lengths, target: Lengths, budget: int) -> list[np.ndarray]:
    """Consecutive rows as batches, each as long as the budget allows."""
    groups = []
    start, window = 0, 64
    while start < len(rows):
        ahead = rows[start : start + window]
        widths = np.maximum.accumulate(source[ahead]) + np.maximum.accumulate(target[ahead]).astype(np.int64)
        size = int(np.searchsorted(widths * np.arange(1, len(ahead) + 1), budget, side="right"))
        if size == len(ahead) and start + window < len(rows):
            window *= 2
            continue
        groups.append(ahead[:size])
        start += size
    return groups
