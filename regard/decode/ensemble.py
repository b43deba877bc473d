"""Several models as one: the mean of their probabilities at every step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.stepper import State, Stepper
from regard.errors import RegardError


@dataclass(frozen=True, slots=True)
class EnsembleState:
    """The states of all members, row by row alike."""

    members: tuple[State, ...]

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " B"] | None = None) -> "EnsembleState":
        return EnsembleState(tuple(member.select(rows, sources) for member in self.members))


class EnsembleStepper:
    """Steps all members side by side and averages their probabilities. They must number their choices alike."""

    def __init__(self, members: Sequence[Stepper[Any]]) -> None:
        assert members, "an ensemble has at least one member"
        self.members = tuple(members)

    def start(self, batch: Any) -> EnsembleState:
        return EnsembleState(tuple(member.start(batch) for member in self.members))

    def step(self, choices: Int[Tensor, " R"], state: EnsembleState) -> tuple[Float[Tensor, "R C"], EnsembleState]:
        """The logarithm of the mean probability of each choice."""
        pairs = zip(self.members, state.members, strict=True)
        found, states = zip(*(member.step(choices, own) for member, own in pairs), strict=True)
        if len({one.shape[1] for one in found}) > 1:
            counts = ", ".join(str(one.shape[1]) for one in found)
            raise RegardError(f"the members of an ensemble have {counts} choices")
        mean = torch.stack([one.float() for one in found]).logsumexp(0) - math.log(len(found))
        return mean, EnsembleState(states)
