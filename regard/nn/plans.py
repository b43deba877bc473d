"""In which order a recurrence reads rows of unequal length, so that a position computes only those that reach it."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor


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
