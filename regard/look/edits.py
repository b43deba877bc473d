"""Change what a model attends to while it runs, and see what becomes of its output.

Each is a `with` in one line. They nest, and with `watch` inside them the changed weights are seen.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from regard.errors import ConfigError, nearest
from regard.look.watch import attentions, watch
from regard.nn.attention import Attention

Heads: TypeAlias = Mapping[str, Sequence[int]]
"""Heads by the name of their attention in the model: {"encoder.0.attention": [1]}."""


@contextmanager
def masked(model: nn.Module, heads: Heads) -> Iterator[None]:
    """The model without these heads: they give nothing, and only their layer's output bias is left of them."""

    def cut(name: str, weights: Tensor) -> Tensor:
        keep = torch.ones(weights.shape[1], dtype=weights.dtype, device=weights.device)
        keep[list(heads[name])] = 0
        return weights * keep[:, None, None]

    _check(model, heads)
    chosen = [name for name in heads if heads[name]]
    if not chosen:
        yield
        return
    with watch(model, chosen, parts=(), edit=cut):
        yield


@contextmanager
def evened(model: nn.Module, heads: Heads) -> Iterator[None]:
    """The model with these heads looking evenly at all that they see."""

    def even(name: str, weights: Tensor) -> Tensor:
        seen = (weights > 0).to(weights.dtype)
        changed = weights.clone()
        chosen = list(heads[name])
        changed[:, chosen] = (seen / seen.sum(-1, keepdim=True).clamp(min=1))[:, chosen]
        return changed

    _check(model, heads)
    chosen = [name for name in heads if heads[name]]
    if not chosen:
        yield
        return
    with watch(model, chosen, parts=(), edit=even):
        yield


@contextmanager
def row_set(
    model: nn.Module, name: str, *, head: int, row: int, weights: Sequence[float] | Tensor, item: int | None = None
) -> Iterator[None]:
    """The model with one row of weights written by hand: what position `row` takes from each key.

    `item` is which sequence of the batch; all of them unless given. While decoding step by step there is no such row.
    """

    def write(name: str, found: Tensor) -> Tensor:
        B, _, T, S = found.shape
        new = torch.as_tensor(weights, dtype=found.dtype, device=found.device)
        if new.shape != (S,):
            raise ConfigError(f"row {row} of '{name}' has {S} weights, one a key; {tuple(new.shape)} were given")
        if not 0 <= row < T or (item is not None and not 0 <= item < B):
            raise ConfigError(f"no row {row} of item {item or 0} in '{name}': it has {B} items of {T} rows, from 0")
        changed = found.clone()
        changed[slice(None) if item is None else item, head, row] = new
        return changed

    _check(model, {name: [head]})
    with watch(model, name, parts=(), edit=write):
        yield


@contextmanager
def swapped(
    model: nn.Module, other: Any, heads: Heads, *, what: Literal["weights", "outputs"] = "weights"
) -> Iterator[None]:
    """The model with these heads as they are on another batch, `other`: their weights, or what they give.

    The two batches must have the same shape, or one may have a single row, which then stands for all.
    """
    _check(model, heads)
    if what not in ("weights", "outputs"):
        raise ConfigError(f"what='{what}' must be weights or outputs")
    chosen = [name for name in heads if heads[name]]
    if not chosen:
        yield
        return
    if what == "weights":
        with torch.no_grad(), watch(model, chosen) as kept:
            model(other)

        def swap(name: str, weights: Tensor) -> Tensor:
            return _exchange(weights, kept.weights(name), list(heads[name]), name)

        with watch(model, chosen, parts=(), edit=swap):
            yield
        return
    found: dict[str, Tensor] = {}
    with torch.no_grad(), _before_output(model, chosen, partial(_keep, found)):
        model(other)

    def replace(name: str, mixed: Tensor) -> Tensor:
        return _exchange(mixed, found[name], list(heads[name]), name)

    with _before_output(model, chosen, replace):
        yield


@contextmanager
def _before_output(model: nn.Module, names: Sequence[str], change: Any) -> Iterator[None]:
    """Calls `change(name, mixed)` with what the heads give, (B, H, T, K), and goes on with what it returns."""
    known = attentions(model)

    def hook(name: str, heads: int, module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        mixed = given[0].unflatten(-1, (heads, -1)).transpose(1, 2)
        return (change(name, mixed).transpose(1, 2).flatten(2),)

    with ExitStack() as stack:
        for name in names:
            attention = known[name]
            if not isinstance(attention, Attention):
                raise ConfigError(f"'{name}' has no output matrix, so its heads' outputs cannot be swapped")
            handle = attention.output.register_forward_pre_hook(partial(hook, name, attention.heads))
            stack.callback(handle.remove)
        yield


def _keep(found: dict[str, Tensor], name: str, mixed: Tensor) -> Tensor:
    found[name] = mixed.detach()
    return mixed


def _exchange(here: Tensor, there: Tensor, heads: list[int], name: str) -> Tensor:
    if here.shape[1:] != there.shape[1:] or there.shape[0] not in (1, here.shape[0]):
        raise ConfigError(f"'{name}' is {tuple(here.shape)} here and {tuple(there.shape)} on the other batch")
    changed = here.clone()
    changed[:, heads] = there[:, heads].to(here.dtype)
    return changed


def _check(model: nn.Module, heads: Heads) -> None:
    known = attentions(model)
    for name, chosen in heads.items():
        if name not in known:
            raise ConfigError(f"no attention is called '{name}'{nearest(name, known)}")
        count = known[name].heads
        for head in chosen:
            if not 0 <= head < count:
                raise ConfigError(f"no head {head} in '{name}': it has {count}, counted from 0")
