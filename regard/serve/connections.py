"""Connections: how many there may be, how long one may keep silent, and how it ends without losing an answer."""

import asyncio
import ctypes
import logging
import os
import re
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from regard.errors import RegardError
from regard.serve.gate import HEADERS
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.refusals import Refused, dumped

BACKLOG, AT_ONCE = 2048, 64
"""Connections that the kernel may keep for us, and those taken from it before others get their turn."""

SPARE = 64
"""Open files that are left for other things than connections, half of them for refusing connections."""

SELECTED = 512
"""Sockets that Windows watches at a time."""

LINGER = 1.0
"""Seconds for which a connection is read after our last word: closed sooner, what is unread would destroy that word."""

STALLED = 10.0
"""Seconds in which some of what is left of an answer must be taken."""

SETTLED = 1.0
"""Seconds without a request after which a connection may be closed to make room for another."""

QUIET = 0.05
"""Seconds without a word after which a client that has connected is one that has nothing to ask yet."""

DRAIN = 0.5
"""Seconds for requests that are on their way when the server stops."""

HANDSHAKE = 0.1
"""Seconds for those who have begun to connect when the server stops."""

SO_ATTACH_FILTER = 26
"""The option of a Linux socket by which a filter sees its packets first."""

log = logging.getLogger("regard.serve")


def most_connections(limits: Limits) -> int:
    """As many as the limits say, or as fit beside the files that this process has open."""
    try:
        import resource
    except ImportError:  # on Windows
        return min(limits.connections, SELECTED - SPARE)
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return limits.connections
    try:
        used = len(os.listdir("/dev/fd"))
    except OSError:  # there are systems without
        used = SPARE
    room = allowed - used - SPARE
    if room < 1:
        raise RegardError(f"this process may open {allowed} files, too few to serve: raise the limit (ulimit -n)")
    return min(limits.connections, room)


def take_no_more(listening: socket.socket) -> bool:
    """Let nobody begin to connect, while those who have begun may finish; whether this system can do that.

    The kernel resets whoever is connected when a listening socket is closed before it was accepted, and one may come
    between the last look and the closing. So those who begin to connect are left unanswered here, by a packet filter on
    the socket, until it is closed; their next attempt, a second later, is refused.
    """
    if sys.platform != "linux":
        return False
    drop_new = [
        (0x30, 0, 0, 13),  # load the byte with the flags of the TCP header
        (0x45, 0, 1, 0x02),  # if SYN is set,
        (0x06, 0, 0, 0),  # drop the packet,
        (0x06, 0, 0, 0xFFFFFFFF),  # else let it pass
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in drop_new))
    program = struct.pack("HP", len(drop_new), ctypes.addressof(code))
    try:
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    except OSError:
        return False
    return True


