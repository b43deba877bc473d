"""Small runs to serve, a server on a real socket, and a client that sees what any client sees."""

import asyncio
import base64
import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from regard.serve.app import make_app
from regard.serve.jobs import Job
from regard.serve.limits import Limits
from regard.serve.server import Server
from regard.tasks.verbs import Cost, Verb

WORDS = ["the", "a", "cat", "dog", "sees", "hears", "big", "small", "red", "house", "runs", "sleeps", "and"]
SENTENCES = ["the cat sees a dog", "a big red house", "the dog runs and sleeps", "the small cat hears the big dog"]


class Client:
    """Asks one server. Every answer: `status`, `headers`, `text`, and `json` where it is."""

    def __init__(self, port, headers=None):
        self.port, self.headers = port, headers or {}

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def send(self, method, path, body=None, headers=None):
        connection = self.connection()
        try:
            connection.request(method, path, body, {**self.headers, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read().decode()
            kind = answer.headers.get("content-type", "")
            found = json.loads(text) if kind.startswith("application/json") else None
            return SimpleNamespace(status=answer.status, headers=answer.headers, text=text, json=found)
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.send("GET", path, headers=headers)

    def post(self, path, body, **headers):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", path, raw, {"Content-Type": "application/json", **headers})

    def error(self, path, body, status):
        """The kind and the message of a request that must fail with this status."""
        answer = self.post(path, body)
        assert answer.status == status, answer.text
        assert answer.json.keys() == {"error"}
        assert answer.json["error"].keys() == {"kind", "message"}
        return answer.json["error"]["kind"], answer.json["error"]["message"]


@contextmanager
def serving(runs, mounted="", **options):
    """A server in a thread, on a port that was free; perhaps mounted in another application."""
    inner = make_app(runs, **options)
    app = Starlette(routes=[Mount(mounted, app=inner)]) if mounted else inner
    app.state.models, app.state.metrics = inner.state.models, inner.state.metrics
    bound, begun = socket.create_server(("127.0.0.1", 0)), threading.Event()
    server = Server(app, bound, options.get("limits") or Limits(grace=1.0), begun.set)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[])), daemon=True)
    thread.start()
    while not begun.wait(0.1):
        assert thread.is_alive()
    client = Client(bound.getsockname()[1])
    client.server, client.app, client.models = server, inner, {one.name: one for one in inner.state.models}
    try:
        yield client
    finally:
        server.should_exit = True
        thread.join(60)


def near(one, other):
    """Whether two answers say the same, their numbers to rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-4, abs=1e-5)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(near, one, other))
    return one == other


def at_once(count, call):
    """What `call(number)` returns for each number, all of them called at the same time."""
    found, gate = [None] * count, threading.Barrier(count)

    def run(number):
        gate.wait()
        found[number] = call(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@dataclass(frozen=True)
class Held(Verb):
    """A verb that keeps a model's thread until it may go on."""

    begun: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def key(self, run, request):
        return object()

    def cost(self, run, asked):
        return Cost(0)

    def together(self, run, asked, gone):
        self.begun.set()
        self.go.wait(60)
        return [None]


def hold(client, model, seconds=120.0, kind=Held):
    """Put a verb that can be held into the model's queue, where it waits for so long, and give it."""
    held, served = kind(name="held", help="", request=object, items=""), client.models[model]
    served.worker.put(Job(held, served.run, None, [None], seconds))
    return held


def in_one_queue(client, model, count, call):
    """As `at_once`, and none is taken from the model's queue before all of them wait there."""
    held = hold(client, model)
    assert held.begun.wait(60)
    threads = threading.Thread(target=lambda: found.extend(at_once(count, call)))
    found = []
    threads.start()
    try:
        until(lambda: client.app.state.models.waiting()[model] == count)
    finally:
        held.go.set()
        threads.join()
    return found


def until(condition, seconds=60.0):
    """Wait for something to become so: at once where it can, and for long on a busy machine."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


class Slow:
    """A stepper that waits at every step until it may go on, and counts its steps.

    It goes on for ever once `go` is set, and for `free` steps before that.
    """

    def __init__(self, inner, free=0):
        self.inner, self.steps, self.go, self.rows, self.free = inner, 0, threading.Event(), [], free

    def start(self, batch):
        return self.inner.start(batch)

    def step(self, choices, state):
        self.steps += 1
        self.rows.append(len(choices))
        until(lambda: self.steps <= self.free or self.go.is_set(), 120.0)
        return self.inner.step(choices, state)

    def until_rows(self, count):
        """Let steps go on until one has so many rows, and stand there."""
        while self.rows[-1] != count:
            before = self.steps
            self.next()
            until(lambda before=before: self.steps > before)

    def next(self):
        """Let one more step go on."""
        self.free += 1


DROPPED = """(() => {
  const file = new File([Uint8Array.from(atob("%s"), (one) => one.charCodeAt(0))], "%s", { type: "%s" });
  const given = new DataTransfer();
  given.items.add(file);
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: given, bubbles: true, cancelable: true }));
})()"""


def dropping(data: bytes, name: str, kind: str) -> str:
    """What drops a file on a page, as JavaScript."""
    return DROPPED % (base64.b64encode(data).decode(), name, kind)
