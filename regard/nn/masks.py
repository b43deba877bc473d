"""Who may see whom: described first, and built into a mask only where a kernel needs one. True = visible."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Mask = Bool[Tensor, "#B #H #T S"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where packed sequences lie: sequence `i` of the queries sees sequence `i` of the keys and no other.

    Sequence `i` is from `queries[i]` to `queries[i + 1]`, and likewise for the keys; none is longer than is said.
    `places` are the queries' positions in their own sequences.
    """

    queries: Int[Tensor, " E"]
    keys: Int[Tensor, " E"]
    longest_query: int
    longest_key: int
    places: Int[Tensor, "1 T"]


@dataclass(frozen=True, slots=True)
class Visible:
    """What each query may see of the keys; the default is everything.

    `causal`: no key after the query. `window`: only keys fewer than `window` places away. `lengths`: in row `b` only
    the first `lengths[b]` keys. `packed`: only the query's own sequence, where many lie end to end in one row.
    `past`: how many keys stand before the first query, as when decoding goes on from a cache.
    """

    causal: bool = False
    window: int | None = None
    lengths: Int[Tensor, " B"] | None = None
    packed: Bounds | None = None
    past: int = 0

    def only_causal(self, T: int, S: int) -> bool:
        """Whether a causal kernel alone does it. Right padding lies after every real query, so it needs no mask."""
        return self.causal and self.window is None and self.packed is None and self.past == 0 and T == S

    def mask(self, T: int, S: int, device: torch.device) -> Mask | None:
        """The mask for T queries and S keys, or None where all is visible."""
        mask = None
        if self.causal or self.window is not None:
            gap = torch.arange(T, device=device)[:, None] + self.past - torch.arange(S, device=device)
            if self.causal and not (T == 1 and self.past + 1 >= S):
                mask = gap >= 0
            if self.window is not None:
                near = gap.abs() < self.window
                mask = near if mask is None else mask & near
            mask = None if mask is None else mask[None, None]
        if self.lengths is not None:
            real = (torch.arange(S, device=device) < self.lengths[:, None])[:, None, None, :]
            mask = real if mask is None else mask & real
        if self.packed is not None:
            rows, columns = _sequence(self.packed.queries, T), _sequence(self.packed.keys, S)
            same = (rows[:, None] == columns)[None, None]
            mask = same if mask is None else mask & same
        return mask


def _sequence(bounds: Int[Tensor, " E"], length: int) -> Int[Tensor, " T"]:
    """Which sequence each place of a packed row belongs to."""
    places = torch.arange(length, device=bounds.device, dtype=bounds.dtype)
    return torch.bucketize(places, bounds[1:].contiguous(), right=True)


EVERYTHING = Visible()
CAUSAL = Visible(causal=True)
