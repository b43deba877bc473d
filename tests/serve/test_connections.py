"""Connections that keep silent, come in crowds, or come too late: others are served, and nobody goes unanswered."""

import http.client
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import ClassVar

import pytest
from serve_toys import SENTENCES, Client, Held, hold, serving, until

from regard.serve import Limits
from regard.serve.connections import take_no_more, whole_request

HEAD = "POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def connected(client):
    connection = socket.create_connection(("127.0.0.1", client.port), 60)
    connection.settimeout(60)
    return connection


def rest(connection):
    """All that comes until the other side ends."""
    found = b""
    while part := connection.recv(1 << 16):
        found += part
    return found


@pytest.fixture
def process(translator, python, tmp_path):
    """`regard serve` as a process that may open 256 files, its port, and what it logs."""
    command = [python, "-m", "regard", "serve", str(translator.directory), "--port", "0", "--device", "cpu"]
    with (tmp_path / "log").open("w+", encoding="utf-8") as log:
        limited = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *command]
        started = subprocess.Popen(limited, stdout=subprocess.PIPE, stderr=log, text=True, env=dict(os.environ))
        line = started.stdout.readline()
        assert line.startswith("serving toy at http://127.0.0.1:"), (tmp_path / "log").read_text()
        yield started, Client(int(line.rpartition(":")[2])), tmp_path / "log"
        started.kill()
        started.wait()
        started.stdout.close()


def test_silent_connections_do_not_lock_others_out(process):
    started, client, log = process
    silent = [connected(client) for _ in range(300)]

    def answered(ask):
        """Whether there is room by now: until those before have been silent for long enough, the last are refused."""
        try:
            return ask().status == 200
        except (OSError, http.client.HTTPException):
            return False

    until(lambda: answered(lambda: client.get("/health")))
    until(lambda: answered(lambda: client.post("/v1/translate", {"text": SENTENCES[0]})))
    counted = []
    until(lambda: answered(lambda: counted.append(client.get("/metrics")) or counted[-1]))
    assert "regard_refused_connections_total" in counted[-1].text
    for one in silent:
        one.close()
    started.send_signal(signal.SIGTERM)
    assert started.wait(60) == 0
    assert "Traceback" not in log.read_text()
    assert log.stat().st_size < 20_000


def test_where_all_are_busy_one_connection_too_many_is_told_so(translator):
    with serving(translator, limits=Limits(connections=2, grace=1.0)) as client:
        held = hold(client, "toy")
        assert held.begun.wait(60)
        body = b'{"text": "a"}'
        asked = f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body
        busy = [connected(client) for _ in range(2)]
        for one in busy:
            one.sendall(asked)
        until(lambda: client.app.state.models.waiting()["toy"] == 2)
        refused = client.get("/health")
        assert refused.status == 503
        assert refused.json["error"] == {"kind": "busy", "message": "2 connections are open already; try again soon"}
        assert refused.headers["retry-after"] == "1"
        held.go.set()
        for one in busy:
            assert b" 200 OK" in one.recv(1 << 16)
            one.close()
        until(lambda: client.get("/health").status == 200)


def test_the_head_of_a_request_must_come_in_time_and_silence_ends(translator):
    with serving(translator, limits=Limits(header_timeout=0.3, idle_timeout=0.3, grace=1.0)) as client:
        with connected(client) as silent:
            assert rest(silent) == b""
        with connected(client) as slow:
            slow.sendall(HEAD[:20].encode())
            assert b"did not come within 0.3 seconds" in rest(slow)
        with connected(client) as idle:
            idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert rest(idle).endswith(b'{"status":"ok"}')
        with connected(client) as again:
            again.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert again.recv(1 << 16)
            again.sendall(b"GET /hea")
            assert b" 408 " in rest(again)
        assert client.get("/health").status == 200


