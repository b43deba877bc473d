"""Gated 1-D convolutions: every position from a few neighbours, all positions at once."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.nn.dropout import Dropout


class GatedConvolution(nn.Module):
    """a * sigmoid(b), where a and b are two convolutions of the `kernel` positions around each one.

    A `causal` one sees a position and those before it, and can go on step by step with a window of what it last read.
    Beyond the ends lie zeros.
    """

    def __init__(self, width: int, kernel: int, *, causal: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        if kernel < 1:
            raise ConfigError(f"a kernel of {kernel} must be at least 1")
        if not causal and kernel % 2 == 0:
            raise ConfigError(f"a kernel of {kernel} must be odd to have a middle")
        self.kernel, self.causal, self.dropout = kernel, causal, Dropout(dropout)
        self.convolution = nn.Conv1d(width, 2 * width, kernel)
        # The gate halves what passes, so that inputs of variance one leave with about that.
        nn.init.normal_(self.convolution.weight, std=(4 * (1 - dropout) / (kernel * width)) ** 0.5)
        nn.init.zeros_(self.convolution.bias)  # type: ignore[arg-type]

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        around = (self.kernel - 1, 0) if self.causal else (self.kernel // 2, self.kernel // 2)
        return F.glu(self.convolution(F.pad(self.dropout(x).mT, around)).mT, dim=-1)

    def window(self, like: Float[Tensor, "R D"]) -> Float[Tensor, "R N D"]:
        """What a causal convolution has read before its first position: zeros."""
        return like.new_zeros(like.shape[0], self.kernel - 1, like.shape[1])

    def step(
        self, x: Float[Tensor, "R D"], window: Float[Tensor, "R N D"]
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R N D"]]:
        """The output at one more position, and the window after it."""
        assert self.causal, "only a causal convolution can go on step by step"
        seen = torch.cat((window, self.dropout(x)[:, None]), dim=1)
        weight, bias = self.convolution.weight, self.convolution.bias
        return F.glu(F.linear(seen.mT.flatten(1), weight.flatten(1), bias), dim=-1), seen[:, 1:]
