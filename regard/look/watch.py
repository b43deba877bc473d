"""See every attention on the way. An unwatched model is the same graph as if watching did not exist."""

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, nearest

Part = Literal["weights", "q", "k", "v"]
Edit = Callable[[str, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Seen:
    """One call of one attention: the weights it used, and q, k and v where they were asked for."""

    weights: Float[Tensor, "B H T S"] | None
    q: Float[Tensor, "B H T K"] | None = None
    k: Float[Tensor, "B H S K"] | None = None
    v: Float[Tensor, "B H S K"] | None = None


@dataclass(slots=True)
class Trace:
    """What was seen, by the attention's name in the model; one entry a call, in order."""

    calls: dict[str, list[Seen]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Seen:
        """The last thing seen of the attention called `name`."""
        if not self.calls.get(name):
            raise ConfigError(f"nothing was seen of '{name}'{nearest(name, self.calls)}")
        return self.calls[name][-1]

    def weights(self, name: str) -> Float[Tensor, "B H T S"]:
        """The weights of the last call of the attention called `name`."""
        seen = self[name].weights
        if seen is None:
            raise ConfigError("weights were not among the parts watched")
        return seen

    @property
    def names(self) -> list[str]:
        return list(self.calls)


def attentions(model: nn.Module) -> dict[str, nn.Module]:
    """Every attention of a model that can be watched, by name, in the order of the model's definition."""
    return {name: module for name, module in model.named_modules() if hasattr(module, "watcher")}


@contextmanager
def watch(
    model: nn.Module,
    names: str | Sequence[str] = "*",
    *,
    heads: Sequence[int] | None = None,
    parts: Part | Sequence[Part] = ("weights",),
    edit: Edit | None = None,
) -> Iterator[Trace]:
    """A trace that fills while the model runs: `with watch(model, "decoder.*.cross_attention") as trace: ...`.

    `names` are names or patterns of attentions, `heads` which heads to keep, `parts` what of them: the weights, q, k
    or v. `edit(name, weights)` may return other weights, of the same shape, which the model then uses. Attentions that
    are not named stay on their fused path. Inside another `watch` the outer one's edits come first, and it sees
    nothing of what the inner one sees.
    """
    known = attentions(model)
    if not known:
        raise ConfigError("this model has no attention to watch")
    patterns = [names] if isinstance(names, str) else list(names)
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            raise ConfigError(f"no attention is called '{pattern}'{nearest(pattern, known)}")
    chosen = [name for name in known if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    _check_parts(parts)
    _check_heads({name: known[name] for name in chosen}, heads)
    wanted: set[Part] = {parts} if isinstance(parts, str) else set(parts)
    trace = Trace({name: [] for name in chosen})
    before = {name: known[name].watcher for name in chosen}
    for name in chosen:
        outer = getattr(before[name], "edit", None)
        known[name].watcher = _watcher(trace.calls[name], name, heads, wanted, _both(outer, edit))  # type: ignore[assignment]
    try:
        yield trace
    finally:
        for name in chosen:
            known[name].watcher = before[name]


def _both(outer: Edit | None, inner: Edit | None) -> Edit | None:
    if outer is None or inner is None:
        return outer or inner
    return lambda name, weights: inner(name, outer(name, weights))


def _check_parts(parts: Sequence[str]) -> None:
    for part in [parts] if isinstance(parts, str) else parts:
        if part not in get_args(Part):
            raise ConfigError(f"unknown part '{part}'{nearest(part, get_args(Part))}")


def _check_heads(chosen: dict[str, nn.Module], heads: Sequence[int] | None) -> None:
    for name, module in chosen.items():
        count = getattr(module, "heads", None)
        for head in heads or ():
            if count is not None and not 0 <= head < count:
                raise ConfigError(f"no head {head} in '{name}': it has {count}, counted from 0")


def _watcher(
    calls: list[Seen], name: str, heads: Sequence[int] | None, parts: set[Part], edit: Edit | None
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    def keep(part: Part, tensor: Tensor) -> Tensor | None:
        if part not in parts:
            return None
        tensor = tensor.detach()
        return tensor if heads is None else tensor[:, list(heads)]

    def watcher(q: Tensor, k: Tensor, v: Tensor, weights: Tensor) -> Tensor:
        if edit is not None:
            edited = edit(name, weights)
            if not isinstance(edited, Tensor) or edited.shape != weights.shape:
                found = tuple(edited.shape) if isinstance(edited, Tensor) else type(edited).__name__
                raise ConfigError(f"edit of '{name}' must return weights of shape {tuple(weights.shape)}, not {found}")
            weights = edited
        calls.append(Seen(keep("weights", weights), keep("q", q), keep("k", k), keep("v", v)))
        return weights

    watcher.edit = edit  # type: ignore[attr-defined]
    return watcher
