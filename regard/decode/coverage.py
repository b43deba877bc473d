"""The coverage penalty of Wu et al. 2016: outputs that leave parts of their source unattended score lower."""

from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.config import DecodeConfig
from regard.decode.stepper import State
from regard.errors import ConfigError
from regard.nn.double_precision import doubles


@runtime_checkable
class AttendingState(State, Protocol):
    """A state that also tells where its rows attended in the step that made it, as `coverage_penalty` needs."""

    def attention(self) -> Float[Tensor, "R S"]:
        """How much each row attended to each source position in the last step; the sum of a row is 1."""
        ...

    def readable(self) -> Bool[Tensor, "B S"]:
        """The positions that a source has; False is padding."""
        ...


class Coverage:
    """How much attention each hypothesis has paid to each position of its source."""

    def __init__(self, config: DecodeConfig, state: State) -> None:
        if not isinstance(state, AttendingState):
            raise ConfigError(
                f"coverage_penalty={config.coverage_penalty} needs a model whose steps attend to the source, "
                f"and {type(state).__name__} tells of no attention"
            )
        self.weight = config.coverage_penalty
        self.paid: Float[Tensor, "R S"] | None = None

    def penalties(self, state: AttendingState, sources: int) -> Float[np.ndarray, "B W"]:
        """What each row's score loses if it ends in this step: 0 where all positions are covered, else below."""
        attention = state.attention().float()
        self.paid = attention if self.paid is None else self.paid + attention
        readable = state.readable().repeat_interleave(len(attention) // sources, 0)
        # Of a position never attended to, no more is asked than of the least number there is.
        least = torch.finfo(torch.float32).tiny
        lost = doubles(self.paid.clamp(least, 1.0).log().masked_fill(~readable, 0.0)).sum(1)
        return (self.weight * lost).view(sources, -1).cpu().numpy()

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Go on with these rows."""
        assert self.paid is not None
        self.paid = self.paid[rows]
