"""RWKV, version 4: trained over whole windows at once like a Transformer, run step by step like a recurrent cell.

Each channel keeps a weighted mean of its values. What it has read decays by exp(-w) per position, the present counts
exp(u) more, and keys say how much each position weighs:

    wkv_t = (sum_{i<t} exp(k_i - (t-1-i) w) v_i + exp(u + k_t) v_t) / (the same sums of the weights alone)

Sums are kept as a, b and an exponent p, standing for a exp(p) and b exp(p), where p is the largest exponent met:
nothing grows past what a float can hold, however large the keys.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import DataError, check_at_least, check_fractions
from regard.models.protocols import Capabilities
from regard.models.recurrent_language import TextState
from regard.nn.batch import Pairs, StreamedWindows, Tokens, Windows
from regard.nn.blocks import Stack
from regard.nn.dropout import Dropout
from regard.nn.embeddings import Embedding, OutputProjection
from regard.nn.initialization import initialise
from regard.nn.recurrent.cells import Reads, StateWatcher
from regard.nn.recurrent.layers import CellStates

LOWEST = -1e38
"""The exponent of a sum of nothing."""

Sums = tuple[Tensor, Tensor, Tensor]
"""a, b and p, of each row and channel."""


def no_sums(like: Float[Tensor, "B D"]) -> Sums:
    """What has been summed up before the first position."""
    return torch.zeros_like(like), torch.zeros_like(like), torch.full_like(like, LOWEST)


def wkv_step(
    k: Float[Tensor, "B D"], v: Float[Tensor, "B D"], w: Float[Tensor, " D"], u: Float[Tensor, " D"], sums: Sums
) -> tuple[Float[Tensor, "B D"], Sums]:
    """One position: its weighted mean, and the sums after it."""
    a, b, p = sums
    top = torch.maximum(p, u + k)
    old, new = (p - top).exp(), (u + k - top).exp()
    mean = (old * a + new * v) / (old * b + new)
    top = torch.maximum(p - w, k)
    old, new = (p - w - top).exp(), (k - top).exp()
    return mean, (old * a + new * v, old * b + new, top)


def wkv(
    k: Float[Tensor, "B T D"], v: Float[Tensor, "B T D"], w: Float[Tensor, " D"], u: Float[Tensor, " D"], sums: Sums
) -> tuple[Float[Tensor, "B T D"], tuple[Tensor, Tensor, Tensor]]:
    """All positions at once: their weighted means, and the sums after each position.

    The sum over the last 2n positions is the sum over the last n, plus the same of n positions earlier, faded n times:
    so log2 T passes give the sums over all. The exponents carry no gradient, since they change no result.
    """
    T = k.shape[1]
    p = k.detach()
    b = (k - p).exp()
    a = b * v
    reach = 1
    while reach < T:
        earlier = p[:, :-reach] - reach * w.detach()
        top = torch.maximum(p[:, reach:], earlier)
        old, new = (p[:, :-reach] - reach * w - top).exp(), (p[:, reach:] - top).exp()
        a = torch.cat((a[:, :reach], new * a[:, reach:] + old * a[:, :-reach]), dim=1)
        b = torch.cat((b[:, :reach], new * b[:, reach:] + old * b[:, :-reach]), dim=1)
        p = torch.cat((p[:, :reach], top), dim=1)
        reach *= 2
    # What was summed up before the first position, faded by as many as have gone by.
    a0, b0, p0 = (part[:, None] for part in sums)
    gone = torch.arange(1, T + 1, device=k.device, dtype=k.dtype)[:, None]
    top = torch.maximum(p, p0.detach() - gone * w.detach())
    old, new = (p0.detach() - gone * w - top).exp(), (p - top).exp()
    a, b, p = new * a + old * a0, new * b + old * b0, top
    a_, b_, p_ = (torch.cat((first, rest[:, :-1]), dim=1) for first, rest in ((a0, a), (b0, b), (p0.detach(), p)))
    top = torch.maximum(p_, (u + k).detach())
    old, new = (p_ - top).exp(), (u + k - top).exp()
    return (old * a_ + new * v) / (old * b_ + new), (a, b, p)


class TimeMix(nn.Module):
    """Each channel's weighted mean of what was read, let through by a gate; inputs are mixed with the one before."""

    parts = 4  # the input before, and the sums

    def __init__(self, width: int, layer: int, layers: int) -> None:
        super().__init__()
        depth, rest = layer / max(1, layers - 1), 1 - layer / layers
        channels = torch.arange(width)
        share = channels / max(1, width - 1)
        self.decay = nn.Parameter(-5 + 8 * share ** (0.7 + 1.3 * depth))
        self.bonus = nn.Parameter(torch.full((width,), 0.3).log() + ((channels + 1) % 3 - 1) * 0.5)
        mixed = (channels / width) ** rest
        self.mix_key = nn.Parameter(mixed)
        self.mix_value = nn.Parameter(mixed + 0.3 * depth)
        self.mix_gate = nn.Parameter(mixed**0.5)
        self.key, self.value, self.gate = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.output = nn.Linear(width, width, bias=False)
        self.state_watcher: StateWatcher | None = None
        self.reads: Reads = "source"
        self.backward = False

    @property
    def width(self) -> int:
        return len(self.decay)

    def _inputs(self, x: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        k = self.key(torch.lerp(before, x, self.mix_key))
        v = self.value(torch.lerp(before, x, self.mix_value))
        # Sums are kept in full precision, whatever the products were.
        k, v = k.to(self.decay.dtype), v.to(self.decay.dtype)
        return k, v, self.gate(torch.lerp(before, x, self.mix_gate)).sigmoid()

    def forward(self, x: Float[Tensor, "B T D"], state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All positions, and the state after each of them."""
        last, a, b, p = state
        k, v, r = self._inputs(x, torch.cat((last[:, None], x[:, :-1]), dim=1))
        mean, after = wkv(k, v, self.decay.exp(), self.bonus, (a, b, p))
        self._tell(k, r, mean, after)
        return self.output(r * mean), (x, *after)

    def step(self, x: Float[Tensor, "B D"], state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        last, a, b, p = state
        k, v, r = self._inputs(x, last)
        mean, after = wkv_step(k, v, self.decay.exp(), self.bonus, (a, b, p))
        self._tell(k[:, None], r[:, None], mean[:, None], tuple(part[:, None] for part in after))
        return self.output(r * mean), (x, *after)

    @torch.no_grad()
    def _tell(self, k: Tensor, r: Tensor, mean: Tensor, sums: tuple[Tensor, ...]) -> None:
        """To whoever watches: the gate r, the share of its sums that a step keeps, and the mean let through.

        A channel's decay is one number; `kept` is what comes of it: of all the weight that the channel has after a
        position, the share of what came before.
        """
        if self.state_watcher is None:
            return
        decays = (-self.decay.exp()).exp().expand_as(k)
        _, b, p = sums
        kept = (1 - (k - p).exp() / b).clamp(0, 1)
        self.state_watcher({"r": r, "decay": decays, "kept": kept}, {"mean": mean})


class ChannelMix(nn.Module):
    """A feed-forward layer with a gate, relu squared inside; inputs are mixed with the one before."""

    parts = 1  # the input before

    def __init__(self, width: int, feed_forward: int, layer: int, layers: int) -> None:
        super().__init__()
        mixed = (torch.arange(width) / width) ** (1 - layer / layers)
        self.mix_key, self.mix_gate = nn.Parameter(mixed), nn.Parameter(mixed.clone())
        self.key = nn.Linear(width, feed_forward, bias=False)
        self.gate = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(feed_forward, width, bias=False)

    def _output(self, x: Tensor, before: Tensor) -> Tensor:
        k = self.key(torch.lerp(before, x, self.mix_key)).relu().square()
        return self.gate(torch.lerp(before, x, self.mix_gate)).sigmoid() * self.value(k)

    def forward(self, x: Float[Tensor, "B T D"], state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        (last,) = state
        return self._output(x, torch.cat((last[:, None], x[:, :-1]), dim=1)), (x,)

    def step(self, x: Float[Tensor, "B D"], state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        (last,) = state
        return self._output(x, last), (x,)


class RWKVBlock(nn.Module):
    """Both mixes, each after a norm and inside a residual. Its state has five vectors per row, whatever was read."""

    def __init__(self, width: int, feed_forward: int, layer: int, layers: int, dropout: nn.Module) -> None:
        super().__init__()
        self.time_norm, self.channel_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.time = TimeMix(width, layer, layers)
        self.channel = ChannelMix(width, feed_forward, layer, layers)
        self.dropout = dropout

    def zeros(self, like: Float[Tensor, " B *rest"], width: int) -> tuple[Tensor, ...]:
        """The state before anything was read."""
        nothing = like.new_zeros(like.shape[0], width)
        return nothing, *no_sums(nothing), nothing

    def forward(self, x: Float[Tensor, "B T D"], state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All positions, and the state after each of them, side by side."""
        mixed, time = self.time(self.time_norm(x), state[:4])
        x = x + self.dropout(mixed)
        mixed, channel = self.channel(self.channel_norm(x), state[4:])
        return x + self.dropout(mixed), (*time, *channel)

    def step(self, x: Float[Tensor, "B D"], state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        mixed, time = self.time.step(self.time_norm(x), state[:4])
        x = x + self.dropout(mixed)
        mixed, channel = self.channel.step(self.channel_norm(x), state[4:])
        return x + self.dropout(mixed), (*time, *channel)


def after(states: tuple[Float[Tensor, "B T D"], ...], places: Int[Tensor, " B"]) -> tuple[Tensor, ...]:
    """Of the states after every position, the one after each row's place."""
    rows = torch.arange(places.shape[0], device=places.device)
    return tuple(part[rows, places] for part in states)


@dataclass(frozen=True, kw_only=True, slots=True)
class RWKVConfig:
    """`max_len` bounds windows of training alone: what the model remembers has one size, however much it has read."""

    vocab_size: int
    width: int = 256
    layers: int = 6
    feed_forward: int = 1024
    tied: bool = False
    dropout: float = 0.0
    max_len: int = 1024

    def __post_init__(self) -> None:
        check_at_least(self, 1, "vocab_size", "width", "layers", "feed_forward", "max_len")
        check_fractions(self, "dropout")


class RWKV(nn.Module):
    """An embedding, blocks that mix over time and over channels, and a head over the vocabulary."""

    # It packs no rows: a recurrence runs on past the end of a document, into the next of its row.
    capabilities: ClassVar[Capabilities] = Capabilities(tasks=("language",))

    def __init__(self, config: RWKVConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.width, scale=False, dropout=config.dropout)
        self.first_norm, self.norm = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        dropout = Dropout(config.dropout)
        self.blocks = Stack(
            RWKVBlock(config.width, config.feed_forward, layer, config.layers, dropout)
            for layer in range(config.layers)
        )
        tied = self.embedding.tokens.weight if config.tied else None
        self.head = OutputProjection(config.width, config.vocab_size, tied=tied)
        initialise(self)
        for block in self.blocks:
            # What a block adds starts as nothing, so that a deep stack starts as a shallow one.
            nn.init.zeros_(block.time.output.weight)
            nn.init.zeros_(block.channel.value.weight)

    def forward(self, batch: Windows | StreamedWindows | Pairs) -> Float[Tensor, "B T D"]:
        """For each token read, the vector from which `head` predicts the next one."""
        assert isinstance(batch.inputs, Tokens), "a recurrent model reads one sequence per row"
        return self.carry(batch.inputs)[0]

    def read(self, inputs: Tokens) -> Float[Tensor, "B T D"]:
        """The same of tokens alone."""
        return self.carry(inputs)[0]

    def logits(self, batch: Windows | StreamedWindows | Pairs) -> Float[Tensor, "B T V"]:
        """The scores of every next token, given the true ones before it."""
        return self.head(self(batch))

    def carry(self, inputs: Tokens, states: CellStates | None = None) -> tuple[Float[Tensor, "B T D"], CellStates]:
        """The same from `states` on, and the states after it."""
        return self._read(inputs.ids, inputs.lengths - 1, states)

    def start(self, batch: Tokens) -> TextState:
        """Prompts, all but the last token of each read: `step` with those last tokens continues from here."""
        if int(batch.lengths.min()) < 1:
            raise DataError("a prompt without a token cannot be continued")
        nothing = self._nothing(batch.ids)
        if batch.ids.shape[1] == 1:
            return TextState(nothing)
        read = batch.lengths - 1
        _, states = self._read(batch.ids[:, :-1], (read - 1).clamp(min=0), None)
        begun = (read > 0)[:, None]  # a prompt of one token has read nothing yet
        pairs = (zip(own, empty, strict=True) for own, empty in zip(states, nothing, strict=True))
        return TextState(tuple(tuple(torch.where(begun, one, none) for one, none in own) for own in pairs))

    def step(self, choices: Int[Tensor, " R"], state: TextState) -> tuple[Float[Tensor, "R V"], TextState]:
        """Log-probabilities of the tokens that may follow `choices`."""
        x, ends = self.first_norm(self.embedding(choices[:, None]).squeeze(1)), []
        for block, own in zip(self.blocks, state.states, strict=True):
            x, end = block.step(x, own)
            ends.append(end)
        return self.head(self.norm(x)).log_softmax(-1), TextState(tuple(ends))

    def _read(self, ids: Tensor, last: Tensor, states: CellStates | None) -> tuple[Tensor, CellStates]:
        x, ends = self.first_norm(self.embedding(ids)), []
        for block, own in zip(self.blocks, states or self._nothing(ids), strict=True):
            x, everywhere = block(x, own)
            ends.append(after(everywhere, last))
        return self.norm(x), tuple(ends)

    def _nothing(self, ids: Tensor) -> CellStates:
        like = self.embedding.tokens.weight.new_zeros(ids.shape[0], 1)
        return tuple(block.zeros(like, self.config.width) for block in self.blocks)


MODEL = RWKVConfig, RWKV
