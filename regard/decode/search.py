"""Decoding as a `DecodeConfig` says, and many inputs in batches with little padding."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from jaxtyping import Int
from torch import Tensor

from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.decode.constraints import Constraint
from regard.decode.greedy import greedy
from regard.decode.sample import sample
from regard.decode.stepper import Hypothesis, S, Stepper
from regard.errors import ConfigError

Item = TypeVar("Item")
Result = TypeVar("Result")


def search(
    stepper: Stepper[S],
    state: S,
    first: Int[Tensor, " B"],
    *,
    eos: int,
    config: DecodeConfig,
    max_len: int | Int[Tensor, " B"] | None = None,
    ids: Sequence[int] | None = None,
    constraints: Sequence[Constraint] = (),
) -> list[list[Hypothesis]]:
    """For each source its outputs: sampled if `config` has a temperature, else greedy for a beam of 1, else by beam.

    `ids` are what the samples of the sources depend on, as in `sample`; they do not apply to the other searches.
    """
    if config.mbr:
        raise ConfigError(f"mbr={config.mbr} compares texts, which a search over tokens does not have: translate texts")
    if config.shortlist:
        raise ConfigError("shortlist=true is for translations by a run that has one: see `regard shortlist`")
    if config.temperature is not None:
        return sample(stepper, state, first, eos=eos, config=config, max_len=max_len, ids=ids, constraints=constraints)
    if config.beam == 1:
        found = greedy(stepper, state, first, eos=eos, config=config, max_len=max_len, constraints=constraints)
        return [[hypothesis] for hypothesis in found]
    return beam_search(stepper, state, first, eos=eos, config=config, max_len=max_len, constraints=constraints)


def in_batches(
    function: Callable[[list[Item]], Sequence[Result]],
    items: Sequence[Item],
    lengths: Sequence[int],
    *,
    budget: int,
    cost: Callable[[int], int] = lambda length: max(length, 1),
) -> list[Result]:
    """The result of `function` for every item, in the order of `items`.

    Items of like length go together, longest first, so that the batch most likely not to fit comes at once. No batch
    padded to its longest item has more than `budget` tokens, unless one item alone does; or costs more than it, by what
    an item of such a length costs. A function that must know which items it has (to seed sampling, say) can be given
    pairs of index and item.
    """
    assert len(lengths) == len(items), f"{len(lengths)} lengths for {len(items)} items"
    results: list[Result | None] = [None] * len(items)
    for batch in batches(lengths, budget, cost):
        found = function([items[index] for index in batch])
        assert len(found) == len(batch), f"{len(found)} results for {len(batch)} items"
        for index, result in zip(batch, found, strict=True):
            results[index] = result
    return results  # pyright: ignore[reportReturnType]


def batches(
    lengths: Sequence[int], budget: int, cost: Callable[[int], int] = lambda length: max(length, 1)
) -> Iterator[list[int]]:
    """Indices of `lengths` in batches of at most `budget` tokens with padding, longest first; equal ones in order.

    With `cost`, all in a batch cost what its longest does."""
    if budget < 1:
        raise ConfigError(f"budget={budget} must be at least 1")
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batch and cost(lengths[batch[0]]) * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
