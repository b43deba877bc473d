"""Differentiable on/off gates: drawn at random while they are learnt, so that being shut has a gradient."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class HardConcrete(nn.Module):
    """Gates between 0 and 1 that are often exactly 0 or 1 (Louizos, Welling and Kingma 2018).

    A draw is a sigmoid of noise, stretched to reach from `low` to `high` and cut to [0, 1]. Outside training there is
    no noise. `chance_open` is the probability that a gate is not shut; its sum is the expected number of open gates.
    """

    def __init__(
        self, gates: int, *, start: float = 2.0, temperature: float = 2 / 3, low: float = -0.1, high: float = 1.1
    ) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.full((gates,), start))
        self.temperature, self.low, self.high = temperature, low, high

    def forward(self) -> Float[Tensor, " N"]:
        if self.training:
            chance = torch.rand_like(self.log_alpha).clamp(1e-6, 1 - 1e-6)
            drawn = torch.sigmoid((chance.logit() + self.log_alpha) / self.temperature)
        else:
            drawn = torch.sigmoid(self.log_alpha)
        return (drawn * (self.high - self.low) + self.low).clamp(0, 1)

    def chance_open(self) -> Float[Tensor, " N"]:
        return torch.sigmoid(self.log_alpha - self.temperature * math.log(-self.low / self.high))
