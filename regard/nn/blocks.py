"""The blocks that models are stacks of: attention and feed-forward inside residuals with norms, gated convolutions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Dataclass
from regard.errors import ConfigError, check_at_least, check_fractions
from regard.nn.attention import ACROSS, BEFORE, WITHIN, Attention, NoHeads, Sides
from regard.nn.dropout import Dropout
from regard.nn.fixed_cache import FixedState, FixedStep
from regard.nn.kv_cache import KVCache, SourceMemory
from regard.nn.masks import CAUSAL, EVERYTHING, Visible
from regard.nn.positions import Alibi, RelativeBias, Rotary

Activation = Literal["relu", "gelu", "gelu-tanh", "silu"]
NormKind = Literal["layer", "rms", "none"]

Vectors = Float[Tensor, "B T D"]


M = TypeVar("M", bound=nn.Module)


class Stack(nn.ModuleList, Generic[M]):
    """A `ModuleList` of modules of one kind, so that a type checker knows the methods of what it holds."""

    if TYPE_CHECKING:  # as torch has them, so that its compiler knows them too

        def __init__(self, modules: Iterable[M]) -> None: ...

        def __iter__(self) -> Iterator[M]: ...

        def __getitem__(self, idx: int) -> M: ...  # pyright: ignore[reportIncompatibleMethodOverride]


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockConfig:
    """What every block of a stack is made of."""

    width: int
    heads: int
    kv_heads: int | None = None
    head_width: int | None = None
    feed_forward: int
    activation: Activation = "relu"
    gated: bool = False
    norm: NormKind = "layer"
    norm_first: bool = True
    norm_epsilon: float = 1e-5
    residual: bool = True
    scaled: bool = True
    qk_norm: bool = False
    bias: bool = True
    key_bias: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    window: int | None = None

    def __post_init__(self) -> None:
        check_at_least(self, 1, "width", "heads", "head_width", "feed_forward")
        if self.head_width is None and self.width % self.heads:
            raise ConfigError(f"width={self.width} must be a multiple of heads={self.heads}")
        if self.kv_heads is not None and (self.kv_heads < 1 or self.heads % self.kv_heads):
            raise ConfigError(f"heads={self.heads} must be a multiple of kv_heads={self.kv_heads}")
        check_fractions(self, "dropout", "attention_dropout", "activation_dropout")

    @classmethod
    def of(cls, config: Dataclass, **given: Any) -> "BlockConfig":
        """The settings of a model that concern a block, checked; what is `given` is the same for all such models."""
        names = cls.__dataclass_fields__.keys() & config.__dataclass_fields__.keys()
        return cls(**{name: getattr(config, name) for name in names}, **given)

    @property
    def per_head(self) -> int:
        """The width of one head."""
        return self.head_width or self.width // self.heads


Distances = Alibi | RelativeBias
"""What is added to the scores by distance alone."""


def make_norm(kind: NormKind, width: int, epsilon: float = 1e-5) -> nn.Module:
    """LayerNorm, RMSNorm, or nothing at all."""
    if kind == "layer":
        return nn.LayerNorm(width, eps=epsilon)
    return nn.RMSNorm(width, eps=epsilon) if kind == "rms" else nn.Identity()


def activate(x: Tensor, activation: Activation) -> Tensor:
    if activation == "relu":
        return F.relu(x)
    if activation == "silu":
        return F.silu(x)
    return F.gelu(x, approximate="tanh" if activation == "gelu-tanh" else "none")


class FeedForward(nn.Module):
    """W2 f(W1 x), the same at every position; gated: W2 (f(W1 x) * W3 x)."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        width, hidden = config.width, config.feed_forward
        self.activation: Activation = config.activation
        self.inner = nn.Linear(width, hidden, bias=config.bias)
        self.gate = nn.Linear(width, hidden, bias=config.bias) if config.gated else None
        self.outer = nn.Linear(hidden, width, bias=config.bias)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Vectors) -> Vectors:
        hidden = activate(self.inner(x), self.activation)
        if self.gate is not None:
            hidden = hidden * self.gate(x)
        return self.outer(self.dropout(hidden) if self.training else hidden)


