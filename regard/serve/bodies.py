"""What a request says, from JSON to a checked dataclass: every complaint names its field."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

from regard import config as settings
from regard.errors import nearest
from regard.serve.limits import Limits
from regard.serve.refusals import Refused
from regard.tasks.verbs import Verb
from regard.tasks.verbs.spec import bounds

Body = TypeVar("Body")


def parse(kind: type[Body], raw: bytes, limits: Limits) -> Body:
    """The body as `kind`. Unknown fields are refused, and the nearest known one named; so are numbers out of bounds."""
    mapping = _json(raw)
    known = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in mapping:
        if name in getattr(kind, "NOT_SERVED", ()):
            raise Refused("bad_request", f"field '{name}' is not served: leave it out")
        if name not in known:
            raise Refused("bad_request", f"unknown field '{name}'{nearest(name, known)}")
    for name, field in known.items():
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and name not in mapping:
            raise Refused("bad_request", f"missing field '{name}'")
    body = settings.from_mapping(kind, mapping)
    for name, between in bounds(kind).items():
        if isinstance(value := getattr(body, name), int | float):  # not where it is left out, or `none`
            between.check(name, value, limits)
    return body


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


def body_of(verb: Verb) -> type[Any]:
    """A verb's request with the name of a model beside it and, where it has pieces, whether to stream them."""
    hints = get_type_hints(verb.request, include_extras=True)
    own: list[Any] = [(one.name, hints[one.name], _again(one)) for one in dataclasses.fields(verb.request)]
    own.append(("model", str | None, dataclasses.field(default=None)))
    if verb.piece is not None:
        own.append(("stream", bool, dataclasses.field(default=False)))
    return dataclasses.make_dataclass(f"{verb.request.__name__}Body", own, frozen=True, kw_only=True)


def _again(one: dataclasses.Field[Any]) -> Any:
    return dataclasses.field() if one.default is dataclasses.MISSING else dataclasses.field(default=one.default)


def request_of(verb: Verb, body: object) -> Any:
    """What a body says of the request itself."""
    return verb.request(**{one.name: getattr(body, one.name) for one in dataclasses.fields(verb.request)})
