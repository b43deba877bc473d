"""The KV cache: what a decoder keeps between steps, and how a beam reorders it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.masks import Visible


class KVCache:
    """The keys and values of R rows so far, in memory that grows by doubling, so that a step copies one position.

    `joined` are the attention's concatenated matrices, which every step would otherwise concatenate anew.
    """

    def __init__(self, window: int | None = None, joined: tuple[Tensor, Tensor | None] | None = None) -> None:
        self.length = 0
        self.window, self.joined = window, joined
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(
        self, k: Float[Tensor, "R G N K"], v: Float[Tensor, "R G N K"]
    ) -> tuple[Float[Tensor, "R G S K"], Float[Tensor, "R G S K"]]:
        """All keys and all values, these included."""
        start, end = self.length, self.length + k.shape[2]
        self._keys, self._values = self._room(self._keys, k, end), self._room(self._values, v, end)
        self._keys[:, :, start:end], self._values[:, :, start:end] = k, v
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    @property
    def filled(self) -> tuple[Float[Tensor, "R G S K"], Float[Tensor, "R G S K"]] | None:
        """All keys and all values so far; None where there are none."""
        if self._keys is None or self._values is None:
            return None
        return self._keys[:, :, : self.length], self._values[:, :, : self.length]

    def select(self, rows: Int[Tensor, " R"]) -> "KVCache":
        """A cache with these rows; the old one must not be used again."""
        chosen = KVCache(self.window, self.joined)
        chosen.length = self.length
        if self._keys is not None and self._values is not None:
            chosen._keys, chosen._values = self._take(self._keys, rows), self._take(self._values, rows)
        return chosen

    def _take(self, store: Tensor, rows: Tensor) -> Tensor:
        # Only what is filled is copied; the room after it is left as it comes.
        taken = store.new_empty(rows.shape[0], *store.shape[1:])
        torch.index_select(store[:, :, : self.length], 0, rows, out=taken[:, :, : self.length])
        return taken

    def _room(self, store: Tensor | None, new: Tensor, end: int) -> Tensor:
        if store is not None and store.shape[2] >= end:
            return store
        R, G, _, K = new.shape
        larger = new.new_empty(R, G, max(16, 2 * end), K)
        if store is not None:
            larger[:, :, : self.length] = store[:, :, : self.length]
        return larger


@dataclass(frozen=True, slots=True)
class SourceMemory:
    """A source's keys and values for one layer, once per source however many rows attend to it."""

    keys: Float[Tensor, "B G S K"]
    values: Float[Tensor, "B G S K"]
    visible: Visible

    def select(self, sources: Int[Tensor, " N"]) -> "SourceMemory":
        lengths = self.visible.lengths
        visible = self.visible if lengths is None else Visible(lengths=lengths[sources])
        return SourceMemory(self.keys[sources], self.values[sources], visible)


@dataclass(frozen=True, slots=True)
class DecoderState:
    """A Transformer decoder between two steps: `caches` by row, `memories` by source, one of each per layer.

    `ids` are the sources' tokens, where these may be copied.
    """

    caches: tuple[KVCache, ...]
    memories: tuple[SourceMemory, ...] = ()
    ids: Int[Tensor, "B S"] | None = None

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " N"] | None = None) -> "DecoderState":
        memories = self.memories
        if sources is not None:
            memories = tuple(memory.select(sources) for memory in memories)
        ids = self.ids if sources is None or self.ids is None else self.ids[sources]
        return DecoderState(tuple(cache.select(rows) for cache in self.caches), memories, ids)


@dataclass(frozen=True, slots=True)
class PromptState:
    """A decoder-only model between two steps, after prompts in the first `columns` places of its caches.

    Where prompts differ in length, row r's fills the first `lengths[r]` of those and the rest is a gap that nobody
    sees: what comes next stands at place `lengths[r]`, though in the cache it lies beyond the gap.
    """

    caches: tuple[KVCache, ...]
    columns: int = 0
    lengths: Int[Tensor, " R"] | None = None

    def select(self, rows: Int[Tensor, " R"], sources: Int[Tensor, " N"] | None = None) -> "PromptState":
        lengths = None if self.lengths is None else self.lengths[rows]
        return PromptState(tuple(cache.select(rows) for cache in self.caches), self.columns, lengths)

    def places(self) -> Int[Tensor, "R 1"] | None:
        """Where the next token of each row stands; None where that is the length of the cache."""
        if self.lengths is None:
            return None
        return (self.lengths + (self.caches[0].length - self.columns))[:, None]

    def visible(self) -> Visible | None:
        """What the next token of each row sees, itself included; None where that is all there is."""
        places = self.places()
        if self.lengths is None or places is None:
            return None
        columns = torch.arange(self.caches[0].length + 1, device=self.lengths.device)
        # The place of each column in its row: gaps are skipped, so that a window reaches equally far in every row.
        gap = (self.columns - self.lengths)[:, None]
        there = torch.where(columns < self.columns, columns, columns - gap)
        seen = (columns < self.lengths[:, None]) | (columns >= self.columns)
        if (window := self.caches[0].window) is not None:
            seen = seen & (places - there < window)
        return Visible(built=seen[:, None, None, :], distances=places - there)
