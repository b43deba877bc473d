"""Phrases that an output must have, and beam search for them.

They are searched for in banks (Post and Vilar 2018): hypotheses are compared with those that lack as many tokens, so
that ones on their way to a phrase are not crowded out by likelier ones that have not begun it.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.topk import best_sums

Progress = tuple[tuple[int, ...] | None, ...]
"""For each phrase how many tokens of each way to write it a beginning ends with; None once it has the phrase."""


class Way:
    """One sequence of tokens, found in a stream of them by Knuth, Morris and Pratt's automaton."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = tuple(tokens)
        self.shorter = [0] * len(self.tokens)  # after so many, the most that they also end with
        for size in range(1, len(self.tokens)):
            self.shorter[size] = self.after(self.shorter[size - 1], self.tokens[size])

    def after(self, begun: int, token: int) -> int:
        """How many of its first tokens end a text that ended with `begun` of them and goes on with this token."""
        while begun and self.tokens[begun] != token:
            begun = self.shorter[begun - 1]
        return begun + (self.tokens[begun] == token)

    def going_on(self, begun: int) -> Iterator[tuple[int, int]]:
        """Each token that some beginning of it goes on with, and how many then lack; the longest beginning first."""
        while True:
            yield self.tokens[begun], len(self.tokens) - begun - 1
            if not begun:
                return
            begun = self.shorter[begun - 1]


class Required:
    """Phrases, each written in one or several ways, and what a beginning lacks of them.

    It lacks the tokens of all phrases that it does not have, less what it has of the one that it is furthest with. The
    next token of that one always makes this smaller, so a search that keeps whatever lacks least comes to an output
    with all of them.
    """

    def __init__(self, phrases: Sequence[Sequence[Sequence[int]]]) -> None:
        self.phrases = [[Way(tokens) for tokens in ways] for ways in phrases]
        self.shortest = [min(len(way.tokens) for way in ways) for ways in self.phrases]

    def start(self) -> Progress:
        return tuple((0,) * len(ways) for ways in self.phrases)

    def after(self, progress: Progress, token: int) -> Progress:
        """How far a beginning has come with one token more."""
        found = []
        for ways, begun in zip(self.phrases, progress, strict=True):
            if begun is not None:
                begun = tuple(way.after(size, token) for way, size in zip(ways, begun, strict=True))
                if any(size == len(way.tokens) for way, size in zip(ways, begun, strict=True)):
                    begun = None
            found.append(begun)
        return tuple(found)

    def lacking(self, progress: Progress) -> tuple[int, dict[int, int]]:
        """How many tokens lack after each token that goes on with a phrase, and before them after any other."""
        absent = [index for index, begun in enumerate(progress) if begun is not None]
        whole = sum(self.shortest[index] for index in absent)
        rests: dict[int, dict[int, int]] = {}  # by token and phrase
        for index in absent:
            for way, begun in zip(self.phrases[index], progress[index] or (), strict=True):
                for token, rest in way.going_on(begun):
                    of_token = rests.setdefault(token, {})
                    of_token[index] = min(rest, of_token.get(index, rest))
        after = {}
        for token, of_token in rests.items():
            done = sum(self.shortest[index] for index, rest in of_token.items() if not rest)
            furthest = max((self.shortest[index] - rest for index, rest in of_token.items() if rest), default=0)
            after[token] = whole - done - max(0, furthest)
        return whole, after


