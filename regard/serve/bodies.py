"""What a request says, from JSON to a checked dataclass: every complaint names its field."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar, get_type_hints

from regard import config as settings
from regard.errors import ConfigError, nearest
from regard.serve.limits import Limits
from regard.serve.refusals import Refused

Body = TypeVar("Body")


@dataclasses.dataclass(frozen=True, slots=True)
class Between:
    """The least and the most that a number of a request may be: declared once, checked here and told by the schema.

    `most` may name one of the server's limits. With `or_zero`, 0 is taken too, below the least; `instead` is what is
    said of any other number.
    """

    least: int | float
    most: int | float | str
    or_zero: bool = False
    instead: str = ""

    def greatest(self, limits: Limits) -> int | float:
        return getattr(limits, self.most) if isinstance(self.most, str) else self.most

    def check(self, name: str, value: int | float, limits: Limits) -> None:
        most = self.greatest(limits)
        if self.least <= value <= most or (self.or_zero and value == 0):
            return
        if self.instead:
            raise ConfigError(f"{name}={value} {self.instead}")
        if value < self.least:
            raise ConfigError(f"{name}={value} must be {'0, or ' if self.or_zero else ''}at least {self.least}")
        raise ConfigError(f"{name}={value} is more than this server allows: {most}")


Temperature = Annotated[float | None, Between(0.001, 1000.0)]
TemperatureOrZero = Annotated[float | None, Between(0.001, 1000.0, or_zero=True)]
TopK = Annotated[int | None, Between(1, 1 << 31)]
TopP = Annotated[float | None, Between(1e-6, 1.0)]
Seed = Annotated[int | None, Between(0, (1 << 63) - 1)]
LengthPenalty = Annotated[float | None, Between(0.0, 10.0)]
Beam = Annotated[int | None, Between(1, "beam")]
Tokens = Annotated[int | None, Between(1, "tokens")]


@cache
def bounds(kind: type[Any]) -> dict[str, Between]:
    """The bounds of each field that has some."""
    hints = get_type_hints(kind, include_extras=True).items()
    return {name: one for name, hint in hints for one in getattr(hint, "__metadata__", ()) if isinstance(one, Between)}


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


def check_budget(limits: Limits, rows: int, length: int, said: str) -> None:
    """Refuse what would keep a model for too long: so many rows, of such a length."""
    if rows * length > limits.budget:
        raise Refused(
            "too_large",
            f"{said} may take {rows * length} tokens; this server writes {limits.budget} a request: "
            "send fewer texts at a time, or ask for a smaller beam or length",
        )
