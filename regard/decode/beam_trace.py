"""What a beam search left on the device, traced back on the host to the outputs that it found."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from regard.decode.config import DecodeConfig
from regard.decode.stepper import Hypothesis

LEAST = -float("inf")


@dataclass(frozen=True, slots=True)
class BeamTrace:
    """What a beam search of B sources left: the step each stopped at, the rows of every step, and the finished ones."""

    last: Int[np.ndarray, " B"]
    tokens: Int[np.ndarray, "B T W"]
    parents: Int[np.ndarray, "B T W"]
    sums: Float[np.ndarray, "B T W"]
    scores: Float[np.ndarray, "B P"]
    log_probs: Float[np.ndarray, "B P"]
    steps: Int[np.ndarray, "B P"]
    places: Int[np.ndarray, "B P"]
    order: Int[np.ndarray, "B P"]


def hypotheses(trace: BeamTrace, config: DecodeConfig) -> list[list[Hypothesis]]:
    """For each source its best outputs, best first; all of them are traced back together, a step at a time."""
    ends = _ends(trace, config)
    flat = [(source, *end) for source, several in enumerate(ends) for end in several]
    sources, steps, rows, finished, totals = (np.array(part) for part in list(zip(*flat, strict=True))[:5])
    T = int(steps.max(initial=-1)) + 1
    # Up to which step an output is a row of the beam; the choice that ends a finished one is not, its parent is.
    last = steps - finished
    at = np.zeros((len(flat), T), dtype=np.int64)
    now = rows
    for step in range(T - 1, -1, -1):
        at[:, step] = now = np.where(last >= step, now, rows)
        now = np.where(last >= step, trace.parents[sources, step, now], now)
    each, places = sources[:, None], np.arange(T)
    parents, sums = trace.parents[each, places, at], trace.sums[each, places, at].astype(np.float64)
    ended = np.flatnonzero(finished)
    parents[ended, steps[ended]], sums[ended, steps[ended]] = rows[ended], totals[ended]
    made = np.diff(sums, axis=1, prepend=0.0).tolist()
    tokens = trace.tokens[each, places, at].tolist()
    from_rows = (each * trace.tokens.shape[2] + parents).tolist()
    whole = iter(
        Hypothesis(
            tokens=tokens[index][: step + 1 - over],
            score=score,
            log_prob=log_prob,
            finished=bool(over),
            token_log_probs=made[index][: step + 1],
            rows=from_rows[index][: step + 1],
        )
        for index, (_, step, _, over, log_prob, score) in enumerate(flat)
    )
    return [[next(whole) for _ in several] for several in ends]


End = tuple[int, int, int, float, float]
"""The last choice of an output: step, row, whether it finished, log-probability and score."""


def _ends(trace: BeamTrace, config: DecodeConfig) -> list[list[End]]:
    """The last choices of each source's best; of equal ones those found first come first."""
    count = config.top_beams
    best = np.lexsort((trace.order, -trace.scores))[:, :count]
    pools = (trace.steps, trace.places, trace.log_probs, trace.scores)
    steps, places, log_probs, scores = (np.take_along_axis(pool, best, 1).tolist() for pool in pools)
    ends = [
        [
            (step, place, 1, log_prob, score)
            for step, place, log_prob, score in zip(*parts, strict=True)
            if score > LEAST
        ]
        for parts in zip(steps, places, log_probs, scores, strict=True)
    ]
    for source in [source for source, found in enumerate(ends) if len(found) < count]:
        end = int(trace.last[source])
        found = (ends[source] + _live(trace, source, end, config))[:count]
        ends[source] = found or _live(trace, source, end - 1, config)[:count]
    return ends


def _live(trace: BeamTrace, source: int, step: int, config: DecodeConfig) -> list[End]:
    if step < 0:
        return [(-1, 0, 0, 0.0, 0.0)]
    totals = trace.sums[source, step].tolist()
    return [(step, row, 0, total, config.score(total, step + 1)) for row, total in enumerate(totals) if total > -np.inf]
