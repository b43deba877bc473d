"""Beam search over any stepper. What is kept of its steps, and which sources may stop, is worked out on the host."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.beam_groups import Groups
from regard.decode.config import DecodeConfig, divisor, limits
from regard.decode.constraints import Constraint, Past, rules
from regard.decode.coverage import Coverage
from regard.decode.phrases import Banks
from regard.decode.stepper import Hypothesis, S, Stepper, unfinished
from regard.decode.topk import best_sums
from regard.errors import RegardError
from regard.nn.double_precision import doubles


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of one step, best first, for each source: what went on, what finished, and what was pruned.

    A candidate adds `tokens` to the hypothesis that held place `parents` after the step before; `log_probs` are of
    the whole. `live[b, w]` is the candidate that continues in place w. One that is neither live nor `finished` was
    pruned; those of log-probability -inf only fill up. `added` is what comes to a score beside the log-probability
    divided for length, if anything does. In groups the best come first within each group.
    """

    sources: Int[np.ndarray, " B"]
    tokens: Int[np.ndarray, "B N"]
    parents: Int[np.ndarray, "B N"]
    log_probs: Float[np.ndarray, "B N"]
    finished: Bool[np.ndarray, "B N"]
    live: Int[np.ndarray, "B W"]
    added: Float[np.ndarray, "B N"] | None = None

    def of(self, running: Bool[np.ndarray, " B"]) -> "Candidates":
        """These candidates for some of the sources."""
        if running.all():
            return self
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return Candidates(**{name: part[running] for name, part in parts.items() if part is not None})


@dataclass(frozen=True, slots=True)
class BeamStep:
    """What survives one step: for each source computed and each place, its choice, parent and log-probability.

    `width` is how many rows each source had in this step's computation; `sources` are the sources computed, numbered
    as first given, and `index` says for each source first given where it is among them.
    """

    width: int
    sources: Int[np.ndarray, " B"]
    index: Int[np.ndarray, " A"]
    tokens: Int[np.ndarray, "B W"]
    parents: Int[np.ndarray, "B W"]
    log_probs: Float[np.ndarray, "B W"]
    added: Float[np.ndarray, "B W"] | None = None


def survivors(candidates: Candidates, *, eos: int, width: int, total: int) -> BeamStep:
    """The live ones of `candidates`, which came from `width` rows per source, of `total` sources first given."""
    where = (np.arange(len(candidates.live))[:, None], candidates.live)  # as `take_along_axis` has it, which is slow
    tokens, parents = candidates.tokens[where], candidates.parents[where]
    log_probs = candidates.log_probs[where]
    log_probs[tokens == eos] = -np.inf  # where choices run out, one that ended fills a place; it must not live on
    index = np.full(total, -1)
    index[candidates.sources] = np.arange(len(candidates.sources))
    added = None if candidates.added is None else np.take_along_axis(candidates.added, candidates.live, 1)
    return BeamStep(width, candidates.sources, index, tokens, parents, log_probs, added)


@dataclass(frozen=True, slots=True)
class End:
    """The last choice of a hypothesis, from which the rest is found by going back from parent to parent."""

    step: int
    token: int
    parent: int
    log_prob: float
    score: float
    finished: bool
    group: int = 0


