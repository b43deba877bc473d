"""Attention modules of torch and of Hugging Face transformers, so that `watch` sees them as it sees our own.

Nothing is copied and nothing stays behind: a module is changed while it is watched, and only then. The library goes on
making the output with its own kernel; what is asked for is worked out beside it, and in its place only for an edit.
"""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.nn.attention import ACROSS, BEFORE, WITHIN, Arithmetic, Sides, Watcher, attention_weights

WATCHED = "regard_watched"
"""Our name among transformers' attention implementations."""

_WATCHER, _UNDO = "_regard_watcher", "_regard_undo"


def library_attentions(model: nn.Module) -> Iterator[tuple[str, "LibraryAttention"]]:
    """Every attention of torch's or transformers' making, by its name in the model."""
    sides = _torch_sides(model) | _transformers_sides(model)
    nested = {
        id(part): encoder
        for encoder in model.modules()
        if isinstance(encoder, nn.TransformerEncoder)
        for part in encoder.modules()
    }
    for name, module in model.named_modules():
        own = sides.get(id(module), WITHIN)
        if isinstance(module, nn.MultiheadAttention):
            yield name, TorchAttention(module, own, nested.get(id(module)))
        elif _asks_interface(type(module)) and hasattr(module, "config"):
            yield name, TransformersAttention(module, own)


def past_the_interface(model: nn.Module) -> list[str]:
    """The classes of transformers' attentions that `watch` cannot see, since they ask no interface for their kernel."""

    def attends(module: nn.Module) -> bool:
        kind = type(module)
        return kind.__module__.startswith("transformers.") and "Attention" in kind.__name__

    seen = {id(part) for _, one in library_attentions(model) for part in one.module.modules()}
    found = [
        module
        for module in model.modules()
        # Of attentions inside one another the innermost does the work.
        if attends(module) and id(module) not in seen and not any(map(attends, list(module.modules())[1:]))
    ]
    return sorted({type(module).__name__ for module in found})


class LibraryAttention:
    """A module of another library as `regard.nn.attention.Watchable` describes one."""

    module: Any
    sides: Sides
    heads: int
    head_width: int

    @property
    def watcher(self) -> Watcher | None:
        return self.module.__dict__.get(_WATCHER)

    @watcher.setter
    def watcher(self, watcher: Watcher | None) -> None:
        # In the module's dictionary, since an adapter is made anew each time a model is asked for its attentions.
        kept = self.module.__dict__
        if watcher is None:
            kept.pop(_WATCHER, None)
            if _UNDO in kept:
                kept.pop(_UNDO)()
            return
        if _UNDO not in kept:
            kept[_UNDO] = self._install()
        kept[_WATCHER] = watcher

    def _install(self) -> Callable[[], object]:
        """Let the module ask its watcher; what takes that back."""
        raise NotImplementedError

    def arithmetic(
        self, q: Float[Tensor, "H T K"], k: Float[Tensor, "H S K"], heads: Sequence[int] | None = None
    ) -> Arithmetic | None:
        return None


class TorchAttention(LibraryAttention):
    """`torch.nn.MultiheadAttention`, alone or in `nn.Transformer` and its layers.

    A hook stands on it while it is watched, which keeps torch's encoder layers from their path without attention
    modules. `encoder` is the `nn.TransformerEncoder` around it: it must not make nested tensors meanwhile.
    """

    def __init__(self, module: nn.MultiheadAttention, sides: Sides, encoder: nn.TransformerEncoder | None) -> None:
        self.module, self.sides, self.encoder = module, sides, encoder
        self.heads, self.head_width = module.num_heads, module.head_dim

    def arithmetic(
        self, q: Float[Tensor, "H T K"], k: Float[Tensor, "H S K"], heads: Sequence[int] | None = None
    ) -> Arithmetic:
        return Arithmetic(q, k, self.head_width**-0.5)

    def _install(self) -> Callable[[], object]:
        module = self.module
        if module.bias_k is not None or module.add_zero_attn:
            raise ConfigError("an nn.MultiheadAttention with add_bias_kv or add_zero_attn cannot be watched")
        handle = module.register_forward_hook(_torch_hook, with_kwargs=True)
        nested = None if self.encoder is None else self.encoder.use_nested_tensor
        if self.encoder is not None:
            self.encoder.use_nested_tensor = False

        def undo() -> None:
            handle.remove()
            if self.encoder is not None and nested is not None:
                self.encoder.use_nested_tensor = nested

        return undo


def _torch_sides(model: nn.Module) -> dict[int, Sides]:
    layers = [one for one in model.modules() if isinstance(one, nn.TransformerDecoderLayer)]
    return {id(one.self_attn): BEFORE for one in layers} | {id(one.multihead_attn): ACROSS for one in layers}


def _torch_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> dict[str, Any]:
    """The arguments of a call by name, as `nn.MultiheadAttention` has them."""
    return locals()


