"""The application behind a socket, until a signal ends it."""

import asyncio
import gc
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from uvicorn.server import HANDLED_SIGNALS

from regard.errors import ConfigError, RegardError
from regard.serve.app import make_app
from regard.serve.connections import Door
from regard.serve.limits import Limits
from regard.serve.models import Runs

log = logging.getLogger("regard.serve")

LOCAL = ("localhost", "127.0.0.1", "[::1]")


def serve(
    runs: Runs,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    limits: Limits | None = None,
    api_keys: Sequence[str] = (),
    allow_origins: Sequence[str] = (),
    allow_hosts: Sequence[str] = (),
    device: str = "auto",
    precision: str = "auto",
    threads: int | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the runs at this address until SIGTERM or Ctrl-C; `ready` is told the URL once requests are taken.

    On this machine's own addresses only requests to them by name are answered, and those to `allow_hosts`. A model
    computes with as many CPU `threads`; without a number one is left for connections, and one computes a few rows.
    """
    limits = limits or Limits()
    bound = _bound(host, port)
    try:
        if _is_local(bound):
            allow_hosts = (*LOCAL, host, *allow_hosts)
        app = make_app(
            runs,
            limits=limits,
            api_keys=api_keys,
            allow_origins=allow_origins,
            allow_hosts=allow_hosts,
            device=device,
            precision=precision,
        )
        _share_the_cores(threads)
        if threads is not None:
            for served in app.state.models:
                if "translate" in served.run.task.methods:
                    served.run.translator.threads = threads

        def begun() -> None:
            if ready is not None:
                ready(_url(bound))
            if limits.body is None:
                most = f"{app.state.models.limits.body:,}"
                log.info("a request may have %s bytes, by what is served; --max-body says otherwise", most)

        server = Server(app, bound, limits, begun)
        # Not the loop that Windows would choose, which watches no socket for us.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(server.serve(sockets=[]))
    finally:
        bound.close()


class Server(uvicorn.Server):
    """Serves `app` through a door of its own on the socket `bound`; run it by `serve(sockets=[])`.

    It stops as told: no more requests, what runs is finished, and the process goes on to end by itself.
    """

    def __init__(self, app: Starlette, bound: socket.socket, limits: Limits, begun: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            access_log=False,
            log_config=None,
            server_header=False,
            ws="none",
            # What still runs after the grace is refused by the application first, in words.
            timeout_graceful_shutdown=int(limits.grace) + 2,
            timeout_keep_alive=limits.idle_timeout,  # type: ignore[arg-type]
            h11_max_incomplete_event_size=64 << 10,
        )
        super().__init__(config)
        self._models, self._limits, self._begun = app.state.models, limits, begun
        self._door = Door(bound, limits, app.state.metrics, app.state.models.refused)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._door.open(self.config, self.server_state, self.lifespan.state)
            self._begun()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._models.stop()
        await self._door.close()
        closing = asyncio.get_running_loop().run_in_executor(None, self._models.close, self._limits.grace)
        await super().shutdown(sockets)
        await closing

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but without raising the signal again in the end: to be stopped is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _share_the_cores(threads: int | None = None) -> None:
    """Leave connections their part of the machine, however busy a model is, where nothing is said of `threads`."""
    import torch

    torch.set_num_threads(threads or max(1, min(torch.get_num_threads(), (os.cpu_count() or 2) - 1)))
    # After this, a thread that computes gives way to one that has sent or received something: with Python's own 5 ms
    # the few words to be said to a thousand clients take many seconds.
    sys.setswitchinterval(0.0001)
    # What is here now stays: looking through all of it for garbage would stop everything for half a second at a time.
    gc.collect()
    gc.freeze()


def log_to_stderr() -> None:
    """One line per request, and what went wrong, on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    logger = logging.getLogger("regard.serve")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)


def is_local(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_local(bound: socket.socket) -> bool:
    return is_local(bound.getsockname()[0])


def _bound(host: str, port: int) -> socket.socket:
    """A socket at the address, before anything is loaded: it may be taken."""
    if not 0 <= port < 1 << 16:
        raise ConfigError(f"port={port} must be from 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise RegardError(f"cannot listen on {host}: {error.strerror or error}") from None
    try:
        # So that a server can be started again at once. Windows lets it, and would let others take the port over.
        option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise RegardError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None
    return bound


def _url(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
