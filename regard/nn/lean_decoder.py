"""A Transformer decoder's step in as few torch operations as it takes, for a CPU: where rows are few, calling an
operation costs more than what it computes. It gives what the blocks give, but nobody can watch it."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.attention import Attention
from regard.nn.blocks import DecoderBlock, FeedForward, activate
from regard.nn.kv_cache import SourceMemory
from regard.nn.quantized import Int8Linear

Change = Callable[[Tensor], Tensor]
"""Rows of vectors to rows of vectors."""

GROWTH = 8  # positions that the cache grows by: as much may be copied in vain when rows are reordered
RESERVED = 32  # positions that memory is taken for at a time: fresh pages cost more than a copy


class LeanState:
    """A lean decoder between two steps: every layer's keys and values in one tensor, so that reordering is one copy.

    `keys`, `values` and `bias` are the sources' memories as the products want them: the bias hides padding.
    """

    def __init__(self, decoder: "LeanDecoder", memories: tuple[SourceMemory, ...]) -> None:
        self.decoder, self.length = decoder, 0
        self.layers, self.heads, self.head_width = len(decoder.layers), decoder.heads, decoder.head_width
        self._store: Float[Tensor, "N R H S K"] | None = None  # N is two per layer, first its keys, then its values
        self._memory: list[Tensor] = []  # what the store lies in, then what it is copied to when rows are reordered
        self._hold(memories)

    def _hold(self, memories: tuple[SourceMemory, ...]) -> None:
        self.memories, self.sources = memories, memories[0].keys.shape[0]
        self.keys = [memory.keys.flatten(0, 1).mT for memory in memories]
        self.values = [memory.values.flatten(0, 1) for memory in memories]
        self.bias: Float[Tensor, "N 1 S"] | None = None
        mask = memories[0].visible.mask(1, memories[0].keys.shape[2], memories[0].keys.device)
        if mask is not None:
            hidden = mask.new_zeros(mask.shape, dtype=self.keys[0].dtype).masked_fill_(~mask, -torch.inf)
            self.bias = hidden.expand(-1, self.heads, -1, -1).flatten(0, 1)

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " B"] | None = None) -> "LeanState":
        """The state with these rows; the old one must not be used again."""
        if sources is not None:
            self._hold(tuple(memory.select(sources) for memory in self.memories))
        if self._store is not None:
            self._store = torch.index_select(self._store, 1, rows, out=self._other(rows.shape[0], self._store.shape[3]))
        return self

    def next_position(self, like: Float[Tensor, "R D"]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """For each layer where its new keys and values go, (2, R, H, K); then all keys, all values, layer by layer."""
        N, R, H, K = 2 * self.layers, like.shape[0], self.heads, self.head_width
        store, place = self._store, self.length
        if store is None:
            self._memory = [like.new_empty(0), like.new_empty(0)]
        if store is None or store.shape[3] <= place:
            larger = self._other(R, place + GROWTH)
            if store is not None:
                larger[:, :, :, :place] = store
            self._store = store = larger
        self.length = place + 1
        new = store.view(self.layers, 2, R, H, -1, K).select(4, place).unbind(0)
        return new, store.view(N, R * H, -1, K).narrow(2, 0, place + 1).unbind(0)

    def _other(self, rows: int, positions: int) -> Float[Tensor, "N R H S K"]:
        """A store of these sizes where the present one is not, in memory that is kept."""
        shape = 2 * self.layers, rows, self.heads, positions, self.head_width
        self._memory.reverse()
        needed = math.prod(shape)
        if needed > self._memory[0].numel():
            reserved = -(-positions // RESERVED) * RESERVED
            self._memory[0] = self._memory[0].new_empty(needed // positions * reserved)
        return self._memory[0][:needed].view(shape)


class LeanDecoder:
    """A stack of decoder blocks without the modules around it, as they are when it is made; see `lean`."""

    def __init__(self, blocks: Sequence[DecoderBlock]) -> None:
        self.layers = [LeanBlock(block) for block in blocks]
        attention = blocks[0].attention
        assert isinstance(attention, Attention)
        self.heads, self.head_width, self.scale = attention.heads, attention.head_width, attention.scale

    def start(self, memories: tuple[SourceMemory, ...]) -> LeanState:
        """The state before the first position."""
        return LeanState(self, memories)

    def step(self, x: Float[Tensor, "R D"], state: LeanState) -> Float[Tensor, "R D"]:
        """What leaves the blocks for one new position of R rows, which share the memory of their sources."""
        R, B, H, K, scale = x.shape[0], state.sources, self.heads, self.head_width, self.scale
        W = R // B
        new, seen = state.next_position(x)
        nothing, bias = x.new_empty(1), state.bias
        baddbmm, bmm, softmax = torch.baddbmm, torch.bmm, torch.softmax
        for index, layer in enumerate(self.layers):
            mixed = layer.queries_keys_values(layer.enter[0](x)).view(R, 3, H, K).transpose(0, 1)
            new[index].copy_(mixed[1:])
            q, k, v = mixed[0].reshape(R * H, 1, K), seen[2 * index], seen[2 * index + 1]
            weights = softmax(baddbmm(nothing, q, k.mT, beta=0, alpha=scale), -1)
            change = layer.self_output(bmm(weights, v).view(R, H * K))
            x = layer.leave[0](change.add_(x))

            q = layer.query(layer.enter[1](x)).view(B, W, H, K).transpose(1, 2).reshape(B * H, W, K)
            if bias is None:
                scores = baddbmm(nothing, q, state.keys[index], beta=0, alpha=scale)
            else:
                scores = baddbmm(bias, q, state.keys[index], alpha=scale)
            gathered = bmm(softmax(scores, -1), state.values[index]).view(B, H, W, K).transpose(1, 2)
            x = layer.leave[1](layer.cross_output(gathered.reshape(R, H * K)).add_(x))

            x = layer.leave[2](layer.feed_forward(layer.enter[2](x)).add_(x))
        return x


class LeanBlock:
    """What one decoder block computes, as functions of rows."""

    def __init__(self, block: DecoderBlock) -> None:
        attention, across = block.attention, block.cross_attention
        assert isinstance(attention, Attention)
        assert isinstance(across, Attention)
        if isinstance(attention.int8, Int8Linear):
            self.queries_keys_values: Change = attention.int8.multiply
        else:
            self.queries_keys_values = _linear(*attention.concatenated())
        self.self_output, self.query, self.cross_output = map(_product, (attention.output, across.query, across.output))
        self.feed_forward = _feed_forward(block.feed_forward)
        around = block.around_attention, block.around_cross_attention, block.around_feed_forward
        first = block.around_attention.first
        norms = [_norm(sublayer.norm) for sublayer in around]
        self.enter, self.leave = (norms, [_same] * 3) if first else ([_same] * 3, norms)


def lean(
    blocks: Sequence[DecoderBlock], *around: nn.Module, lengths: Int[Tensor, " B"] | None = None
) -> LeanDecoder | None:
    """The lean form of these blocks, where it gives the same: on a CPU, for inference, of plain attention.

    None where it does not: with rotary or relative positions, a window, keys and values shared by heads, heads that
    differ by layer or a block without residuals; with a source without tokens, by its `lengths`; or where somebody
    watches these blocks or what is `around` them, be it by a watcher or by a hook.
    """
    if torch.is_grad_enabled() or not all(_plain(block) for block in blocks):
        return None
    shapes = {(part.heads, part.head_width, part.scale) for block in blocks for part in _attentions(block)}
    if len(shapes) > 1 or _watched((*blocks, *around)) or (lengths is not None and int(lengths.min()) < 1):
        return None
    return LeanDecoder(blocks)


def _attentions(block: DecoderBlock) -> tuple[Attention, Attention]:
    return block.attention, block.cross_attention  # pyright: ignore[reportReturnType]


def _plain(block: DecoderBlock) -> bool:
    parts = block.attention, block.cross_attention
    if block.training or not all(isinstance(part, Attention) for part in parts):
        return False
    return block.around_attention.residual and all(
        part.rotary is None
        and part.distances is None
        and part.query_norm is None
        and part.kv_heads == part.heads
        and part.scale > 0
        for part in _attentions(block)
    )


def _watched(blocks: Sequence[nn.Module]) -> bool:
    for block in blocks:
        for part in block.modules():
            if part._forward_hooks or part._forward_pre_hooks or getattr(part, "watcher", None) is not None:
                return True
    return False


def _same(x: Tensor) -> Tensor:
    return x


def _linear(weight: Tensor, bias: Tensor | None) -> Change:
    return partial(F.linear, weight=weight, bias=bias)


def _product(part: nn.Module) -> Change:
    if isinstance(part, Int8Linear):
        return part.multiply
    return _linear(part.weight, part.bias)  # pyright: ignore[reportArgumentType]


def _norm(norm: nn.Module) -> Change:
    if isinstance(norm, nn.LayerNorm):
        shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    return _same if isinstance(norm, nn.Identity) else norm


def _feed_forward(part: FeedForward) -> Change:
    inner, outer, activation = _product(part.inner), _product(part.outer), part.activation
    gate = None if part.gate is None else _product(part.gate)

    def change(x: Tensor) -> Tensor:
        hidden = inner(x).relu_() if activation == "relu" else activate(inner(x), activation)
        return outer(hidden if gate is None else hidden.mul_(gate(x)))

    return change
