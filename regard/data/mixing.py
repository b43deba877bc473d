"""The random bits of an epoch, and corpora mixed by weight or temperature: which rows of each an epoch has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from regard.errors import ConfigError, nearest

Item = TypeVar("Item")


def random_of(seed: int, epoch: int) -> np.random.Philox:
    """The random bits of an epoch, the same on every machine."""
    return np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64))


def shuffled(count: int, random: np.random.Philox) -> np.ndarray:
    """The numbers below `count` in random order."""
    # Raw bits only: numpy promises that these never change, which it does not promise of its distributions.
    return np.argsort(random.random_raw(count), kind="stable")


def even_places(total: int, count: int) -> list[int]:
    """The numbers of `count` of so many rows: one of each of as many equal parts, at random but the same ever after.

    Data is often sorted, or has rows of two kinds by turns: neither its first rows nor every tenth stand for it.
    """
    if count >= total:
        return list(range(total))
    firsts = [part * total // count for part in range(count + 1)] if count else []
    lots = random_of(0, 0).random_raw(count).tolist()
    return [first + lot % (end - first) for first, end, lot in zip(firsts, firsts[1:], lots, strict=False)]


def even_sample(items: Sequence[Item], count: int) -> list[Item]:
    """So many of these, from all over them."""
    return [items[place] for place in even_places(len(items), count)]


@dataclass(frozen=True, slots=True)
class Mix:
    """How corpora are mixed: by `weights`, or by their sizes to the power of 1 / `temperature`."""

    names: tuple[str, ...]
    weights: Mapping[str, Any]
    temperature: float | int = 1.0

    def __post_init__(self) -> None:
        check_mix(self.names, self.weights, self.temperature)

    def of(self, sizes: Sequence[int]) -> "CorpusMixture":
        """The mixture of corpora of these sizes."""
        assert len(sizes) == len(self.names)
        if self.weights:
            parts = [self.weights[name] for name in self.names]
        else:
            # Of shares, so that no power is too large to be formed.
            parts = [(size / max(sizes)) ** (1 / self.temperature) for size in sizes]
        return CorpusMixture(tuple(sizes), tuple(part / sum(parts) for part in parts))

    def describe(self, mixture: "CorpusMixture", unit: str) -> str:
        """One line for a person: how many rows of each corpus an epoch has."""
        said = [
            f"{name} {count:,} ({100 * count / sum(mixture.counts):.3g} %, each {count / size:.3g} times)"
            for name, count, size in zip(self.names, mixture.counts, mixture.sizes, strict=True)
        ]
        return f"an epoch mixes {sum(mixture.counts):,} {unit}: {', '.join(said)}"


def check_mix(names: Sequence[str], weights: Mapping[str, Any], temperature: float | int) -> None:
    """Refuse weights of corpora that there are not, or that are no weights, and both ways at once."""
    for name, weight in weights.items():
        if name not in names:
            raise ConfigError(f"data.mix names '{name}', which is not in data.corpora{nearest(name, names)}")
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < float("inf"):
            raise ConfigError(f"data.mix.{name}={weight!r} must be a number above 0")
    if weights and (missing := [name for name in names if name not in weights]):
        raise ConfigError(f"data.mix has no weight for the corpus '{missing[0]}'; leave the corpus out to not read it")
    if not 0 < temperature < float("inf"):
        raise ConfigError(f"data.temperature={temperature} must be above 0: 1 mixes by size, more evens out")
    if weights and temperature != 1:
        raise ConfigError(f"data.mix and data.temperature={temperature} are two ways to mix corpora; give one")


@dataclass(frozen=True, slots=True)
class CorpusMixture:
    """Corpora of these `sizes`, one after the other in a store, of which each has a share of an epoch.

    An epoch has as many rows as all corpora together. Each corpus is gone through again and again in orders of its
    own, and every epoch goes on where the one before it ended: so after any epoch all rows of a corpus have been met
    equally often, or once more. Which rows an epoch has is a function of seed and epoch.
    """

    sizes: tuple[int, ...]
    shares: tuple[float, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """How many rows of each corpus an epoch has: as near to its share as whole numbers are, and one at least."""
        total = sum(self.sizes)
        exact = [share * total for share in self.shares]
        counts = [max(1, int(one)) for one in exact]
        by_rest = sorted(range(len(exact)), key=lambda index: counts[index] - exact[index])
        for index in by_rest[: max(0, total - sum(counts))]:
            counts[index] += 1
        return tuple(counts)

    def rows(self, seed: int, epoch: int) -> np.ndarray:
        """The numbers of an epoch's rows, those of each corpus together."""
        found, begin = [], 0
        for corpus, (size, count) in enumerate(zip(self.sizes, self.counts, strict=True)):
            first, last = epoch * count, (epoch + 1) * count
            for number in range(first // size, -(-last // size)):
                start, stop = max(first - number * size, 0), min(last - number * size, size)
                # What is gone through as a whole needs no order here: batches have their own.
                order = np.arange(size) if stop - start == size else _pass(size, seed, number, corpus)[start:stop]
                found.append(begin + order)
            begin += size
        return np.concatenate(found)


def _pass(size: int, seed: int, number: int, corpus: int) -> np.ndarray:
    """The order in which a corpus is gone through for the `number`-th time."""
    # The counter keeps these bits apart from those of epochs, and of corpora.
    counter = np.array([0, 0, 0, corpus + 1], dtype=np.uint64)
    key = np.array([seed, number], dtype=np.uint64)
    return shuffled(size, np.random.Philox(key=key, counter=counter))
