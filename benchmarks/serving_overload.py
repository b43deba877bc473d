"""How `regard serve` does with more connections than it can serve: how soon it refuses, and whether it still answers.

    python benchmarks/serving_overload.py runs/demo --connections 1000 --seconds 15

The server is a process of its own on this machine's loopback address. So many connections are opened at once; each
asks for a translation, waits for what comes, and asks again: at once when it was answered, after `--retry` seconds when
it was refused. Meanwhile another process asks for `/health` on a new connection every tenth of a second. It ends after
`--seconds`: what has not come by then is counted as unanswered.
"""

import argparse
import asyncio
import http.client
import json
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

MOST_CONNECTIONS, MOST_SECONDS = 4000, 120

SENTENCE = "the old teacher gave the small student a red book ."


@dataclass
class Seen:
    """Seconds until each answer, by its status, and what else became of requests."""

    answers: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    health: list[float] = field(default_factory=list)
    health_failures: int = 0
    failed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    unanswered: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", help="a run that translates")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--retry", type=float, default=1.0, help="seconds before one who was refused asks again")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--max-len", type=int, default=12, help="the longest translation, so that any run will do")
    parser.add_argument("--server", nargs="*", default=[], help="more options of `regard serve`, without their dashes")
    options = parser.parse_args()
    if not 1 <= options.connections <= MOST_CONNECTIONS or not 0 < options.seconds <= MOST_SECONDS:
        parser.error(f"at most {MOST_CONNECTIONS} connections and {MOST_SECONDS} seconds")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    more = [f"--{one}" for one in options.server]
    command = [sys.executable, "-m", "regard", "serve", options.run, "--port", "0", "--device", "cpu", *more]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline().rpartition(":")[2])
        seen = asyncio.run(overload(port, options))
    finally:
        server.terminate()
        ended = server.wait(60)
    report(seen, options, ended)


async def overload(port: int, options: argparse.Namespace) -> Seen:
    seen, body = Seen(), json.dumps({"text": SENTENCE, "beam": options.beam, "max_len": options.max_len}).encode()
    lines = ["POST /v1/translate HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    asked = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body
    await ask(*await asyncio.open_connection("127.0.0.1", port), asked)  # the first loads what is loaded late
    until = time.monotonic() + options.seconds
    clients = [client(port, asked, until, options.retry, seen) for _ in range(options.connections)]
    # A process of its own: how late this one is with a thousand answers is not the server's doing.
    with ProcessPoolExecutor(1) as apart:
        probing = asyncio.get_running_loop().run_in_executor(apart, health, port, options.seconds)
        await asyncio.gather(*clients)
        seen.health, seen.health_failures = await probing
    return seen


async def client(port: int, asked: bytes, until: float, retry: float, seen: Seen) -> None:
    streams = None
    while (began := time.monotonic()) < until:
        try:
            async with asyncio.timeout(until - began):
                if streams is None:
                    streams = await asyncio.open_connection("127.0.0.1", port)
                status, closed = await ask(*streams, asked)
        except TimeoutError:
            seen.unanswered += 1
            break
        except (OSError, EOFError) as error:
            seen.failed[type(error).__name__] += 1
            status, closed = "", True
        else:
            seen.answers[status].append(time.monotonic() - began)
        if closed and streams is not None:
            streams[1].close()
            streams = None
        if status != "200":
            await asyncio.sleep(min(retry, max(0.0, until - time.monotonic())))
    if streams is not None:
        streams[1].close()


def health(port: int, seconds: float) -> tuple[list[float], int]:
    """Seconds until each answer, and how many did not come."""
    taken, failures, until = [], 0, time.monotonic() + seconds
    while (began := time.monotonic()) < until:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
        try:
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
            taken.append(time.monotonic() - began)
        except (OSError, http.client.HTTPException):
            failures += 1
        finally:
            connection.close()
        time.sleep(max(0.0, 0.1 - (time.monotonic() - began)))
    return taken, failures


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bytes) -> tuple[str, bool]:
    """The status of the answer, and whether the connection ends with it."""
    writer.write(asked)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next(line.partition(":")[2] for line in head.split("\r\n") if line.startswith("content-length:"))
    await reader.readexactly(int(length))
    return head.split()[1], "connection: close" in head


def report(seen: Seen, options: argparse.Namespace, ended: int) -> None:
    print(f"{options.connections} connections for {options.seconds:g} s, refused ones again after {options.retry:g} s")
    for name, taken in [("/health", seen.health), *sorted(seen.answers.items())]:
        ranked = sorted(taken)
        if not ranked:
            continue
        late, most = ranked[int(0.99 * (len(ranked) - 1))], ranked[-1]
        median = statistics.median(ranked)
        print(f"{name:8} {len(ranked):6} answers  median {median:6.3f} s  99 % {late:6.3f} s  most {most:6.3f} s")
    done = len(seen.answers["200"])
    print(f"{done / options.seconds:.1f} answers per second, {seen.unanswered} unanswered, failed: {dict(seen.failed)}")
    print(f"/health failed {seen.health_failures} times; exit code {ended}")


if __name__ == "__main__":
    main()
