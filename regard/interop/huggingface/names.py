"""One table of names a family, read both ways, and what a configuration may say."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.errors import ConfigError

LARGEST = 1 << 20
"""No size that a configuration names may exceed this: what it makes is made before any weight is looked at."""


@dataclass(frozen=True, slots=True)
class Name:
    """Their weight and ours: ours one below the other are theirs, turned on its side where `transposed`.

    `{}` stands for the number of a layer. Where `nested`, theirs has an axis of one before ours. A weight that is
    `optional` may be missing and then stays as it starts. `when` names a setting and the value it must have for the
    weight to be called so.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    nested: bool = False
    optional: bool = False
    when: tuple[str, Any] | None = None

    def of_layer(self, layer: int) -> "Name":
        number = str(layer)
        ours = tuple(name.replace("{}", number) for name in self.ours)
        return replace(self, theirs=self.theirs.replace("{}", number), ours=ours)

    def shape(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """The shape of theirs, given the shapes of ours."""
        joined = (sum(shapes[part][0] for part in self.ours), *shapes[self.ours[0]][1:])
        turned = joined[::-1] if self.transposed else joined
        return (1, *turned) if self.nested else turned

    def join(self, ours: Mapping[str, Tensor]) -> Tensor:
        """Theirs, made of ours."""
        joined = torch.cat([ours[part].detach() for part in self.ours])
        turned = joined.T if self.transposed else joined
        return turned[None] if self.nested else turned

    def split(self, theirs: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
        """Ours, each by its name, made of theirs."""
        turned = theirs[0] if self.nested else theirs
        turned = turned.T if self.transposed else turned
        return dict(zip(self.ours, turned.split([shapes[part][0] for part in self.ours]), strict=True))


def whole(config: Mapping[str, Any], field: str, default: int | None = None) -> int:
    """A whole number from 1 to LARGEST."""
    value = config.get(field)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST:
        raise ConfigError(f"config.json: {field}={value!r} must be a whole number from 1 to {LARGEST:,}")
    return value


def number(config: Mapping[str, Any], field: str, default: float) -> float:
    value = config.get(field, default)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise ConfigError(f"config.json: {field}={value!r} must be a number above 0")
    return float(value)


def rate(config: Mapping[str, Any], field: str, default: float) -> float:
    """A share of at least 0 and below 1, such as dropout's."""
    value = config.get(field)
    value = default if value is None else value
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1:
        raise ConfigError(f"config.json: {field}={value!r} must be a number of at least 0 and below 1")
    return float(value)


def plain(config: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """The configuration with one name for each setting; one that is said by two names must say the same."""
    said = dict(config)
    for alias, field in aliases.items():
        if alias not in said:
            continue
        value = said.pop(alias)
        if said.setdefault(field, value) != value:
            raise ConfigError(
                f"config.json: {alias}={value!r} and {field}={said[field]!r} are one setting and disagree"
            )
    return said


def only(config: Mapping[str, Any], field: str, *allowed: Any) -> None:
    """Refuse a field with any other value; one that is left out is as the first."""
    value = config.get(field, allowed[0])
    if value not in allowed:
        raise ConfigError(f"config.json: {field}={value!r} is not supported, only {' or '.join(map(repr, allowed))}")


def yes_or_no(config: Mapping[str, Any], field: str, default: bool) -> bool:
    value = config.get(field)
    value = default if value is None else value
    if not isinstance(value, bool):
        raise ConfigError(f"config.json: {field}={value!r} must be true or false")
    return value


def one_of(config: Mapping[str, Any], field: str, known: Mapping[str, str], default: str) -> str:
    value = config.get(field, default)
    if not isinstance(value, str) or value not in known:
        raise ConfigError(f"config.json: {field}={value!r} is not supported, only {', '.join(known)}")
    return known[value]


def ours_only(config: Any, where: str, **wanted: Any) -> None:
    """Refuse to export a model whose settings the family has no way to say."""
    for field, value in wanted.items():
        if getattr(config, field) != value:
            raise ConfigError(f"model.{field}={getattr(config, field)!r} cannot be said in {where}, only {value!r}")


ACTIVATIONS = {
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
THEIR_ACTIVATIONS = {"gelu-tanh": "gelu_new", "gelu": "gelu", "relu": "relu", "silu": "silu"}
