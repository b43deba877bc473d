"""A shortlist of output words for each source: the most frequent ones, and the likeliest translations of its words.

The output projection then multiplies a few hundred rows instead of tens of thousands. What is likely is learned from
the training pairs by IBM model 1 (Brown et al. 1993): words that explain each other over many pairs belong together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.config import DecodeConfig
from regard.decode.stepper import Hypothesis
from regard.errors import DataError


@runtime_checkable
class Projecting(Protocol):
    """A stepper whose log-probabilities are those of an output projection of vectors."""

    head: Any

    def advance(self, choices: Any, state: Any) -> Any:
        """The vectors from which `head` predicts what follows `choices`, and the state after them."""
        ...


@dataclass(frozen=True, slots=True)
class Shortlist:
    """Which output words may be chosen: `frequent` ones for every source, and for each source word its `likely` ones.

    Where a source word has fewer likely ones than the others, -1 fills up.
    """

    frequent: Int[np.ndarray, " N"]
    likely: Int[np.ndarray, "V K"]

    def words(self, source: Sequence[int], always: Iterable[int] = ()) -> Int[np.ndarray, " C"]:
        """The output words for a source, in order."""
        known = [token for token in set(source) if token < len(self.likely)]
        found = np.unique(np.concatenate((self.frequent, self.likely[known].ravel(), list(always))).astype(np.int64))
        return found[np.searchsorted(found, 0) :]


def learn_shortlist(
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    *,
    source_size: int,
    target_size: int,
    frequent: int = 500,
    each: int = 100,
    rounds: int = 4,
) -> Shortlist:
    """The shortlist of these pairs of tokens, by `rounds` of expectation maximisation."""
    sources, targets, groups, counts, positions = [], [], [], np.zeros(target_size, dtype=np.int64), 0
    for source, target in pairs:
        s, t = np.asarray(source, dtype=np.int64), np.asarray(target, dtype=np.int64)
        counts += np.bincount(t, minlength=target_size)
        sources.append(np.tile(s, len(t)))
        targets.append(np.repeat(t, len(s)))
        groups.append(np.repeat(np.arange(positions, positions + len(t)), len(s)))
        positions += len(t)
    if not positions:
        raise DataError("a shortlist needs pairs to be learned from, and there are none")
    links, group = np.concatenate(sources) * target_size + np.concatenate(targets), np.concatenate(groups)
    del sources, targets, groups
    both, place = np.unique(links, return_inverse=True)
    of_source, of_target = np.divmod(both, target_size)
    probability = np.ones(len(both))
    for _ in range(rounds):
        # Each target word is shared out among the words of its source, by how well they have explained it so far.
        share = probability[place]
        share /= np.bincount(group, share)[group]
        expected = np.bincount(place, share)
        probability = expected / np.bincount(of_source, expected)[of_source]
    order = np.lexsort((of_target, -probability, of_source))
    of_source, of_target = of_source[order], of_target[order]
    rank = np.arange(len(order)) - np.searchsorted(of_source, of_source)
    likely = np.full((source_size, each), -1, dtype=np.int32)
    kept = rank < each
    likely[of_source[kept], rank[kept]] = of_target[kept]
    often = np.argsort(-counts, kind="stable")[:frequent]
    return Shortlist(often[counts[often] > 0].astype(np.int32), likely)


class ShortlistState:
    """A model's state, and for several sources what of the words in the batch's list each may choose."""

    def __init__(self, inner: Any, hidden: Float[Tensor, "B C"] | None) -> None:
        self.inner, self.hidden = inner, hidden

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " B"] | None = None) -> "ShortlistState":
        hidden = self.hidden if self.hidden is None or sources is None else self.hidden[sources]
        return ShortlistState(self.inner.select(rows, sources), hidden)


class ShortlistStepper:
    """A model that chooses among the words of the shortlists of some sources, by their places in order.

    All its sources' words are multiplied together, but each source's are a list of their own, and its log-probabilities
    are among them: so no source's result depends on its neighbours.
    """

    def __init__(self, model: Any, lists: Sequence[Int[np.ndarray, " _"]]) -> None:
        self.model = model
        self.words = lists[0] if len(lists) == 1 else np.unique(np.concatenate(lists))
        self._kept = torch.from_numpy(self.words)
        self._head = model.head.narrowed(self._kept)
        self._visible: Bool[Tensor, "B C"] | None = None
        if len(lists) > 1:
            self._visible = torch.from_numpy(np.stack([np.isin(self.words, one, assume_unique=True) for one in lists]))

    def start(self, batch: Any) -> ShortlistState:
        visible = self._visible
        hidden = None if visible is None else torch.zeros(visible.shape).masked_fill_(~visible, -torch.inf)
        return ShortlistState(self.model.start(batch), hidden)

    def step(self, choices: Int[Tensor, " R"], state: ShortlistState) -> tuple[Float[Tensor, "R C"], ShortlistState]:
        x, state.inner = self.model.advance(self._kept[choices], state.inner)
        logits = self._head(x).float()
        if state.hidden is not None:
            logits = (logits.view(len(state.hidden), -1, logits.shape[1]) + state.hidden[:, None]).flatten(0, 1)
        return logits.log_softmax(-1), state

    def place(self, token: int) -> int:
        """Where a token stands in the list, which has it."""
        return int(np.searchsorted(self.words, token))

    def config(self, config: DecodeConfig) -> DecodeConfig:
        """The settings with tokens named by their places; what forbids a word that is not in the list is left out."""

        def places(tokens: Sequence[int]) -> tuple[int, ...]:
            return tuple(map(self.place, tokens))

        known = set(self.words.tolist())
        return replace(
            config,
            shortlist=False,
            forbid=places([token for token in config.forbid if token in known]),
            force_first=None if config.force_first is None else self.place(config.force_first),
            prefix=places(config.prefix),
            forbid_phrases=tuple(places(phrase) for phrase in config.forbid_phrases if known.issuperset(phrase)),
            require=tuple(tuple(map(places, ways)) for ways in config.require),
        )

    def named(self, hypothesis: Hypothesis) -> Hypothesis:
        """The hypothesis with its tokens named as the model does."""
        return replace(hypothesis, tokens=self.words[hypothesis.tokens].tolist() if hypothesis.tokens else [])


def needed_words(config: DecodeConfig) -> set[int]:
    """The words that a search's settings demand of it, whatever the source."""
    found = {*config.prefix, *(token for ways in config.require for phrase in ways for token in phrase)}
    return found if config.force_first is None else {*found, config.force_first}
