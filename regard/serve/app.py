"""The ASGI application: routes to verbs, verbs to models, and every failure to one shape."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from regard.errors import RegardError
from regard.serve.bodies import parse
from regard.serve.gate import Gate
from regard.serve.jobs import Job
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.models import Models, Runs
from regard.serve.openapi import openapi
from regard.serve.pages import Pages
from regard.serve.pages import routes as page_routes
from regard.serve.refusals import Refused, ends_the_thread, json_answer, refusal
from regard.serve.routes import Endpoint, Exchange, endpoints
from regard.serve.streams import Listener, streamed
from regard.serve.waiting import answer, arrival, coming_bytes, most_bytes, read_body

LONG = 4096
"""Bytes of a request that is not worked on beside all others."""

log = logging.getLogger("regard.serve")


def make_app(
    runs: Runs,
    *,
    limits: Limits | None = None,
    api_keys: Sequence[str] = (),
    allow_origins: Sequence[str] = (),
    allow_hosts: Sequence[str] = (),
    device: str = "auto",
    precision: str = "auto",
) -> Starlette:
    """An ASGI application that serves these runs: to be run by any ASGI server, or mounted in another application.

    Without `api_keys` anyone who reaches it may ask; pages of `allow_origins` may ask from a browser. With
    `allow_hosts`, a request must name one of these hosts. Threads start with the first request.
    Runs that are given by directory are loaded to this `device` in this `precision`, as by `regard.load`.
    """
    limits, metrics = limits or Limits(), Metrics()
    asked = endpoints()
    models = Models(runs, asked, limits, metrics, device, precision)
    pages = Pages()
    answering = [Route(f"/v1/{name}", _answering(one, models, pages), methods=["POST"]) for name, one in asked.items()]
    routes = [*answering, *_about(models, metrics, asked.values()), *page_routes(pages, most_bytes(models.limits))]
    paths, full = [one.path for one in routes], partial(_full, models, asked)
    gate: dict[str, Any] = {"metrics": metrics, "routes": paths, "full": full}
    middleware = [Middleware(Gate, **gate, keys=tuple(api_keys), hosts=tuple(allow_hosts))]
    if allow_origins:
        asking = ["Authorization", "Content-Type", "X-API-Key"]
        middleware.append(
            Middleware(
                CORSMiddleware, allow_origins=list(allow_origins), allow_methods=["GET", "POST"], allow_headers=asking
            )
        )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(models.close, limits.grace)

    app = Starlette(
        routes=routes,
        middleware=middleware,
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_error, Refused: _refused, Exception: _bug},  # type: ignore[dict-item]
    )
    app.router.redirect_slashes = False
    app.state.models, app.state.metrics = models, metrics
    return app


def _full(models: Models, asked: Mapping[str, Endpoint], route: str) -> Refused | None:
    name = route.removeprefix("/v1/")
    return models.refused(name) if name in asked else None


def _answering(one: Endpoint, models: Models, pages: Pages) -> Callable[[Request], Awaitable[Response]]:
    async def answering(request: Request) -> Response:
        limits, secrets = models.limits, []

        def keep(page: str) -> str:
            return f"{request.scope.get('root_path', '')}/look/{pages.keep(page)}"

        try:
            with models.coming(limits.places(coming_bytes(request, limits))):
                raw = await read_body(request, limits)
                body, size = parse(one.body, raw, limits), len(raw)
                del raw  # while the request waits, the body's own values are enough
                served = models.find(body.model, one.name)
                request.state.model, secrets = served.name, served.secrets
                listener = Listener() if getattr(body, "stream", False) else None

                def made() -> Job:
                    asked, items = one.request(served.run, body, limits)
                    if listener is not None:
                        one.verb.check_stream(asked)
                    how = {"since": arrival(request), "places": limits.places(size)}
                    return Job(one.verb, served.run, asked, items, limits.timeout, listener, **how)

                # A long text takes a tokenizer some time, in which others can be answered.
                job = await run_in_threadpool(made) if size > LONG else made()
                served.worker.put(job)
            exchange = Exchange(served.name, body, job, keep)
            if listener is not None:
                shaped, last = one.stream(exchange)
                return streamed(request, job, listener, shaped, secrets=secrets, last=last)
            done = await answer(request, job)
            return json_answer(one.answer(exchange, done))
        except BaseException as error:
            if ends_the_thread(error):
                raise
            if not isinstance(error, (RegardError, Refused)):
                log.exception("%s failed", one.name)
            return json_answer(refusal(error, secrets))

    return answering


def _about(models: Models, metrics: Metrics, asked: Iterable[Endpoint]) -> list[Route]:
    async def health(request: Request) -> Response:
        return json_answer({"status": "ok"})

    async def ready(request: Request) -> Response:
        if models.stopping:
            return json_answer(Refused("stopping", "the server is stopping"))
        return json_answer({"status": "ready"})

    async def listed(request: Request) -> Response:
        return json_answer({"object": "list", "data": [one.record() for one in models]})

    async def counted(request: Request) -> Response:
        return PlainTextResponse(metrics.text(models.waiting()), media_type="text/plain; version=0.0.4")

    async def described(request: Request) -> Response:
        return json_answer(openapi(asked, models.limits))

    return [
        Route("/openapi.json", described),
        Route("/health", health),
        Route("/ready", ready),
        Route("/v1/models", listed),
        Route("/metrics", counted),
    ]


async def _http_error(request: Request, error: HTTPException) -> Response:
    kinds = {404: "not_found", 405: "method_not_allowed"}
    kind = kinds.get(error.status_code, "bad_request")
    said = {
        "not_found": "there is nothing at this address; GET /v1/models says what is served",
        "method_not_allowed": f"this address does not take {request.method[:10]}",
    }
    return json_answer(Refused(kind, said.get(kind, str(error.detail)), error.headers))


async def _refused(request: Request, error: Refused) -> Response:
    return json_answer(error)


async def _bug(request: Request, error: Exception) -> Response:
    return json_answer(refusal(error))
