"""A KV cache of fixed size: B sources of W rows each, nothing ever copied to reorder rows, its positions on the device.

Every tensor keeps its shape and its place in memory from step to step, so that a whole step can be captured as a CUDA
graph. Sources stand in slots of their own and at positions of their own: one that has ended gives its slot to another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.attention import Attention, NoHeads
from regard.nn.embeddings import OutputProjection
from regard.nn.positions import Alibi, RelativeBias

CELLS = 16
"""Places to attend to come in multiples of so many, which the kernels of a GPU like."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much memory decoding takes: so many sources of so many tokens, `width` rows each, of so many steps."""

    sources: int
    width: int
    steps: int
    source: int


@dataclass(frozen=True, slots=True)
class FixedStep:
    """What all layers of one step share: where rows stand, where they write, and what they see.

    `bias` is added to scores: 0 for what a row sees and -inf for what it does not. `decode/device.py` has the rest.
    """

    places: Int[Tensor, "B W"]
    cells: Int[Tensor, "B W"]
    bias: Float[Tensor, "#B #H W N"]
    source_bias: Float[Tensor, "B 1 W S"] | None


class FixedState:
    """Keys and values of every layer, once for all rows of a source.

    The cells of a source are those of its prompt and then W for each step, one for each row. A row sees the cells of
    its own past only: `ancestors[b, w, t W + v]`, which is added to scores, is 0 where row w of source b comes from
    what row v chose at step t, and else -inf. Where a beam reorders its rows, only that table is reordered. All rows of
    a source are the queries of one product with all its cells, which reads no more memory than if each read its own.

    `position` counts the steps of each source. One beyond the last step is room for sources that have ended.
    """

    def __init__(
        self,
        attentions: Sequence[Attention | NoHeads],
        across: Sequence[Attention | NoHeads] = (),
        *,
        room: Room,
        longest: int,
        window: int | None = None,
        distances: Alibi | RelativeBias | None = None,
        like: Tensor,
    ) -> None:
        B, W, device = room.sources, room.width, like.device
        self.longest, self.window, self.distances = longest, window, distances
        # What is read of a source is its memory where there is cross-attention, else its prompt.
        self.prompt_room = 0 if across else -(-room.source // CELLS) * CELLS
        self.joined = [attention.joined() for attention in attentions]
        cells = self.prompt_room + (room.steps + 1) * W
        self.stores = [_store(attention, B, cells, like) for attention in attentions]
        self.memories = [_store(attention, B, room.source, like) for attention in across]
        self.position = torch.zeros(B, dtype=torch.long, device=device)
        self.prompt_lengths = torch.zeros(B, dtype=torch.long, device=device)
        self.ancestors = like.new_full((B, W, (room.steps + 1) * W), -torch.inf)
        self.source_bias = like.new_full((B, self.memories[0].shape[2] if across else 0), -torch.inf)
        self._rows = torch.arange(W, device=device)

    @property
    def nbytes(self) -> int:
        """The memory that keys and values take."""
        return sum(store.nbytes for store in (*self.stores, *self.memories))

    def begin(self, reach: int, source_reach: int) -> FixedStep:
        """What the next step works with, where no row has made `reach` steps and no source is above `source_reach`."""
        B, W = self.ancestors.shape[:2]
        own = self.position[:, None] * W + self._rows
        self.ancestors.scatter_(2, own[:, :, None], 0.0)
        places = self.prompt_lengths + self.position if self.prompt_room else self.position
        bias = self._bias(places, reach)
        source_bias = None
        if self.memories:
            source_bias = self.source_bias[:, None, None, :source_reach].expand(B, 1, W, source_reach)
        # A source that has ended may stand where the model has no position; what it computes is not used.
        where = places.clamp(max=self.longest - 1)[:, None].expand(B, W)
        return FixedStep(where, self.prompt_room + own if self.prompt_room else own, bias, source_bias)

    def _bias(self, places: Int[Tensor, " B"], reach: int) -> Float[Tensor, "#B #H W N"]:
        """What is added to the scores of each row and cell."""
        B, W = self.ancestors.shape[:2]
        bias = self.ancestors[:, :, : reach * W]
        if self.prompt_room:
            hidden = torch.arange(self.prompt_room, device=bias.device) >= self.prompt_lengths[:, None]
            prompt = torch.zeros(hidden.shape, dtype=bias.dtype, device=bias.device).masked_fill_(hidden, -torch.inf)
            bias = torch.cat((prompt[:, None].expand(B, W, -1), bias), -1)
        if self.window is not None:
            far = self._distances(places, reach) >= self.window
            bias = bias.masked_fill(far[:, None], -torch.inf)
        bias = bias[:, None]
        if self.distances is not None:
            bias = bias + self.distances.at(self._distances(places, reach)).to(bias.dtype)
        return bias

    def _distances(self, places: Int[Tensor, " B"], reach: int) -> Int[Tensor, "B N"]:
        """How far before the place of a source each of its cells stands."""
        device = places.device
        steps = torch.arange(reach, device=device).repeat_interleave(len(self._rows)) + self.prompt_lengths[:, None]
        if self.prompt_room:
            prompt = torch.arange(self.prompt_room, device=device).expand(len(places), -1)
            steps = torch.cat((prompt, steps), 1)
        return places[:, None] - steps

    def reorder(self, parents: Int[Tensor, "B W"]) -> None:
        """Let row w of each source go on from what row `parents[b, w]` has chosen."""
        chosen = parents[:, :, None].expand_as(self.ancestors)
        self.ancestors.copy_(self.ancestors.gather(1, chosen))

    def take(self, other: "FixedState", slots: Int[Tensor, " N"]) -> None:
        """Go on with what another state has in these slots; it stands in the first slots of this one."""
        for mine, theirs in zip(self._tensors(), other._tensors(), strict=True):
            mine[: len(slots)] = theirs[slots]

    def _tensors(self) -> list[Tensor]:
        """All that belongs to slots."""
        return [
            *self.stores, *self.memories, self.position, self.prompt_lengths, self.ancestors, self.source_bias
        ]  # fmt: skip

    def empty(self, slots: Int[Tensor, " N"]) -> None:
        """Make room for other sources in these slots."""
        self.position.index_fill_(0, slots, 0)
        self.ancestors.index_fill_(0, slots, -torch.inf)

    def read_sources(self, slots: Int[Tensor, " N"], lengths: Int[Tensor, " N"]) -> None:
        """Say how long the sources in these slots are, of those that cross-attention reads."""
        there = torch.arange(self.source_bias.shape[1], device=slots.device) < lengths[:, None]
        self.source_bias[slots] = torch.where(there, 0.0, -torch.inf).to(self.source_bias.dtype)

    def write_source(
        self, layer: int, slots: Int[Tensor, " N"], k: Float[Tensor, "N G S K"], v: Float[Tensor, "N G S K"]
    ) -> None:
        """The keys and values of sources for one layer of cross-attention."""
        self.memories[layer][slots, :, : k.shape[2]] = torch.cat((k, v), 1)

    def write_prompt(
        self, layer: int, slots: Int[Tensor, " N"], k: Float[Tensor, "N G P K"], v: Float[Tensor, "N G P K"]
    ) -> None:
        """The keys and values of prompts for one layer."""
        self.stores[layer][slots, :, : k.shape[2]] = torch.cat((k, v), 1)

    def self_attend(
        self, layer: int, attention: Attention | NoHeads, x: Float[Tensor, "B W D"], step: FixedStep
    ) -> Float[Tensor, "B W D"]:
        """Self-attention of one more position of every row, whose keys and values join the store."""
        if isinstance(attention, NoHeads):
            return attention(x)
        if attention.watcher is not None:  # as in decoding step by step, so that watching changes nothing
            raise AssertionError("a watched model is decoded step by step")
        q, k, v = attention.queries_keys_values(x, 0, step.places, joined=self.joined[layer])
        store = self.stores[layer]
        if kernels := _kernels(attention, q):
            return attention.output(kernels.attend(q, store, step.bias, attention.scale, (k, v, step.cells)))
        kv = torch.cat((k, v), 1)
        store.scatter_(2, step.cells[:, None, :, None].expand(kv.shape), kv)
        return _gather(attention, q, store[:, :, : step.bias.shape[-1]], step.bias)

    def cross_attend(
        self, layer: int, attention: Attention | NoHeads, x: Float[Tensor, "B W D"], step: FixedStep
    ) -> Float[Tensor, "B W D"]:
        """Cross-attention: the rows of a source are its queries side by side."""
        if isinstance(attention, NoHeads):
            return attention(x)
        assert step.source_bias is not None
        q, memory = attention.queries(x), self.memories[layer]
        if kernels := _kernels(attention, q):
            return attention.output(kernels.attend(q, memory, step.source_bias, attention.scale))
        return _gather(attention, q, memory[:, :, : step.source_bias.shape[-1]], step.source_bias)


def _kernels(attention: Attention, q: Float[Tensor, "B H W K"]) -> Any:
    """The kernels made for this, where they can be used."""
    if q.device.type != "cuda" or not find_spec("triton"):
        return None
    from regard.nn import decoding_kernels

    rows = attention.heads // attention.kv_heads * q.shape[2]
    return decoding_kernels if decoding_kernels.serves_attention(attention.head_width, rows) else None


def _store(attention: Attention | NoHeads, sources: int, room: int, like: Tensor) -> Float[Tensor, "B G N K"]:
    heads = 0 if isinstance(attention, NoHeads) else 2 * attention.kv_heads
    # Zeros, since what is hidden weighs nothing only if it is a number.
    return like.new_zeros(sources, heads, -(-room // CELLS) * CELLS, attention.head_width)


def _gather(
    attention: Attention, q: Float[Tensor, "B H W K"], store: Float[Tensor, "B G N K"], bias: Float[Tensor, "#B #H W N"]
) -> Float[Tensor, "B W D"]:
    """What each row gathers from the cells that it sees; heads that share keys and values are queries side by side."""
    (B, H, W, K), groups = q.shape, attention.kv_heads
    shared = H // groups
    if shared > 1:
        q = q.reshape(B, groups, shared * W, K)
        bias = (
            bias.expand(B, H, W, -1).reshape(B, groups, shared * W, -1)
            if bias.shape[1] > 1
            else bias.repeat(1, 1, shared, 1)
        )
    k, v = store[:, :groups], store[:, groups:]
    mixed = F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias.expand(B, groups, shared * W, -1), scale=attention.scale
    )
    return attention.output(mixed.reshape(B, H, W, K).transpose(1, 2).flatten(2))


def float32_logits(head: OutputProjection, x: Float[Tensor, "R D"]) -> Float[Tensor, "R V"]:
    """Scores over the vocabulary, summed up and kept in single precision whatever the model computes in."""
    x = x if head.scale == 1.0 else x * head.scale
    if x.dtype == torch.float32:
        return F.linear(x, head.weight, head.bias)
    if x.device.type == "cuda":
        logits = torch.mm(x, head.weight.t(), out_dtype=torch.float32)
    else:
        logits = F.linear(x, head.weight).float()
    return logits if head.bias is None else logits + head.bias.float()
