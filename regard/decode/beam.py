"""Beam search: the few best outputs found by keeping the few best beginnings."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.batching import staying
from regard.decode.best import best
from regard.decode.config import DecodeConfig, limits
from regard.decode.constraints import Constraint, Past, rules
from regard.decode.pool import Candidates, Pool, survivors
from regard.decode.stepper import Hypothesis, S, Stepper


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
    sources = np.arange(len(first))  # those still computed, as first given
    running = np.ones(len(first), dtype=bool)
    sums, tokens = torch.zeros(len(first), 1, device=first.device), first
    while len(sources):
        log_probs, state = stepper.step(tokens, state)
        if past.constraints:
            log_probs = past.constrain(log_probs, _upload(np.repeat(sources, sums.shape[1]), first.device))
        candidates = _candidates(sums, log_probs, sources, running, ends=(eos, *stops), beam=config.beam)
        if record is not None:
            record(candidates.of(running))
        step = survivors(candidates, eos=eos, width=sums.shape[1], total=len(first))
        running = pool.add(step, candidates)
        if not running.any():
            break
        kept = staying(running)
        places = np.arange(len(sources)) if kept is None else kept
        sources, running = sources[places], running[places]
        rows = (places[:, None] * step.width + step.parents[places]).ravel()
        moves = _upload(np.stack((rows, step.tokens[places].ravel())), first.device)
        if not np.array_equal(rows, np.arange(len(tokens))):  # in place already: often so where B is 1, always if W is
            state = state.select(moves[0], None if kept is None else _upload(kept, first.device))
        past.select(moves[0])
        past.extend(moves[1])
        tokens, sums = moves[1], _upload(step.log_probs[places], first.device)
    return pool.results()


def _candidates(
    sums: Float[Tensor, "B V"],
    log_probs: Float[Tensor, "R C"],
    sources: Int[np.ndarray, " B"],
    running: Bool[np.ndarray, " B"],
    *,
    ends: tuple[int, ...],
    beam: int,
) -> Candidates:
    """The 2W best ways to go on from V rows a source (more where there are several ends), brought to the host in one
    piece."""
    C, eos = log_probs.shape[1], ends[0]
    assert max(ends) < C, f"eos={max(ends)} is not among {C} choices"
    count = (1 + len(ends)) * beam
    values, places = best(sums, log_probs, count)
    values, places = torch.stack((values.double(), places.double())).cpu().numpy()  # doubles hold any place exactly
    missing = count - values.shape[1]
    if missing:
        values = np.pad(values, ((0, 0), (0, missing)), constant_values=-np.inf)
        places = np.pad(places, ((0, 0), (0, missing)), constant_values=eos)
    parents, tokens = np.divmod(places.astype(np.int64), C)
    ended = np.isin(tokens, ends)
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
    # W rows end in W candidates an end at most, so W go on; where choices run out, dead ones fill up.
    live = np.argsort(ended, axis=1, kind="stable")[:, :beam]
    return Candidates(sources, tokens, parents, values.astype(np.float32), finished, live)


def _upload(array: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)
