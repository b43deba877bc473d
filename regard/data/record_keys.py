"""Values of records by their keys, and by paths of keys with dots between them, as `translation.en`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regard.config import JsonObject
from regard.errors import DataError, nearest

PATH = "."
"""What stands between the keys of a path; a key that has one itself comes before the path that it may spell."""


def value_of(record: JsonObject, key: str | int, where: str, setting: str) -> Any:
    """The value of a record's own key, or of one inside the objects that it holds; there must be one."""
    if isinstance(key, int):
        raise DataError(f"{setting}={key}: the keys of JSONL have names, not numbers; {where} has {', '.join(record)}")
    if key in record:
        return record[key]
    inside, rest, known = record, key, ""
    while isinstance(inside, Mapping) and rest not in inside:
        first, _, after = rest.partition(PATH)
        if not after or first not in inside:
            there = f": '{known.removesuffix(PATH)}' has {', '.join(inside)}" if known else nearest(key, inside)
            raise DataError(f"{where} has no key '{key}'{there}; {setting} chooses the key")
        inside, rest, known = inside[first], after, f"{known}{first}{PATH}"
    if not isinstance(inside, Mapping):
        holds = f"'{known.removesuffix(PATH)}' holds no object"
        raise DataError(f"{where} has no key '{key}': {holds}; {setting} chooses the key")
    return inside[rest]


def inner_names(name: str, values: Sequence[Any]) -> Iterator[str]:
    """The paths of what objects hold under a name, in the order of their keys; the name itself where not all are
    objects, or where they hold lists and objects of their own."""
    found = [value for value in values if value is not None]
    keys = dict.fromkeys(key for value in found if isinstance(value, Mapping) for key in value)
    plain = all(
        isinstance(value, Mapping) and not any(isinstance(one, list | Mapping) for one in value.values())
        for value in found
    )
    yield from (f"{name}{PATH}{key}" for key in keys) if keys and plain else (name,)


def inner_value(value: Any, name: str, path: str) -> Any:
    """What stands under one of the `inner_names` of a name's value; None where the object or its key is missing."""
    if path == name:
        return value
    return value.get(path.removeprefix(f"{name}{PATH}")) if isinstance(value, Mapping) else None


def inner_fields(field: Any) -> Iterator[str]:
    """The paths of what a column of Parquet holds where it holds objects, or else its name."""
    from pyarrow import types

    if not types.is_struct(field.type):
        yield field.name
        return
    for number in range(field.type.num_fields):
        yield from (f"{field.name}{PATH}{inside}" for inside in inner_fields(field.type.field(number)))


def field_path(path: str, held: Any) -> list[str]:
    """The keys of a path, from the columns of a schema, or the fields of an object, on."""
    if path in [field.name for field in held]:
        return [path]
    first, _, rest = path.partition(PATH)
    return [first, *field_path(rest, held.field(first).type)]


def column_at(batch: Any, keys: Sequence[str]) -> Any:
    """A column of a batch of Parquet, or of the objects in one; a missing object has nothing under its keys."""
    column = batch.column(keys[0])
    for key in keys[1:]:
        column = column.flatten()[column.type.get_field_index(key)]
    return column
