"""Many items through a function that takes a few at a time, with little padding paid for."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Int

from regard.errors import ConfigError

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_batches(
    function: Callable[[list[Item]], Sequence[Result]],
    items: Sequence[Item],
    lengths: Sequence[int],
    *,
    budget: int,
) -> list[Result]:
    """The result of `function` for every item, in the order of `items`.

    Items of like length go together, longest first, so that the batch most likely not to fit comes at once. No batch
    padded to its longest item has more than `budget` tokens, unless one item alone does. A function that must know
    which items it has (to seed draws, say) can be given pairs of index and item.
    """
    assert len(lengths) == len(items), f"{len(lengths)} lengths for {len(items)} items"
    results: list[Result | None] = [None] * len(items)
    for batch in batches(lengths, budget):
        found = function([items[index] for index in batch])
        assert len(found) == len(batch), f"{len(found)} results for {len(batch)} items"
        for index, result in zip(batch, found, strict=True):
            results[index] = result
    return results  # pyright: ignore[reportReturnType]


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices of `lengths` in batches of at most `budget` tokens with padding, longest first; equal ones in order."""
    if budget < 1:
        raise ConfigError(f"budget={budget} must be at least 1 token")
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and max(lengths[batch[0]], 1) * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


ENDED_SHARE = 1 / 32  # leaving sources out copies the state of the rest, so wait until so many of them have ended


def staying(running: Bool[np.ndarray, " B"]) -> Int[np.ndarray, " A"] | None:
    """The places of the sources to go on with; None while too few have ended to be worth it."""
    kept = np.flatnonzero(running)
    return None if len(running) - len(kept) < max(1, ENDED_SHARE * len(running)) else kept
