"""Recurrent cells, their equations written out: the vanilla RNN, the LSTM, both GRUs, and MUT1 to MUT3.

A cell has two halves. `project` is what it computes from its inputs alone, for all positions at once. `advance` is one
step: from that and the previous state, the next state. A state is a tuple of tensors, of which the first is the output
h; an LSTM has its cell c beside it. Where torch has a fused kernel for the same equations, `torch_kernel` names it.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

CellKind = Literal["rnn", "lstm", "gru-before", "gru-after", "mut1", "mut2", "mut3"]
CellState = tuple[Float[Tensor, "B D"], ...]


class StateLinear(nn.Linear):
    """A matrix over the state. While `dropped` is set it replaces the weight: see `weight_drop` of `RecurrentLayer`."""

    dropped: Tensor | None = None

    @property
    def used(self) -> Tensor:
        return self.weight if self.dropped is None else self.dropped

    def forward(self, input: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch G"]:
        return nn.functional.linear(input, self.used, self.bias)


class Cell(nn.Module):
    """What every cell has. `parts` is the number of tensors of a state, `inputs` the matrix over the inputs.

    A cell that `widens` also adds its inputs as they are, projected to its width where that differs.
    """

    parts: ClassVar[int] = 1
    widens: ClassVar[bool] = False
    torch_kernel: ClassVar[Callable[..., Any] | None] = None
    inputs: nn.Linear
    hidden: StateLinear

    def project(self, x: Float[Tensor, "*batch X"]) -> Float[Tensor, "*batch G"]:
        """What the cell computes from its inputs alone."""
        return self.inputs(x)

    def advance(self, x: Float[Tensor, "B G"], state: CellState) -> CellState:
        """The state after one more position, given what `project` computed from its input."""
        raise NotImplementedError


class VanillaCell(Cell):
    """h' = tanh(W x + U h + b)."""

    torch_kernel = staticmethod(torch.rnn_tanh)

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(input_width, width)
        self.hidden = StateLinear(width, width, bias=False)

    def advance(self, x: Float[Tensor, "B D"], state: CellState) -> CellState:
        (h,) = state
        return (torch.tanh(x + self.hidden(h)),)


class LSTMCell(Cell):
    """c' = f * c + i * g and h' = o * tanh(c'), with gates i, f, o = sigmoid(W x + U h + b), g = tanh of the same."""

    parts = 2
    torch_kernel = staticmethod(torch.lstm)

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(input_width, 4 * width)
        self.hidden = StateLinear(width, 4 * width, bias=False)

    def advance(self, x: Float[Tensor, "B G"], state: CellState) -> CellState:
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

    def advance(self, x: Float[Tensor, "B G"], state: CellState) -> CellState:
        (h,) = state
        x_rz, x_h = x.tensor_split((2 * h.shape[-1],), dim=-1)
        r, z = (x_rz + self.gates(h)).sigmoid().chunk(2, dim=-1)
        return (z * h + (1 - z) * torch.tanh(x_h + self.hidden(r * h)),)


class GRUAfterCell(Cell):
    """h' = z * h + (1 - z) * tanh(W x + b + r * (U h + d)): the reset gate acts after the product, as torch's does."""

    torch_kernel = staticmethod(torch.gru)

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(input_width, 3 * width)
        # With a bias of its own, since r multiplies it.
        self.hidden = StateLinear(width, 3 * width)

    def advance(self, x: Float[Tensor, "B G"], state: CellState) -> CellState:
        (h,) = state
        x_r, x_z, x_h = x.chunk(3, dim=-1)
        h_r, h_z, h_h = self.hidden(h).chunk(3, dim=-1)
        r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
        return (z * h + (1 - z) * torch.tanh(x_h + r * h_h),)


# MUT1, MUT2 and MUT3 (Jozefowicz 2015) are the best that a search among mutated cells found. In all three z admits the
# new state, where a GRU's keeps the old one. Where x is added as it is, it must be as wide as h, or is projected.


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

    def advance(self, x: Float[Tensor, "B G"], state: CellState) -> CellState:
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

    def advance(self, x: Float[Tensor, "B G"], state: CellState) -> CellState:
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

    def advance(self, x: Float[Tensor, "B G"], state: CellState) -> CellState:
        (h,) = state
        x_z, x_r, x_h = x.chunk(3, dim=-1)
        z, r = (x_z + self.gates(h.tanh())).sigmoid(), (x_r + self.reset(h)).sigmoid()
        return (torch.tanh(self.hidden(r * h) + x_h) * z + h * (1 - z),)


def _widen(input_width: int, width: int) -> nn.Module:
    return nn.Identity() if input_width == width else nn.Linear(input_width, width, bias=False)


CELLS: dict[CellKind, Callable[[int, int], Cell]] = {
    "rnn": VanillaCell,
    "lstm": LSTMCell,
    "gru-before": GRUBeforeCell,
    "gru-after": GRUAfterCell,
    "mut1": MUT1Cell,
    "mut2": MUT2Cell,
    "mut3": MUT3Cell,
}


def initialise_cell(cell: Cell) -> None:
    """Matrices over the state orthogonal, so that it neither vanishes nor explodes at first; an LSTM starts by keeping.

    The bias of an LSTM's forget gate is 1.
    """
    for name, part in cell.named_children():
        if name != "inputs" and name != "widen" and isinstance(part, nn.Linear):
            for matrix in part.weight.data.split(part.in_features):
                nn.init.orthogonal_(matrix)
    if isinstance(cell, LSTMCell):
        cell.inputs.bias.data.chunk(4)[1].fill_(1.0)