class Pool:
    """The hypotheses of every source as first given, each of which may make at most `ends` choices."""

    def __init__(self, ends: Int[np.ndarray, " B"], config: DecodeConfig) -> None:
        self.config = config
        self.ends = ends
        self.steps: list[BeamStep] = []
        self.finished: list[list[End]] = [[] for _ in ends]
        self.last = np.full(len(ends), -1)  # the step each source stopped at
        # Where all that could come is bounded, only what is returned has to be safe from it.
        self.needed = config.top_beams if config.exact and config.beam_groups == 1 else config.beam
        self.to_beat = np.full(len(ends), -np.inf)  # the worst finished score among those needed, once there are enough

    def add(self, step: BeamStep, candidates: Candidates) -> Bool[np.ndarray, " B"]:
        """Enter a step, and say which of its sources are to be searched on."""
        self.steps.append(step)
        running = self.last[step.sources] < 0
        unknown = np.isnan(candidates.log_probs)
        if unknown.any() and unknown[running].any():
            raise RegardError(f"the model gave a log-probability that is not a number, at step {len(self.steps)}")
        if candidates.finished.any():
            for place, rank in np.argwhere(candidates.finished).tolist():
                self._finish(int(step.sources[place]), candidates, place, rank)
        length, ends = len(self.steps), self.ends[step.sources]
        # A log-probability can only fall, and the divisor is greatest at the longest length: nothing beats this bound.
        horizon = ends if self.config.exact else length
        bound = step.log_probs.max(1).astype(np.float64) / divisor(
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
            score=self.config.score(log_prob, len(self.steps)) + _added(candidates.added, place, rank),
            finished=True,
            group=rank // (2 * self.config.beam // self.config.beam_groups),
        )
        ends = self.finished[source]
        ends.append(end)
        ends.sort(key=lambda end: -end.score)  # stable: of equals, the one found first
        of_group = [index for index, one in enumerate(ends) if one.group == end.group]
        for index in of_group[self.config.beam // self.config.beam_groups :]:  # a group keeps as many as it has places
            del ends[index]
        del ends[self.needed :]
        if len(ends) == self.needed:
            self.to_beat[source] = ends[-1].score

    def results(self) -> list[list[Hypothesis]]:
        """For each source its best hypotheses, best first, as `beam_search` promises."""
        return [[self._trace(source, end) for end in self._ends(source)] for source in range(len(self.ends))]

    def _ends(self, source: int) -> list[End]:
        last, count = int(self.last[source]), self.config.top_beams
        ends = self._distinct(source, self.finished[source] + self._live(source, last))[:count]
        return ends or self._distinct(source, self._live(source, last - 1))[:count]

    def _distinct(self, source: int, ends: list[End]) -> list[End]:
        """Of equal outputs the first: several groups may have come to one."""
        if self.config.beam_groups == 1:
            return ends
        outputs = [(end.finished, *self._trace(source, end).tokens) for end in ends]
        return [end for index, end in enumerate(ends) if outputs[index] not in outputs[:index]]

    def _live(self, source: int, index: int) -> list[End]:
        """The hypotheses that went on after step `index`, best first: before the first, the empty one."""
        if index < 0:
            return [End(step=-1, token=-1, parent=0, log_prob=0.0, score=0.0, finished=False)]
        step = self.steps[index]
        place = int(step.index[source])
        rows = zip(step.tokens[place], step.parents[place], step.log_probs[place], strict=True)
        live = [
            End(
                index,
                int(token),
                int(parent),
                float(total),
                self.config.score(float(total), index + 1) + _added(step.added, place, rank),
                finished=False,
            )
            for rank, (token, parent, total) in enumerate(rows)
            if total > -np.inf
        ]
        return sorted(live, key=lambda end: -end.score)

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


def _added(added: Float[np.ndarray, "B N"] | None, place: int, rank: int) -> float:
    return 0.0 if added is None else float(added[place, rank])


@torch.inference_mode()
def beam_search(
    stepper: Stepper[S],
    state: S,
    first: Int[Tensor, " B"],
    *,
    eos: int,
    config: DecodeConfig | None = None,
    max_len: int | Int[Tensor, " B"] | None = None,
    constraints: Sequence[Constraint] = (),
    stops: Sequence[int] = (),
    record: Callable[[Candidates], None] | None = None,
) -> list[list[Hypothesis]]:
    """For each source, its `config.top_beams` best outputs, best first.

    Of the 2W best candidates of a step, those of the first W that choose `eos` are finished, and the first W that do
    not go on. `config` says when a source stops. Finished outputs come before ones cut short by `max_len`, which
    only fill the places that too few finished ones leave; a dead end comes back only where nothing else was found.
    Fewer than `top_beams` come back where there are no more outputs to find. An output may end by one of `stops`
    as well as by `eos`, whichever is likelier; its end then counts as `eos`. `record` is told of every step; what it is
    given is its own to keep.
    """
    config = config or DecodeConfig()
    ends = limits(config.max_len if max_len is None else max_len, len(first))
    pool = Pool(ends, config)
    past = Past([*constraints, *rules(config, eos, ends)], config.min_len, eos, *stops)
    coverage = Coverage(config, state) if config.coverage_penalty else None
    choose = _chooser(config, len(first), eos, stops)
    sources = np.arange(len(first))  # those still computed, as first given
    running = np.ones(len(first), dtype=bool)
    sums, tokens = torch.zeros(len(first), 1, device=first.device), first
    while len(sources):
        log_probs, state = stepper.step(tokens, state)
        log_probs = past.constrain(log_probs, partial(_of_rows, sources, sums))
        candidates = choose(sums, log_probs, sources, running)
        if coverage is not None:
            lost = coverage.penalties(state, len(sources))  # pyright: ignore[reportArgumentType]
            candidates = replace(candidates, added=np.take_along_axis(lost, candidates.parents, 1))
        if record is not None:
            record(candidates.of(running))
        step = survivors(candidates, eos=eos, width=sums.shape[1], total=len(first))
        running = pool.add(step, candidates)
        if not running.any():
            break
        kept = unfinished(running)
        places = np.arange(len(sources)) if kept is None else kept
        sources, running = sources[places], running[places]
        rows = (places[:, None] * step.width + step.parents[places]).ravel()
        moves = _upload(np.stack((rows, step.tokens[places].ravel())), first.device)
        if not np.array_equal(rows, np.arange(len(tokens))):  # in place already: often so where B is 1, always if W is
            state = state.select(moves[0], None if kept is None else _upload(kept, first.device))
        past.select(moves[0])
        if coverage is not None:
            coverage.select(moves[0])
        past.extend(moves[1])
        tokens, sums = moves[1], _upload(step.log_probs[places], first.device)
    return pool.results()


Chooser = Callable[[Tensor, Tensor, np.ndarray, np.ndarray], Candidates]


def _chooser(config: DecodeConfig, count: int, eos: int, stops: Sequence[int]) -> Chooser:
    """How the candidates of a step are chosen: plainly, or in groups, or in banks by what required phrases lack."""
    way: Groups | Banks | None = None
    if config.require:
        way = Banks(config.require, config.beam, count)
    elif config.beam_groups > 1:
        way = Groups(config.beam_groups, config.diversity_penalty, config.beam, count)

    def choose(sums: Tensor, log_probs: Tensor, sources: np.ndarray, running: np.ndarray) -> Candidates:
        if way is None:
            return _candidates(sums, log_probs, sources, running, ends=(eos, *stops), beam=config.beam)
        if stops:  # of the ways to end only the likeliest counts
            log_probs[:, eos] = log_probs[:, [eos, *stops]].amax(1)
            log_probs[:, list(stops)] = -torch.inf
        values, places, finished, live = way.choose(sums, log_probs, sources, eos=eos)
        parents, tokens = np.divmod(places, log_probs.shape[1])
        return Candidates(sources, tokens, parents, values, finished & running[:, None], live)

    return choose


def _candidates(
    sums: Float[Tensor, "B V"],
    log_probs: Float[Tensor, "R C"],
    sources: Int[np.ndarray, " B"],
    running: Bool[np.ndarray, " B"],
    *,
    ends: tuple[int, ...],
    beam: int,
) -> Candidates:
    """The 2W best continuations of V rows per source (more where there are several ends), copied to the host."""
    C, eos = log_probs.shape[1], ends[0]
    assert max(ends) < C, f"eos={max(ends)} is not among {C} choices"
    count = (1 + len(ends)) * beam
    values, places = best_sums(sums, log_probs, count)
    if values.device.type != "cpu":  # one copy to wait for; doubles hold any place exactly
        values, places = torch.stack((doubles(values), doubles(places))).cpu()
    values, places = values.numpy(), places.numpy()
    missing = count - values.shape[1]
    if missing:
        values = np.pad(values, ((0, 0), (0, missing)), constant_values=-np.inf)
        places = np.pad(places, ((0, 0), (0, missing)), constant_values=eos)
    parents, tokens = np.divmod(places.astype(np.int64), C)
    ended = tokens == eos if len(ends) == 1 else np.isin(tokens, ends)
    if len(ends) > 1:
        # Of the ways to end one hypothesis only the likeliest counts, since they are one output; the others go last.
        same = (parents[:, :, None] == parents[:, None]) & ended[:, :, None] & ended[:, None]
        again = np.tril(same, -1).any(-1)
        order = np.argsort(again, axis=1, kind="stable")[:, : 2 * beam]
        tokens, values = np.where(ended, eos, tokens), np.where(again, -np.inf, values)
        tokens, parents, values, ended = (
            np.take_along_axis(each, order, 1) for each in (tokens, parents, values, ended)
        )
    finished = ended & (values > -np.inf) & running[:, None]
    finished[:, beam:] = False
    # W rows end in at most W candidates per end, so W continue; where choices run out, dead ones fill up.
    live = np.argsort(ended, axis=1, kind="stable")[:, :beam]
    return Candidates(sources, tokens, parents, values.astype(np.float32), finished, live)


def _of_rows(sources: Int[np.ndarray, " B"], sums: Float[Tensor, "B V"]) -> Int[Tensor, " R"]:
    return _upload(np.repeat(sources, sums.shape[1]), sums.device)


def _upload(array: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)
