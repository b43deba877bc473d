"""A KV cache of fixed size: B sources of W rows each, nothing ever copied to reorder rows, its positions on the device.

Every tensor keeps its shape and its place in memory from step to step, so that a whole step can be captured as a CUDA
graph. Sources stand in slots of their own and at positions of their own: one that has ended gives its slot to another.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
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
    its own past only: `ancestors[b, w, t, v]` says whether row w of source b comes from what row v chose at step t.
    Where a beam reorders its rows, only that table is reordered. All rows of a source are the queries of one product
    with all its cells, which reads as much memory as if each row read its own.

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
        self.source_lengths = torch.ones(B, dtype=torch.long, device=device)
        self.ancestors = torch.zeros(B, W, room.steps + 1, W, dtype=torch.bool, device=device)
        self._rows = torch.arange(W, device=device)
        self._dtype = like.dtype

    @property
    def nbytes(self) -> int:
        """The memory that keys and values take."""
        return sum(store.nbytes for store in (*self.stores, *self.memories))

    def begin(self, reach: int, source_reach: int) -> FixedStep:
        """What the next step works with, where no row has made `reach` steps and no source is above `source_reach`."""
        B, W = self.ancestors.shape[:2]
        own = self.position[:, None] * W + self._rows
        self.ancestors.view(B, W, -1).scatter_(2, own[:, :, None], True)
        places = self.prompt_lengths + self.position
        visible = self._visible(places, reach)
        bias = torch.zeros(visible.shape, dtype=self._dtype, device=own.device).masked_fill_(~visible, -torch.inf)
        bias = bias[:, None]
        if self.distances is not None:
            bias = bias + self.distances.at(self._distances(places, reach)).to(bias.dtype)
        source_bias = None
        if self.memories:
            there = torch.arange(source_reach, device=own.device) < self.source_lengths[:, None]
            hidden = torch.zeros(there.shape, dtype=self._dtype, device=own.device).masked_fill_(~there, -torch.inf)
            source_bias = hidden[:, None, None].expand(B, 1, W, source_reach)
        # A source that has ended may stand where the model has no position; what it computes is not used.
        places = places.clamp(max=self.longest - 1)[:, None].expand(B, W)
        return FixedStep(places, self.prompt_room + own, bias, source_bias)

    def _visible(self, places: Int[Tensor, " B"], reach: int) -> Bool[Tensor, "B W N"]:
        B, W = self.ancestors.shape[:2]
        visible = self.ancestors[:, :, :reach].flatten(2)
        if self.prompt_room:
            prompt = torch.arange(self.prompt_room, device=visible.device) < self.prompt_lengths[:, None]
            visible = torch.cat((prompt[:, None].expand(B, W, -1), visible), -1)
        if self.window is not None:
            visible = visible & (self._distances(places, reach) < self.window)[:, None]
        return visible

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
        chosen = parents[:, :, None, None].expand_as(self.ancestors)
        self.ancestors.copy_(self.ancestors.gather(1, chosen))

    def empty(self, slots: Int[Tensor, " N"]) -> None:
        """Make room for other sources in these slots."""
        self.position[slots] = 0
        self.ancestors[slots] = False

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
        store, kv = self.stores[layer], torch.cat((k, v), 1)
        store.scatter_(2, step.cells[:, None, :, None].expand(kv.shape), kv)
        return _gather(attention, q, store[:, :, : step.bias.shape[-1]], step.bias)

    def cross_attend(
        self, layer: int, attention: Attention | NoHeads, x: Float[Tensor, "B W D"], step: FixedStep
    ) -> Float[Tensor, "B W D"]:
        """Cross-attention: the rows of a source are its queries side by side."""
        if isinstance(attention, NoHeads):
            return attention(x)
        assert step.source_bias is not None
        memory = self.memories[layer][:, :, : step.source_bias.shape[-1]]
        return _gather(attention, attention.queries(x), memory, step.source_bias)


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
