"""Phrases that an output must have, and beam search for them.

They are searched for in banks (Post and Vilar 2018): hypotheses are compared with those that lack as many
tokens, so that ones on their way to a phrase are not crowded out by likelier ones that have not begun it.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.topk import best_sums

Ways = tuple[tuple[int, ...], ...]
"""The sequences of tokens any of which is the phrase."""


class Required:
    """Phrases that an output must have before it ends, and how far each beginning has come with them.

    A beginning lacks the tokens of all phrases that it does not have, less what it has of the one that it is furthest
    with. The next token of that one always makes this smaller, so a search that keeps whatever lacks least comes to
    an output with all of them.
    """

    def __init__(self, phrases: Sequence[Ways]) -> None:
        self.phrases = [tuple(map(tuple, ways)) for ways in phrases]
        self.shortest = [min(map(len, ways)) for ways in self.phrases]
        self.tokens = sorted({token for ways in self.phrases for way in ways for token in way})

    def lacking(self, tokens: Sequence[int]) -> tuple[int, dict[int, int]]:
        """How many tokens an output lacks that goes on with any other token, and with each token of a phrase."""
        absent = [index for index, ways in enumerate(self.phrases) if not any(_has(tokens, way) for way in ways)]
        whole = sum(self.shortest[index] for index in absent)
        after = {}
        for token in self.tokens:
            longer, lacks, furthest = [*tokens, token], whole, 0
            for index in absent:
                rests = [len(way) - _begun(longer, way) for way in self.phrases[index]]
                if min(rests) == 0:
                    lacks -= self.shortest[index]
                else:
                    furthest = max(furthest, self.shortest[index] - min(rests))
            after[token] = lacks - furthest
        return whole, after

    def complete(self, tokens: Sequence[int]) -> bool:
        return all(any(_has(tokens, way) for way in ways) for ways in self.phrases)


def _has(tokens: Sequence[int], phrase: tuple[int, ...]) -> bool:
    size = len(phrase)
    return any(tuple(tokens[start : start + size]) == phrase for start in range(len(tokens) - size + 1))


def _begun(tokens: Sequence[int], phrase: tuple[int, ...]) -> int:
    """How many of the first tokens of `phrase` the tokens end with."""
    most = min(len(tokens), len(phrase))
    return next((size for size in range(most, 0, -1) if tuple(tokens[-size:]) == phrase[:size]), 0)


def in_banks(
    required: Required,
    sums: Float[Tensor, "B W"],
    log_probs: Float[Tensor, "R C"],
    pasts: Int[Tensor, "R T"],
    *,
    eos: int,
    beam: int,
) -> tuple[Float[np.ndarray, "B N"], Int[np.ndarray, "B N"], Bool[np.ndarray, "B N"], Int[np.ndarray, "B L"]]:
    """The candidates of a step in banks: log-probabilities, places among W * C, which finish, and which go on.

    The banks share the beam evenly, the one that lacks least first; what a bank cannot fill is for the likeliest of
    the rest. An end counts among the first `beam` of the bank that lacks nothing.
    """
    (B, W), C = sums.shape, log_probs.shape[1]
    special = [token for token in (*required.tokens, eos) if token < C]
    # All other choices of a row are of one bank, so more than so many of the likeliest are never kept.
    _, likely = best_sums(log_probs.new_zeros(len(log_probs), 1), log_probs, beam + len(special))
    asked = torch.tensor(special, device=likely.device).expand(len(likely), -1)
    choices = torch.cat([likely, asked], 1)
    totals = (sums.flatten()[:, None] + log_probs.gather(1, choices)).double().cpu().numpy().reshape(B, -1)
    tokens = choices.cpu().numpy().reshape(B, W, -1)
    rows = pasts.tolist()
    found = []
    for source in range(B):
        lacks = [required.lacking(rows[source * W + place]) for place in range(W)]
        candidates = {}
        for place, chosen in enumerate(tokens[source].tolist()):
            whole, after = lacks[place]
            for rank, token in enumerate(chosen):
                total = totals[source, place * len(chosen) + rank]
                if total > -np.inf or np.isnan(total):
                    candidates[place * C + token] = (after.get(token, whole), total)
        found.append(_kept(candidates, C, eos, beam))
    count = max(beam, *(len(one[0]) for one in found)) if found else beam
    values, places = np.full((B, count), -np.inf, np.float32), np.full((B, count), eos)
    finished, live = np.zeros((B, count), dtype=bool), np.zeros((B, beam), dtype=np.int64)
    for source, (where, totals_kept, ends) in enumerate(found):
        places[source, : len(where)], values[source, : len(where)] = where, totals_kept
        finished[source, list(ends)] = True
        ended = np.isin(np.arange(count), list(ends)) | (np.arange(count) >= len(where))
        live[source] = np.argsort(ended, kind="stable")[:beam]
    return values, places, finished, live


def _kept(
    candidates: dict[int, tuple[int, float]], choices: int, eos: int, beam: int
) -> tuple[list[int], list[float], set[int]]:
    """What is kept of one source's candidates, likeliest first: places, log-probabilities, and which of them end."""
    # What is no number comes first, so that the search refuses it.
    ranked = sorted(candidates, key=lambda place: (-np.nan_to_num(candidates[place][1], nan=np.inf), place))
    banks: dict[int, list[int]] = {}
    for place in ranked:
        banks.setdefault(candidates[place][0], []).append(place)
    ends = [place for place in banks.get(0, [])[:beam] if place % choices == eos]
    open_banks = [[place for place in banks[lacks] if place % choices != eos] for lacks in sorted(banks)]
    open_banks = [bank for bank in open_banks if bank]
    share = max(1, beam // len(open_banks)) if open_banks else 0
    kept = [place for bank in open_banks for place in bank[:share]][:beam]
    rest = [place for place in ranked if place % choices != eos and place not in set(kept)]
    chosen = {*kept, *rest[: beam - len(kept)], *ends}
    where = [place for place in ranked if place in chosen]
    return where, [candidates[place][1] for place in where], {where.index(place) for place in ends}
