"""Layers that run a recurrent cell over a padded batch by whichever way is fastest, and stacks of them.

The plain loop steps through a cell's equations as they are written, under autograd. Faster ways, which give the same,
are torch's fused kernels and those of `nn/recurrent/kernels.py`.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.errors import ConfigError
from regard.nn.blocks import Stack
from regard.nn.dropout import Dropout, SharedDropout
from regard.nn.recurrent.cells import CELLS, Cell, CellKind, CellState, Reads, StateLinear, initialise_cell
from regard.nn.recurrent.kernels import run_kernel

P = ParamSpec("P")
R = TypeVar("R")


def _uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """A function that runs outside of any compiled graph."""
    disabled: Callable[P, R] = torch.compiler.disable(function)  # pyright: ignore[reportAssignmentType]
    return disabled


Direction = Literal["forward", "backward", "both"]
CellStates = tuple[CellState, ...]  # one per layer


class RecurrentLayer(nn.Module):
    """A cell run over sequences, forward, backward or in both directions, whose outputs are concatenated to `width`.

    `fused=False` keeps to the plain loop where there is a faster way. `weight_drop` is the share of the weights over
    the state, not of the state, that is left out of a training pass: the same ones at every position (Merity 2018).
    `reads` says to whoever watches what the positions are: those of the text read, or of what a decoder has written.
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
        reads: Reads = "source",
    ) -> None:
        super().__init__()
        ways = 2 if direction == "both" else 1
        if width % ways:
            raise ConfigError(f"width={width} must be even for a bidirectional layer")
        self.kind: CellKind = kind
        self.direction, self.width, self.fused = direction, width, fused
        self.cells = Stack(CELLS[kind](input_width, width // ways) for _ in range(ways))
        for number, cell in enumerate(self.cells):
            cell.backward = number == 1 or direction == "backward"
            cell.reads = reads
        self.weight_drop = Dropout(weight_drop)
        self.initialise()

    def initialise(self) -> None:
        for cell in self.cells:
            initialise_cell(cell)

    @property
    def parts(self) -> int:
        """Tensors of a state."""
        return self.cells[0].parts

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def zeros(self, like: Float[Tensor, " B *rest"]) -> CellState:
        """The state before anything was read."""
        return tuple(like.new_zeros(like.shape[0], self.width) for _ in range(self.parts))

    def forward(
        self, x: Float[Tensor, "B T X"], lengths: Int[Tensor, " B"] | None = None, state: CellState | None = None
    ) -> tuple[Float[Tensor, "B T D"], CellState]:
        """The output at every position, and the final state of each row: after its last position, backward its first.

        `lengths` are the rows' own, where they differ; past its length a row's outputs are zeros.
        """
        if torch.is_autocast_enabled(x.device.type):
            # Rounding errors of a state would add up over the positions; its products are float32, or TF32 by cuDNN.
            with torch.autocast(x.device.type, enabled=False):
                start = None if state is None else tuple(part.to(self.dtype) for part in state)
                return self.forward(x.to(self.dtype), lengths, start)
        state = self.zeros(x) if state is None else state
        with self._dropped_weights():
            outputs, end = self._run(x, lengths, state)
            if any(cell.state_watcher is not None for cell in self.cells):
                self._tell(x, lengths, state, outputs)
            return outputs, end

    def _run(self, x: Tensor, lengths: Tensor | None, state: CellState) -> tuple[Tensor, CellState]:
        if not self._takes_torch_kernel(x, lengths):
            return self._cell_by_cell(x, lengths, state)
        if self.direction != "backward":
            return self._torch_kernel(x, lengths, state)
        outputs, end = self._torch_kernel(_flipped(x, lengths), lengths, state)
        return _flipped(outputs, lengths), end

    @torch.no_grad()
    def _tell(self, x: Tensor, lengths: Tensor | None, state: CellState, outputs: Tensor) -> None:
        """Each direction to its watcher, at the positions of the text; what was read backward is told in its place."""
        ways = len(self.cells)
        starts = zip(*(part.chunk(ways, dim=-1) for part in state), strict=True)
        for cell, start, own in zip(self.cells, starts, outputs.chunk(ways, dim=-1), strict=True):
            if cell.backward:
                read, own = _flipped(x, lengths), _flipped(own, lengths)
                cell.tell(cell.project(read), own, start, lambda part: _flipped(part, lengths))
            else:
                cell.tell(cell.project(x), own, start)

    def step(self, x: Float[Tensor, "B X"], state: CellState, *, projected: bool = False) -> CellState:
        """The state after one more position, of which `x` is the input or, `projected`, its projection."""
        assert self.direction == "forward", "only a layer that reads forward can be run step by step"
        (cell,) = self.cells
        given = x if projected else cell.project(x)
        after = cell.advance(given, state)
        if cell.state_watcher is not None:
            cell.tell(given[:, None], after[0][:, None], state)
        return after

    def seen_again(self, steps: int) -> None:
        """Its last steps are about to be gone through again: whoever watches is to forget them."""
        for cell in self.cells:
            if cell.state_watcher is not None:
                cell.state_watcher.forget(steps)

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

    def _takes_torch_kernel(self, x: Tensor, lengths: Tensor | None) -> bool:
        """Whether torch's kernel is fastest: on a GPU always, on a CPU for an LSTM over rows of one length."""
        if not self.fused or self.cells[0].torch_kernel is None:
            return False
        full_lstm = self.kind == "lstm" and lengths is None and x.dtype == torch.float32
        return x.device.type != "cpu" or full_lstm

    @_uncompiled  # a graph would be one per length and pattern of lengths
    def _cell_by_cell(self, x: Tensor, lengths: Tensor | None, state: CellState) -> tuple[Tensor, CellState]:
        """Each direction by itself: by the cell's kernel, or position by position."""
        starts = zip(*(part.chunk(len(self.cells), dim=-1) for part in state), strict=True)
        outputs, ends = [], []
        for number, (cell, start) in enumerate(zip(self.cells, starts, strict=True)):
            packing = Packing.of(x, lengths, backward=number == 1 or self.direction == "backward")
            start = tuple(part.index_select(0, packing.order) for part in start)
            packed = packing.pack(x)
            if self.fused:
                found, end = run_kernel(self.kind, cell, packed, packing.sizes, start)
            else:
                found, end = _loop(cell, packed, packing.sizes, start)
            outputs.append(packing.unpack(found, *x.shape[:2]))
            ends.append(tuple(part.index_select(0, packing.order.argsort()) for part in end))
        if len(outputs) == 1:
            return outputs[0], ends[0]
        return torch.cat(outputs, dim=-1), tuple(torch.cat(part, dim=-1) for part in zip(*ends, strict=True))

    def _torch_kernel(self, x: Tensor, lengths: Tensor | None, state: CellState) -> tuple[Tensor, CellState]:
        """torch's fused kernel, over both directions at once; rows of unequal length are packed."""
        kernel, ways = self.cells[0].torch_kernel, len(self.cells)
        assert kernel is not None, "this cell has no kernel of torch's"
        weights = [tensor for cell in self.cells for tensor in _in_torchs_order(cell)]
        starts = tuple(torch.stack(part.chunk(ways, dim=-1)) for part in state)
        options = (weights, True, 1, 0.0, self.training, ways == 2)
        with warnings.catch_warnings():
            # The weights are Linear layers' own, so cuDNN gathers them at each call and says so.
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
            if lengths is None:
                found, *ends = kernel(x, starts if self.parts == 2 else starts[0], *options, True)
            else:
                packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
                order, back = packed.sorted_indices, packed.unsorted_indices
                assert order is not None
                assert back is not None
                starts = tuple(part.index_select(1, order) for part in starts)
                initial = starts if self.parts == 2 else starts[0]
                data, *ends = kernel(packed.data, packed.batch_sizes, initial, *options)
                found, _ = pad_packed_sequence(packed._replace(data=data), batch_first=True, total_length=x.shape[1])
                ends = [part.index_select(1, back) for part in ends]
        return found, tuple(torch.cat(part.unbind(), dim=-1) for part in ends)


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
        reads: Reads = "source",
    ) -> None:
        super().__init__()
        ways: dict[str, Any] = {"direction": direction, "weight_drop": weight_drop, "fused": fused, "reads": reads}
        self.layers = Stack(
            RecurrentLayer(kind, width if number else input_width, width, **ways) for number in range(layers)
        )
        self.dropout = SharedDropout(dropout) if shared else Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B T X"], lengths: Int[Tensor, " B"] | None = None, states: CellStates | None = None
    ) -> tuple[Float[Tensor, "B T D"], CellStates]:
        """The top layer's outputs, and every layer's state after the last position of each row."""
        ends = []
        for number, layer in enumerate(self.layers):
            x, end = layer(self.dropout(x) if number else x, lengths, None if states is None else states[number])
            ends.append(end)
        return x, tuple(ends)

    def step(
        self, x: Float[Tensor, "B X"], states: CellStates, *, projected: bool = False
    ) -> tuple[Float[Tensor, "B D"], CellStates]:
        """The top layer's output at one more position, and the states after it; `projected` is for the first layer."""
        after = []
        for number, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            given, ready = (self.dropout(x), False) if number else (x, projected)
            state = layer.step(given, state, projected=ready)
            after.append(state)
            x = state[0]
        return x, tuple(after)

    def seen_again(self, steps: int) -> None:
        """Its last steps are about to be gone through again: whoever watches is to forget them."""
        for layer in self.layers:
            layer.seen_again(steps)


