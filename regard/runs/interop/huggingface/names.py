"""One table of names a family, read both ways, and what a configuration may say."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.errors import ConfigError

LARGEST = 1 << 20
"""No size that a configuration names may exceed this: what it makes is made before any weight is looked at."""


@dataclass(frozen=True, slots=True)
class Name:
    """Their weight and ours: ours one below the other are theirs, turned on its side where `transposed`.

    `{}` stands for the number of a layer.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False

    def of_layer(self, layer: int) -> "Name":
        number = str(layer)
        return Name(
            self.theirs.replace("{}", number), tuple(name.replace("{}", number) for name in self.ours), self.transposed
        )


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


def only(config: Mapping[str, Any], field: str, *allowed: Any) -> None:
    """Refuse a field with any other value; one that is left out is as the first."""
    value = config.get(field, allowed[0])
    if value not in allowed:
        raise ConfigError(f"config.json: {field}={value!r} is not supported, only {' or '.join(map(repr, allowed))}")


def one_of(config: Mapping[str, Any], field: str, known: Mapping[str, str], default: str) -> str:
    value = config.get(field, default)
    if value not in known:
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
