"""The loops over positions of each cell, there and back, its gradients worked out by hand.

All are given tensors in the order of a `Plan`. `forward` finds in `x` what the cell makes of its inputs, writes its
gates over it and fills in the states; what it returns is given to `backward` again. That gives the gradients of `x`
and of the weights over the state, and adds to those of the states.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.nn.plans import Plan

Gradients = tuple[Tensor, list[Tensor]]
"""Of `x`, and of the weights over the state."""

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
tanh_backward = torch.ops.aten.tanh_backward.grad_input


@dataclass(frozen=True, slots=True)
class Loops:
    """The two loops of a cell."""

    forward: Callable[[Sequence[int], Tensor, list[Tensor], list[Tensor]], list[Tensor]]
    backward: Callable[[Plan, list[Tensor], list[Tensor], list[Tensor], list[Tensor]], Gradients]


def cut(states: Tensor, sizes: Sequence[int]) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """For each position the states before it and after it, as views."""
    B = sizes[0]
    after = states[B:].split(sizes)
    before = [
        part if len(part) == size else part[:size] for part, size in zip((states[:B], *after), sizes, strict=False)
    ]
    return before, after


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
    plan: Plan, d_states: list[Tensor], states: list[Tensor], weights: list[Tensor], saved: list[Tensor]
) -> Gradients:
    (h,), (d_h,), (hidden,), sizes = states, d_states, weights, plan.sizes
    d_x = torch.empty_like(h[sizes[0] :])
    for here, _, after, d_before, d_after in backwards(d_x.split(sizes), *cut(h, sizes), *cut(d_h, sizes)):
        tanh_backward(d_after, after, grad_input=here)
        d_before.addmm_(here, hidden)
    return d_x, [d_x.t() @ plan.earlier(h)]


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
    plan: Plan, d_states: list[Tensor], states: list[Tensor], weights: list[Tensor], saved: list[Tensor]
) -> Gradients:
    (h, c), (d_h, d_c), (hidden,), (gates, squashed), sizes = states, d_states, weights, saved, plan.sizes
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
    return d_gates, [d_gates.t() @ plan.earlier(h)]


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
    plan: Plan, d_states: list[Tensor], states: list[Tensor], weights: list[Tensor], saved: list[Tensor]
) -> Gradients:
    (h,), (d_h,), (hidden, _), (x, of_h), sizes = states, d_states, weights, saved, plan.sizes
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
    d_parts, earlier = (d_x[:, : 2 * D], d_of_h), plan.earlier(h)
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
    plan: Plan, d_states: list[Tensor], states: list[Tensor], weights: list[Tensor], saved: list[Tensor]
) -> Gradients:
    (h,), (d_h,), (gates, hidden), (x, reset), sizes = states, d_states, weights, saved, plan.sizes
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
    return d_x, [d_x[:, : 2 * D].t() @ plan.earlier(h), d_x[:, 2 * D :].t() @ reset]


BASIC_LOOPS = {
    "rnn": Loops(_vanilla_forward, _vanilla_backward),
    "lstm": Loops(_lstm_forward, _lstm_backward),
    "gru-after": Loops(_gru_after_forward, _gru_after_backward),
    "gru-before": Loops(_gru_before_forward, _gru_before_backward),
}
