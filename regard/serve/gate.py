"""Around every request: whether it may come in, what its answer must carry, and one line in the log."""

import hmac
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from regard.serve.metrics import Metrics
from regard.serve.refusals import Refused, json_answer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/", "/health", "/ready")
"""What anyone may see who can reach the server at all; and pages under /look/, whose names cannot be guessed."""

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
}

log = logging.getLogger("regard.serve.access")


class Gate:
    """An ASGI application around another. `keys` and `hosts` are checked where there are any.

    `full(route)` says why nothing can be taken there now; then nothing of a request is read but its head.
    """

    def __init__(
        self,
        app: App,
        *,
        metrics: Metrics,
        routes: Sequence[str],
        keys: Sequence[str],
        hosts: Sequence[str],
        full: Callable[[str], Refused | None],
    ) -> None:
        self.app, self.metrics, self.routes = app, metrics, frozenset(routes)
        self.keys = [key.encode() for key in keys]
        self.hosts = frozenset(host.lower() for host in hosts)
        self.full = full

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, name = time.monotonic(), 500, uuid.uuid4().hex[:12]
        route = self._route(scope)

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for key, value in HEADERS.items():
                    headers.setdefault(key, value)
                headers["X-Request-ID"] = name
            await send(message)

        try:
            refused = self._refused(scope, route)
            await (self.app if refused is None else refused)(scope, receive, sending)
        finally:
            seconds = time.monotonic() - began
            self.metrics.request(route, status, seconds)
            # The route, never the path or the query as sent: there is no text of a user in this line.
            client = scope["client"][0] if scope.get("client") else "-"
            model = scope.get("state", {}).get("model", "-")
            milliseconds = f"{1000 * seconds:.1f}ms"
            log.info("%s %s %s %d %s %s %s", client, _method(scope), route, status, milliseconds, model, name)

    def _route(self, scope: Scope) -> str:
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        return path if path in self.routes else "/look/{id}" if path.startswith("/look/") else "(none)"

    def _refused(self, scope: Scope, route: str) -> Response | None:
        headers = Headers(scope=scope)
        if self.hosts and _host(headers.get("host", "")) not in self.hosts:
            # Someone else's name may be made to lead here, so that their page counts as ours.
            message = "this server does not answer to the host name of this request: start it with --allow-host"
            return json_answer(Refused("wrong_host", message))
        if not self._has_key(headers, scope, route):
            message = "this server needs a key: send the header Authorization: Bearer KEY"
            return json_answer(Refused("unauthorized", message, {"WWW-Authenticate": "Bearer"}))
        refused = self.full(route) if scope["method"] == "POST" else None
        return None if refused is None else json_answer(refused)

    def _has_key(self, headers: Headers, scope: Scope, route: str) -> bool:
        if not self.keys or route in OPEN or route == "/look/{id}" or scope["method"] == "OPTIONS":
            return True
        bearer = headers.get("authorization", "")
        sent = bearer[7:] if bearer[:7].lower() == "bearer " else headers.get("x-api-key", "")
        return any(hmac.compare_digest(sent.strip().encode(), key) for key in self.keys)


def _host(value: str) -> str:
    """The name without the port."""
    name = value.lower().partition("]")[0] + "]" if value.startswith("[") else value.lower().partition(":")[0]
    return name


def _method(scope: Scope) -> str:
    known = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
    return scope["method"] if scope["method"] in known else "(other)"
