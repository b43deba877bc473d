"""A request between arrival and answer: it waits for a model, for its deadline, and for its sender to leave."""

import asyncio
import time
from contextlib import suppress

from starlette.requests import ClientDisconnect, Request

from regard.serve.jobs import Done, Job
from regard.serve.limits import PLACE, Limits
from regard.serve.refusals import Refused


def arrival(request: Request) -> float:
    """When the request came: where the connection was accepted, if the server beneath says that."""
    if not hasattr(request.state, "arrived"):
        request.state.arrived = time.monotonic()
    return request.state.arrived


def most_bytes(limits: Limits) -> int:
    """The most bytes of a request: as said, or as what is served has decided."""
    return PLACE if limits.body is None else limits.body


def coming_bytes(request: Request, limits: Limits) -> int:
    """How many bytes the body will have, at the most."""
    length = request.headers.get("content-length", "")
    return min(int(length), most_bytes(limits)) if length.isdecimal() else most_bytes(limits)


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body, as much of it as is allowed, before the request's deadline."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # A page elsewhere can make a browser send other types without asking first.
        raise Refused("not_json", "the body must be JSON: send the header Content-Type: application/json")
    most = most_bytes(limits)
    message = f"the body has more than {most:,} bytes (--max-body)"
    too_large = Refused("too_large", message, {"Connection": "close"})
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(arrival(request) + limits.timeout - time.monotonic()):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise too_large
    except TimeoutError:
        message = f"the body did not come within {limits.timeout:g} seconds"
        raise Refused("slow_request", message, {"Connection": "close"}) from None
    except ClientDisconnect:
        raise Refused("client_gone", "the client has gone") from None
    return bytes(body)


async def left(request: Request) -> None:
    """Returns when the client has gone: once the body is read, nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def answer(request: Request, job: Job) -> Done:
    """What became of the job, or why nothing did."""
    done = asyncio.wrap_future(job.future)
    leaving = asyncio.ensure_future(left(request))
    try:
        await asyncio.wait({done, leaving}, timeout=job.deadline - time.monotonic(), return_when="FIRST_COMPLETED")
        if done.done():
            return done.result()
        if leaving.done():
            raise Refused("client_gone", "the client has gone")
        raise late(job)
    finally:
        job.cancel()
        done.cancel()
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            await leaving


def late(job: Job) -> Refused:
    return Refused("timeout", f"no answer within {job.deadline - job.since:g} seconds")
