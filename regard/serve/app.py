"""The ASGI application: routes to verbs, verbs to models, and every failure to one shape."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
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
from regard.serve.streams import Listener, streamed
from regard.serve.verbs import VERBS
from regard.serve.verbs.verb import Verb
from regard.serve.waiting import answer, arrival, read_body

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
) -> Starlette:
    """An ASGI application that serves these runs: to be run by any ASGI server, or mounted in another application.

    Without `api_keys` anyone who reaches it may ask; pages of `allow_origins` may ask from a browser. With
    `allow_hosts`, a request must name one of these hosts. Threads start with the first request.
    """
    limits, metrics = limits or Limits(), Metrics()
    models = Models(runs, limits, metrics, device)
    pages = Pages()
    routes = [*_verbs(models, pages), *_about(models, metrics), *page_routes(pages)]
    gate: dict[str, Any] = {"metrics": metrics, "routes": [one.path for one in routes], "full": partial(_full, models)}
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


def _full(models: Models, route: str) -> Refused | None:
    verb = route.removeprefix("/v1/")
    return models.refused(verb) if verb in VERBS else None


def _verbs(models: Models, pages: Pages) -> list[Route]:
    return [Route(f"/v1/{name}", _endpoint(verb, models, pages), methods=["POST"]) for name, verb in VERBS.items()]


def _endpoint(verb: Verb, models: Models, pages: Pages) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        limits, secrets = models.limits, []
        try:
            with models.coming():
                raw = await read_body(request, limits)
                body = parse(verb.body, raw, limits)
                served = models.find(body.model, verb.name)
                request.state.model, secrets = served.name, served.secrets
                # A long text takes a tokenizer some time, in which others can be answered.
                making = partial(verb.work, served.run, body, limits)
                work = await run_in_threadpool(making) if len(raw) > LONG else making()
                listener = Listener() if getattr(body, "stream", False) else None
                job = Job(work, limits.timeout, listener, since=arrival(request))
                served.worker.put(job)
            if listener is not None:
                shaped, last = verb.stream(served.name, body, work)
                return streamed(request, job, listener, shaped, secrets=secrets, last=last)
            done = await answer(request, job)
        except BaseException as error:
            if ends_the_thread(error):
                raise
            if not isinstance(error, (RegardError, Refused)):
                log.exception("%s failed", verb.name)
            return json_answer(refusal(error, secrets))
        found = verb.answer(served.name, body, work, done)
        if done.page is not None:
            found = {**found, "url": f"{request.scope.get('root_path', '')}/look/{pages.keep(done.page)}"}
        return json_answer(found)

    return endpoint


def _about(models: Models, metrics: Metrics) -> list[Route]:
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
        return json_answer(openapi(models.limits))

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