def _torch_hook(module: Any, given: tuple[Any, ...], named: dict[str, Any], output: Any) -> Any:
    """Show the watcher a call that has been made, and make its output anew where the weights were changed."""
    watcher, call = module.__dict__[_WATCHER], _torch_call(*given, **named)
    if call["key"] is not call["query"]:
        watcher.looks_across()
    # Batches first, and a batch of one where there was none.
    flat = call["query"].dim() == 2
    parts = [call[name] for name in ("query", "key", "value")]
    if flat:
        parts = [part[None] for part in parts]
    elif not module.batch_first:
        parts = [part.transpose(0, 1) for part in parts]
    q, k, v = (
        F.linear(part, weight, bias).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for part, (weight, bias) in zip(parts, _torch_projections(module), strict=True)
    )
    bias = _torch_bias(module, call, q, k)

    def weigh(heads: Sequence[int], rows: slice) -> Tensor:
        chosen, wide = list(heads), torch.promote_types(q.dtype, torch.float32)
        own = None if bias is None else bias[:, chosen if bias.shape[1] > 1 else slice(None)]
        own = own[:, :, rows] if own is not None and own.shape[2] > 1 else own
        return _biased(q[:, chosen, rows].to(wide), k[:, chosen].to(wide), own)

    if watcher.edit is None:
        watcher.look(q, k, v, weigh)
        return None
    weights = watcher(q, k, v, _biased(q, k, bias))
    mixed = (F.dropout(weights, module.dropout, module.training) @ v).transpose(1, 2).flatten(2)
    made = F.linear(mixed, module.out_proj.weight, module.out_proj.bias)
    made = made[0] if flat else made if module.batch_first else made.transpose(0, 1)
    if not call["need_weights"]:
        return made, None
    told = weights.mean(1) if call["average_attn_weights"] else weights
    return made, told[0] if flat else told


