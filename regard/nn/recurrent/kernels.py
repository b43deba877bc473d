"""Kernels of recurrent cells over packed sequences, forward and backward, with gradients derived by hand.

A kernel computes what a loop over positions would. It differs in how: inside the loop is one small product per position
each way, written in place, and the gradient of every matrix is one product after it, where autograd would add up one
per position. Sequences are packed as by `torch.nn.utils.rnn.pack_padded_sequence`: position after position, in each the
rows that reach it, the longest first. `sizes` are the numbers of rows of the positions.

`forward` is given in `x` what the cell projects its inputs to, overwrites it with the gates and fills in the states,
each of which has the B rows of its initial state in front; what it returns is passed to `backward`. That returns the
gradients of `x` and of the weights over the state, and adds to those of the states.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.recurrent.cells import Cell, CellKind, CellState, StateLinear

Gradients = tuple[Tensor, list[Tensor]]
"""Of `x`, and of the weights over the state."""

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
tanh_backward = torch.ops.aten.tanh_backward.grad_input


@dataclass(frozen=True, slots=True)
class Kernel:
    """The two loops of a cell."""

    forward: Callable[[Sequence[int], Tensor, list[Tensor], list[Tensor]], list[Tensor]]
    backward: Callable[[Sequence[int], list[Tensor], list[Tensor], list[Tensor], list[Tensor]], Gradients]


def run_kernel(
    kind: CellKind, cell: Cell, x: Float[Tensor, "N X"], sizes: Sequence[int], state: CellState
) -> tuple[Float[Tensor, "N D"], CellState]:
    """The outputs of every position of packed rows, and the state after the last of each row."""
    over_state = [part for part in cell.children() if isinstance(part, StateLinear)]
    weights = [tensor for part in over_state for tensor in (part.used, part.bias) if tensor is not None]
    # The projected inputs are nobody else's: the kernel writes its gates over them.
    outputs, *end = _Run.apply(KERNELS[kind], cell.project(x), sizes, len(state), *state, *weights)
    return outputs, tuple(end)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx, kernel: Kernel, x: Tensor, sizes: Sequence[int], parts: int, *tensors: Tensor):
        firsts, weights, B = tensors[:parts], tensors[parts:], sizes[0]
        states = [torch.cat((first, first.new_empty(x.shape[0], first.shape[-1]))) for first in firsts]
        saved = kernel.forward(sizes, x, states, list(weights))
        ctx.kernel, ctx.sizes, ctx.counts = kernel, sizes, (parts, len(weights))
        ctx.save_for_backward(*states, *weights, *saved)
        ends = last_places(sizes).to(x.device)
        return states[0][B:], *(part.index_select(0, ends) for part in states)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_outputs: Tensor, *d_ends: Tensor):  # type: ignore[override]
        sizes, (parts, count), tensors = ctx.sizes, ctx.counts, list(ctx.saved_tensors)
        states, weights, saved = tensors[:parts], tensors[parts : parts + count], tensors[parts + count :]
        B, ends = sizes[0], last_places(sizes).to(d_outputs.device)
        d_states = [
            torch.zeros_like(part).index_add_(0, ends, d_end) for part, d_end in zip(states, d_ends, strict=True)
        ]
        d_states[0][B:] += d_outputs
        d_x, d_weights = ctx.kernel.backward(sizes, d_states, states, weights, saved)
        return None, d_x, None, None, *(d_state[:B] for d_state in d_states), *d_weights


def last_places(sizes: Sequence[int]) -> Tensor:
    """Where among the states of packed rows, the initial ones in front, each row's last one is."""
    counts, rows = torch.tensor(sizes), torch.arange(sizes[0])
    last = (counts > rows[:, None]).sum(1) - 1
    return sizes[0] + (counts.cumsum(0) - counts)[last] + rows


def cut(states: Tensor, sizes: Sequence[int]) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """For each position the states before it and after it, as views."""
    B = sizes[0]
    after = states[B:].split(sizes)
    before = [part[:size] for part, size in zip((states[:B], *after), sizes, strict=False)]
    return before, after


