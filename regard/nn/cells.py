"""Layers that run a recurrent cell over a padded batch, by whatever way is fastest, and stacks of them.

The cells and their equations are in `nn/basic_cells.py` and `nn/mut_cells.py`. The plain loop steps through them as
they are written; a faster way is one of torch's fused kernels or a sweep of `nn/sweeps.py`, and gives the same.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from regard.errors import ConfigError
from regard.nn.basic_cells import Cell, GRUAfterCell, GRUBeforeCell, LSTMCell, State, StateLinear, VanillaCell
from regard.nn.dropout import Dropout, SharedDropout
from regard.nn.mut_cells import MUT1Cell, MUT2Cell, MUT3Cell
from regard.nn.plans import Plan
from regard.nn.stack import Stack
from regard.nn.sweeps import SWEPT, sweep

CellKind = Literal["rnn", "lstm", "gru-before", "gru-after", "mut1", "mut2", "mut3"]
Direction = Literal["forward", "backward", "both"]
States = tuple[State, ...]  # one a layer

CELLS: dict[str, Callable[[int, int], Cell]] = {
    "rnn": VanillaCell,
    "lstm": LSTMCell,
    "gru-before": GRUBeforeCell,
    "gru-after": GRUAfterCell,
    "mut1": MUT1Cell,
    "mut2": MUT2Cell,
    "mut3": MUT3Cell,
}


def initialise_cell(cell: Cell) -> None:
    """Matrices over the state orthogonal, so that it neither fades nor bursts at first; an LSTM begins by keeping."""
    for name, part in cell.named_children():
        if name != "inputs" and name != "widen" and isinstance(part, nn.Linear):
            for matrix in part.weight.data.split(part.in_features):
                nn.init.orthogonal_(matrix)
    if isinstance(cell, LSTMCell):
        cell.inputs.bias.data.chunk(4)[1].fill_(1.0)


class RecurrentLayer(nn.Module):
    """A cell run over sequences, forward, backward or both ways, the two outputs then side by side in `width`.

    `fused=False` keeps to the plain loop where there is a faster way. `weight_drop` is the share of the weights over
    the state, not of the state, that is left out of a training pass: the same ones at every position (Merity 2018).
    """

    def __init__(
        self,
        kind: CellKind,
        input_width: int,
        width: int,
        *,
        direction: Direction = "forward",
        weight_drop: float = 0.0,
        fused: bool = True,
    ) -> None:
        super().__init__()
        ways = 2 if direction == "both" else 1
        if width % ways:
            raise ConfigError(f"width={width} must be even for a layer that reads both ways")
        self.kind, self.direction, self.width, self.fused = kind, direction, width, fused
        self.cells = Stack(CELLS[kind](input_width, width // ways) for _ in range(ways))
        self.weight_drop = Dropout(weight_drop)
        for cell in self.cells:
            initialise_cell(cell)

    @property
    def parts(self) -> int:
        """Tensors of a state."""
        return self.cells[0].parts

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def zeros(self, like: Float[Tensor, "B *rest"]) -> State:
        """The state before anything was read."""
        return tuple(like.new_zeros(like.shape[0], self.width) for _ in range(self.parts))

    def forward(
        self, x: Float[Tensor, "B T X"], lengths: Int[Tensor, " B"] | None = None, state: State | None = None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """The output at every position, and the state after the last of each row: the first, for the way back.

        `lengths` are the rows' own, where they differ; past its length a row's outputs are zeros.
        """
        if torch.is_autocast_enabled(x.device.type):
            # Rounding errors of a state would add up over the positions; its products are float32, or TF32 by cuDNN.
            with torch.autocast(x.device.type, enabled=False):
                start = None if state is None else tuple(part.to(self.dtype) for part in state)
                return self.forward(x.to(self.dtype), lengths, start)
        state = self.zeros(x) if state is None else state
        run = self._fused if self.fused and self.cells[0].kernel is not None else self._plain
        with self._dropped_weights():
            if self._sweeps(x, lengths):
                return self._swept(x, lengths, state)
            if self.direction != "backward":
                return run(x, lengths, state)
            outputs, state = run(_flipped(x, lengths), lengths, state)
            return _flipped(outputs, lengths), state

    def step(self, x: Float[Tensor, "B X"], state: State, *, projected: bool = False) -> State:
        """The state after one more position, of which `x` is the input or, `projected`, what the cell makes of it."""
        assert self.direction == "forward", "only a layer that reads forward can go on step by step"
        (cell,) = self.cells
        return cell.advance(x if projected else cell.project(x), state)

    @contextmanager
    def _dropped_weights(self) -> Iterator[None]:
        """A training pass with some weights over the state left out."""
        if not self.training or not self.weight_drop.p:
            yield
            return
        parts = [part for part in self.modules() if isinstance(part, StateLinear)]
        try:
            for part in parts:
                part.dropped = self.weight_drop(part.weight)
            yield
        finally:
            for part in parts:
                part.dropped = None

    def _plain(self, x: Tensor, lengths: Tensor | None, state: State) -> tuple[Tensor, State]:
        outputs, ends = [], []
        starts = zip(*(part.chunk(len(self.cells), dim=-1) for part in state), strict=True)
        for number, (cell, start) in enumerate(zip(self.cells, starts, strict=True)):
            sequence = x if number == 0 else _flipped(x, lengths)
            found, end = _loop(cell, sequence, lengths, start)
            outputs.append(found if number == 0 else _flipped(found, lengths))
            ends.append(end)
        return torch.cat(outputs, dim=-1), tuple(torch.cat(part, dim=-1) for part in zip(*ends, strict=True))

    def _sweeps(self, x: Tensor, lengths: Tensor | None) -> bool:
        """Whether a sweep is fastest: on a CPU always but for an LSTM over full rows, elsewhere without a kernel."""
        if not self.fused or self.kind not in SWEPT or torch.compiler.is_compiling():
            return False
        full_lstm = self.kind == "lstm" and lengths is None and x.dtype == torch.float32
        return self.cells[0].kernel is None or (x.device.type == "cpu" and not full_lstm)

    def _swept(self, x: Tensor, lengths: Tensor | None, state: State) -> tuple[Tensor, State]:
        B, T, _ = x.shape
        starts = zip(*(part.chunk(len(self.cells), dim=-1) for part in state), strict=True)
        outputs, ends = [], []
        for number, (cell, start) in enumerate(zip(self.cells, starts, strict=True)):
            plan = Plan.of(B, T, lengths, backward=number == 1 or self.direction == "backward").to(x.device)
            found, end = sweep(self.kind, cell, x, plan, start)
            outputs.append(found)
            ends.append(end)
        if len(outputs) == 1:
            return outputs[0], ends[0]
        return torch.cat(outputs, dim=-1), tuple(torch.cat(part, dim=-1) for part in zip(*ends, strict=True))

    def _fused(self, x: Tensor, lengths: Tensor | None, state: State) -> tuple[Tensor, State]:
        kernel, ways = self._kernel(), len(self.cells)
        weights = [tensor for one in self.cells for tensor in _in_torchs_order(one)]
        starts = tuple(torch.stack(part.chunk(ways, dim=-1)) for part in state)
        initial = starts if self.parts == 2 else starts[0]
        with warnings.catch_warnings():
            # The weights are Linear layers' own, so cuDNN gathers them at each call and says so.
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
            if lengths is None:
                found, *ends = kernel(x, initial, weights, True, 1, 0.0, self.training, ways == 2, True)
            else:
                found, ends = self._packed(x, lengths, starts, weights)
        return found, tuple(torch.cat(part.unbind(), dim=-1) for part in ends)

    def _kernel(self) -> Callable[..., Any]:
        kernel = self.cells[0].kernel
        assert kernel is not None, "this cell has no kernel"
        return kernel

    def _packed(
        self, x: Tensor, lengths: Tensor, starts: tuple[Tensor, ...], weights: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """The kernel over rows sorted by length, so that each step computes only the rows that reach it."""
        kernel, ways = self._kernel(), len(self.cells)
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        order, back = packed.sorted_indices, packed.unsorted_indices
        assert order is not None
        assert back is not None
        starts = tuple(part.index_select(1, order) for part in starts)
        initial = starts if self.parts == 2 else starts[0]
        data, *ends = kernel(packed.data, packed.batch_sizes, initial, weights, True, 1, 0.0, self.training, ways == 2)
        again = packed._replace(data=data)
        found, _ = nn.utils.rnn.pad_packed_sequence(again, batch_first=True, total_length=x.shape[1])
        return found, [part.index_select(1, back) for part in ends]


class Recurrent(nn.Module):
    """Layers of one kind of cell on top of one another. Dropout between them may be `shared` by a row's positions."""

    def __init__(
        self,
        kind: CellKind,
        input_width: int,
        width: int,
        layers: int = 1,
        *,
        direction: Direction = "forward",
        dropout: float = 0.0,
        shared: bool = False,
        weight_drop: float = 0.0,
        fused: bool = True,
    ) -> None:
        super().__init__()
        ways: dict[str, Any] = {"direction": direction, "weight_drop": weight_drop, "fused": fused}
        self.layers = Stack(
            RecurrentLayer(kind, width if number else input_width, width, **ways) for number in range(layers)
        )
        self.dropout = SharedDropout(dropout) if shared else Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B T X"], lengths: Int[Tensor, " B"] | None = None, states: States | None = None
    ) -> tuple[Float[Tensor, "B T D"], States]:
        """The top layer's outputs, and every layer's state after the last position of each row."""
        ends = []
        for number, layer in enumerate(self.layers):
            x, end = layer(self.dropout(x) if number else x, lengths, None if states is None else states[number])
            ends.append(end)
        return x, tuple(ends)

    def step(
        self, x: Float[Tensor, "B X"], states: States, *, projected: bool = False
    ) -> tuple[Float[Tensor, "B D"], States]:
        """The top layer's output at one more position, and the states after it; `projected` is for the first layer."""
        after = []
        for number, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            given, ready = (self.dropout(x), False) if number else (x, projected)
            state = layer.step(given, state, projected=ready)
            after.append(state)
            x = state[0]
        return x, tuple(after)


