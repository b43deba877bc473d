"""Interventions: change what a model attends to while it runs (ablate heads, patch activations), and see what follows.

Each is a `with` in one line. They nest, and with `watch` inside them the changed weights are seen.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.look.watch import attentions, check_heads, watch
from regard.nn.attention import Attention

Heads: TypeAlias = Mapping[str, Sequence[int]]
"""Heads by the name of their attention in the model: {"encoder.0.attention": [1]}."""


def masked(model: nn.Module, heads: Heads) -> AbstractContextManager[None]:
    """The model without these heads: they give nothing, and only their layer's output bias is left of them."""

    def mask(name: str, weights: Tensor, chosen: list[int]) -> Tensor:
        keep = torch.ones(weights.shape[1], dtype=weights.dtype, device=weights.device)
        keep[chosen] = 0
        return weights * keep[:, None, None]

    return _edited(model, heads, mask)


def evened(model: nn.Module, heads: Heads) -> AbstractContextManager[None]:
    """The model with these heads looking evenly at all that they see."""

    def even(name: str, weights: Tensor, chosen: list[int]) -> Tensor:
        seen = (weights > 0).to(weights.dtype)
        changed = weights.clone()
        changed[:, chosen] = (seen / seen.sum(-1, keepdim=True).clamp(min=1))[:, chosen]
        return changed

    return _edited(model, heads, even)


def row_set(
    model: nn.Module, name: str, *, head: int, row: int, weights: Sequence[float] | Tensor, item: int | None = None
) -> AbstractContextManager[None]:
    """The model with one row of weights written by hand: what position `row` takes from each key.

    `item` is which sequence of the batch; all of them unless given. While decoding step by step there is no such row.
    """

    def write(name: str, found: Tensor, chosen: list[int]) -> Tensor:
        B, _, T, S = found.shape
        new = torch.as_tensor(weights, dtype=found.dtype, device=found.device)
        if new.shape != (S,):
            raise ConfigError(f"row {row} of '{name}' has {S} weights, one per key; {tuple(new.shape)} were given")
        if not 0 <= row < T or (item is not None and not 0 <= item < B):
            raise ConfigError(f"no row {row} of item {item or 0} in '{name}': it has {B} items of {T} rows, from 0")
        changed = found.clone()
        changed[slice(None) if item is None else item, head, row] = new
        return changed

    return _edited(model, {name: [head]}, write)


@contextmanager
def swapped(
    model: nn.Module, other: object, heads: Heads, *, what: Literal["weights", "outputs"] = "weights"
) -> Iterator[None]:
    """The model with these heads as they are on another batch, `other`: their weights, or what they give.

    Where a model takes its inputs by name, `other` is a mapping of them.
    The two batches must have the same shape, or one may have a single row, which then stands for all.
    """
    check_heads(attentions(model), heads)
    if what not in ("weights", "outputs"):
        raise ConfigError(f"what='{what}' must be weights or outputs")
    chosen = [name for name in heads if heads[name]]
    if not chosen:
        yield
        return
    found: dict[str, Tensor] = {}

    def keep(name: str, mixed: Tensor) -> Tensor:
        found[name] = mixed.detach()
        return mixed

    def swap(name: str, given: Tensor) -> Tensor:
        return _exchange(given, found[name], list(heads[name]), name)

    if what == "weights":
        with torch.no_grad(), watch(model, chosen) as trace:
            _run(model, other)
        found |= {name: trace.weights(name) for name in chosen}
    else:
        with torch.no_grad(), _before_output(model, chosen, keep):
            _run(model, other)
    with watch(model, chosen, parts=(), edit=swap) if what == "weights" else _before_output(model, chosen, swap):
        yield


def _run(model: nn.Module, batch: object) -> None:
    _ = model(**batch) if isinstance(batch, Mapping) else model(batch)


@contextmanager
def _edited(model: nn.Module, heads: Heads, change: Callable[[str, Tensor, list[int]], Tensor]) -> Iterator[None]:
    """The model with the weights of the attentions of these heads changed: `change(name, weights, heads)`."""
    check_heads(attentions(model), heads)
    chosen = {name: list(own) for name, own in heads.items() if own}
    if not chosen:
        yield
        return
    with watch(model, list(chosen), parts=(), edit=lambda name, weights: change(name, weights, chosen[name])):
        yield


@contextmanager
def _before_output(model: nn.Module, names: Sequence[str], change: Callable[[str, Tensor], Tensor]) -> Iterator[None]:
    """Calls `change(name, mixed)` with what the heads give, (B, H, T, K), and goes on with what it returns."""
    known = attentions(model)

    def hook(name: str, heads: int, module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        mixed = given[0].unflatten(-1, (heads, -1)).transpose(1, 2)
        return (change(name, mixed).transpose(1, 2).flatten(2),)

    with ExitStack() as stack:
        for name in names:
            attention = known[name]
            if not isinstance(attention, Attention):
                raise ConfigError(
                    f"'{name}' is no attention of regard's with an output matrix, so its heads' outputs cannot be "
                    f"swapped: swap their weights"
                )
            handle = attention.output.register_forward_pre_hook(partial(hook, name, attention.heads))
            stack.callback(handle.remove)
        yield


def _exchange(here: Tensor, there: Tensor, heads: list[int], name: str) -> Tensor:
    if here.shape[1:] != there.shape[1:] or there.shape[0] not in (1, here.shape[0]):
        raise ConfigError(f"'{name}' is {tuple(here.shape)} here and {tuple(there.shape)} on the other batch")
    changed = here.clone()
    changed[:, heads] = there[:, heads].to(here.dtype)
    return changed