class Banks:
    """Chooses the candidates of a step in banks, and follows how far each hypothesis has come, by its source.

    The banks share the beam evenly, the one that lacks least first; what a bank cannot fill is for the likeliest of the
    rest. No hypothesis ends that lacks anything; an end counts among the first `beam` of those that lack nothing.
    """

    def __init__(self, phrases: Sequence[Sequence[Sequence[int]]], beam: int, sources: int) -> None:
        self.required, self.beam = Required(phrases), beam
        self.progress: list[list[Progress]] = [[self.required.start()] for _ in range(sources)]

    def choose(
        self,
        sums: Float[Tensor, "B W"],
        log_probs: Float[Tensor, "R C"],
        sources: Int[np.ndarray, " B"],
        *,
        eos: int,
    ) -> tuple[Float[np.ndarray, "B N"], Int[np.ndarray, "B N"], Bool[np.ndarray, "B N"], Int[np.ndarray, "B L"]]:
        """The candidates of a step: log-probabilities, places among W * C, which finish, and which go on."""
        (B, W), C, beam = sums.shape, log_probs.shape[1], self.beam
        lacks = [self.required.lacking(one) for source in sources.tolist() for one in self.progress[source]]
        log_probs[[row for row, (whole, _) in enumerate(lacks) if whole], eos] = -torch.inf
        special = sorted({eos, *(token for _, after in lacks for token in after if token < C)})
        # All other choices of a row are of one bank, so more than so many of the likeliest are never kept.
        _, likely = best_sums(log_probs.new_zeros(len(log_probs), 1), log_probs, beam + len(special))
        choices = torch.cat([likely, torch.tensor(special, device=likely.device).expand(len(likely), -1)], 1)
        totals = (sums.flatten()[:, None] + log_probs.gather(1, choices)).tolist()
        rows = list(zip(lacks, choices.tolist(), totals, strict=True))
        kept = [_kept(rows[start : start + W], C, eos, beam) for start in range(0, len(rows), W)]
        count = max(beam, *(len(where) for where, _, _ in kept)) if kept else beam
        values, places = np.full((B, count), -np.inf, np.float32), np.full((B, count), eos)
        finished, live = np.zeros((B, count), dtype=bool), np.zeros((B, beam), dtype=np.int64)
        for source, (where, log_prob, ends) in enumerate(kept):
            places[source, : len(where)], values[source, : len(where)] = where, log_prob
            finished[source, : len(where)] = ends
            dead = finished[source] | (np.arange(count) >= len(where))
            live[source] = np.argsort(dead, kind="stable")[:beam]
            before = self.progress[sources[source]]
            self.progress[sources[source]] = [
                self.required.after(before[place // C], place % C) for place in places[source][live[source]].tolist()
            ]
        return values, places, finished, live


Lacking = tuple[int, dict[int, int]]


def _kept(
    rows: Sequence[tuple[Lacking, Sequence[int], Sequence[float]]], choices: int, eos: int, beam: int
) -> tuple[list[int], list[float], list[bool]]:
    """What is kept of the candidates of one source's rows, likeliest first: places, log-probabilities, which end."""
    totals: dict[int, float] = {}
    banks: dict[int, list[int]] = {}
    for row, ((whole, after), tokens, log_probs) in enumerate(rows):
        for token, total in zip(tokens, log_probs, strict=True):
            place = row * choices + token
            if place not in totals and total != -np.inf:
                totals[place] = total
                banks.setdefault(after.get(token, whole), []).append(place)
    # What is no number comes first, so that the search refuses it.
    order = {place: (-np.nan_to_num(total, nan=np.inf), place) for place, total in totals.items()}
    ranked = sorted(totals, key=order.__getitem__)
    ends = {place for place in sorted(banks.get(0, ()), key=order.__getitem__)[:beam] if place % choices == eos}
    going = [[place for place in banks[lack] if place % choices != eos] for lack in sorted(banks)]
    going = [sorted(bank, key=order.__getitem__) for bank in going if bank]
    share = max(1, beam // len(going)) if going else 0
    chosen = dict.fromkeys([place for bank in going for place in bank[:share]][:beam])
    for place in ranked:
        if len(chosen) < beam and place % choices != eos:
            chosen[place] = None
    where = [place for place in ranked if place in chosen or place in ends]
    return where, [totals[place] for place in where], [place in ends for place in where]