def test_where_no_more_can_wait_a_request_is_refused_before_its_body_comes(translator):
    with serving(translator, limits=Limits(queue=1, grace=1.0)) as client:
        held, worker = hold(client, "toy"), client.models["toy"].worker
        assert held.begun.wait(60)
        hold(client, "toy", 0.0)
        waiting = hold(client, "toy")  # the one before it is gone already, and has left its place
        with connected(client) as early:
            early.sendall(f"{HEAD}Content-Length: 13\r\n\r\n".encode())
            said = early.recv(1 << 16)
            assert b" 503 " in said
            assert b'"1 requests wait already; try again soon"' in said
            # The connection goes on where the request ends.
            early.sendall(b'{"text": "a"}GET /health HTTP/1.1\r\nHost: x\r\n\r\n')
            assert b" 200 OK" in early.recv(1 << 16)
        held.go.set()
        assert waiting.begun.wait(60)  # until then it is the one that waits
        waiting.go.set()
        until(lambda: not len(worker.queue))
        assert client.post("/v1/translate", {"text": "a"}).status == 200


def test_where_no_more_can_wait_a_whole_request_is_refused_unread(translator, monkeypatch, caplog):
    body = b'{"text": "a"}'
    asked = f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body
    with serving(translator, limits=Limits(queue=1, grace=1.0)) as client, connected(client) as early:
        held, worker = hold(client, "toy"), client.models["toy"].worker
        assert held.begun.wait(60)
        waiting = hold(client, "toy")
        gates = []
        monkeypatch.setattr("regard.serve.gate.Gate._route", lambda gate, scope: gates.append(scope) or "/v1/translate")
        with caplog.at_level(logging.INFO, logger="regard.serve"):
            for _ in range(3):
                early.sendall(asked)
                said = early.recv(1 << 16)
                assert said.startswith(b"HTTP/1.1 503 ")
                assert b"\r\nRetry-After: 1\r\n" in said
                assert b"connection: close" not in said.lower()
                assert said.endswith(b'"1 requests wait already; try again soon"}}')
            until(lambda: "3 requests were refused unread" in caplog.text)
        assert not gates
        monkeypatch.undo()
        assert 'route="/v1/translate",status="503"} 3' in client.get("/metrics").text
        held.go.set()
        waiting.go.set()
        until(lambda: not len(worker.queue))
        early.sendall(asked)
        assert b" 200 OK" in early.recv(1 << 16)


@pytest.mark.parametrize(
    ("head", "task"),
    [
        ("POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n", "translate"),
        (
            "POST /v1/chat/completions HTTP/1.1\r\nconnection: keep-alive\r\ncontent-length:2 \r\n\r\n",
            "chat/completions",
        ),
        ("POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n", None),
        ("POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n", None),
        ("POST /v1/translate HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n", None),
        ("POST /v1/translate HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: +2\r\n\r\n", None),
        ("POST /v1/translate HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", None),
        ("POST /v1/translate HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n", None),
        ("POST /v1/translate HTTP/1.1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n", None),
        ("POST /v1/translate HTTP/1.1\r\nContent-Length: 2\r\n folded: x\r\n\r\n", None),
        ("POST /v1/translate HTTP/1.1\r\nContent-Length : 2\r\n\r\n", None),
        ("POST /v1/translate HTTP/1.0\r\nContent-Length: 2\r\n\r\n", None),
        ("GET /v1/translate HTTP/1.1\r\nContent-Length: 2\r\n\r\n", None),
        ("POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Len", None),
    ],
)
def test_only_a_request_of_the_usual_form_is_told_by_its_head(head, task):
    assert whole_request(head.encode() + b"{}") == task


READY = """
import gc, os, signal, sys
import regard
from regard.serve import serve

def ready(url):
    print(sys.getswitchinterval(), gc.get_freeze_count(), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

serve(regard.load(sys.argv[1], "cpu"), port=0, ready=ready)
"""