def _loop(cell: Cell, x: Tensor, lengths: Tensor | None, state: State) -> tuple[Tensor, State]:
    """One cell over one direction, position by position. A row that has ended keeps its state."""
    outputs = []
    for t, here in enumerate(cell.project(x).unbind(1)):
        after = cell.advance(here, state)
        if lengths is None:
            state, out = after, after[0]
        else:
            alive = (t < lengths)[:, None]
            state = tuple(torch.where(alive, new, old) for new, old in zip(after, state, strict=True))
            out = after[0] * alive
        outputs.append(out)
    return torch.stack(outputs, dim=1), state


def _flipped(x: Float[Tensor, "B T X"], lengths: Int[Tensor, " B"] | None) -> Float[Tensor, "B T X"]:
    """Each row's own positions in reverse; padding stays where it is."""
    if lengths is None:
        return x.flip(1)
    places = torch.arange(x.shape[1], device=x.device)
    mirrored = lengths[:, None] - 1 - places
    return x.take_along_dim(torch.where(mirrored >= 0, mirrored, places)[..., None], dim=1)


def _in_torchs_order(cell: Cell) -> tuple[Tensor, ...]:
    """Weights and biases as torch's kernels take them: two biases, of which ours may have only the first."""
    inputs, hidden = cell.inputs, cell.hidden
    second = torch.zeros_like(inputs.bias) if hidden.bias is None else hidden.bias
    return inputs.weight, hidden.used, inputs.bias, second
