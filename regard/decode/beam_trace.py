"""What a beam search left on the device, traced back on the host to the outputs that it found."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from regard.decode.config import DecodeConfig
from regard.decode.stepper import Hypothesis


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
    ends = list(_ends(trace, config))
    flat = [(source, *end) for source, several in enumerate(ends) for end in several]
    sources, steps, rows, finished = (np.array(part, dtype=np.int64) for part in list(zip(*flat, strict=True))[:4])
    log_probs = [end[4] for end in flat]
    T = int(steps.max(initial=-1)) + 1
    totals = np.array(log_probs, dtype=np.float64)
    tokens, sums, parents = (np.zeros((len(flat), T), dtype=kind) for kind in (np.int64, np.float64, np.int64))
    # A finished one begins with the choice of its end, whose parent is `rows`; a live one is the row itself.
    done = finished.astype(bool)
    at = rows.copy()
    for step in range(T - 1, -1, -1):
        begun = steps >= step
        ending = done & (steps == step)
        row = np.where(begun & ~ending, at, 0)
        tokens[:, step] = trace.tokens[sources, step, row]
        sums[:, step] = trace.sums[sources, step, row]
        before = trace.parents[sources, step, row]
        sums[ending, step] = totals[ending]
        parents[:, step] = np.where(ending, at, before)
        at = np.where(begun & ~ending, before, at)
    made = np.diff(np.concatenate((np.zeros((len(flat), 1)), sums), 1), axis=1)
    width, found = trace.tokens.shape[2], []
    for index, (source, step, _, over, log_prob, score) in enumerate(flat):
        length = step + 1
        found.append(
            Hypothesis(
                tokens=tokens[index, : length - over].tolist(),
                score=score,
                log_prob=log_prob,
                finished=bool(over),
                token_log_probs=made[index, :length].tolist(),
                rows=(source * width + parents[index, :length]).tolist(),
            )
        )
    whole = iter(found)
    return [[next(whole) for _ in several] for several in ends]


def _ends(trace: BeamTrace, config: DecodeConfig) -> Iterator[list[tuple[int, int, int, float, float]]]:
    """For each source the last choices of the best: step, row, whether it finished, log-probability and score."""
    count = config.top_beams
    pools = (trace.scores, trace.order, trace.steps, trace.places, trace.log_probs)
    for source, (scores, order, *rest) in enumerate(zip(*(pool.tolist() for pool in pools), strict=True)):
        best = [index for index, score in enumerate(scores) if score > -np.inf]
        best.sort(key=lambda index: (-scores[index], order[index]))
        found = [(*(part[index] for part in rest[:2]), 1, rest[2][index], scores[index]) for index in best[:count]]
        if len(found) < count:
            last = int(trace.last[source])
            found = (found + _live(trace, source, last, config))[:count]
            found = found or _live(trace, source, last - 1, config)[:count]
        yield found


def _live(trace: BeamTrace, source: int, step: int, config: DecodeConfig) -> list[tuple[int, int, int, float, float]]:
    if step < 0:
        return [(-1, 0, 0, 0.0, 0.0)]
    totals = trace.sums[source, step].tolist()
    return [(step, row, 0, total, config.score(total, step + 1)) for row, total in enumerate(totals) if total > -np.inf]
