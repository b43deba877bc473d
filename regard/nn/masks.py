"""Attention masks: described first, and built only where a kernel needs one. True = visible."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Mask = Bool[Tensor, "#B #H #T S"]


@dataclass(frozen=True, slots=True)
class SequenceIds:
    """Which sequence of its row each query and each key belongs to, counted from 1; 0 is padding.

    `places` are the queries' positions in their own sequences.
    """

    queries: Int[Tensor, "B T"]
    keys: Int[Tensor, "B S"]
    places: Int[Tensor, "B T"]


@dataclass(frozen=True, slots=True)
class Visible:
    """What each query may see of the keys; the default is everything.

    `causal`: no key after the query. `window`: only keys fewer than `window` places away. `lengths`: in row `b` only
    the first `lengths[b]` keys. `packed`: only the query's own sequence, where a row holds several. `past`: how many
    keys precede the first query, as when decoding continues from a cache. `built`: the mask, made beforehand.
    `distances`: how far before a row's only query each key stands, where that is not to be told from their order.
    """

    causal: bool = False
    window: int | None = None
    lengths: Int[Tensor, " B"] | None = None
    packed: SequenceIds | None = None
    past: int = 0
    built: Mask | None = None
    distances: Int[Tensor, "B S"] | None = None

    def only_causal(self, T: int, S: int) -> bool:
        """Whether a causal kernel alone does it. Right padding lies after every real query, so it needs no mask."""
        return self.causal and self.window is None and self.packed is None and self.past == 0 and T == S

    def mask(self, T: int, S: int, device: torch.device) -> Mask | None:
        """The mask for T queries and S keys, or None where all is visible."""
        if self.built is not None:
            return self.built
        mask = None
        hides = self.causal and not (T == 1 and self.past + 1 >= S)  # a last query sees all that there is
        if hides or self.window is not None:
            gap = torch.arange(T, device=device)[:, None] + self.past - torch.arange(S, device=device)
            if hides:
                mask = gap >= 0
            if self.window is not None:
                near = gap.abs() < self.window
                mask = near if mask is None else mask & near
            mask = None if mask is None else mask[None, None]
        if self.lengths is not None:
            real = (torch.arange(S, device=device) < self.lengths[:, None])[:, None, None, :]
            mask = real if mask is None else mask & real
        if self.packed is not None:
            queries, keys = self.packed.queries[:, None, :, None], self.packed.keys[:, None, None, :]
            same = queries == keys
            mask = same if mask is None else mask & same
            # Padding may see anything: nobody reads what it gathers, and a kernel need not fear a row without keys.
            mask = mask | (queries == 0)
        return mask

    def build(self, T: int, S: int, device: torch.device) -> "Visible":
        """The same with its mask made once for all layers, where a packed batch needs one."""
        return self if self.packed is None else replace(self, built=self.mask(T, S, device))


EVERYTHING = Visible()
CAUSAL = Visible(causal=True)
