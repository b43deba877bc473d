"""Decoding with one row per output and one choice per step, the likeliest or a sampled one, as a stream of steps."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.config import DecodeConfig, limits
from regard.decode.constraints import Constraint, Past, rules
from regard.decode.stepper import Hypothesis, S, Stepper, unfinished
from regard.decode.topk import best_sums
from regard.errors import RegardError
from regard.nn.double_precision import doubles


class Column(NamedTuple):
    """One step for all R rows, on the CPU: the choice, its log-probability, and the row it was computed in.

    A row that has ended goes on with `eos`, log-probability 0 and row -1.
    """

    tokens: Int[Tensor, " R"]
    log_probs: Float[Tensor, " R"]
    rows: Int[Tensor, " R"]


@runtime_checkable
class Pick(Protocol):
    """A way to choose. `rows` says which of the rows as first given these are; some may have been dropped."""

    def __call__(self, log_probs: Float[Tensor, "N C"], rows: Int[Tensor, " N"], step: int) -> Int[Tensor, " N"]:
        """One choice for each row."""
        ...


def likeliest(log_probs: Float[Tensor, "N C"], rows: Int[Tensor, " N"], step: int) -> Int[Tensor, " N"]:
    """The choice of greatest log-probability, the first of equal ones."""
    return best_sums(log_probs.new_zeros(len(log_probs), 1), log_probs, 1)[1][:, 0]


def decode(
    stepper: Stepper[S],
    state: S,
    first: Int[Tensor, " R"],
    *,
    eos: int,
    max_len: int | Int[Tensor, " R"],
    min_len: int = 0,
    pick: Pick = likeliest,
    per_source: int = 1,
    constraints: Sequence[Constraint] = (),
    stops: Sequence[int] = (),
) -> Iterator[Column]:
    """Yield one column of choices per step, until every row has chosen `eos` or made its `max_len` choices.

    A row that chooses one of `stops` ends as well, and comes out as one that chose `eos`.
    `state` holds R rows, `per_source` of them to each source. Sources whose rows have all ended are dropped from the
    computation; the columns stay whole and in order.
    """
    ends = limits(max_len, len(first))
    past = Past(constraints, min_len, eos, *stops)
    others = torch.tensor(stops, dtype=torch.long, device=first.device)
    running = np.ones(len(first), dtype=bool)
    computed = np.arange(len(first))  # the rows still computed, as first given
    rows = torch.from_numpy(computed).to(first.device)
    tokens = first
    for step in range(ends.max(initial=0)):
        with torch.inference_mode():
            log_probs, state = stepper.step(tokens, state)
            assert eos < log_probs.shape[1], f"eos={eos} is not among {log_probs.shape[1]} choices"
            log_probs = past.constrain(log_probs, lambda rows=rows: rows // per_source)
            tokens = pick(log_probs, rows, step)
            chosen = log_probs.gather(1, tokens[:, None])[:, 0]
            if stops:
                tokens = tokens.masked_fill(torch.isin(tokens, others), eos)
            # The one wait for the device per step; doubles hold any token exactly.
            found = torch.stack((doubles(tokens), doubles(chosen))).cpu().numpy()
        column = _column(found, computed, running, eos, step)
        running &= (column.tokens != eos).numpy() & (ends > step + 1)
        yield column
        if not running.any():
            return
        with torch.inference_mode():
            past.extend(tokens)
            kept = unfinished(np.any(running[computed].reshape(-1, per_source), axis=1))
            if kept is not None:
                sources = torch.from_numpy(kept).to(first.device)
                places = (sources[:, None] * per_source + torch.arange(per_source, device=first.device)).flatten()
                state, tokens, rows = state.select(places, sources), tokens[places], rows[places]
                past.select(places)
                computed = rows.cpu().numpy()


def _column(
    found: Float[np.ndarray, "2 N"],
    computed: Int[np.ndarray, " N"],
    running: Bool[np.ndarray, " R"],
    eos: int,
    step: int,
) -> Column:
    """The step as the caller sees it. A row with nothing left to choose from ends here: `running` is told."""
    alive = running[computed]
    if np.isnan(found[1][alive]).any():
        raise RegardError(f"the model gave a log-probability that is not a number, at step {step + 1}")
    alive &= found[1] > -np.inf
    running[computed] = alive
    tokens = np.full(len(running), eos)
    log_probs = np.zeros(len(running), dtype=np.float32)
    rows = np.full(len(running), -1)
    tokens[computed[alive]] = found[0][alive]
    log_probs[computed[alive]] = found[1][alive]
    rows[computed[alive]] = np.flatnonzero(alive)
    return Column(torch.from_numpy(tokens), torch.from_numpy(log_probs), torch.from_numpy(rows))


def collect(columns: Iterable[Column], *, eos: int, config: DecodeConfig) -> list[Hypothesis]:
    """The finished outputs of a stream of columns, one for each row."""
    stream = list(columns)
    if not stream:
        return []
    tokens, log_probs, rows = (torch.stack(parts, 1).tolist() for parts in zip(*stream, strict=True))
    return [_hypothesis(*row, eos, config) for row in zip(tokens, log_probs, rows, strict=True)]


def _hypothesis(
    tokens: list[int], log_probs: list[float], rows: list[int], eos: int, config: DecodeConfig
) -> Hypothesis:
    length = rows.index(-1) if -1 in rows else len(rows)
    finished = length > 0 and tokens[length - 1] == eos
    log_prob = sum(log_probs[:length], 0.0)
    return Hypothesis(
        tokens=tokens[: length - finished],
        score=config.score(log_prob, max(length, 1)),
        log_prob=log_prob,
        finished=finished,
        token_log_probs=log_probs[:length],
        rows=rows[:length],
    )


def greedy(
    stepper: Stepper[S],
    state: S,
    first: Int[Tensor, " B"],
    *,
    eos: int,
    config: DecodeConfig | None = None,
    max_len: int | Int[Tensor, " B"] | None = None,
    constraints: Sequence[Constraint] = (),
) -> list[Hypothesis]:
    """For each source, the output got by taking the likeliest choice each time."""
    config = config or DecodeConfig()
    most = config.max_len if max_len is None else max_len
    columns = decode(
        stepper,
        state,
        first,
        eos=eos,
        max_len=most,
        min_len=config.min_len,
        constraints=[*constraints, *rules(config, eos, limits(most, len(first)))],
    )
    return collect(columns, eos=eos, config=config)
