"""MUT1, MUT2 and MUT3 (Jozefowicz 2015), the best that a search among mutated cells found: their equations.

In all three z writes the new state, where a GRU's keeps the old one. Where x is added as it is, it must be as wide as
h, or is brought to that width by a matrix.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.basic_cells import Cell, State, StateLinear


class MUT1Cell(Cell):
    """z = sigmoid(Wz x + bz), r = sigmoid(Wr x + Ur h + br), h' = tanh(U (r * h) + tanh(x) + b) * z + h * (1 - z)."""

    widens = True

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(input_width, 2 * width)
        self.widen = _widen(input_width, width)
        self.reset = StateLinear(width, width, bias=False)
        self.hidden = StateLinear(width, width)

    def project(self, x: Float[Tensor, "*batch X"]) -> Float[Tensor, "*batch G"]:
        return torch.cat((self.inputs(x), self.widen(x).tanh()), dim=-1)

    def advance(self, x: Float[Tensor, "B G"], state: State) -> State:
        (h,) = state
        x_z, x_r, x_h = x.chunk(3, dim=-1)
        z, r = x_z.sigmoid(), (x_r + self.reset(h)).sigmoid()
        return (torch.tanh(self.hidden(r * h) + x_h) * z + h * (1 - z),)


class MUT2Cell(Cell):
    """z = sigmoid(Wz x + Uz h + bz), r = sigmoid(x + Ur h + br), h' = tanh(U (r * h) + W x + b) * z + h * (1 - z)."""

    widens = True

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(input_width, 2 * width)
        self.widen = _widen(input_width, width)
        self.gates = StateLinear(width, width, bias=False)
        self.reset = StateLinear(width, width)
        self.hidden = StateLinear(width, width, bias=False)

    def project(self, x: Float[Tensor, "*batch X"]) -> Float[Tensor, "*batch G"]:
        return torch.cat((self.inputs(x), self.widen(x)), dim=-1)

    def advance(self, x: Float[Tensor, "B G"], state: State) -> State:
        (h,) = state
        x_z, x_h, x_r = x.chunk(3, dim=-1)
        z, r = (x_z + self.gates(h)).sigmoid(), (x_r + self.reset(h)).sigmoid()
        return (torch.tanh(self.hidden(r * h) + x_h) * z + h * (1 - z),)


class MUT3Cell(Cell):
    """z = sigmoid(Wz x + Uz tanh(h) + bz), r = sigmoid(Wr x + Ur h + br), h' as in MUT2."""

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(input_width, 3 * width)
        self.gates = StateLinear(width, width, bias=False)
        self.reset = StateLinear(width, width, bias=False)
        self.hidden = StateLinear(width, width, bias=False)

    def project(self, x: Float[Tensor, "*batch X"]) -> Float[Tensor, "*batch G"]:
        return self.inputs(x)

    def advance(self, x: Float[Tensor, "B G"], state: State) -> State:
        (h,) = state
        x_z, x_r, x_h = x.chunk(3, dim=-1)
        z, r = (x_z + self.gates(h.tanh())).sigmoid(), (x_r + self.reset(h)).sigmoid()
        return (torch.tanh(self.hidden(r * h) + x_h) * z + h * (1 - z),)


def _widen(input_width: int, width: int) -> nn.Module:
    return nn.Identity() if input_width == width else nn.Linear(input_width, width, bias=False)