def previous(states: Tensor, sizes: Sequence[int]) -> Tensor:
    """The state before each position of each row, packed."""
    return states[: sum(sizes)] if sizes[-1] == sizes[0] else torch.cat(cut(states, sizes)[0])


def backwards(*parts: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """The parts of each position, the last first."""
    return zip(*(part[::-1] for part in parts), strict=True)


def _vanilla_forward(sizes: Sequence[int], x: Tensor, states: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    (h,), (hidden,) = states, weights
    matrix = hidden.t().contiguous()
    for here, before, after in zip(x.split(sizes), *cut(h, sizes), strict=True):
        torch.addmm(here, before, matrix, out=after).tanh_()
    return []


def _vanilla_backward(
    sizes: Sequence[int], d_states: list[Tensor], states: list[Tensor], weights: list[Tensor], saved: list[Tensor]
) -> Gradients:
    (h,), (d_h,), (hidden,) = states, d_states, weights
    d_x = torch.empty_like(h[sizes[0] :])
    for here, _, after, d_before, d_after in backwards(d_x.split(sizes), *cut(h, sizes), *cut(d_h, sizes)):
        tanh_backward(d_after, after, grad_input=here)
        d_before.addmm_(here, hidden)
    return d_x, [d_x.t() @ previous(h, sizes)]


def _lstm_forward(sizes: Sequence[int], x: Tensor, states: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    (h, c), (hidden,) = states, weights
    D, matrix = h.shape[1], hidden.t().contiguous()
    squashed = torch.empty_like(h[sizes[0] :])
    parts = (x, x[:, : 2 * D], *x.chunk(4, dim=1), squashed)
    steps = zip(*(part.split(sizes) for part in parts), *cut(h, sizes), *cut(c, sizes), strict=True)
    for gates, i_f, i, f, g, o, out, h_before, h_after, c_before, c_after in steps:
        gates.addmm_(h_before, matrix)
        i_f.sigmoid_(), g.tanh_(), o.sigmoid_()
        torch.mul(f, c_before, out=c_after).addcmul_(i, g)
        torch.mul(o, torch.tanh(c_after, out=out), out=h_after)
    return [x, squashed]


def _lstm_backward(
    sizes: Sequence[int], d_states: list[Tensor], states: list[Tensor], weights: list[Tensor], saved: list[Tensor]
) -> Gradients:
    (h, c), (d_h, d_c), (hidden,), (gates, squashed) = states, d_states, weights, saved
    d_gates, D = torch.empty_like(gates), h.shape[1]
    parts = (
        gates[:, : 2 * D],
        *gates.chunk(4, dim=1),
        squashed,
        d_gates,
        d_gates[:, : 2 * D],
        *d_gates.chunk(4, dim=1),
    )
    steps = backwards(*(part.split(sizes) for part in parts), cut(c, sizes)[0], *cut(d_h, sizes), *cut(d_c, sizes))
    for i_f, i, f, g, o, out, d, d_i_f, d_i, d_f, d_g, d_o, cell, d_before, d_after, d_cell, d_c_after in steps:
        d_c_after.add_(tanh_backward(torch.mul(d_after, o, out=d_i), out, grad_input=d_i))
        torch.mul(d_c_after, g, out=d_i), torch.mul(d_c_after, cell, out=d_f), torch.mul(d_c_after, i, out=d_g)
        torch.mul(d_after, out, out=d_o)
        d_cell.addcmul_(d_c_after, f)
        sigmoid_backward(d_i_f, i_f, grad_input=d_i_f)
        tanh_backward(d_g, g, grad_input=d_g), sigmoid_backward(d_o, o, grad_input=d_o)
        d_before.addmm_(d, hidden)
    return d_gates, [d_gates.t() @ previous(h, sizes)]


def _gru_after_forward(sizes: Sequence[int], x: Tensor, states: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    (h,), (hidden, bias) = states, weights
    D = h.shape[1]
    to_gates, to_new = (part.t().contiguous() for part in hidden.tensor_split((2 * D,)))
    x[:, : 2 * D] += bias[: 2 * D]
    of_h = torch.empty_like(h[sizes[0] :])  # U h + d, which the reset gate multiplies
    parts = (x[:, : 2 * D], *x.chunk(3, dim=1), of_h)
    for r_z, r, z, n, h_n, before, after in zip(*(part.split(sizes) for part in parts), *cut(h, sizes), strict=True):
        r_z.addmm_(before, to_gates).sigmoid_()
        n.addcmul_(r, torch.addmm(bias[2 * D :], before, to_new, out=h_n)).tanh_()
        torch.lerp(n, before, z, out=after)
    return [x, of_h]


def _gru_after_backward(
    sizes: Sequence[int], d_states: list[Tensor], states: list[Tensor], weights: list[Tensor], saved: list[Tensor]
) -> Gradients:
    (h,), (d_h,), (hidden, _), (x, of_h) = states, d_states, weights, saved
    d_x, d_of_h, D = torch.empty_like(x), torch.empty_like(of_h), h.shape[1]
    gates, new = hidden.tensor_split((2 * D,))
    parts = (x[:, : 2 * D], *x.chunk(3, dim=1), of_h, d_x[:, : 2 * D], *d_x.chunk(3, dim=1), d_of_h)
    steps = backwards(*(part.split(sizes) for part in parts), cut(h, sizes)[0], *cut(d_h, sizes))
    for r_z, r, z, n, h_n, d_r_z, d_r, d_z, d_n, d_h_n, before, d_before, d_after in steps:
        torch.sub(before, n, out=d_z).mul_(d_after)
        tanh_backward(torch.addcmul(d_after, d_after, z, value=-1, out=d_n), n, grad_input=d_n)
        torch.mul(d_n, h_n, out=d_r), torch.mul(d_n, r, out=d_h_n)
        sigmoid_backward(d_r_z, r_z, grad_input=d_r_z)
        d_before.addcmul_(d_after, z).addmm_(d_r_z, gates).addmm_(d_h_n, new)
    d_parts, earlier = (d_x[:, : 2 * D], d_of_h), previous(h, sizes)
    return d_x, [torch.cat([part.t() @ earlier for part in d_parts]), torch.cat([part.sum(0) for part in d_parts])]


def _gru_before_forward(sizes: Sequence[int], x: Tensor, states: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    (h,), (gates, hidden) = states, weights
    D, to_gates, to_new = h.shape[1], gates.t().contiguous(), hidden.t().contiguous()
    reset = torch.empty_like(h[sizes[0] :])
    parts = (x[:, : 2 * D], *x.chunk(3, dim=1), reset)
    for r_z, r, z, n, kept, before, after in zip(*(part.split(sizes) for part in parts), *cut(h, sizes), strict=True):
        r_z.addmm_(before, to_gates).sigmoid_()
        n.addmm_(torch.mul(r, before, out=kept), to_new).tanh_()
        torch.lerp(n, before, z, out=after)
    return [x, reset]


def _gru_before_backward(
    sizes: Sequence[int], d_states: list[Tensor], states: list[Tensor], weights: list[Tensor], saved: list[Tensor]
) -> Gradients:
    (h,), (d_h,), (gates, hidden), (x, reset) = states, d_states, weights, saved
    d_x, D = torch.empty_like(x), h.shape[1]
    room = torch.empty_like(reset)
    parts = (x[:, : 2 * D], *x.chunk(3, dim=1), d_x[:, : 2 * D], *d_x.chunk(3, dim=1), room)
    steps = backwards(*(part.split(sizes) for part in parts), cut(h, sizes)[0], *cut(d_h, sizes))
    for r_z, r, z, n, d_r_z, d_r, d_z, d_n, d_reset, before, d_before, d_after in steps:
        torch.sub(before, n, out=d_z).mul_(d_after)
        tanh_backward(torch.addcmul(d_after, d_after, z, value=-1, out=d_n), n, grad_input=d_n)
        torch.mul(torch.mm(d_n, hidden, out=d_reset), before, out=d_r)
        sigmoid_backward(d_r_z, r_z, grad_input=d_r_z)
        d_before.addcmul_(d_after, z).addcmul_(d_reset, r).addmm_(d_r_z, gates)
    return d_x, [d_x[:, : 2 * D].t() @ previous(h, sizes), d_x[:, 2 * D :].t() @ reset]


@dataclass(frozen=True, slots=True)
class _Mut:
    """One kernel for MUT1 to MUT3: the parts of x in order, the weights over the state, and whether z sees tanh(h)."""

    parts: str
    weights: tuple[str, ...]
    squash: bool = False

    def forward(self, sizes: Sequence[int], x: Tensor, states: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
        (h,), given = states, dict(zip(self.weights, weights, strict=True))
        z_r_n = self._of(x)
        matrices = {name: given[name].t().contiguous() for name in "zrn" if name in given}
        for name in "rn":
            if name + " bias" in given:
                z_r_n[name] += given[name + " bias"]
        kept = torch.empty_like(h[sizes[0] :])  # r * h
        steps = zip(*(part.split(sizes) for part in (*z_r_n.values(), kept)), *cut(h, sizes), strict=True)
        for z, r, n, held, before, after in steps:
            if "z" in matrices:
                z.addmm_(before.tanh() if self.squash else before, matrices["z"])
            z.sigmoid_(), r.addmm_(before, matrices["r"]).sigmoid_()
            n.addmm_(torch.mul(r, before, out=held), matrices["n"]).tanh_()
            torch.lerp(before, n, z, out=after)
        return [x, kept]

    def backward(
        self,
        sizes: Sequence[int],
        d_states: list[Tensor],
        states: list[Tensor],
        weights: list[Tensor],
        saved: list[Tensor],
    ) -> Gradients:
        (h,), (d_h,), (x, kept) = states, d_states, saved
        given, d_x = dict(zip(self.weights, weights, strict=True)), torch.empty_like(x)
        d_parts, room = self._of(d_x), torch.empty_like(kept)
        parts = (*self._of(x).values(), *d_parts.values(), room)
        steps = backwards(*(part.split(sizes) for part in parts), cut(h, sizes)[0], *cut(d_h, sizes))
        for z, r, n, d_z, d_r, d_n, d_kept, before, d_before, d_after in steps:
            sigmoid_backward(torch.sub(n, before, out=d_z).mul_(d_after), z, grad_input=d_z)
            tanh_backward(torch.mul(d_after, z, out=d_n), n, grad_input=d_n)
            torch.mul(torch.mm(d_n, given["n"], out=d_kept), before, out=d_r)
            sigmoid_backward(d_r, r, grad_input=d_r)
            d_before.add_(d_after).addcmul_(d_after, z, value=-1).addcmul_(d_kept, r).addmm_(d_r, given["r"])
            if self.squash:
                d_before.add_(torch.ops.aten.tanh_backward(d_z @ given["z"], before.tanh()))
            elif "z" in given:
                d_before.addmm_(d_z, given["z"])
        earlier = previous(h, sizes)
        seen = {"z": earlier.tanh() if self.squash else earlier, "r": earlier, "n": kept}
        return d_x, [
            d_parts[name[0]].sum(0) if name.endswith(" bias") else d_parts[name].t() @ seen[name]
            for name in self.weights
        ]

    def _of(self, x: Tensor) -> dict[str, Tensor]:
        """z, r and n, wherever they are in `x`."""
        found = dict(zip(self.parts, x.chunk(3, dim=1), strict=True))
        return {name: found[name] for name in "zrn"}


_MUT1, _MUT2 = _Mut("zrn", ("r", "n", "n bias")), _Mut("znr", ("z", "r", "r bias", "n"))
_MUT3 = _Mut("zrn", ("z", "r", "n"), squash=True)

KERNELS: dict[CellKind, Kernel] = {
    "rnn": Kernel(_vanilla_forward, _vanilla_backward),
    "lstm": Kernel(_lstm_forward, _lstm_backward),
    "gru-after": Kernel(_gru_after_forward, _gru_after_backward),
    "gru-before": Kernel(_gru_before_forward, _gru_before_backward),
    "mut1": Kernel(_MUT1.forward, _MUT1.backward),
    "mut2": Kernel(_MUT2.forward, _MUT2.backward),
    "mut3": Kernel(_MUT3.forward, _MUT3.backward),
}
