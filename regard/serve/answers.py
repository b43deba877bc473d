"""Answers as JSON."""

import json
import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from regard.serve.refusals import Refused


def dumped(value: Any) -> bytes:
    """JSON as UTF-8. What is no number in JSON, such as the logarithm of nothing, is null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The value, or a refusal with its own status."""
    if isinstance(value, Refused):
        return json_answer(value.record(), value.status, {**value.headers, **(headers or {})})
    return Response(dumped(value), status, dict(headers or {}), "application/json")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, (list, tuple)) else value