class Sublayer(nn.Module):
    """What is around attention and feed-forward: norm, dropout and the residual, in the order of the config."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.norm = make_norm(config.norm, config.width, config.norm_epsilon)
        self.dropout = Dropout(config.dropout)
        self.first, self.residual = config.norm_first, config.residual

    def enter(self, x: Vectors) -> Vectors:
        return self.norm(x) if self.first else x

    def leave(self, x: Vectors, change: Vectors) -> Vectors:
        change = self.dropout(change) if self.training else change
        x = x + change if self.residual else change
        return x if self.first else self.norm(x)


def check_layer_heads(name: str, counts: tuple[int, ...] | None, layers: int, block: BlockConfig) -> None:
    """Refuse numbers of heads by layer, called `name`, that a stack of such blocks cannot have."""
    if counts is None:
        return
    group = block.heads // (block.kv_heads or block.heads)
    if len(counts) != layers or not all(0 <= count <= block.heads for count in counts):
        raise ConfigError(
            f"{name}={list(counts)} must be {layers} numbers, one per layer, from 0 to heads={block.heads}"
        )
    if any(count % group for count in counts):
        raise ConfigError(f"{name}={list(counts)} must be multiples of {group}: so many heads share keys and values")


def self_attention(
    config: BlockConfig,
    rotary: Rotary | None = None,
    distances: Distances | None = None,
    heads: int | None = None,
    sides: Sides = WITHIN,
) -> Attention | NoHeads:
    """An attention as the config says; with `heads`, of so many as wide as the config's, which may be none."""
    if heads == 0:
        return NoHeads(config.width, config.per_head, bias=config.bias, sides=sides)
    heads = config.heads if heads is None else heads
    return Attention(
        config.width,
        heads,
        kv_heads=heads * (config.kv_heads or config.heads) // config.heads,
        head_width=config.per_head,
        bias=config.bias,
        key_bias=config.key_bias,
        dropout=config.attention_dropout,
        rotary=rotary,
        distances=distances,
        scaled=config.scaled,
        qk_norm=config.qk_norm,
        sides=sides,
    )


