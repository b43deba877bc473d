"""Recurrent cells, their equations written out: the vanilla RNN, the LSTM, both GRUs, and MUT1 to MUT3.

A cell has two halves. `project` is what it computes from its inputs alone, for all positions at once. `advance` is one
step: from that and the previous state, the next state. A state is a tuple of tensors, of which the first is the output
h; an LSTM has its cell c beside it. Where torch has a fused kernel for the same equations, `torch_kernel` names it.

What a step multiplies by is in `gate_values`, which need no more than the input and the output before. So those of a
whole sequence follow at once from its outputs, however these were computed, and `watch` gets them so.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

CellKind = Literal["rnn", "lstm", "gru-before", "gru-after", "mut1", "mut2", "mut3"]
CellState = tuple[Float[Tensor, "B D"], ...]
Gates = dict[str, Tensor]
"""What a step computes on the way to its state, by the letter that it has in the cell's equations."""
Reads = Literal["source", "prefix"]


@runtime_checkable
class StateWatcher(Protocol):
    """Is given the gates and the states of some positions of every row, each B x T x D, call after call.

    Those of the last calls may have to be forgotten, where an edit makes a decoder go through its steps again.
    """

    def __call__(self, gates: Gates, states: Gates) -> None: ...

    def forget(self, calls: int) -> None: ...


@runtime_checkable
class Recurs(Protocol):
    """What `watch` asks of a module for its gates and states: while `state_watcher` is set, it hears of every call.

    `reads` is the side that its steps go along: the text read, or what a decoder has written; `backward`, from its end.
    """

    state_watcher: StateWatcher | None
    reads: Reads
    backward: bool

    @property
    def width(self) -> int:
        """Units of a state."""
        ...


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
    state_watcher: StateWatcher | None = None
    reads: Reads = "source"
    backward: bool = False
    inputs: nn.Linear
    hidden: StateLinear

    @property
    def width(self) -> int:
        return self.hidden.in_features

    def project(self, x: Float[Tensor, "*batch X"]) -> Float[Tensor, "*batch G"]:
        """What the cell computes from its inputs alone."""
        return self.inputs(x)

    def advance(self, x: Float[Tensor, "B G"], state: CellState) -> CellState:
        """The state after one more position, given what `project` computed from its input."""
        raise NotImplementedError

    def gate_values(self, x: Float[Tensor, "*batch G"], h: Float[Tensor, "*batch D"]) -> Gates:
        """The gates of a position, given what `project` computed from its input and the output h before it."""
        return {}

    def tell(
        self,
        x: Float[Tensor, "B T G"],
        outputs: Float[Tensor, "B T D"],
        start: CellState,
        in_place: Callable[[Tensor], Tensor] = lambda part: part,
    ) -> None:
        """Let whoever watches know the gates and states of these positions, which are in the order of reading.

        `in_place` puts them back in the text's order.
        """
        if self.state_watcher is None:
            return
        with torch.no_grad():
            before = torch.cat((start[0][:, None], outputs[:, :-1]), dim=1)
            gates = self.gate_values(x, before)
            states = self._states(gates, outputs, start)
            gates, states = ({name: in_place(part) for name, part in found.items()} for found in (gates, states))
            self.state_watcher(gates, states)

    def _states(self, gates: Gates, outputs: Float[Tensor, "B T D"], start: CellState) -> Gates:
        return {"h": outputs}


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
        gates = self.gate_values(x, h)
        c = gates["f"] * c + gates["i"] * gates["g"]
        return gates["o"] * c.tanh(), c

    def gate_values(self, x: Float[Tensor, "*batch G"], h: Float[Tensor, "*batch D"]) -> Gates:
        i, f, g, o = (x + self.hidden(h)).chunk(4, dim=-1)
        return {"i": i.sigmoid(), "f": f.sigmoid(), "o": o.sigmoid(), "g": g.tanh()}

    def _states(self, gates: Gates, outputs: Float[Tensor, "B T D"], start: CellState) -> Gates:
        cells, c = [], start[1]
        for forget, admitted in zip(gates["f"].unbind(1), (gates["i"] * gates["g"]).unbind(1), strict=True):
            c = forget * c + admitted
            cells.append(c)
        return {"h": outputs, "c": torch.stack(cells, dim=1)}


