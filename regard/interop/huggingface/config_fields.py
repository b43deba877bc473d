"""The JSON of a Hugging Face directory, and the fields of its `config.json`: read as our settings and written back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from regard.config import JsonObject
from regard.errors import ConfigError, RunError
from regard.runs import files

Json = Mapping[str, object]
"""An object of a JSON file: nothing is known of its values until they are checked."""

LARGEST = 1 << 20
"""No size that a configuration names may exceed this: a model is built from it before any weight is looked at."""

LARGEST_JSON = 64 << 20
"""Bytes of the largest JSON that is read: several times the tokenizer of the largest vocabulary in use."""

ACTIVATIONS = {
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
THEIR_ACTIVATIONS = {"gelu-tanh": "gelu_new", "gelu": "gelu", "relu": "relu", "silu": "silu"}


def plain_file(path: Path) -> Path:
    """The path again if a file lies there, behind links or not: a device, a pipe or a directory is not read."""
    if not path.exists():
        raise RunError(f"{path.parent} is missing its {path.name}")
    if not path.is_file():
        raise RunError(f"{path} is not a file: a device, a pipe or a directory is not read")
    return path


def read_json(path: Path) -> JsonObject:
    """The JSON object in a file of the directory, which is of bounded size."""
    return files.read_json(plain_file(path), LARGEST_JSON)


def read_json_if_there(path: Path) -> JsonObject:
    """The same; an empty object where there is no such file."""
    return read_json(path) if path.exists() else {}


def read_any_json(path: Path) -> Any:
    """What the JSON in a file of the directory holds, object or not."""
    return files.read_any_json(plain_file(path), LARGEST_JSON)


def is_whole(value: object, least: int, most: int | None = None) -> TypeGuard[int]:
    """Whether this is an integer within bounds; true and false are none."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return least <= value and (most is None or value <= most)


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def whole(config: Json, field: str, default: int | None = None) -> int:
    """A whole number from 1 to LARGEST."""
    value = default if config.get(field) is None else config[field]
    if not is_whole(value, 1, LARGEST):
        raise ConfigError(f"config.json: {field}={value!r} must be a whole number from 1 to {LARGEST:,}")
    return value


def number(config: Json, field: str, default: float) -> float:
    value = config.get(field, default)
    if not is_number(value) or not 0 < value < float("inf"):
        raise ConfigError(f"config.json: {field}={value!r} must be a number above 0")
    return float(value)


def rate(config: Json, field: str, default: float) -> float:
    """A share of at least 0 and below 1, such as dropout's."""
    value = default if config.get(field) is None else config[field]
    if not is_number(value) or not 0 <= value < 1:
        raise ConfigError(f"config.json: {field}={value!r} must be a number of at least 0 and below 1")
    return float(value)


def yes_or_no(config: Json, field: str, default: bool) -> bool:
    value = default if config.get(field) is None else config[field]
    if not isinstance(value, bool):
        raise ConfigError(f"config.json: {field}={value!r} must be true or false")
    return value


def tie(config: Json, field: str, default: bool) -> object:
    """Whether two things are one. Null is refused: readers differ in how they take it."""
    only(config, field, default, not default)
    return config.get(field, default)


def activation(config: Json, field: str, default: str) -> str:
    value = config.get(field, default)
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise ConfigError(f"config.json: {field}={value!r} is not supported, only {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[value]


def only(config: Json, field: str, *allowed: object) -> None:
    """Refuse a field with any other value; one that is left out counts as the first."""
    value = config.get(field, allowed[0])
    if value not in allowed:
        raise ConfigError(f"config.json: {field}={value!r} is not supported, only {' or '.join(map(repr, allowed))}")


def only_ours(config: object, family: str, **wanted: object) -> None:
    """Refuse to export a model whose settings the family cannot express."""
    for field, value in wanted.items():
        if (found := getattr(config, field)) != value:
            raise ConfigError(f"model.{field}={found!r} is not supported by {family}, only {value!r}")


def resolve_aliases(config: Json, aliases: Mapping[str, str]) -> JsonObject:
    """The configuration with one name for each setting; a setting under two names must have one value."""
    found = dict(config)
    for alias, field in aliases.items():
        if alias not in found:
            continue
        value = found.pop(alias)
        if found.setdefault(field, value) != value:
            raise ConfigError(
                f"config.json: {alias}={value!r} and {field}={found[field]!r} are one setting and disagree"
            )
    return found


@dataclass(frozen=True, slots=True)
class Field:
    """One setting by their name and ours. `read` checks and converts a value.

    `default` is what a configuration without the field means, or a function of the settings before it.
    """

    theirs: str
    ours: str
    read: Callable[[Json, str, Any], Any]
    default: object


def read_fields(fields: Sequence[Field], config: Json) -> JsonObject:
    """Our settings, from a configuration of theirs."""
    found: JsonObject = {}
    for field in fields:
        default = field.default(found) if callable(field.default) else field.default
        found[field.ours] = field.read(config, field.theirs, default)
    return found


def write_fields(fields: Sequence[Field], config: object) -> dict[str, object]:
    """Their configuration, from our settings."""
    values = {field: getattr(config, field.ours) for field in fields}
    return {
        field.theirs: THEIR_ACTIVATIONS[value] if field.read is activation else value for field, value in values.items()
    }


def label_tables(labels: Sequence[str]) -> dict[str, object]:
    """The names of classes or tags, as their configurations list them."""
    if not labels:
        return {}
    return {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }
