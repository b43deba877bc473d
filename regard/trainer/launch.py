"""Start the processes that train one run on this machine, watch over them, and end all when one fails.

The short form of `torchrun --nproc-per-node N -m regard train`, with one line where torchrun prints a page. Imports no
torch: each process does that for itself.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any

from regard.errors import ProcessLost

GRACE = 15.0
"""Seconds that the others have to end by themselves after one process has failed; then they are ended."""

REGARD = (sys.executable, "-m", "regard")

STOPPED = 130
"""The exit code of a process that was asked to stop, and has saved."""


def launch(world: int, arguments: Sequence[str], after: str = "", python: Sequence[str] = REGARD) -> int:
    """Run `regard` with these arguments in so many processes, and return the exit code of the first.

    Raises ProcessLost where the first could not say itself what went wrong; `after` is what to do then.
    """
    command, port = [*python, *arguments], _free_port()
    started = [_start(rank, world, command, port) for rank in range(world)]
    try:
        with _forwarded(started):
            codes = _watched(started)
    finally:
        for process in started:
            with suppress(OSError):
                process.kill()
            process.wait()
    if codes[0] is not None and (codes[0] > 0 or not any(codes)):
        return codes[0]
    raise ProcessLost(f"{_how(codes)}; all have ended{after}")


def _start(rank: int, world: int, command: Sequence[str], port: int) -> subprocess.Popen[bytes]:
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "LOCAL_RANK": rank}
    counts = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    own = {name: str(value) for name, value in {**where, **counts}.items()}
    return start_process(command, world, own, stdout=None if rank == 0 else subprocess.DEVNULL)


def start_process(
    command: Sequence[str],
    world: int,
    own: Mapping[str, str] = MappingProxyType({}),
    *,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start one of so many processes, with its share of the processor's threads; it ends with this one."""
    threads = max(1, (os.cpu_count() or 1) // world)
    return subprocess.Popen(
        command,
        env={"OMP_NUM_THREADS": str(threads), **os.environ, **own},
        stdin=stdin,
        stdout=stdout,
        # A terminal's Ctrl-C comes to this process alone, which hands it on once.
        process_group=None if os.name == "nt" else 0,
        preexec_fn=partial(_end_with, os.getpid()) if sys.platform == "linux" else None,
    )


def _end_with(parent: int) -> None:
    """Ask to be stopped, as by SIGTERM, when the launcher dies."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(STOPPED)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def _forwarded(started: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Hand SIGINT and SIGTERM on: all save and stop at the first, and end at the second.

    SIGHUP is handed on once, for a terminal that is closed sends several, and not at all where nohup keeps it away.
    """
    hang_up: int | None = getattr(signal, "SIGHUP", None)
    stopping: list[int] = []

    def hand_on(number: int, frame: object) -> None:
        if number == hang_up and stopping:
            return
        stopping.append(number)
        for process in started:
            with suppress(OSError):
                process.send_signal(signal.SIGTERM)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if hang_up is not None and signal.getsignal(hang_up) != signal.SIG_IGN:
        numbers.append(signal.Signals(hang_up))
    before: dict[int, Callable[..., Any] | int | None] = {}
    with suppress(ValueError):  # signals belong to the main thread
        before = {number: signal.signal(number, hand_on) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watched(started: Sequence[subprocess.Popen[bytes]]) -> list[int | None]:
    """How each process ended by itself: its exit code, below zero for a signal; None where it had to be ended."""
    failed: float | None = None
    while True:
        codes = [process.poll() for process in started]
        if None not in codes:
            return codes
        if failed is None and any(code not in (None, 0, STOPPED) for code in codes):
            failed = time.monotonic()
        if failed is not None and time.monotonic() - failed > GRACE:
            return codes
        time.sleep(0.05)


def _how(codes: Sequence[int | None]) -> str:
    """What became of the first process that ended otherwise than by word of another; or of one that never answered."""
    world = len(codes)
    for rank, code in enumerate(codes):
        if code is not None and code < 0:
            return f"process {rank} of {world} {how_ended(code)}"
    for rank, code in enumerate(codes):
        if code is None:
            return f"process {rank} of {world} did not answer"
    rank, code = next((rank, code) for rank, code in enumerate(codes) if code)
    return f"process {rank} of {world} {how_ended(code)}"


def how_ended(code: int) -> str:
    """What an exit code says, which is below zero for a signal."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