def test_a_server_lets_connections_interrupt_its_models_and_no_collector_stop_it(translator, python):
    """With Python's own 5 ms for a thread that computes, a thousand connections are heard in seconds, not at once."""
    command = [python, "-c", READY, str(translator.directory)]
    interval, kept = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout.split()
    assert float(interval) <= 0.001
    assert int(kept) > 10_000  # of the many objects that torch alone makes, none is looked at again


class Ranked(Held):
    """A verb that notes how far behind others its thread goes."""

    ranks: ClassVar[list[int]] = []

    def together(self, run, asked, gone):
        self.ranks[:] = [os.getpriority(os.PRIO_PROCESS, threading.get_native_id())]
        return super().together(run, asked, gone)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no priorities of their own")
def test_the_thread_of_a_model_goes_behind_that_of_connections(translator):
    mine = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    if mine >= 19:
        pytest.skip("nothing goes behind what goes last")
    with serving(translator) as client:
        ranked = hold(client, "toy", kind=Ranked)
        assert ranked.begun.wait(60)
        ranked.go.set()
    assert ranked.ranks[0] > mine


def test_the_time_of_a_request_runs_from_its_coming_and_not_from_its_reading(translator):
    with serving(translator) as client:
        models, held = client.app.state.models, hold(client, "toy")
        assert held.begun.wait(60)
        with connected(client) as late:
            late.sendall(f"{HEAD}Content-Length: 13\r\n\r\n".encode())
            until(lambda: models._coming == 1)
            before_the_body = time.monotonic()
            late.sendall(b'{"text": "a"}')
            until(lambda: models.waiting()["toy"] == 1)
            (job,) = client.models["toy"].worker.queue._jobs
            assert job.since < before_the_body
            assert job.deadline == job.since + Limits().timeout
            held.go.set()
            assert b" 200 OK" in late.recv(1 << 16)


def test_what_waits_at_the_door_when_the_server_stops_is_told_so(translator):
    body = b'{"text": "a"}'
    asked = f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body
    with serving(translator) as client:
        door, waiting = client.server._door, []
        with connected(client) as silent:
            until(lambda: len(door._inside) == 1)

            def come_and_stop():
                """In the loop's thread, so that nobody is let in meanwhile."""
                for _ in range(20):
                    waiting.append(connected(client))
                    waiting[-1].sendall(asked)
                silent.sendall(asked)
                client.app.state.models.stop()
                stopping.append(door._loop.create_task(client.server.shutdown([])))

            stopping = []
            door._loop.call_soon_threadsafe(come_and_stop)
            until(lambda: stopping)
            for one in (silent, *waiting):
                said = rest(one)
                assert b" 503 " in said, said
                assert b"the server is stopping" in said
                assert b"connection: close" in said.lower()
                one.close()
        with pytest.raises(ConnectionRefusedError):
            connected(client)


def test_who_connects_while_the_server_stops_is_answered_or_refused(process):
    started, client, log = process
    found, lock = [], threading.Lock()

    def crowd():
        for _ in range(3000):
            try:
                status = client.post("/v1/translate", {"text": "a", "max_len": 2}).status
            except (OSError, http.client.HTTPException) as error:
                status = type(error).__name__
            with lock:
                found.append(status)
            if status not in (200, 503):
                return

    threads = [threading.Thread(target=crowd) for _ in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: len(found) > 40)
    started.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join()
    assert started.wait(60) == 0
    assert set(found) <= {200, 503, "ConnectionRefusedError"}, {one: found.count(one) for one in set(found)}
    assert "Traceback" not in log.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="a filter on the socket is Linux's")
def test_who_begins_to_connect_while_the_server_stops_is_held_back_and_who_has_connected_is_not():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        before = socket.create_connection(address, timeout=10)
        assert take_no_more(listening)
        with pytest.raises(TimeoutError):
            socket.create_connection(address, timeout=0.2)
        accepted, _ = listening.accept()
        accepted.sendall(b"a word")
        assert before.recv(10) == b"a word"
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()
        for one in (before, accepted):
            one.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=10)
