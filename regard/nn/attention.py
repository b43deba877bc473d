"""Multi-head attention: torch's fused kernel unless someone watches, and then the same numbers written out."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.nn.masks import EVERYTHING, Mask, Visible
from regard.nn.positions import Alibi, RelativeBias, Rotary

Queries = Float[Tensor, "B H T K"]
Weights = Float[Tensor, "B H T S"]

Watcher = Callable[[Queries, Float[Tensor, "B H S K"], Float[Tensor, "B H S K"], Weights], Weights]
"""Given q, k, v and the weights of one attention, returns the weights to use: those, or others to intervene.

One that has a method `look(q, k, v, weigh)`, and an attribute `edit` that is None, changes nothing: it asks
`weigh(heads, rows)` for those weights that it wants, and the fused kernel still makes the output.
"""

Side = Literal["source", "target", "prefix"]
"""What vectors of an attention belong to. `prefix` is the target as the decoder reads it, one token behind."""


class Sides(NamedTuple):
    """What an attention's queries and keys are vectors of, so that nobody has to read it out of the module's name."""

    queries: Side
    keys: Side


WITHIN, BEFORE, ACROSS = Sides("source", "source"), Sides("target", "prefix"), Sides("target", "source")
"""Attention within what is read, of a decoder to what it has written, and of a decoder to what was read."""


class Arithmetic(NamedTuple):
    """How the scores behind an attention's weights come about, in a form from which anyone can work them out again.

    The score of a query and a key is the sum over features of q k or, where there is a `vector`, of tanh(q + k) times
    it; then times `scale`; then plus what a head adds for each difference of positions, `offsets`.
    """

    q: Float[Tensor, "H T K"]
    k: Float[Tensor, "H S K"]
    scale: float = 1.0
    vector: Float[Tensor, " K"] | None = None
    offsets: Float[Tensor, "H N"] | None = None


@runtime_checkable
class Watchable(Protocol):
    """An attention that `regard.look` can watch: any module with these."""

    watcher: Watcher | None
    heads: int
    head_width: int
    sides: Sides

    def arithmetic(
        self, q: Float[Tensor, "H T K"], k: Float[Tensor, "H S K"], heads: Sequence[int] | None = None
    ) -> Arithmetic | None:
        """How these queries and keys make scores; None where that is not said. `heads` are those that are given."""
        ...


def attend(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    mask: Mask | None = None,
    bias: Float[Tensor, "#B #H T S"] | None = None,
    scale: float | None = None,
) -> tuple[Float[Tensor, "B H T V"], Float[Tensor, "B H T S"]]:
    """Average `v` by how well each query matches each visible key; the averages and the weights."""
    weights = attention_weights(q, k, mask, bias, scale)
    return weights @ v, weights


def attention_weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    mask: Mask | None = None,
    bias: Float[Tensor, "#B #H T S"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H T S"]:
    """softmax(q k' / sqrt(K)) over the visible keys."""
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    return softmax_visible(scores, mask)


def softmax_visible(scores: Float[Tensor, "*rows S"], mask: "torch.Tensor | None" = None) -> Float[Tensor, "*rows S"]:
    """The softmax over the last axis, hidden places weighing nothing."""
    if mask is None:
        return scores.softmax(-1)
    # A query that sees no key has nothing to average: zeros, as in torch's kernel, not NaN.
    return scores.masked_fill(~mask, -torch.inf).softmax(-1).masked_fill(~mask, 0.0)


class Attention(nn.Module):
    """Multi-head attention; with `kv_heads` below `heads`, groups of heads share their keys and values.

    `rotary` turns queries and keys by their positions, `distances` adds to the scores what depends on how far apart
    query and key are: ALiBi's penalty or a learned bias. `scaled=False` leaves out the division by sqrt(K). `qk_norm`
    brings every head's queries and keys to one size, so that scores cannot grow without bound. `key_bias=False` leaves
    out the bias of the keys alone, which no weight depends on. `watcher` is for `regard.look`: while it is None the
    fused kernel runs, which never forms the weights.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_width: int | None = None,
        memory_width: int | None = None,
        bias: bool = True,
        key_bias: bool = True,
        dropout: float = 0.0,
        rotary: Rotary | None = None,
        distances: Alibi | RelativeBias | None = None,
        scaled: bool = True,
        qk_norm: bool = False,
        sides: Sides = WITHIN,
    ) -> None:
        super().__init__()
        self.sides = sides
        if head_width is None:
            if width % heads:
                raise ConfigError(f"width={width} must be a multiple of heads={heads}")
            head_width = width // heads
        self.heads, self.kv_heads, self.head_width = heads, kv_heads or heads, head_width
        if heads % self.kv_heads:
            raise ConfigError(f"heads={heads} must be a multiple of kv_heads={self.kv_heads}")
        memory_width = memory_width or width
        self.query = nn.Linear(width, heads * head_width, bias=bias)
        self.key = nn.Linear(memory_width, self.kv_heads * head_width, bias=bias and key_bias)
        self.value = nn.Linear(memory_width, self.kv_heads * head_width, bias=bias)
        self.output = nn.Linear(heads * head_width, width, bias=bias)
        self.query_norm = nn.RMSNorm(head_width, eps=1e-6) if qk_norm else None
        self.key_norm = nn.RMSNorm(head_width, eps=1e-6) if qk_norm else None
        self.dropout, self.rotary, self.distances = dropout, rotary, distances
        self.scale = head_width**-0.5 if scaled else 1.0
        self.watcher: Watcher | None = None
        self.int8: nn.Module | None = None  # query, key and value together, where `nn/quantized.py` has made them int8

    def forward(
        self, x: Float[Tensor, "B T D"], memory: Float[Tensor, "B S M"] | None = None, visible: Visible = EVERYTHING
    ) -> Float[Tensor, "B T D"]:
        """What `x` gathers from `memory`, or from itself when none is given."""
        if memory is None:
            places = None if visible.packed is None else visible.packed.places
            q, k, v = self.queries_keys_values(x, visible.past, places)
        else:
            q, (k, v) = self.queries(x), self.keys_values(memory)
        return self.gather(q, k, v, visible)

    def queries(
        self, x: Float[Tensor, "B T D"], past: int = 0, places: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B H T K"]:
        q = self.query(x).view(*x.shape[:-1], self.heads, self.head_width).transpose(1, 2)
        q = _normed(q, self.query_norm)
        return q if self.rotary is None else self.rotary(q, past, places)

    def keys_values(
        self, memory: Float[Tensor, "B S M"], past: int = 0, places: Int[Tensor, "B S"] | None = None
    ) -> tuple[Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        """The keys and values of `memory`: what a KV cache keeps."""
        k = _normed(self.key(memory).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2), self.key_norm)
        v = self.value(memory).unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)
        return (k if self.rotary is None else self.rotary(k, past, places)), v

    def queries_keys_values(
        self,
        x: Float[Tensor, "B T D"],
        past: int = 0,
        places: Int[Tensor, "B T"] | None = None,
        joined: tuple[Tensor, Tensor | None] | None = None,
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B G T K"], Float[Tensor, "B G T K"]]:
        """All three of the same vectors, from one product: faster than three small ones."""
        heads, groups = self.heads, self.kv_heads
        mixed = F.linear(x, *(joined or self.concatenated())) if self.int8 is None else self.int8(x)
        mixed = mixed.view(*x.shape[:-1], heads + 2 * groups, self.head_width).transpose(1, 2)
        q, k, v = torch.split_with_sizes(mixed, (heads, groups, groups), 1)
        q, k = _normed(q, self.query_norm), _normed(k, self.key_norm)
        if self.rotary is not None:
            q, k = self.rotary(q, past, places), self.rotary(k, past, places)
        return q, k, v

    def joined(self) -> tuple[Float[Tensor, "N D"], Float[Tensor, " N"] | None] | None:
        """What a KV cache keeps of the three matrices for all steps; nothing where they are held in int8."""
        return self.concatenated() if self.int8 is None else None

    def concatenated(self) -> tuple[Float[Tensor, "N D"], Float[Tensor, " N"] | None]:
        """The three matrices concatenated, and their biases."""
        parts = (self.query, self.key, self.value)
        if self.query.bias is None:
            return torch.cat([part.weight for part in parts]), None
        # Keys may be without a bias where queries and values have one.
        biases = [part.weight.new_zeros(part.out_features) if part.bias is None else part.bias for part in parts]
        return torch.cat([part.weight for part in parts]), torch.cat(biases)

    def gather(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B G S K"],
        v: Float[Tensor, "B G S K"],
        visible: Visible = EVERYTHING,
    ) -> Float[Tensor, "B T D"]:
        """Every head's average of the values, joined and projected."""
        mixed = self._fused(q, k, v, visible) if self.watcher is None else self._watched(q, k, v, visible, self.watcher)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def gather_and_point(
        self,
        q: Float[Tensor, "B H T K"],
        k: Float[Tensor, "B G S K"],
        v: Float[Tensor, "B G S K"],
        visible: Visible,
        head: int | None,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T S"]]:
        """The same, and where one head attended, or for None all on average.

        Written out, as the fused kernel never forms the weights.
        """
        T, S, repeats = q.shape[2], k.shape[2], self.heads // self.kv_heads
        mask = visible.mask(T, S, q.device)
        keys, values = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        bias = None if self.distances is None else self.distances(T, S, visible.past).to(q.dtype)
        weights = attention_weights(q, keys, mask, bias, self.scale)
        watcher: Any = self.watcher
        if watcher is not None and hasattr(watcher, "look") and watcher.edit is None:
            watcher.look(q, k, v, partial(self._weights, q, k, visible), groups=repeats)
        elif watcher is not None:
            weights = watcher(q, keys, values, weights)
        mixed = F.dropout(weights, self.dropout, self.training).to(values.dtype) @ values
        return self.output(mixed.transpose(1, 2).flatten(2)), weights.mean(1) if head is None else weights[:, head]

    def arithmetic(
        self, q: Float[Tensor, "H T K"], k: Float[Tensor, "H S K"], heads: Sequence[int] | None = None
    ) -> Arithmetic:
        """The scaled products of queries and keys, and what distances add to them."""
        if self.distances is None:
            return Arithmetic(q, k, self.scale)
        offsets = by_offset(self.distances, q.shape[1], k.shape[1])
        return Arithmetic(q, k, self.scale, offsets=offsets if heads is None else offsets[list(heads)])

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible) -> Tensor:
        T, S = q.shape[2], k.shape[2]
        causal = self.distances is None and visible.only_causal(T, S)
        mask = None if causal else visible.mask(T, S, q.device)
        if self.distances is not None:
            bias = self._by_distance(self.distances, T, S, visible).to(q.dtype)
            mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        if T == 1 and mask is None and q.device.type == "cpu" and self.heads == self.kv_heads and not self.training:
            # On a CPU a single query is quicker written out.
            return attend(q, k, v, scale=self.scale)[0]
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=causal,
            scale=self.scale,
            enable_gqa=self.kv_heads != self.heads,
        )

    @staticmethod
    def _by_distance(
        distances: Alibi | RelativeBias, T: int, S: int, visible: Visible, start: int = 0
    ) -> Float[Tensor, "#B H T S"]:
        """What is added to the scores of T queries, the first of which is number `start`."""
        if visible.distances is not None:
            return distances.at(visible.distances)
        return distances(T, S, visible.past + start)

    def _watched(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, watcher: Any) -> Tensor:
        repeats = self.heads // self.kv_heads
        if hasattr(watcher, "look") and watcher.edit is None:
            watcher.look(q, k, v, partial(self._weights, q, k, visible), groups=repeats)
            return self._fused(q, k, v, visible)
        T, S = q.shape[2], k.shape[2]
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        bias = None if self.distances is None else self._by_distance(self.distances, T, S, visible).to(q.dtype)
        weights = attention_weights(q, k, visible.mask(T, S, q.device), bias, self.scale)
        weights = watcher(q, k, v, weights)
        return F.dropout(weights, self.dropout, self.training) @ v

    def _weights(
        self, q: Tensor, k: Tensor, visible: Visible, heads: Sequence[int], rows: slice
    ) -> Float[Tensor, "B H T S"]:
        """The weights of some heads and some queries, in float32 or better whatever the model runs in."""
        T, S, start = q.shape[2], k.shape[2], rows.start
        heads = list(heads)
        mask = visible.mask(T, S, q.device)
        if mask is not None and mask.shape[2] > 1:
            mask = mask[:, :, rows]
        q, k = q[:, heads, rows], k[:, [head * self.kv_heads // self.heads for head in heads]]
        wide = torch.promote_types(q.dtype, torch.float32)
        bias = None
        if self.distances is not None:
            bias = self._by_distance(self.distances, q.shape[2], S, visible, start)[:, heads].to(wide)
        with torch.autocast(q.device.type, enabled=False):
            return attention_weights(q.to(wide), k.to(wide), mask, bias, self.scale)


def watched(model: object) -> bool:
    """Whether anybody watches an attention of the model."""
    parts = model.modules() if isinstance(model, nn.Module) else ()
    return any(isinstance(part, Attention) and part.watcher is not None for part in parts)


def _normed(x: Float[Tensor, "B H T K"], norm: nn.Module | None) -> Float[Tensor, "B H T K"]:
    # Under autocast a norm answers in float32, and the kernel wants queries, keys and values alike.
    return x if norm is None else norm(x).to(x.dtype)


def by_offset(distances: nn.Module, T: int, S: int) -> Float[Tensor, "H N"]:
    """What each head adds to a score, for each difference of positions, query less key, from 1 - S to T - 1."""
    bias = distances(T, S)[0].detach().float().cpu()
    return torch.cat((bias[:, 0, 1:].flip(-1), bias[:, :, 0]), -1)


class NoHeads(nn.Module):
    """An attention that has no head left: of its output, only the bias remains. There is nothing to watch."""

    def __init__(self, width: int, head_width: int, *, bias: bool = True, sides: Sides = WITHIN) -> None:
        super().__init__()
        self.sides = sides
        self.heads, self.width, self.head_width = 0, width, head_width
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(
        self, x: Float[Tensor, "B T D"], memory: Float[Tensor, "B S M"] | None = None, visible: Visible = EVERYTHING
    ) -> Float[Tensor, "B T D"]:
        nothing = torch.zeros_like(x)
        return nothing if self.bias is None else nothing + self.bias.to(x.dtype)

    def keys_values(self, memory: Float[Tensor, "B S M"]) -> tuple[Float[Tensor, "B 0 S K"], Float[Tensor, "B 0 S K"]]:
        nothing = memory.new_zeros(memory.shape[0], 0, memory.shape[1], self.head_width)
        return nothing, nothing

    def joined(self) -> None:
        return None
