"""TOML or JSON to frozen dataclasses and back. Unknown keys are refused and the nearest one named."""

import dataclasses
import json
import os
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from regard.errors import ConfigError, RegardError, nearest

Config = TypeVar("Config")

Setting = bool | int | float | str | Sequence[object] | None
"""What one setting may be given as, before it is checked."""

JsonObject = dict[str, Any]
"""What JSON or TOML holds, or will hold: values by name, whose kinds are for the reader to know."""


@runtime_checkable
class Dataclass(Protocol):
    """An instance of any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


DEEPEST = 16
"""How deep settings may be nested; ours are three deep."""

LARGEST_NUMBER = (1 << 63) - 1
LARGEST_FILE = 64 << 20
"""Bytes of a file of settings: some times what the names of a million classes take."""


def from_mapping(kind: type[Config], mapping: Mapping[str, Any], where: str = "") -> Config:
    """An instance of the dataclass `kind`, every value checked against its field's type."""
    if not where:
        check_plain(mapping)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}  # type: ignore[arg-type]
    hints = _hints(kind)
    for key in mapping:
        if key not in fields:
            raise ConfigError(f"unknown setting '{_join(where, key)}'{nearest(key, fields, where and f'{where}.')}")
    missing = [
        name
        for name, field in fields.items()
        if name not in mapping and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"missing setting '{_join(where, missing[0])}'")
    return kind(**{key: _convert(hints[key], value, _join(where, key)) for key, value in mapping.items()})


@cache
def _hints(kind: type[Any]) -> JsonObject:
    return get_type_hints(kind)


def check_plain(mapping: Mapping[str, Any]) -> None:
    """Refuse what no setting is, and what could not even be said in a message: deep nesting and endless numbers."""
    level: list[tuple[str, Any]] = [("", mapping)]
    for _ in range(DEEPEST):
        deeper: list[tuple[str, Any]] = []
        for where, value in level:
            if isinstance(value, int) and not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
                raise ConfigError(
                    f"{where}: a number of {value.bit_length():,} bits is no setting; at most 63 are read"
                )
            if isinstance(value, Mapping):
                deeper += [(_join(where, name), one) for name, one in value.items()]
            elif isinstance(value, (list, tuple)):
                deeper += [(where, one) for one in value]
        if not deeper:
            return
        level = deeper
    raise ConfigError(f"settings are nested more than {DEEPEST} deep")


def to_mapping(config: Dataclass, *, nulls: bool = False) -> JsonObject:
    """The settings as plain values, nested as the dataclasses are; without `nulls` what is None is left out."""
    result = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if nulls or value is not None:
            result[field.name] = _plain(value, nulls)
    return result


