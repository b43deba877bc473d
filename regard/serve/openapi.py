"""GET /openapi.json: routes and fields, for tools that make clients. It is made from what requests are checked by."""

import dataclasses
import types
from collections.abc import Iterable
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import regard
from regard.config import JsonObject
from regard.serve.limits import Limits
from regard.serve.routes import Endpoint, results
from regard.tasks.verbs import Between
from regard.tasks.verbs.spec import bounds

ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"kind": {"type": "string"}, "message": {"type": "string"}},
            "required": ["kind", "message"],
        }
    },
    "required": ["error"],
}
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
ABOUT = {
    "/v1/models": "What is served.",
    "/health": "Whether the process lives.",
    "/ready": "Whether requests are taken.",
    "/metrics": "Counts for Prometheus.",
}


def openapi(endpoints: Iterable[Endpoint], limits: Limits) -> JsonObject:
    """The whole description."""
    refused = {"description": "What went wrong.", "content": {"application/json": {"schema": ERROR}}}
    paths: JsonObject = {}
    for one in endpoints:
        body = {"required": True, "content": {"application/json": {"schema": schema(one.body, limits)}}}
        found = {"description": "The answer.", "content": {"application/json": {"schema": _answered(one)}}}
        responses = {"200": found, "default": refused}
        paths[f"/v1/{one.name}"] = {"post": {"summary": one.about, "requestBody": body, "responses": responses}}
    for path, about in ABOUT.items():
        paths[path] = {"get": {"summary": about, "responses": {"200": {"description": about}, "default": refused}}}
    return {"openapi": "3.1.0", "info": {"title": "regard", "version": regard.__version__}, "paths": paths}


def schema(kind: type[Any], limits: Limits) -> JsonObject:
    """The fields of a request, and the bounds of their numbers: no others are taken."""
    hints, fields, between = get_type_hints(kind), dataclasses.fields(kind), bounds(kind)
    return {
        "type": "object",
        "properties": {
            field.name: _bounded(_typed(hints[field.name]), between.get(field.name), limits) for field in fields
        },
        "required": [field.name for field in fields if field.default is dataclasses.MISSING],
        "additionalProperties": False,
    }


def _answered(one: Endpoint) -> JsonObject:
    """What comes back: results of the verb, where its own shape is sent."""
    if one.answer is not results or not dataclasses.is_dataclass(one.verb.result):
        return {"type": "object"}
    several = {"type": "array", "items": _result(one.verb.result)}
    fields = {"model": {"type": "string"}, "results": several}
    return {"type": "object", "properties": fields, "required": list(fields)}


def _result(kind: object) -> JsonObject:
    if not dataclasses.is_dataclass(kind):
        return _typed(kind)
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if not field.metadata.get("unsaid")]
    return {"type": "object", "properties": {name: _typed(hints[name]) for name in names}, "required": names}


def _bounded(found: JsonObject, between: Between | None, limits: Limits) -> JsonObject:
    if between is None:
        return found
    if "anyOf" in found:
        kinds = [one for inner in found["anyOf"] for one in [_bounded(inner, between, limits)]]
        return {"anyOf": [one for kind in kinds for one in kind.get("anyOf", [kind])]}
    if found.get("type") not in ("integer", "number"):
        return found
    bounded = {**found, "minimum": between.least, "maximum": between.greatest(limits)}
    return {"anyOf": [{"const": 0}, bounded]} if between.or_zero else bounded


def _typed(kind: object) -> JsonObject:
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_typed(one) for one in inside]}
    if origin is Literal:
        return {"enum": list(inside)}
    if origin in (tuple, list):
        return {"type": "array", "items": _typed(inside[0])}
    if dataclasses.is_dataclass(kind):
        return _result(kind)
    return {"type": "object"} if origin is dict else {}
