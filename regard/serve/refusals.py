"""Everything that goes wrong as one JSON shape: {"error": {"kind": ..., "message": ...}}, with its HTTP status."""

import asyncio
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.responses import Response

from regard.config import JsonObject
from regard.errors import ConfigError, DataError, RegardError, RunError, TooLarge

LONGEST = 400
"""Characters of a message: it may quote what was sent."""

STATUS = {
    "bad_request": 400,
    "unauthorized": 401,
    "wrong_host": 403,
    "not_found": 404,
    "unknown_model": 404,
    "method_not_allowed": 405,
    "slow_request": 408,
    "too_large": 413,
    "not_json": 415,
    "unusable_input": 422,
    "wrong_model": 422,
    "client_gone": 499,
    "internal": 500,
    "out_of_memory": 500,
    "busy": 503,
    "stopping": 503,
    "timeout": 504,
}


class Refused(Exception):
    """A request that is not answered, and why, in words that may leave the machine."""

    def __init__(self, kind: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.kind, self.message, self.headers = kind, _short(message), dict(headers or {})

    @property
    def status(self) -> int:
        return STATUS[self.kind]

    def record(self) -> JsonObject:
        return {"error": {"kind": self.kind, "message": self.message}}


def ends_the_thread(error: BaseException) -> bool:
    """Whether it tells a thread to end. All else went wrong with a request: a tokenizer's panic is no `Exception`."""
    return isinstance(error, (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit))


def refusal(error: BaseException, secrets: Iterable[tuple[str, str]] = ()) -> Refused:
    """What a client is told of an error. `secrets` are words of the server's own with what to say instead."""
    if isinstance(error, Refused):
        return error
    if _out_of_memory(error):
        return Refused("out_of_memory", "the machine has too little memory for this request: send less at a time")
    if not isinstance(error, RegardError):
        return Refused("internal", "the server failed on this request; its log says why")
    message = str(error)
    for word, instead in secrets:
        message = message.replace(word, instead)
    kinds = {ConfigError: "bad_request", TooLarge: "too_large", DataError: "unusable_input", RunError: "wrong_model"}
    return Refused(next((name for kind, name in kinds.items() if isinstance(error, kind)), "unusable_input"), message)


def _out_of_memory(error: BaseException) -> bool:
    # torch.OutOfMemoryError by its name, so that an error can be told without torch; a CPU's comes as RuntimeError.
    named = type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError)
    return named or (isinstance(error, RuntimeError) and "not enough memory" in str(error))


def _short(message: str) -> str:
    message = message.encode("utf-8", "backslashreplace").decode()
    return message if len(message) <= LONGEST else f"{message[: LONGEST // 2]} ... {message[-LONGEST // 2 :]}"


def dumped(value: object) -> bytes:
    """JSON as UTF-8. What is no number in JSON, such as the logarithm of nothing, is null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The value, or a refusal with its own status."""
    if isinstance(value, Refused):
        return json_answer(value.record(), value.status, {**value.headers, **(headers or {})})
    return Response(dumped(value), status, dict(headers or {}), "application/json")


def _finite(value: object) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, (list, tuple)) else value