def read(path: Path) -> JsonObject:
    """The mapping in a `.toml` or `.json` file."""
    try:
        text = bounded_text(path, LARGEST_FILE, ConfigError)
    except FileNotFoundError:
        raise ConfigError(f"no such file: {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    try:
        mapping = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # neither form, a number of thousands of digits, nested too deeply
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(mapping, dict):
        raise ConfigError(f"{path}: expected a table of settings")
    try:
        check_plain(mapping)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return mapping


def bounded_text(path: Path, most: int, kind: type[RegardError], *, regular: bool = False) -> str:
    """The UTF-8 text of a file of at most so many bytes, or an error of this kind.

    With `regular` no device and no pipe is opened, which may have no end or keep a reader waiting for ever.
    """
    if regular and path.exists() and not path.is_file():
        raise kind(f"{path} is not a regular file")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise kind(f"{path} has more than {most:,} bytes; at most so many are read")
    return data.decode("utf-8")


def path_of(given: object, name: str) -> Path:
    """A path given as text or as a path; anything else is refused under this name."""
    if isinstance(given, (str, os.PathLike)):
        return Path(given)
    raise ConfigError(f"{name} must be the name of a file or directory, not {given!r:.60}")


def listed(overrides: str | Sequence[str]) -> tuple[str, ...]:
    """Settings of the form `a.b=value`: one, or several."""
    if not isinstance(overrides, Sequence):
        raise ConfigError(f"overrides={overrides!r:.60} must be a text or several, of the form section.name=value")
    several = (overrides,) if isinstance(overrides, str) else tuple(overrides)
    for one in several:
        if not isinstance(one, str):
            raise ConfigError(
                f"{one!r} is not of the form section.name=value; or give sections: train={{'steps': 100}}"
            )
    return several


def sections(**given: Mapping[str, Any] | str | None) -> JsonObject:
    """Sections of settings that were given as keywords; those that are None were not."""
    found: JsonObject = {}
    for name, section in given.items():
        if section is None:
            continue
        if name != "task" and not isinstance(section, Mapping):
            raise ConfigError(f"{name}={section!r} must be a dict of settings, such as {{'steps': 100}} for train")
        found[name] = _copy_plain(section) if isinstance(section, Mapping) else section
    return found


def _copy_plain(value: Any) -> Any:
    """A copy in which paths are text, as they are in files."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ConfigError(f"{key!r} is not the name of a setting: names are text")
        return {key: _copy_plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def by_name(mapping: Mapping[str, Any]) -> JsonObject:
    """The settings of sections, each under its whole name: `train.steps`."""
    found: JsonObject = {}
    for key, value in mapping.items():
        found |= {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, Mapping) else {key: value}
    return found


def override(mapping: Mapping[str, Any], settings: Sequence[str]) -> JsonObject:
    """A copy of `mapping` with each `a.b=value` of `settings` applied; values are read as TOML, else as text."""
    result = _copy(mapping)
    for setting in settings:
        name, equals, text = setting.partition("=")
        keys = name.strip().split(".")
        if len(keys) > DEEPEST:
            raise ConfigError(f"'{setting[:40]}...' is nested more than {DEEPEST} deep")
        if not equals or not all(keys):
            raise ConfigError(f"'{setting}' is not of the form section.name=value")
        table = result
        for key in keys[:-1]:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                raise ConfigError(f"'{setting}': '{key}' is a value, not a section")
        table[keys[-1]] = _value(text.strip())
    return result


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> JsonObject:
    """`base` with `over` laid on top, section by section."""
    result = _copy(base)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(value, Mapping) and isinstance(below, dict):
            result[key] = merge(below, value)
        else:
            result[key] = _copy(value) if isinstance(value, Mapping) else value
    return result


def _copy(mapping: Mapping[str, Any]) -> JsonObject:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in mapping.items()}


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _plain(value: object, nulls: bool = False) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_mapping(value, nulls=nulls)
    if isinstance(value, (list, tuple)):
        return [_plain(item, nulls) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item, nulls) for key, item in value.items()}
    return str(value) if isinstance(value, Path) else value


def _convert(kind: Any, value: object, where: str) -> Any:
    """`value` as the type `kind`, or a ConfigError that names the setting."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(args, value, where)
    if origin is Literal:
        if value not in args:
            hint = nearest(str(value), [str(arg) for arg in args])
            raise ConfigError(
                f"{where}={value!r} must be one of {', '.join(map(repr, args))}{hint if '?' in hint else ''}"
            )
        return value
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}={value!r} must be a table of settings")
        return from_mapping(kind, value, where)
    if origin in (list, tuple) and isinstance(value, (list, tuple)):
        item = args[0]
        return tuple(_convert(item, one, f"{where}[{index}]") for index, one in enumerate(value))
    if origin in (dict, Mapping, typing.get_origin(Mapping[str, Any])) and isinstance(value, Mapping):
        return dict(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if isinstance(value, float) and value != value:
        raise ConfigError(f"{where}=nan must be a number")  # it would pass every test of a range that it is put to
    if isinstance(kind, type) and isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
        return value
    name = getattr(kind, "__name__", str(kind))
    raise ConfigError(f"{where}={value!r} must be {_article(name)}")


def _convert_union(kinds: tuple[Any, ...], value: object, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    error = None
    for kind in kinds:
        if kind is not type(None):
            try:
                return _convert(kind, value, where)
            except ConfigError as failure:
                error = error or failure
    if value == "none" and type(None) in kinds:  # as settings are written where there is no null: TOML, --set, options
        return None
    assert error is not None
    raise error


def _article(name: str) -> str:
    words = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false", "Path": "a path"}
    return words.get(name, f"a {name}")


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
