"""Position encodings: linear, sinusoidal, learned, rotary, ALiBi and the learned relative bias."""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError, DataError

Layout = Literal["interleaved", "halves"]
AddedKind = Literal["sinusoidal", "learned", "linear", "linear-unscaled"]
"""Encodings that are vectors, added to those of tokens or put beside them."""
PositionKind = Literal["sinusoidal", "learned", "linear", "linear-unscaled", "rotary", "alibi", "relative", "none"]


def linear(length: int, slope: float = 1.0, start: float = 0.0) -> Float[Tensor, "T 1"]:
    """PE(i) = a i + b: one number per position, growing without bound."""
    return (slope * torch.arange(length, dtype=torch.float32) + start)[:, None]


def sinusoidal(
    length: int, width: int, layout: Layout = "interleaved", base: float = 10000.0, *, slowest: bool = False
) -> Float[Tensor, "T D"]:
    """PE(i, 2j) = sin(i / base^(2j/D)), PE(i, 2j+1) = cos of the same; `halves` puts all sines before all cosines.

    With `slowest` the exponent is 2j/(D-2), so that the last pair turns by exactly 1/base at each position.
    """
    if width % 2:
        raise ConfigError(f"width={width} must be even for sinusoidal positions")
    # Computed in double: at position 5,000 a float32 angle is already off in the fourth decimal.
    steps = torch.arange(0, width, 2, dtype=torch.float64)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * base ** (-steps / (width - 2 if slowest else width))
    pairs = torch.stack((angles.sin(), angles.cos()), dim=-1 if layout == "interleaved" else 1)
    return pairs.flatten(1).float()


def offset_rotation(offset: int, width: int, base: float = 10000.0) -> Float[Tensor, "D D"]:
    """The matrix M with PE(i + offset) = PE(i) M', whatever i: a rotation of each (sine, cosine) pair."""
    angles = offset * base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    blocks = [torch.stack((torch.stack((a.cos(), a.sin())), torch.stack((-a.sin(), a.cos())))) for a in angles]
    return torch.block_diag(*blocks).float()


def places_of(table: Tensor, length: int, past: int, places: Int[Tensor, "B T"] | None) -> Tensor:
    """The rows of a table of positions for these places, or for the `length` places after `past`."""
    if places is not None:
        return table[places]
    if past + length > table.shape[0]:
        raise DataError(f"a sequence of {past + length} tokens is longer than the model's max_len={table.shape[0]}")
    return table[past : past + length]


class Positions(nn.Module):
    """Adds (or with `how="concatenate"` appends) an encoding of its place to every vector of a sequence.

    With `offset`, place 0 is that row of a learned table, as in checkpoints that keep the first rows for padding.
    """

    table: Tensor

    def __init__(
        self,
        kind: AddedKind,
        width: int,
        max_len: int,
        *,
        layout: Layout = "interleaved",
        how: Literal["add", "concatenate"] = "add",
        offset: int = 0,
    ) -> None:
        super().__init__()
        self.how, self.offset = how, offset
        if kind == "learned":
            self.table = nn.Parameter(torch.empty(offset + max_len, width))
            nn.init.normal_(self.table, std=0.02)
        elif kind == "sinusoidal":
            self.register_buffer("table", sinusoidal(max_len, width, layout), persistent=False)
        else:
            # Scaled to the unit interval unless asked not to: unscaled they grow with the length and drown the words.
            slope = 1.0 if kind == "linear-unscaled" else 1 / max_len
            self.register_buffer("table", linear(max_len, slope).expand(-1, width).clone(), persistent=False)

    def forward(
        self, x: Float[Tensor, "B T D"], past: int = 0, places: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T E"]:
        """`x` with its places: those given, or those after `past`."""
        table = places_of(self.table[self.offset :], x.shape[1], past, places).to(x.dtype)
        if self.how == "add":
            return x + table
        return torch.cat((x, table.expand(x.shape[0], x.shape[1], -1)), dim=-1)

    def step(self, x: Float[Tensor, "R D"], place: int) -> Float[Tensor, "R E"]:
        """`x` with one place that all of its rows stand at."""
        table = places_of(self.table[self.offset :], 1, place, None).to(x.dtype)
        return x + table if self.how == "add" else torch.cat((x, table.expand(x.shape[0], -1)), dim=-1)


class Rotary(nn.Module):
    """Turns each pair of features by an angle that grows with the position, so that q.k depends on distance alone.

    `halves` pairs feature j with j + K/2, as Llama-type checkpoints do; `interleaved` pairs neighbours.
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, head_width: int, max_len: int, base: float = 10000.0, layout: Layout = "halves") -> None:
        super().__init__()
        if head_width % 2:
            raise ConfigError(f"head width {head_width} must be even for rotary positions")
        self.layout, self.base = layout, base
        steps = torch.arange(0, head_width, 2, dtype=torch.float64) / head_width
        angles = torch.arange(max_len, dtype=torch.float64)[:, None] * base**-steps
        self.register_buffer("cosines", angles.cos().float(), persistent=False)
        self.register_buffer("sines", angles.sin().float(), persistent=False)

    def forward(
        self, x: Float[Tensor, "B H T K"], past: int = 0, places: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B H T K"]:
        """`x` turned to its places: those given, or those after `past`."""
        tables = (places_of(table, x.shape[2], past, places).to(x.dtype) for table in (self.cosines, self.sines))
        cos, sin = (table if places is None else table[:, None] for table in tables)
        if self.layout == "halves":
            a, b = x.chunk(2, dim=-1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)


class Alibi(nn.Module):
    """A penalty on the scores: each head's slope times the distance between query and key."""

    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        slopes = torch.tensor([2.0 ** (-8.0 * (head + 1) / heads) for head in range(heads)])
        self.register_buffer("slopes", slopes, persistent=False)

    def forward(self, T: int, S: int, past: int = 0) -> Float[Tensor, "1 H T S"]:
        queries = torch.arange(T, device=self.slopes.device)[:, None] + past
        distance = (queries - torch.arange(S, device=self.slopes.device)).abs()
        return (-self.slopes[:, None, None] * distance)[None]

    def at(self, distances: Int[Tensor, "B N"]) -> Float[Tensor, "B H 1 N"]:
        """The same for one query in each row, so far after its keys."""
        return -self.slopes[:, None, None] * distances[:, None, None].abs()


class RelativeBias(nn.Module):
    """A learned addition to the scores for each head and each bucket of distances, as in T5.

    Short distances have a bucket each; longer ones share buckets that widen with their logarithm, and all from
    `furthest` on share the last. `both_ways` keeps one half of the buckets for keys after the query; otherwise those
    count as distance 0. One such table serves all layers of a stack.
    """

    def __init__(self, heads: int, buckets: int = 32, furthest: int = 128, *, both_ways: bool) -> None:
        super().__init__()
        self.furthest, self.both_ways = furthest, both_ways
        self.table = nn.Parameter(torch.empty(buckets, heads))
        nn.init.normal_(self.table, std=0.1)

    def forward(self, T: int, S: int, past: int = 0) -> Float[Tensor, "1 H T S"]:
        queries = torch.arange(T, device=self.table.device)[:, None] + past
        offsets = torch.arange(S, device=self.table.device) - queries
        buckets = distance_buckets(offsets, self.table.shape[0], self.furthest, both_ways=self.both_ways)
        return self.table[buckets].permute(2, 0, 1)[None]

    def at(self, distances: Int[Tensor, "B N"]) -> Float[Tensor, "B H 1 N"]:
        """The same for one query in each row, so far after its keys."""
        buckets = distance_buckets(-distances, self.table.shape[0], self.furthest, both_ways=self.both_ways)
        return self.table[buckets].permute(0, 2, 1)[:, :, None]


def distance_bias(
    kind: PositionKind, heads: int, buckets: int, furthest: int, *, both_ways: bool
) -> Alibi | RelativeBias | None:
    """What the scores of a stack of blocks owe to distance alone; None for kinds that add nothing to scores."""
    if kind == "alibi":
        return Alibi(heads)
    return RelativeBias(heads, buckets, furthest, both_ways=both_ways) if kind == "relative" else None


def check_rotary_base(base: float) -> None:
    """Refuse a base of rotary positions whose slower pairs would not turn slower."""
    if base <= 1:
        raise ConfigError(f"rotary_base={base} must be above 1")


def check_buckets(kind: PositionKind, buckets: int, furthest: int) -> None:
    """Refuse settings that leave relative positions without buckets of their own."""
    if kind == "relative" and not 4 <= buckets < furthest:
        raise ConfigError(f"relative_buckets={buckets} must be at least 4 and below relative_distance={furthest}")


def distance_buckets(
    offsets: Int[Tensor, "T S"], buckets: int, furthest: int, *, both_ways: bool
) -> Int[Tensor, "T S"]:
    """The bucket of each offset, key minus query: see `RelativeBias`."""
    if both_ways:
        buckets //= 2
        first, distance = torch.where(offsets > 0, buckets, 0), offsets.abs()
    else:
        first, distance = torch.zeros_like(offsets), (-offsets).clamp(min=0)
    single = buckets // 2  # so many distances have a bucket of their own
    # In single precision, as checkpoints were trained: where a logarithm is nearly whole, its rounding decides.
    growth = torch.log(distance.clamp(min=1).float() / single) / math.log(furthest / single)
    shared = (single + (growth * (buckets - single)).long()).clamp(max=buckets - 1)
    return first + torch.where(distance < single, distance, shared)