def _biased(q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return attention_weights(q, k)
    bias = bias.expand(-1, -1, q.shape[2], -1)
    return attention_weights(q, k, bias > -torch.inf, bias.to(q.dtype))


def _torch_projections(module: Any) -> list[tuple[Tensor, Tensor | None]]:
    if module.in_proj_weight is not None:
        weights = module.in_proj_weight.chunk(3)
    else:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    return list(zip(weights, biases, strict=True))


def _torch_bias(module: Any, call: Mapping[str, Any], q: Tensor, k: Tensor) -> Tensor | None:
    """What masks add to the scores; torch's boolean masks are True where nothing may be seen."""

    def added(mask: Tensor) -> Tensor:
        if mask.dtype != torch.bool:
            return mask.to(q.dtype)
        return torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill(mask, -torch.inf)

    found = None
    if (mask := call["attn_mask"]) is not None:
        found = added(mask)[None, None] if mask.dim() == 2 else added(mask).unflatten(0, (-1, module.num_heads))
    if (padding := call["key_padding_mask"]) is not None:
        own = added(padding).view(-1, 1, 1, k.shape[2])
        found = own if found is None else found + own
    return found


class TransformersAttention(LibraryAttention):
    """An attention of Hugging Face transformers, of any architecture that asks its attention interface for a kernel.

    While it is watched it has a configuration of its own that names our implementation, which calls the one it had.
    The weights are what the architecture's own `eager_attention_forward` says they are.
    """

    def __init__(self, module: nn.Module, sides: Sides) -> None:
        self.module, self.sides = module, sides
        self.heads = _number(module, "num_attention_heads", "num_heads", "n_heads", "n_head")
        self.head_width = _number(module, "head_dim", "attention_head_size", "key_value_proj_dim", "d_kv", default=0)
        self.head_width = self.head_width or _number(module, "hidden_size", "d_model", default=0) // self.heads

    def _install(self) -> Callable[[], object]:
        from transformers import AttentionInterface

        module, config = self.module, self.module.config
        kernel = config._attn_implementation or "eager"
        if kernel not in ("sdpa", "eager"):
            raise ConfigError(
                f"attn_implementation='{kernel}' cannot be watched: load the model with 'sdpa' or 'eager'"
            )
        AttentionInterface.register(WATCHED, _watched_attention)
        own = copy.copy(config)
        own._attn_implementation_internal = WATCHED
        module.config = own
        module.__dict__["_regard_kernel"] = kernel
        # A decoder whose model does not list which of its attentions look across is asked when it is called.
        asked = self.sides == BEFORE and "key_value_states" in inspect.signature(module.forward).parameters
        handle = module.register_forward_pre_hook(_looks_across, with_kwargs=True) if asked else None

        def undo() -> None:
            if handle is not None:
                handle.remove()
            module.config = config
            del module.__dict__["_regard_kernel"]

        return undo


def _looks_across(module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    place = list(inspect.signature(module.forward).parameters).index("key_value_states")
    if named.get("key_value_states", given[place] if len(given) > place else None) is not None:
        module.__dict__[_WATCHER].looks_across()


def _watched_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **given: Any
) -> tuple[Tensor, Tensor | None]:
    """What transformers calls in a watched module in the place of its own implementation."""
    watcher, kernel, eager = module.__dict__[_WATCHER], module.__dict__["_regard_kernel"], _eager(type(module))
    made: Callable[..., Any] = eager
    if kernel != "eager":
        made = _globals(type(module))["ALL_ATTENTION_FUNCTIONS"].get_interface(kernel, eager)
    weigh = partial(_eager_weights, module, query, key, value, attention_mask, kernel, given)
    repeats = query.shape[1] // key.shape[1]
    if watcher.edit is None:
        watcher.look(query, key, value, weigh, groups=repeats)
        return made(module, query, key, value, attention_mask, **given)
    key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    weights = weigh(range(query.shape[1]), slice(0, query.shape[2])).to(value.dtype)
    weights = watcher(query, key, value, weights)
    mixed = F.dropout(weights, given.get("dropout") or 0.0, module.training) @ value
    return mixed.transpose(1, 2).contiguous(), weights


def _eager_weights(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    kernel: str,
    given: Mapping[str, Any],
    heads: Sequence[int],
    rows: slice,
) -> Tensor:
    """The weights of some queries by the architecture's own formula, in float32 or better; then those heads."""
    wide = torch.promote_types(query.dtype, torch.float32)
    T, S = query.shape[2], key.shape[2]
    if mask is None and kernel != "eager" and T > 1:
        # The fused kernel is told to be causal instead of being given a mask.
        causal = given.get("is_causal")
        if getattr(module, "is_causal", True) if causal is None else causal:
            mask = torch.ones(T, S, dtype=torch.bool, device=query.device).tril()[None, None]
    if mask is not None and mask.dtype == torch.bool:
        hidden = torch.zeros(mask.shape, dtype=wide, device=mask.device)
        mask = hidden.masked_fill(~mask, torch.finfo(wide).min)
    more = {**given, "dropout": 0.0}
    if (bias := given.get("position_bias")) is not None:
        more["position_bias"] = _rows(bias.to(wide), rows)
    q, k, v = (part.to(wide) for part in (query[:, :, rows], key, value))
    with torch.autocast(query.device.type, enabled=False):
        weights = _eager(type(module))(module, q, k, v, None if mask is None else _rows(mask.to(wide), rows), **more)[1]
    return weights if len(heads) == weights.shape[1] else weights[:, list(heads)]


def _rows(mask: Tensor, rows: slice) -> Tensor:
    return mask[:, :, rows] if mask.shape[2] > 1 else mask


_ASKED = {"ALL_ATTENTION_FUNCTIONS", "eager_attention_forward"}
"""What a method names that gets its kernel from transformers' interface: that, and the formula to fall back on."""


@lru_cache
def _asks_interface(kind: type[nn.Module]) -> bool:
    """Whether modules of this class get their attention kernel from transformers' attention interface."""
    return bool(_globals(kind))


@lru_cache
def _globals(kind: type[nn.Module]) -> dict[str, Any]:
    """The names beside the method that asks the attention interface; none where no method does."""
    for base in kind.__mro__:
        if base is nn.Module:
            break
        for method in vars(base).values():
            plain = inspect.unwrap(method) if callable(method) else None
            if inspect.isfunction(plain) and set(plain.__code__.co_names) >= _ASKED:
                return plain.__globals__
    return {}


def _eager(kind: type[nn.Module]) -> Callable[..., Any]:
    return _globals(kind)["eager_attention_forward"]


def _number(module: Any, *names: str, default: int | None = None) -> int:
    for holder in (module, module.config):
        for name in names:
            if isinstance(found := getattr(holder, name, None), int):
                return found
    if default is None:
        raise ConfigError(f"{type(module).__name__} says nowhere how many heads it has: none of {', '.join(names)}")
    return default


def _transformers_sides(model: nn.Module) -> dict[int, Sides]:
    """Which attentions look across, as the models' own lists of outputs have it, and which belong to a decoder."""
    found: dict[int, Sides] = {}
    parts: list[Any] = [one for one in model.modules() if hasattr(type(one), "_can_record_outputs")]
    for module in parts:
        if getattr(module.config, "is_encoder_decoder", False):
            decoder = module.get_decoder()  # a stack alone answers with itself, whichever it is
            found |= {} if decoder is module else {id(one): BEFORE for one in decoder.modules()}
    for module in parts:
        for recorder in _listed((type(module)._can_record_outputs or {}).get("cross_attentions")):
            kind, where = getattr(recorder, "target_class", recorder), getattr(recorder, "layer_name", None)
            for name, one in module.named_modules():
                if isinstance(one, kind) and (where is None or where in f".{name}"):
                    found |= {id(inner): ACROSS for inner in one.modules()}
    return found


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [] if value is None else [value]
