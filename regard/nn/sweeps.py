"""Recurrent cells over whole sequences, with their gradients worked out by hand: few large products and no graph.

A sweep is what a loop over positions would compute. It differs in how: all inputs are projected by one product before
the loop; inside it is one small product a position each way; and the gradient of every matrix is one product after
it, where a graph would add up one for each position. Rows are sorted by length, so that a position computes only the
rows that reach it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


@dataclass(frozen=True, slots=True)
class Plan:
    """In which order a batch is read: position after position, in each the rows that reach it, the longest first.

    `sizes` are the rows of each position. `index` says where each place of this order lies in the flattened batch,
    None where the batch is full and is simply transposed. States are kept with the rows before the first position in
    front: `before` is where the state before each place lies, None where that is one position earlier; `ends` is where
    each row's last one lies, `order` which row of the batch stands where.
    """

    sizes: tuple[int, ...]
    index: Int[Tensor, " N"] | None = None
    before: Int[Tensor, " N"] | None = None
    ends: Int[Tensor, " B"] | None = None
    order: Int[Tensor, " B"] | None = None
    backward: bool = False

    @classmethod
    def of(cls, B: int, T: int, lengths: Int[Tensor, " B"] | None, backward: bool = False) -> "Plan":
        """The plan of a batch whose rows are `lengths` long, or full; each row read from its end where `backward`."""
        if lengths is None:
            return cls((B,) * T, backward=backward)
        lengths = lengths.cpu()
        order = lengths.argsort(descending=True, stable=True)
        steps, places = torch.arange(T)[:, None], lengths[order][None, :]
        reached = steps < places
        columns = places - 1 - steps if backward else steps.expand(T, B)
        sizes = reached.sum(1)
        starts = sizes.cumsum(0) - sizes  # of each position, the rows before the first not counted
        before = torch.cat((torch.zeros(1, dtype=torch.long), B + starts[:-1]))[:, None] + torch.arange(B)
        ends = torch.empty(B, dtype=torch.long)
        ends[order] = B + starts[lengths[order] - 1] + torch.arange(B)
        ends[lengths == 0] = order.argsort()[lengths == 0]
        return cls(
            tuple(sizes[sizes > 0].tolist()),
            (order * T + columns)[reached],
            before[reached],
            ends,
            order,
            backward,
        )

    def gathered(self, x: Float[Tensor, "B T X"]) -> Float[Tensor, "N X"]:
        """The batch in the plan's order."""
        if self.index is None:
            return (x.flip(1) if self.backward else x).transpose(0, 1).reshape(-1, x.shape[-1])
        return x.reshape(-1, x.shape[-1]).index_select(0, self.index)

    def spread(self, values: Float[Tensor, "N D"], B: int, T: int) -> Float[Tensor, "B T D"]:
        """Values in the plan's order put where they belong in the batch; zeros elsewhere."""
        if self.index is None:
            found = values.view(T, B, -1).transpose(0, 1)
            return found.flip(1) if self.backward else found.contiguous()
        return values.new_zeros(B * T, values.shape[-1]).index_copy_(0, self.index, values).view(B, T, -1)

    def first(self, state: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """A state of the batch's rows in the plan's order of rows."""
        return state if self.order is None else state.index_select(0, self.order)

    def unordered(self, state: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """The reverse of `first`."""
        return state if self.order is None else torch.empty_like(state).index_copy_(0, self.order, state)

    def last(self, states: Float[Tensor, "M D"], B: int) -> Float[Tensor, "B D"]:
        """Of all states, those before the first position in front, the last of each row of the batch."""
        return states[-B:].clone() if self.ends is None else states.index_select(0, self.ends)

    def earlier(self, states: Float[Tensor, "M D"]) -> Float[Tensor, "N D"]:
        """Of all states, the one before each place."""
        return states[: sum(self.sizes)] if self.before is None else states.index_select(0, self.before)

    def to(self, device: torch.device) -> "Plan":
        names = ("index", "before", "ends", "order")
        tensors = {name: part for name in names if (part := getattr(self, name)) is not None}
        return replace(self, **{name: part.to(device) for name, part in tensors.items()})


def sweep(kind: str, x: Tensor, plan: Plan, states: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of every position, and the state after the last of each row.

    `weights` are the input's matrix and bias, then what the cell has over its state.
    """
    return list(_Sweep.apply(_STEPS[kind], x, plan, *states, *weights))  # type: ignore[arg-type]


class _Sweep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, steps: "Steps", x: Tensor, plan: Plan, *tensors: Tensor):  # type: ignore[override]
        B, T, _ = x.shape
        parts = steps.parts
        firsts, (matrix, bias, *rest) = tensors[:parts], tensors[parts:]
        inputs = plan.gathered(x)
        projected = torch.addmm(bias, inputs, matrix.t())
        states = []
        for first in firsts:
            kept = first.new_empty(B + inputs.shape[0], first.shape[-1])
            kept[:B] = plan.first(first)
            states.append(kept)
        saved = steps.forward(plan.sizes, projected, states, rest)
        ctx.steps, ctx.plan, ctx.shape, ctx.kept = steps, plan, (B, T), (len(states), len(rest))
        ctx.save_for_backward(inputs, matrix, *states, *rest, *saved)
        outputs = plan.spread(states[0][B:], B, T)
        return outputs, *(plan.last(part, B) for part in states)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_outputs: Tensor, *d_ends: Tensor):  # type: ignore[override]
        steps, plan, (B, T), (parts, count) = ctx.steps, ctx.plan, ctx.shape, ctx.kept
        inputs, matrix, *tensors = ctx.saved_tensors
        states, rest, saved = tensors[:parts], tensors[parts : parts + count], tensors[parts + count :]
        # One row a state, those before the first position in front. All get what their row's end was given.
        d_states = []
        for number, d_end in enumerate(d_ends):
            d_state = torch.zeros_like(states[number])
            if number == 0:
                d_state[B:] = plan.gathered(d_outputs)
            if plan.ends is None:
                d_state[-B:] += d_end
            else:
                d_state.index_add_(0, plan.ends, d_end)
            d_states.append(d_state)
        d_projected, d_rest = steps.backward(plan, d_states, states, rest, saved)
        d_x = plan.spread(d_projected @ matrix, B, T) if ctx.needs_input_grad[1] else None
        d_firsts = (plan.unordered(d_state[:B]) for d_state in d_states)
        return None, d_x, None, *d_firsts, d_projected.t() @ inputs, d_projected.sum(0), *d_rest


@dataclass(frozen=True, slots=True)
class Steps:
    """The two loops of a cell. `forward` fills in the states; what it returns is given to `backward` again."""

    parts: int
    forward: Callable[[Sequence[int], Tensor, list[Tensor], list[Tensor]], list[Tensor]]
    backward: Callable[[Plan, list[Tensor], list[Tensor], list[Tensor], list[Tensor]], tuple[Tensor, list[Any]]]


def _vanilla_forward(sizes: Sequence[int], x: Tensor, states: list[Tensor], rest: list[Tensor]) -> list[Tensor]:
    (h,), (hidden,) = states, rest
    matrix = hidden.t().contiguous()
    for here, before, after in zip(x.split(sizes), *_cut(h, sizes), strict=True):
        torch.addmm(here, before, matrix, out=after).tanh_()
    return []


def _vanilla_backward(
    plan: Plan, d_states: list[Tensor], states: list[Tensor], rest: list[Tensor], saved: list[Tensor]
):
    (h,), (d_h,), (hidden,), sizes = states, d_states, rest, plan.sizes
    d_x = torch.empty_like(h[sizes[0] :])
    for here, _, after, d_before, d_after in _backwards(d_x.split(sizes), *_cut(h, sizes), *_cut(d_h, sizes)):
        _tanh_backward(d_after, after, grad_input=here)
        d_before.addmm_(here, hidden)
    return d_x, [d_x.t() @ plan.earlier(h)]


def _lstm_forward(sizes: Sequence[int], x: Tensor, states: list[Tensor], rest: list[Tensor]) -> list[Tensor]:
    (h, c), (hidden,) = states, rest
    D, matrix = h.shape[1], hidden.t().contiguous()
    squashed = torch.empty_like(h[sizes[0] :])
    parts = (x, x[:, : 2 * D], *x.chunk(4, dim=1), squashed)
    steps = zip(*(part.split(sizes) for part in parts), *_cut(h, sizes), *_cut(c, sizes), strict=True)
    for gates, i_f, i, f, g, o, out, h_before, h_after, c_before, c_after in steps:
        gates.addmm_(h_before, matrix)
        i_f.sigmoid_(), g.tanh_(), o.sigmoid_()
        torch.mul(f, c_before, out=c_after).addcmul_(i, g)
        torch.mul(o, torch.tanh(c_after, out=out), out=h_after)
    return [x, squashed]


def _lstm_backward(plan: Plan, d_states: list[Tensor], states: list[Tensor], rest: list[Tensor], saved: list[Tensor]):
    (h, c), (d_h, d_c), (hidden,), (gates, squashed), sizes = states, d_states, rest, saved, plan.sizes
    d_gates, D = torch.empty_like(gates), h.shape[1]
    parts = (
        gates[:, : 2 * D],
        *gates.chunk(4, dim=1),
        squashed,
        d_gates,
        d_gates[:, : 2 * D],
        *d_gates.chunk(4, dim=1),
    )
    steps = _backwards(*(part.split(sizes) for part in parts), _cut(c, sizes)[0], *_cut(d_h, sizes), *_cut(d_c, sizes))
    for i_f, i, f, g, o, out, d, d_i_f, d_i, d_f, d_g, d_o, cell, d_before, d_after, d_cell, d_c_after in steps:
        d_c_after.add_(_tanh_backward(torch.mul(d_after, o, out=d_i), out, grad_input=d_i))
        torch.mul(d_c_after, g, out=d_i), torch.mul(d_c_after, cell, out=d_f), torch.mul(d_c_after, i, out=d_g)
        torch.mul(d_after, out, out=d_o)
        d_cell.addcmul_(d_c_after, f)
        _sigmoid_backward(d_i_f, i_f, grad_input=d_i_f)
        _tanh_backward(d_g, g, grad_input=d_g), _sigmoid_backward(d_o, o, grad_input=d_o)
        d_before.addmm_(d, hidden)
    return d_gates, [d_gates.t() @ plan.earlier(h)]


def _gru_after_forward(sizes: Sequence[int], x: Tensor, states: list[Tensor], rest: list[Tensor]) -> list[Tensor]:
    (h,), (hidden, bias) = states, rest
    D, matrix = h.shape[1], hidden.t().contiguous()
    own = torch.empty_like(x)
    parts = (x[:, : 2 * D], *x.chunk(3, dim=1)[1:], x[:, :D], own, own[:, : 2 * D], own[:, 2 * D :])
    for r_z, z, n, r, of_h, h_r_z, h_n, before, after in zip(
        *(part.split(sizes) for part in parts), *_cut(h, sizes), strict=True
    ):
        torch.addmm(bias, before, matrix, out=of_h)
        r_z.add_(h_r_z).sigmoid_()
        n.addcmul_(r, h_n).tanh_()
        torch.lerp(n, before, z, out=after)
    return [x, own]


def _gru_after_backward(
    plan: Plan, d_states: list[Tensor], states: list[Tensor], rest: list[Tensor], saved: list[Tensor]
):
    (h,), (d_h,), (hidden, _), (x, own), sizes = states, d_states, rest, saved, plan.sizes
    d_x, d_own, D = torch.empty_like(x), torch.empty_like(own), h.shape[1]
    parts = (x[:, : 2 * D], *x.chunk(3, dim=1), own[:, 2 * D :])
    d_parts = (d_x[:, : 2 * D], *d_x.chunk(3, dim=1), d_own, d_own[:, : 2 * D], d_own[:, 2 * D :])
    steps = _backwards(*(part.split(sizes) for part in (*parts, *d_parts)), _cut(h, sizes)[0], *_cut(d_h, sizes))
    for r_z, r, z, n, h_n, d_r_z, d_r, d_z, d_n, d, d_h_r_z, d_h_n, before, d_before, d_after in steps:
        torch.sub(before, n, out=d_z).mul_(d_after)
        _tanh_backward(torch.addcmul(d_after, d_after, z, value=-1, out=d_n), n, grad_input=d_n)
        torch.mul(d_n, h_n, out=d_r), torch.mul(d_n, r, out=d_h_n)
        d_h_r_z.copy_(_sigmoid_backward(d_r_z, r_z, grad_input=d_r_z))
        d_before.addcmul_(d_after, z).addmm_(d, hidden)
    return d_x, [d_own.t() @ plan.earlier(h), d_own.sum(0)]


def _gru_before_forward(sizes: Sequence[int], x: Tensor, states: list[Tensor], rest: list[Tensor]) -> list[Tensor]:
    (h,), (gates, hidden) = states, rest
    D, to_gates, to_new = h.shape[1], gates.t().contiguous(), hidden.t().contiguous()
    reset = torch.empty_like(h[sizes[0] :])
    parts = (x[:, : 2 * D], *x.chunk(3, dim=1), reset)
    for r_z, r, z, n, kept, before, after in zip(*(part.split(sizes) for part in parts), *_cut(h, sizes), strict=True):
        r_z.addmm_(before, to_gates).sigmoid_()
        n.addmm_(torch.mul(r, before, out=kept), to_new).tanh_()
        torch.lerp(n, before, z, out=after)
    return [x, reset]


def _gru_before_backward(
    plan: Plan, d_states: list[Tensor], states: list[Tensor], rest: list[Tensor], saved: list[Tensor]
):
    (h,), (d_h,), (gates, hidden), (x, reset), sizes = states, d_states, rest, saved, plan.sizes
    d_x, D = torch.empty_like(x), h.shape[1]
    room = torch.empty_like(reset)
    parts = (x[:, : 2 * D], *x.chunk(3, dim=1), d_x[:, : 2 * D], *d_x.chunk(3, dim=1), room)
    steps = _backwards(*(part.split(sizes) for part in parts), _cut(h, sizes)[0], *_cut(d_h, sizes))
    for r_z, r, z, n, d_r_z, d_r, d_z, d_n, d_reset, before, d_before, d_after in steps:
        torch.sub(before, n, out=d_z).mul_(d_after)
        _tanh_backward(torch.addcmul(d_after, d_after, z, value=-1, out=d_n), n, grad_input=d_n)
        torch.mul(torch.mm(d_n, hidden, out=d_reset), before, out=d_r)
        _sigmoid_backward(d_r_z, r_z, grad_input=d_r_z)
        d_before.addcmul_(d_after, z).addcmul_(d_reset, r).addmm_(d_r_z, gates)
    return d_x, [d_x[:, : 2 * D].t() @ plan.earlier(h), d_x[:, 2 * D :].t() @ reset]


def _cut(states: Tensor, sizes: Sequence[int]) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """For each position the states before it and after it, as views."""
    B = sizes[0]
    after = states[B:].split(sizes)
    before = [
        part if len(part) == size else part[:size] for part, size in zip((states[:B], *after), sizes, strict=False)
    ]
    return before, after


def _backwards(*parts: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """The parts of each position, the last first."""
    return zip(*(part[::-1] for part in parts), strict=True)


_STEPS = {
    "rnn": Steps(1, _vanilla_forward, _vanilla_backward),
    "lstm": Steps(2, _lstm_forward, _lstm_backward),
    "gru-after": Steps(1, _gru_after_forward, _gru_after_backward),
    "gru-before": Steps(1, _gru_before_forward, _gru_before_backward),
}

SWEPT = frozenset(_STEPS)
"""The cells that have sweeps."""