class Door:
    """Lets connections in through a listening socket. Where there is no room, the one idle for longest makes some.

    `refusing(task)` says why nothing can be taken for it now, if so.
    """

    def __init__(
        self, bound: socket.socket, limits: Limits, metrics: Metrics, refusing: Callable[[str], Refused | None]
    ) -> None:
        self.refusing, self._unread = refusing, 0
        self.limits, self.closed, self.most = limits, False, most_connections(limits)
        self._bound, self._metrics = bound, metrics
        self._inside: set[Connection] = set()
        self._refusing, self._complained = 0, -1e9
        self._entering: set[asyncio.Task[Any]] = set()

    def open(self, config: uvicorn.Config, state: ServerState, app_state: dict[str, Any]) -> None:
        """Let connections in from now on."""
        self._loop = asyncio.get_running_loop()
        self._made = lambda: Connection(config, state, app_state, door=self)
        self._bound.setblocking(False)
        self._bound.listen(BACKLOG)
        self._loop.add_reader(self._bound, self._let_in)

    async def close(self) -> None:
        """Take what has come, and no more: nobody who was connected is cut off without a word."""
        if self.closed:
            return
        self.closed = True
        if take_no_more(self._bound):
            await asyncio.sleep(HANDSHAKE)
        else:
            self._bound.listen(0)
        self._loop.remove_reader(self._bound)
        while self._let_in():
            pass
        self._bound.close()
        if self._entering:
            await asyncio.wait(self._entering)

    def left(self, connection: "Connection") -> None:
        self._inside.discard(connection)

    def refused_unread(self, task: str, refused: Refused, seconds: float) -> None:
        """Count it, and say once per second how many there were: a line for each would keep the others waiting."""
        self._metrics.request(f"/v1/{task}", refused.status, seconds)
        if not self._unread:
            self._loop.call_later(1.0, self._say_unread)
        self._unread += 1

    def _say_unread(self) -> None:
        log.info("%d requests were refused unread: the queue is full", self._unread)
        self._unread = 0

    def left_refused(self) -> None:
        self._refusing -= 1

    def _let_in(self) -> bool:
        """Some of those that wait; whether there may be more."""
        for _ in range(AT_ONCE):
            try:
                accepted, _ = self._bound.accept()
            except (BlockingIOError, InterruptedError):
                return False
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._complain(f"cannot take a connection: {error.strerror}")
                if not self.closed:
                    self._loop.remove_reader(self._bound)
                    self._loop.call_later(1.0, self._again)
                return False
            accepted.setblocking(False)
            self._place(accepted)
        return True

    def _again(self) -> None:
        if not self.closed:
            self._loop.add_reader(self._bound, self._let_in)

    def _place(self, accepted: socket.socket) -> None:
        protocol: asyncio.Protocol
        if len(self._inside) < self.most or self._make_room():
            protocol = self._made()
            self._inside.add(protocol)
        else:
            self._metrics.refused_connection()
            self._complain(f"{len(self._inside)} connections are open and busy, as many as there may be: refusing more")
            if self._refusing >= SPARE // 2:
                accepted.close()
                return
            protocol = TooMany(self)
            self._refusing += 1
        entering = self._loop.create_task(self._loop.connect_accepted_socket(lambda: protocol, accepted))
        self._entering.add(entering)
        entering.add_done_callback(self._entering.discard)

    def _make_room(self) -> bool:
        """Close the connection that has been idle for longest; whether there was one."""
        settled = time.monotonic() - SETTLED
        idle = sorted((one for one in self._inside if one.idle_since < settled), key=lambda one: one.idle_since)
        for one in idle:
            if not one.has_spoken():
                self._inside.discard(one)
                one.transport.abort()
                return True
        return False

    def _complain(self, message: str) -> None:
        """Once in ten seconds: the same happens to very many in a short time."""
        if time.monotonic() - self._complained > 10:
            self._complained = time.monotonic()
            log.warning(message)


