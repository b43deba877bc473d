"""Recurrent cells over whole sequences, with their gradients worked out by hand: few large products and no graph.

A sweep is what a loop over positions would compute. It differs in how: all inputs are projected by one product before
the loop; inside it is one small product a position each way; and the gradient of every matrix is one product after
it, where a graph would add up one for each position. Rows are sorted by length, so that a position computes only the
rows that reach it.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.basic_cells import Cell, State, StateLinear
from regard.nn.mut_loops import MUT_LOOPS
from regard.nn.plans import Plan
from regard.nn.sweep_loops import BASIC_LOOPS, Loops

_LOOPS = {**BASIC_LOOPS, **MUT_LOOPS}

SWEPT = frozenset(_LOOPS)
"""The cells that have sweeps."""


def sweep(
    kind: str, cell: Cell, x: Float[Tensor, "B T X"], plan: Plan, state: State
) -> tuple[Float[Tensor, "B T D"], State]:
    """The outputs of every position, and the state after the last of each row."""
    over_state = [part for part in cell.children() if isinstance(part, StateLinear)]
    weights = [tensor for part in over_state for tensor in (part.used, part.bias) if tensor is not None]
    # The projected inputs are nobody else's: the loop writes its gates over them.
    projected = cell.project(_Gathered.apply(x, plan))
    outputs, *end = _Sweep.apply(_LOOPS[kind], projected, plan, x.shape[1], len(state), *state, *weights)
    return outputs, tuple(end)


class _Gathered(torch.autograd.Function):
    """A batch in the order of a plan."""

    @staticmethod
    def forward(ctx, x: Tensor, plan: Plan) -> Tensor:
        ctx.plan, ctx.shape = plan, x.shape[:2]
        return plan.gathered(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_gathered: Tensor):  # type: ignore[override]
        return ctx.plan.spread(d_gathered, *ctx.shape), None


class _Sweep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loops: Loops, x: Tensor, plan: Plan, T: int, parts: int, *tensors: Tensor):
        firsts, weights = tensors[:parts], tensors[parts:]
        B = firsts[0].shape[0]
        states = []
        for first in firsts:
            kept = first.new_empty(B + x.shape[0], first.shape[-1])
            kept[:B] = plan.first(first)
            states.append(kept)
        saved = loops.forward(plan.sizes, x, states, list(weights))
        ctx.loops, ctx.plan, ctx.counts = loops, plan, (B, len(states), len(weights))
        ctx.save_for_backward(*states, *weights, *saved)
        return plan.spread(states[0][B:], B, T), *(plan.last(part, B) for part in states)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_outputs: Tensor, *d_ends: Tensor):  # type: ignore[override]
        loops, plan, (B, parts, count), tensors = ctx.loops, ctx.plan, ctx.counts, list(ctx.saved_tensors)
        states, weights, saved = tensors[:parts], tensors[parts : parts + count], tensors[parts + count :]
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
        d_x, d_weights = loops.backward(plan, d_states, states, weights, saved)
        d_firsts = (plan.unordered(d_state[:B]) for d_state in d_states)
        return None, d_x, None, None, None, *d_firsts, *d_weights
