"""What may change the choices before one is made: a least length, forbidden or forced words, penalties."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Prefix:
    """Where each row stands: the choices it made in the `step` steps before this one, and the source it belongs to.

    `sources` counts sources as the caller gave them, though some may have been dropped since.
    """

    step: int
    tokens: Int[Tensor, "R T"]
    sources: Int[Tensor, " R"]


@runtime_checkable
class Constraint(Protocol):
    """A rule over choices, told the rows' pasts. It must not raise a log-probability above 0."""

    def __call__(self, log_probs: Float[Tensor, "R C"], prefix: Prefix) -> Float[Tensor, "R C"]:
        """The log-probabilities to choose by: `log_probs` itself, changed in place, or others of its shape."""
        ...


def at_least(min_len: int, eos: int) -> Constraint:
    """A rule that no output ends before it has `min_len` tokens."""

    def constraint(log_probs: Float[Tensor, "R C"], prefix: Prefix) -> Float[Tensor, "R C"]:
        if prefix.step < min_len:
            log_probs[:, eos] = -torch.inf
        return log_probs

    return constraint


def repetition(penalty: float, pasts: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> Constraint:
    """A rule that multiplies by `penalty` the log-probability of every token a row has had before.

    Above 1 that makes it less likely. `pasts` are the tokens before the first step, prompt and all, of each source.
    """
    longest = max(map(len, pasts), default=0)
    # Short pasts are filled up with a token of their own, which changes nothing.
    filled = torch.tensor([[*past, *[past[0]] * (longest - len(past))] for past in pasts], device=device)

    def constraint(log_probs: Float[Tensor, "R C"], prefix: Prefix) -> Float[Tensor, "R C"]:
        had = torch.cat([filled[prefix.sources], prefix.tokens], 1)
        seen = torch.zeros_like(log_probs, dtype=torch.bool).scatter_(1, had, True)
        return torch.where(seen, log_probs * penalty, log_probs)

    return constraint


class Past:
    """The prefixes of the rows of a search as they are chosen, reordered and dropped; built only if a rule asks."""

    def __init__(self, constraints: Sequence[Constraint], min_len: int, eos: int) -> None:
        self.constraints = [at_least(min_len, eos), *constraints] if min_len else list(constraints)
        self.tokens: Int[Tensor, "R T"] | None = None

    def constrain(self, log_probs: Float[Tensor, "R C"], sources: Int[Tensor, " R"]) -> Float[Tensor, "R C"]:
        """`log_probs` under every rule, in the order they were given."""
        if not self.constraints:
            return log_probs
        if self.tokens is None:
            self.tokens = sources.new_empty(len(sources), 0)
        prefix = Prefix(self.tokens.shape[1], self.tokens, sources)
        for constraint in self.constraints:
            log_probs = constraint(log_probs, prefix)
        return log_probs

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Go on with these rows, which may repeat, reorder or drop the old ones."""
        if self.tokens is not None:
            self.tokens = self.tokens[rows]

    def extend(self, choices: Int[Tensor, " R"]) -> None:
        """Let each row make its choice."""
        if self.tokens is not None:
            self.tokens = torch.cat([self.tokens, choices[:, None]], 1)
