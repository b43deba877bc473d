"""Translations per second through `regard serve`, with 1, 8 and 32 clients, beside calling the translator directly.

    python benchmarks/serving.py runs/demo --sentences 192 --rounds 3

Every client sends one sentence per request and waits for its answer. The server is a process of its own; direct calls
are made in this one, a sentence at a time and all of them as one batch. Ways take turns, so that all see the same
machine, and what counts is the ratio of each to one client at a time: in seconds, and in seconds of a
core, which others on the machine disturb less. In the end the server's memory is read after so many requests.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch

import regard
from regard.data.synthetic.world import sentences as drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", help="a run that translates")
    parser.add_argument("--sentences", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--requests", type=int, default=2000, help="sent while the server's memory is watched")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    run = regard.load(options.run, "cpu")
    sentences = [one.english for one in drawn(options.sentences, split="test")]
    command = [sys.executable, "-m", "regard", "serve", options.run, "--port", "0", "--device", "cpu"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline().rpartition(":")[2])
        measure(run, server.pid, port, sentences, options)
        memory(server.pid, port, sentences, options)
    finally:
        server.terminate()
        assert server.wait(30) == 0


def measure(run: regard.Run, pid: int, port: int, sentences: list[str], options: argparse.Namespace) -> None:
    ways = {
        "direct, one by one": lambda: [run.translate([one], beam=options.beam)[0] for one in sentences],
        "direct, one batch": lambda: run.translate(sentences, beam=options.beam),
        "HTTP, 1 client": lambda: asked(port, sentences, options.beam, 1),
        "HTTP, 8 clients": lambda: asked(port, sentences, options.beam, 8),
        "HTTP, 32 clients": lambda: asked(port, sentences, options.beam, 32),
    }
    expected = ways["direct, one by one"]()
    times: dict[str, list[float]] = {name: [] for name in ways}
    work: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(options.rounds + 1):
        for name, way in ways.items():
            whose = pid if name.startswith("HTTP") else os.getpid()
            began, worked = time.perf_counter(), processor(whose)
            found = way()
            if turn:  # the first warms up
                times[name].append(time.perf_counter() - began)
                work[name].append(processor(whose) - worked)
            assert found == expected, f"{name} says something else"
    for name, taken in times.items():
        speed = len(sentences) / statistics.median(taken)
        each = 1000 * statistics.median(work[name]) / len(sentences)
        faster, lighter = (compared(of["HTTP, 1 client"], of[name]) for of in (times, work))
        print(f"{name:18} {speed:6.1f} sentences/s, {faster} times one client's; {each:5.1f} ms of a core, {lighter}")


def compared(base: list[float], taken: list[float]) -> str:
    """How many times as fast as the base, turn by turn: the median, the least and the most."""
    ratios = [one / other for one, other in zip(base, taken, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def processor(pid: int) -> float:
    """Seconds that a process has had of the processor's cores."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def asked(port: int, sentences: list[str], beam: int, clients: int) -> list[str]:
    """The translations, the sentences shared out among clients that each send one at a time."""
    found = [""] * len(sentences)

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for place in range(number, len(sentences), clients):
            body = json.dumps({"text": sentences[place], "beam": beam}).encode()
            connection.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
            found[place] = answer["results"][0]["translations"][0]["text"]
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def memory(pid: int, port: int, sentences: list[str], options: argparse.Namespace) -> None:
    def resident() -> float:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    before, few = resident(), sentences[: min(8, len(sentences))]
    for _ in range(options.requests // len(few)):
        asked(port, few, 1, 4)
    print(f"server's memory: {before:.0f} MiB, after {options.requests} requests more {resident():.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
