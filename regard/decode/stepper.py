"""What decoding knows of a model: `Stepper`, its state, and the hypotheses that come of it."""

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

Same = TypeVar("Same")


@runtime_checkable
class State(Protocol):
    """What a model remembers between steps, for R rows that belong to B sources, R / B rows each, in source order."""

    def select(self: Same, rows: Int[Tensor, " R"], sources: Int[Tensor, " B"] | None = None) -> Same:
        """The state with these rows, which may repeat, reorder or drop the old ones.

        Memory of a source is kept once however many rows read it. `sources` names the sources that stay, in order;
        None keeps them all. Either way the rows must again be grouped evenly by source.
        """
        ...


S = TypeVar("S", bound=State)


@runtime_checkable
class Stepper(Protocol[S]):
    """A model seen from the decoder: C choices at each step, be they words, copied words or source positions."""

    def start(self, batch: Any) -> S:
        """The state before the first choice, one row per source."""
        ...

    def step(self, choices: Int[Tensor, " R"], state: S) -> tuple[Float[Tensor, "R C"], S]:
        """Log-probabilities of each next choice after `choices` were made, and the state that remembers them.

        C may differ from step to step, but always holds the choice that ends an output. The log-probabilities now
        belong to the caller, who may write over them.
        """
        ...


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output, without the first token it was started from and without `eos`.

    `log_prob` is the sum of `token_log_probs`, which has one number for each choice made, `eos` with them when
    `finished`; an output that is not finished was cut short at its longest allowed length. `score` is `log_prob`
    divided for length. `rows[t]` is the row that choice `t` was read from in the stepper's t-th call, counted over
    this whole decoding: what a watched model saw there is what this output came from.
    """

    tokens: list[int]
    score: float
    log_prob: float
    finished: bool
    token_log_probs: list[float]
    rows: list[int]


ENDED_SHARE = 1 / 32  # leaving sources out copies the state of the rest, so wait until so many of them have ended


def unfinished(running: Bool[np.ndarray, " B"]) -> Int[np.ndarray, " A"] | None:
    """The places of the sources to continue with; None while too few have ended to be worth it."""
    kept = np.flatnonzero(running)
    return None if len(running) - len(kept) < max(1, ENDED_SHARE * len(running)) else kept
