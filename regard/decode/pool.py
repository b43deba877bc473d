"""The books of a beam search, kept on the host: what finished, what may stop, and the way back from end to start."""

from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Bool, Float, Int

from regard.decode.config import DecodeConfig, divisor
from regard.decode.stepper import Hypothesis
from regard.errors import RegardError


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of one step, best first, for each source: what went on, what finished, and what was pruned.

    A candidate adds `tokens` to the hypothesis that held place `parents` after the step before; `log_probs` are of
    the whole. `live[b, w]` is the candidate that goes on in place w. One that is neither live nor `finished` was
    pruned; those of log-probability -inf only fill up.
    """

    sources: Int[np.ndarray, " B"]
    tokens: Int[np.ndarray, "B N"]
    parents: Int[np.ndarray, "B N"]
    log_probs: Float[np.ndarray, "B N"]
    finished: Bool[np.ndarray, "B N"]
    live: Int[np.ndarray, "B W"]

    def of(self, running: Bool[np.ndarray, " B"]) -> "Candidates":
        """These candidates for some of the sources."""
        return self if running.all() else Candidates(*(getattr(self, field.name)[running] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Step:
    """What goes on after one step: for each source computed and each place, the choice, whence it came, and its sum.

    `width` is how many rows each source had in this step's computation; `sources` are the sources computed, numbered
    as first given, and `index` says for each source first given where it is among them.
    """

    width: int
    sources: Int[np.ndarray, " B"]
    index: Int[np.ndarray, " A"]
    tokens: Int[np.ndarray, "B W"]
    parents: Int[np.ndarray, "B W"]
    log_probs: Float[np.ndarray, "B W"]


def survivors(candidates: Candidates, *, eos: int, width: int, total: int) -> Step:
    """The live ones of `candidates`, which came from `width` rows a source; `total` sources were first given."""
    tokens, parents, log_probs = (
        np.take_along_axis(values, candidates.live, 1)
        for values in (candidates.tokens, candidates.parents, candidates.log_probs)
    )
    log_probs[tokens == eos] = -np.inf  # where choices run out, one that ended fills a place; it must not live on
    index = np.full(total, -1)
    index[candidates.sources] = np.arange(len(candidates.sources))
    return Step(width, candidates.sources, index, tokens, parents, log_probs)


@dataclass(frozen=True, slots=True)
class End:
    """The last choice of a hypothesis, from which the rest is found by going back from parent to parent."""

    step: int
    token: int
    parent: int
    log_prob: float
    score: float
    finished: bool


class Pool:
    """The hypotheses of every source as first given, each of which may make `ends` choices at most."""

    def __init__(self, ends: Int[np.ndarray, " B"], config: DecodeConfig) -> None:
        self.config = config
        self.ends = ends
        self.steps: list[Step] = []
        self.finished: list[list[End]] = [[] for _ in ends]
        self.last = np.full(len(ends), -1)  # the step each source stopped at
        # Where all that could come is bounded, only what is returned has to be safe from it.
        self.needed = config.top_beams if config.exact else config.beam
        self.to_beat = np.full(len(ends), -np.inf)  # the worst finished score among those needed, once there are enough

    def add(self, step: Step, candidates: Candidates) -> Bool[np.ndarray, " B"]:
        """Enter a step, and say which of its sources are to be searched on."""
        self.steps.append(step)
        running = self.last[step.sources] < 0
        if np.isnan(candidates.log_probs[running]).any():
            raise RegardError(f"the model gave a log-probability that is not a number, at step {len(self.steps)}")
        for place, rank in np.argwhere(candidates.finished).tolist():
            self._finish(int(step.sources[place]), candidates, place, rank)
        length, ends = len(self.steps), self.ends[step.sources]
        # A log-probability can only fall, and the divisor is greatest at the longest length: nothing beats this bound.
        horizon = ends if self.config.exact else length
        bound = step.log_probs[:, 0].astype(np.float64) / divisor(
            horizon, self.config.length_penalty, self.config.length_form
        )
        stopped = running & ((bound <= self.to_beat[step.sources]) | (length >= ends))
        self.last[step.sources[stopped]] = length - 1
        return running & ~stopped

    def _finish(self, source: int, candidates: Candidates, place: int, rank: int) -> None:
        log_prob = float(candidates.log_probs[place, rank])
        end = End(
            step=len(self.steps) - 1,
            token=int(candidates.tokens[place, rank]),
            parent=int(candidates.parents[place, rank]),
            log_prob=log_prob,
            score=self.config.score(log_prob, len(self.steps)),
            finished=True,
        )
        ends = self.finished[source]
        ends.append(end)
        ends.sort(key=lambda end: -end.score)  # stable: of equals, the one found first
        del ends[self.needed :]
        if len(ends) == self.needed:
            self.to_beat[source] = ends[-1].score

    def results(self) -> list[list[Hypothesis]]:
        """For each source its best hypotheses, best first, as `beam_search` promises."""
        return [[self._trace(source, end) for end in self._ends(source)] for source in range(len(self.ends))]

    def _ends(self, source: int) -> list[End]:
        last, count = int(self.last[source]), self.config.top_beams
        ends = (self.finished[source] + self._live(source, last))[:count]
        return ends or self._live(source, last - 1)[:count]

    def _live(self, source: int, index: int) -> list[End]:
        """The hypotheses that went on after step `index`, best first: before the first, the empty one."""
        if index < 0:
            return [End(step=-1, token=-1, parent=0, log_prob=0.0, score=0.0, finished=False)]
        step = self.steps[index]
        place = step.index[source]
        rows = zip(step.tokens[place], step.parents[place], step.log_probs[place], strict=True)
        return [
            End(
                index, int(token), int(parent), float(total), self.config.score(float(total), index + 1), finished=False
            )
            for token, parent, total in rows
            if total > -np.inf
        ]

    def _trace(self, source: int, end: End) -> Hypothesis:
        tokens, sums, rows = [], [], []
        token, parent, total = end.token, end.parent, end.log_prob
        for step in reversed(self.steps[: end.step + 1]):
            place = step.index[source]
            if tokens:
                token, parent, total = (
                    step.tokens[place, parent],
                    step.parents[place, parent],
                    step.log_probs[place, parent],
                )
            tokens.append(int(token))
            sums.append(float(total))
            rows.append(int(place * step.width + parent))
        sums.reverse()
        return Hypothesis(
            tokens=tokens[::-1][: len(tokens) - end.finished],
            score=end.score,
            log_prob=end.log_prob,
            finished=end.finished,
            token_log_probs=[after - before for before, after in zip([0.0, *sums], sums, strict=False)],
            rows=rows[::-1],
        )
