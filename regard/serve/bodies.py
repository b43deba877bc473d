"""What a request says, from JSON to a checked dataclass: every complaint names its field."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from regard import config as settings
from regard.errors import ConfigError, nearest
from regard.serve.limits import Limits
from regard.serve.refusals import Refused

Body = TypeVar("Body")


def parse(kind: type[Body], raw: bytes) -> Body:
    """The body as `kind`. Unknown fields are refused, and the nearest known one named."""
    mapping = _json(raw)
    known = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in mapping:
        if name not in known:
            raise Refused("bad_request", f"unknown field '{name}'{nearest(name, known)}")
    for name, field in known.items():
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and name not in mapping:
            raise Refused("bad_request", f"missing field '{name}'")
    return settings.from_mapping(kind, mapping)


def _json(raw: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise Refused("bad_request", f"the body is not UTF-8 text: byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise Refused("bad_request", f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refused("bad_request", "the body must be a JSON object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def given(body: Any, *leave: str) -> dict[str, Any]:
    """The fields that were given a value, by name, without those to leave out."""
    return {
        field.name: value
        for field in dataclasses.fields(body)
        if field.name not in leave and (value := getattr(body, field.name)) is not None
    }


def texts(value: str | Sequence[str], field: str, limits: Limits) -> tuple[str, ...]:
    """One text or several as a tuple, within the limits and of whole characters."""
    found = (value,) if isinstance(value, str) else tuple(value)
    if not found:
        raise Refused("bad_request", f"{field} is an empty list")
    if len(found) > limits.texts:
        raise Refused("too_large", f"{field} has {len(found)} texts; this server takes {limits.texts} a request")
    check_characters(found, field, limits)
    return found


def check_characters(found: Sequence[str], field: str, limits: Limits) -> None:
    count = sum(map(len, found))
    if count > limits.characters:
        raise Refused("too_large", f"{field} has {count} characters; this server takes {limits.characters} a request")
    for text in found:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Refused(
                "bad_request", f"{field} has half a surrogate pair at character {error.start}, which is no text"
            ) from None


def at_most(body: Any, limits: Mapping[str, int]) -> None:
    """Refuse a number below 1, or above what the server allows."""
    for name, most in limits.items():
        value = getattr(body, name)
        if value is not None and value < 1:
            raise ConfigError(f"{name}={value} must be at least 1")
        if value is not None and value > most:
            raise ConfigError(f"{name}={value} is more than this server allows: {most}")
