"""The vanilla RNN, the LSTM and both GRUs: their equations, written out.

A cell has two halves. `project` is what it makes of its inputs alone, for all positions at once. `advance` is one step:
from that and the state before, the state after. A state is a tuple of tensors, of which the first is the output h; an
LSTM has its cell c beside it. Where torch has a fused kernel for the same equations, `kernel` names it.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

State = tuple[Float[Tensor, "B D"], ...]


class StateLinear(nn.Linear):
    """A matrix over the state. While `dropped` is set it is used in place of the weight: see `weight_drop` below."""

    dropped: Tensor | None = None

    @property
    def used(self) -> Tensor:
        return self.weight if self.dropped is None else self.dropped

    def forward(self, input: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch G"]:
        return nn.functional.linear(input, self.used, self.bias)


class Cell(nn.Module):
    """What every cell has. `parts` is how many tensors a state has, `inputs` the matrix over its inputs.

    A cell that `widens` adds its inputs as they are too, brought to its width.
    """

    parts: ClassVar[int] = 1
    widens: ClassVar[bool] = False
    kernel: ClassVar[Callable[..., Any] | None] = None
    inputs: nn.Linear
    hidden: StateLinear

    def project(self, x: Float[Tensor, "*batch X"]) -> Float[Tensor, "*batch G"]:
        """What the cell makes of its inputs alone."""
        raise NotImplementedError

    def advance(self, x: Float[Tensor, "B G"], state: State) -> State:
        """The state after one more position, given what `project` made of its input."""
        raise NotImplementedError


class VanillaCell(Cell):
    """h' = tanh(W x + U h + b)."""

    kernel = staticmethod(torch.rnn_tanh)

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(input_width, width)
        self.hidden = StateLinear(width, width, bias=False)

    def project(self, x: Float[Tensor, "*batch X"]) -> Float[Tensor, "*batch D"]:
        return self.inputs(x)

    def advance(self, x: Float[Tensor, "B D"], state: State) -> State:
        (h,) = state
        return (torch.tanh(x + self.hidden(h)),)


class LSTMCell(Cell):
    """c' = f * c + i * g and h' = o * tanh(c'), with gates i, f, o = sigmoid(W x + U h + b), g = tanh of the same."""

    parts = 2
    kernel = staticmethod(torch.lstm)

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(input_width, 4 * width)
        self.hidden = StateLinear(width, 4 * width, bias=False)

    def project(self, x: Float[Tensor, "*batch X"]) -> Float[Tensor, "*batch G"]:
        return self.inputs(x)

    def advance(self, x: Float[Tensor, "B G"], state: State) -> State:
        h, c = state
        i, f, g, o = (x + self.hidden(h)).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class GRUBeforeCell(Cell):
    """h' = z * h + (1 - z) * tanh(W x + U (r * h) + b): the reset gate acts before the product, as first published."""

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(input_width, 3 * width)
        self.gates = StateLinear(width, 2 * width, bias=False)
        self.hidden = StateLinear(width, width, bias=False)

    def project(self, x: Float[Tensor, "*batch X"]) -> Float[Tensor, "*batch G"]:
        return self.inputs(x)

    def advance(self, x: Float[Tensor, "B G"], state: State) -> State:
        (h,) = state
        x_rz, x_h = x.tensor_split((2 * h.shape[-1],), dim=-1)
        r, z = (x_rz + self.gates(h)).sigmoid().chunk(2, dim=-1)
        return (z * h + (1 - z) * torch.tanh(x_h + self.hidden(r * h)),)


class GRUAfterCell(Cell):
    """h' = z * h + (1 - z) * tanh(W x + b + r * (U h + d)): the reset gate acts after the product, as torch's does."""

    kernel = staticmethod(torch.gru)

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(input_width, 3 * width)
        # With a bias of its own, since r multiplies it.
        self.hidden = StateLinear(width, 3 * width)

    def project(self, x: Float[Tensor, "*batch X"]) -> Float[Tensor, "*batch G"]:
        return self.inputs(x)

    def advance(self, x: Float[Tensor, "B G"], state: State) -> State:
        (h,) = state
        x_r, x_z, x_h = x.chunk(3, dim=-1)
        h_r, h_z, h_h = self.hidden(h).chunk(3, dim=-1)
        r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
        return (z * h + (1 - z) * torch.tanh(x_h + r * h_h),)