class GRUBeforeCell(Cell):
    """h' = z * h + (1 - z) * tanh(W x + U (r * h) + b): the reset gate acts before the product, as first published."""

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(input_width, 3 * width)
        self.gates = StateLinear(width, 2 * width, bias=False)
        self.hidden = StateLinear(width, width, bias=False)

    def advance(self, x: Float[Tensor, "B G"], state: CellState) -> CellState:
        (h,) = state
        r, z = self.gate_values(x, h).values()
        return (z * h + (1 - z) * torch.tanh(x.chunk(3, dim=-1)[2] + self.hidden(r * h)),)

    def gate_values(self, x: Float[Tensor, "*batch G"], h: Float[Tensor, "*batch D"]) -> Gates:
        x_rz, _ = x.tensor_split((2 * h.shape[-1],), dim=-1)
        r, z = (x_rz + self.gates(h)).sigmoid().chunk(2, dim=-1)
        return {"r": r, "z": z}


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
        return self._combined(x, h)[0]

    def gate_values(self, x: Float[Tensor, "*batch G"], h: Float[Tensor, "*batch D"]) -> Gates:
        return self._combined(x, h)[1]

    def _combined(self, x: Tensor, h: Tensor) -> tuple[tuple[Tensor, ...], Gates]:
        x_r, x_z, x_h = x.chunk(3, dim=-1)
        h_r, h_z, h_h = self.hidden(h).chunk(3, dim=-1)
        r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
        return (z * h + (1 - z) * torch.tanh(x_h + r * h_h),), {"r": r, "z": z}


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
        z, r = self.gate_values(x, h).values()
        return (torch.tanh(self.hidden(r * h) + x.chunk(3, dim=-1)[2]) * z + h * (1 - z),)

    def gate_values(self, x: Float[Tensor, "*batch G"], h: Float[Tensor, "*batch D"]) -> Gates:
        x_z, x_r, _ = x.chunk(3, dim=-1)
        return {"z": x_z.sigmoid(), "r": (x_r + self.reset(h)).sigmoid()}


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
        z, r = self.gate_values(x, h).values()
        return (torch.tanh(self.hidden(r * h) + x.chunk(3, dim=-1)[1]) * z + h * (1 - z),)

    def gate_values(self, x: Float[Tensor, "*batch G"], h: Float[Tensor, "*batch D"]) -> Gates:
        x_z, _, x_r = x.chunk(3, dim=-1)
        return {"z": (x_z + self.gates(h)).sigmoid(), "r": (x_r + self.reset(h)).sigmoid()}


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
        z, r = self.gate_values(x, h).values()
        return (torch.tanh(self.hidden(r * h) + x.chunk(3, dim=-1)[2]) * z + h * (1 - z),)

    def gate_values(self, x: Float[Tensor, "*batch G"], h: Float[Tensor, "*batch D"]) -> Gates:
        x_z, x_r, _ = x.chunk(3, dim=-1)
        return {"z": (x_z + self.gates(h.tanh())).sigmoid(), "r": (x_r + self.reset(h)).sigmoid()}


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


@torch.no_grad()
def start_by_keeping(cell: VanillaCell, entering: float = 0.1) -> None:
    """The identity over the state, and inputs times `entering`: at first a state stays as it is, and little comes in.

    Otherwise each input is as large as the state, and a few of them drown what was read before (Le et al. 2015).
    """
    nn.init.eye_(cell.hidden.weight)
    cell.inputs.weight.mul_(entering)