def through(block: nn.Module, drop: float, x: Vectors, *others: object) -> Vectors:
    """`block` of `x` or, in training with probability `drop`, `x` as it is: LayerDrop."""
    if drop == 0.0 or not block.training:
        return block(x, *others)
    if torch.compiler.is_compiling() or (x.is_cuda and torch.cuda.is_current_stream_capturing()):
        # One graph for both cases; it saves no time, but trains the same.
        return torch.where(torch.rand((), device=x.device) < drop, x, block(x, *others))
    return x if float(torch.rand(())) < drop else block(x, *others)


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward. Given `visible=CAUSAL` it is the block of a decoder-only model."""

    def __init__(
        self,
        config: BlockConfig,
        rotary: Rotary | None = None,
        distances: Distances | None = None,
        heads: int | None = None,
    ) -> None:
        super().__init__()
        self.attention = self_attention(config, rotary, distances, heads)
        self.feed_forward = FeedForward(config)
        self.around_attention = Sublayer(config)
        self.around_feed_forward = Sublayer(config)

    def forward(self, x: Vectors, visible: Visible = EVERYTHING) -> Vectors:
        x = self.around_attention.leave(x, self.attention(self.around_attention.enter(x), None, visible))
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x)))

    def step(
        self,
        x: Float[Tensor, "R N D"],
        cache: KVCache,
        places: Int[Tensor, "R N"] | None = None,
        visible: Visible | None = None,
    ) -> Float[Tensor, "R N D"]:
        """The same for new positions, everything before them being in `cache`.

        `places` and `visible` are for rows that differ: where each stands, and what it sees of the cache.
        """
        x = self.around_attention.leave(
            x, _self_attend(self.attention, self.around_attention.enter(x), cache, places, visible)
        )
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x)))

    def fixed_step(self, x: Float[Tensor, "B W D"], layer: int, state: FixedState, step: FixedStep) -> Vectors:
        """The same for a new position of W rows of each source, with keys and values in a state of fixed size."""
        around = self.around_attention
        x = around.leave(x, state.self_attend(layer, self.attention, around.enter(x), step))
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x)))


class DecoderBlock(nn.Module):
    """Causal self-attention, attention to the source, then feed-forward."""

    def __init__(
        self,
        config: BlockConfig,
        rotary: Rotary | None = None,
        distances: Distances | None = None,
        heads: int | None = None,
        cross_heads: int | None = None,
    ) -> None:
        super().__init__()
        self.attention = self_attention(config, rotary, distances, heads, BEFORE)
        self.cross_attention = self_attention(config, heads=cross_heads, sides=ACROSS)
        self.feed_forward = FeedForward(config)
        self.around_attention = Sublayer(config)
        self.around_cross_attention = Sublayer(config)
        self.around_feed_forward = Sublayer(config)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: Float[Tensor, "B S D"],
        visible: Visible = CAUSAL,
        memory_visible: Visible = EVERYTHING,
    ) -> Float[Tensor, "B T D"]:
        x = self.around_attention.leave(x, self.attention(self.around_attention.enter(x), None, visible))
        around = self.around_cross_attention
        x = around.leave(x, self.cross_attention(around.enter(x), memory, memory_visible))
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x)))

    def forward_and_point(
        self, x: Float[Tensor, "B T D"], memory: Float[Tensor, "B S D"], visible: Visible, of_source: Visible, head: int
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T S"]]:
        """The same, and where one head of the attention to the source looked."""
        x = self.around_attention.leave(x, self.attention(self.around_attention.enter(x), None, visible))
        around, across = self.around_cross_attention, self.cross_attention
        assert isinstance(across, Attention), "an attention without heads points nowhere"
        q, (k, v) = across.queries(around.enter(x)), across.keys_values(memory)
        change, weights = across.gather_and_point(q, k, v, of_source, head)
        x = around.leave(x, change)
        x = self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x)))
        return x, weights.clone()  # of one head, without the others'; torch hangs no hook of shards on a view

    def step_and_point(
        self, x: Float[Tensor, "R 1 D"], cache: KVCache, memory: SourceMemory, head: int
    ) -> tuple[Float[Tensor, "R 1 D"], Float[Tensor, "B W S"]]:
        """A step, and where that head looked: the W rows of each of B sources."""
        x = self.around_attention.leave(x, _self_attend(self.attention, self.around_attention.enter(x), cache))
        around, across = self.around_cross_attention, self.cross_attention
        assert isinstance(across, Attention), "an attention without heads points nowhere"
        q = across.queries(around.enter(x).view(memory.keys.shape[0], -1, x.shape[-1]))
        change, weights = across.gather_and_point(q, memory.keys, memory.values, memory.visible, head)
        x = around.leave(x, change.view(x.shape))
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x))), weights

    def step(self, x: Float[Tensor, "R 1 D"], cache: KVCache, memory: SourceMemory) -> Float[Tensor, "R 1 D"]:
        """The same for one new position of R rows, which share the memory of their sources."""
        x = self.around_attention.leave(x, _self_attend(self.attention, self.around_attention.enter(x), cache))
        around = self.around_cross_attention
        x = around.leave(x, _cross_attend(self.cross_attention, around.enter(x), memory))
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x)))

    def fixed_step(self, x: Float[Tensor, "B W D"], layer: int, state: FixedState, step: FixedStep) -> Vectors:
        """The same for W rows of each source, whose keys and values are in a state of fixed size."""
        around, across = self.around_attention, self.around_cross_attention
        x = around.leave(x, state.self_attend(layer, self.attention, around.enter(x), step))
        x = across.leave(x, state.cross_attend(layer, self.cross_attention, across.enter(x), step))
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x)))


def _self_attend(
    attention: Attention | NoHeads,
    x: Float[Tensor, "R N D"],
    cache: KVCache,
    places: Int[Tensor, "R N"] | None = None,
    visible: Visible | None = None,
) -> Float[Tensor, "R N D"]:
    """Self-attention of new positions: their keys and values join the cache, their queries attend to it."""
    past = cache.length
    if isinstance(attention, NoHeads):
        cache.length += x.shape[1]
        return attention(x)
    q, k, v = attention.queries_keys_values(x, past, places, joined=cache.joined)
    k, v = cache.append(k, v)
    return attention.gather(q, k, v, visible or Visible(causal=True, window=cache.window, past=past))


def _cross_attend(
    attention: Attention | NoHeads, x: Float[Tensor, "R 1 D"], memory: SourceMemory
) -> Float[Tensor, "R 1 D"]:
    """Cross-attention. The rows of one source are its queries side by side, so its memory is read once."""
    if isinstance(attention, NoHeads):
        return attention(x)
    sources = memory.keys.shape[0]
    q = attention.queries(x.view(sources, -1, x.shape[-1]))
    return attention.gather(q, memory.keys, memory.values, memory.visible).view(x.shape)


class GatedConvolution(nn.Module):
    """a * sigmoid(b), where a and b are two convolutions of the `kernel` positions around each one.

    With `dilation` they are not neighbours but so many positions apart. A `causal` one sees a position and those before
    it, and can be run step by step with a window of its last inputs. Beyond the ends lie zeros.
    """

    def __init__(
        self, width: int, kernel: int, *, causal: bool = False, dropout: float = 0.0, dilation: int = 1
    ) -> None:
        super().__init__()
        if kernel < 1:
            raise ConfigError(f"a kernel of {kernel} must be at least 1")
        if dilation < 1:
            raise ConfigError(f"a dilation of {dilation} must be at least 1")
        if not causal and kernel % 2 == 0:
            raise ConfigError(f"a kernel of {kernel} must be odd to have a middle")
        self.kernel, self.causal, self.dropout = kernel, causal, Dropout(dropout)
        self.dilation, self.before = dilation, (kernel - 1) * dilation
        self.convolution = nn.Conv1d(width, 2 * width, kernel, dilation=dilation)
        # The gate halves what passes, so that inputs of variance one leave with about that.
        nn.init.normal_(self.convolution.weight, std=(4 * (1 - dropout) / (kernel * width)) ** 0.5)
        nn.init.zeros_(self.convolution.bias)  # type: ignore[arg-type]

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        around = (self.before, 0) if self.causal else (self.before // 2, self.before // 2)
        return F.glu(self.convolution(F.pad(self.dropout(x).mT, around)).mT, dim=-1)

    def window(self, like: Float[Tensor, "R D"]) -> Float[Tensor, "R N D"]:
        """What a causal convolution has read before its first position: zeros."""
        return like.new_zeros(like.shape[0], self.before, like.shape[1])

    def step(
        self, x: Float[Tensor, "R D"], window: Float[Tensor, "R N D"]
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R N D"]]:
        """The output at one more position, and the window after it."""
        assert self.causal, "only a causal convolution can be run step by step"
        seen = torch.cat((window, self.dropout(x)[:, None]), dim=1)
        weight, bias = self.convolution.weight, self.convolution.bias
        return F.glu(F.linear(seen[:, :: self.dilation].mT.flatten(1), weight.flatten(1), bias), dim=-1), seen[:, 1:]