class Connection(H11Protocol):
    """HTTP as uvicorn speaks it, with an end to every silence.

    The head of a request must come within `header_timeout` seconds, counted from where the connection was accepted or
    the request began; between requests there may be `idle_timeout` seconds; and an answer must be read.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        door: Door,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._door, self._shared = door, app_state
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._arrived()

    @property
    def idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def idle_since(self) -> float:
        """The moment of the last word, or of the first of a request that is still to come; for ever if at work."""
        return self._since if self.idle and self.transport is not None else float("inf")

    def has_spoken(self) -> bool:
        """Whether something has come that is still to be read: a loop that is late is not the client's silence."""
        with getattr(selectors, "PollSelector", selectors.SelectSelector)() as selector:  # these open no file
            selector.register(self.transport.get_extra_info("socket").fileno(), selectors.EVENT_READ)
            return bool(selector.select(0))

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(Lingering(transport, self.loop))  # type: ignore[arg-type]
        self._head = True
        self._spoke = False
        # The first request counts from here. Only of a client that kept silent, while others were heard, it counts
        # from its first word: what is ready to be read comes before a timer, however late the loop is.
        self.loop.call_later(QUIET, self._silent)
        if self._door.closed:
            self.shutdown()
        else:
            self._wait(self._door.limits.header_timeout, self._too_slow)

    def _silent(self) -> None:
        if not self._spoke:
            self._head = False

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._wait(None)
        self._stop_stalling()
        self._door.left(self)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # there will be no answer to it
        self._spoke = True
        if self.idle and not self._head:
            self._arrived()
            self._head = True
            if not self._door.closed:
                self._wait(self._door.limits.header_timeout, self._too_slow)
        if not self._refused_unread(data):
            super().data_received(data)

    def _refused_unread(self, data: bytes) -> bool:
        """Refuse a request by its route alone where nothing can be taken there now; whether that was done."""
        if not self.idle or self.conn.our_state is not h11.IDLE or self.conn.trailing_data[0]:
            return False  # of this request, or of the one before it, something was read before
        task = whole_request(data)
        refused = None if task is None else self._door.refusing(task)
        if task is None or refused is None or "Connection" in refused.headers:
            return False
        self._head = False
        self._wait(None)
        self.transport.write(whole_answer(refused, close=False))
        self._door.refused_unread(task, refused, time.monotonic() - self._since)
        self.on_response_complete()
        return True

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._head = False
            self._wait(None)
            if self._door.closed:
                self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        self._arrived()
        super().on_response_complete()

    def shutdown(self) -> None:
        """As uvicorn asks for: finish, and end. A request may be on its way, so silence is not the end at once."""
        if self.idle:
            self._wait(DRAIN, self.transport.close)
        else:
            self.cycle.keep_alive = False

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_stall(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stalling()

    def _arrived(self) -> None:
        """A request counts its time from here on."""
        self._since = time.monotonic()
        self.app_state = {**self._shared, "arrived": self._since}

    def _wait(self, seconds: float | None, then: Callable[[], Any] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None or then is None else self.loop.call_later(seconds, then)

    def _too_slow(self) -> None:
        if self.conn.trailing_data[0] and self.idle and not self.transport.is_closing():
            seconds = self._door.limits.header_timeout
            message = f"the head of the request did not come within {seconds:g} seconds"
            self.transport.write(whole_answer(Refused("slow_request", message)))
        self.transport.close()

    def _watch_stall(self, size: int) -> None:
        self._stall = self.loop.call_later(STALLED, self._stalled, size)

    def _stalled(self, before: int) -> None:
        size = self.transport.get_write_buffer_size()
        if size < before:
            self._watch_stall(size)
        else:
            self.transport.abort()

    def _stop_stalling(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None


class TooMany(asyncio.Protocol):
    """A connection for which there is no room: whatever it asks is unread, and answered with 503."""

    def __init__(self, door: Door) -> None:
        self._door, self._said = door, False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(LINGER, transport.abort)

    def data_received(self, data: bytes) -> None:
        if not self._said:
            self._said = True
            message = f"{self._door.most} connections are open already; try again soon"
            self._transport.write(whole_answer(Refused("busy", message, {"Retry-After": "1"})))
            self._transport.write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._door.left_refused()


class Lingering:
    """A transport whose `close` says that we are done, and goes when the other side is, or after `LINGER` seconds.

    An answer's parts are sent together: beside a thread that computes, every call to the kernel costs a wait.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop, self._closing = transport, loop, False
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._closing or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        if self._closing:
            return
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)

    def _send(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            self._transport.write(b"".join(parts))

    def close(self) -> None:
        if self.is_closing():
            return
        self._closing = True
        self._send()
        self._transport.write_eof()
        self._transport.resume_reading()
        self._loop.call_later(LINGER, self._end, None)

    def _end(self, before: int | None) -> None:
        """Let go, once all is sent or the other side no longer takes any of it."""
        size = self._transport.get_write_buffer_size()
        if not size:
            self._transport.close()
        elif before is None or size < before:
            self._loop.call_later(STALLED, self._end, size)
        else:
            self._transport.abort()


# A head of the usual form, its one length, and what asks for more than to be read to its end.
HEAD = re.compile(rb"POST /v1/([a-z/]+) HTTP/1\.1\r\n(?:[!-9;-~]+:[^\r\n\0]*\r\n)+\r\n")
LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]{1,7}) *(?=\r\n)")
SPECIAL = re.compile(rb"\r\n(?:transfer-encoding|expect|upgrade|connection:(?! *keep-alive *\r))")


def whole_request(data: bytes) -> str | None:
    """The task of a request of the usual form that is here from end to end; what others are, h11 must find out."""
    head = HEAD.match(data)
    if head is None:
        return None
    said = head[0].lower()
    lengths = LENGTH.findall(said)
    if len(lengths) != 1 or said.count(b"\r\ncontent-length") != 1 or SPECIAL.search(said):
        return None
    return head[1].decode() if head.end() + int(lengths[0]) == len(data) else None


def whole_answer(refused: Refused, *, close: bool = True) -> bytes:
    """A refusal as it goes over the wire; with `close`, nothing comes after it."""
    body = dumped(refused.record())
    headers = {**HEADERS, **refused.headers, "Content-Type": "application/json", "Content-Length": str(len(body))}
    lines = [f"HTTP/1.1 {refused.status} {refused.kind}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, *["Connection: close"] * close, "", ""]).encode() + body
