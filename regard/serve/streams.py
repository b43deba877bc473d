"""An answer that is sent while it is written: server-sent events."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from regard.serve.jobs import Done, Job
from regard.serve.refusals import Refused, dumped, refusal
from regard.serve.routes import Shaped
from regard.serve.waiting import late, left

Fresh = list[Any]
"""Pieces of an answer that have come."""


class Listener:
    """Hears from a worker's thread, and is asked in the event loop's."""

    def __init__(self) -> None:
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Queue[Fresh]()

    def __call__(self, fresh: Fresh) -> None:
        # A loop that has closed has nobody left to tell.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.put_nowait, fresh)

    async def next(self) -> Fresh:
        return await self._news.get()

    def rest(self) -> Fresh:
        return [one for _ in range(self._news.qsize()) for one in self._news.get_nowait()]


def streamed(
    request: Request,
    job: Job,
    listener: Listener,
    shaped: Shaped,
    *,
    secrets: Iterable[tuple[str, str]] = (),
    last: str | None = None,
) -> StreamingResponse:
    """Events as the job goes on: `data:` lines of JSON, an `event: error` if it fails, and `last` at the very end."""

    async def events() -> AsyncIterator[bytes]:
        try:
            async for one in _outcome(request, job, listener):
                for value in shaped(one):
                    yield b"data: " + dumped(value) + b"\n\n"
            if last is not None:
                yield f"data: {last}\n\n".encode()
        except Exception as error:
            said = refusal(error, secrets)
            yield b"event: error\ndata: " + dumped(said.record()) + b"\n\n"
        finally:
            job.cancel()

    return StreamingResponse(events(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def _outcome(request: Request, job: Job, listener: Listener) -> AsyncIterator[Fresh | Done]:
    done = asyncio.wrap_future(job.future)
    leaving = asyncio.ensure_future(left(request))
    news = asyncio.ensure_future(listener.next())
    try:
        while not done.done():
            remaining = job.deadline - time.monotonic()
            await asyncio.wait({done, leaving, news}, timeout=max(0.0, remaining), return_when="FIRST_COMPLETED")
            if news.done():
                yield news.result()
                news = asyncio.ensure_future(listener.next())
            elif leaving.done():
                raise Refused("client_gone", "the client has gone")
            elif not done.done():
                raise late(job)
        if rest := ([*news.result()] if news.done() else []) + listener.rest():
            yield rest
        yield done.result()
    finally:
        for one in (done, leaving, news):
            one.cancel()
