"""What models are given: tensors and descriptions (lengths, boundaries), never masks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Tokens:
    """Rows of token ids, row `b` being `lengths[b]` long and padded on the right.

    `padded` says whether any row is shorter than the rest. It is a plain bool, so that asking never waits for a
    device; False lets attention take its kernel without a mask.
    """

    ids: Int[Tensor, "B S"]
    lengths: Int[Tensor, " B"]
    padded: bool

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], pad: int = 0) -> "Tokens":
        """The rows side by side, padded to the longest."""
        lengths = [len(row) for row in rows]
        longest = max(lengths, default=0)
        ids = torch.full((len(rows), longest), pad, dtype=torch.long)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = torch.as_tensor(row, dtype=torch.long)
        return cls(ids, torch.tensor(lengths, dtype=torch.long), padded=min(lengths, default=0) < longest)

    def mask(self) -> Bool[Tensor, "B S"]:
        """True where a row has a token."""
        return torch.arange(self.ids.shape[1], device=self.ids.device) < self.lengths[:, None]

    def to(self, device: torch.device | str) -> "Tokens":
        return replace(
            self,
            ids=self.ids.to(device, non_blocking=True),
            lengths=self.lengths.to(device, non_blocking=True),
        )


@dataclass(frozen=True, slots=True)
class Pairs:
    """Source rows and, when known, the target rows they belong to: whole, from `bos` to `eos`.

    `count` is how many predictions the target asks for, known without waiting for a device.
    """

    source: Tokens
    target: Tokens | None = None
    count: int = 0

    def to(self, device: torch.device | str) -> "Pairs":
        return replace(
            self,
            source=self.source.to(device),
            target=None if self.target is None else self.target.to(device),
        )