class Packing(NamedTuple):
    """How the rows of a batch are packed: position after position, in each the rows that reach it, the longest first.

    As by torch's `pack_padded_sequence`, whose gradients take so much longer that a layer would by a fifth. `sizes` are
    the numbers of rows of the positions, `places` is where each entry lies in the flattened batch, None where packing
    just transposes it, and `order` which row of the batch comes where.
    """

    sizes: list[int]
    places: Int[Tensor, " N"] | None
    order: Int[Tensor, " B"]

    @classmethod
    def of(cls, x: Float[Tensor, "B T X"], lengths: Int[Tensor, " B"] | None, *, backward: bool) -> "Packing":
        """Of rows that are `lengths` long, or full; each read from its end where `backward`."""
        B, T, _ = x.shape
        if lengths is None and not backward:
            return cls([B] * T, None, torch.arange(B, device=x.device))
        lengths = torch.full((B,), T) if lengths is None else lengths.cpu()
        order = lengths.argsort(descending=True, stable=True)
        steps, own = torch.arange(T)[:, None], lengths[order]
        reached = steps < own
        columns = own - 1 - steps if backward else steps
        index = (order * T + columns)[reached]
        return cls(reached.sum(1)[: int(own[0])].tolist(), index.to(x.device), order.to(x.device))

    def pack(self, x: Float[Tensor, "B T X"]) -> Float[Tensor, "N X"]:
        return x.transpose(0, 1).flatten(0, 1) if self.places is None else _Gathered.apply(x.flatten(0, 1), self.places)

    def unpack(self, values: Float[Tensor, "N D"], B: int, T: int) -> Float[Tensor, "B T D"]:
        """The values back in their places, with zeros elsewhere."""
        if self.places is None:
            return values.unflatten(0, (T, B)).transpose(0, 1).contiguous()
        return values.new_zeros(B * T, values.shape[-1]).index_copy(0, self.places, values).unflatten(0, (B, T))


class _Gathered(torch.autograd.Function):
    """`index_select` whose gradient relies on no place occurring twice: it is copied, not added up."""

    @staticmethod
    def forward(ctx, x: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = x.shape[0]
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        (index,) = ctx.saved_tensors
        return grad.new_zeros(ctx.rows, grad.shape[1]).index_copy_(0, index, grad), None


def _loop(cell: Cell, x: Tensor, sizes: Sequence[int], state: CellState) -> tuple[Tensor, CellState]:
    """One cell over packed rows, position by position, and the state after the last of each row."""
    outputs, ended = [], []
    for here in cell.project(x).split(sizes):
        if (size := len(here)) < len(state[0]):  # the shortest come last, and have ended
            ended.append(tuple(part[size:] for part in state))
            state = tuple(part[:size] for part in state)
        state = cell.advance(here, state)
        outputs.append(state[0])
    ended.append(state)
    return torch.cat(outputs), tuple(torch.cat(part[::-1]) for part in zip(*ended, strict=True))


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
