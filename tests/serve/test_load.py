"""Under load and in trouble: nobody waits in vain, and one request's trouble is not another's."""

import json
import os
import resource
import signal
import socket
import subprocess
import threading

import pytest
import torch
from serve_toys import SENTENCES, Client, Slow, in_one_queue, near, serving, until

import regard
from regard.cli import main
from regard.serve import Limits
from regard.serve.jobs import Job
from regard.serve.queue import Queue
from regard.tasks.verbs.spec import plain
from regard.tasks.verbs.translate import TRANSLATE, Translated, TranslateRequest


@pytest.fixture
def slow(translator):
    """The run with a model that waits at every step."""
    run = regard.load(translator.directory, "cpu")
    stepper = Slow(run.model)
    run.translator._stepper = stepper
    return run, stepper


def asking(client, body):
    """A request under way in a thread; its answer is in the list when it has come."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(client.post("/v1/translate", body)))
    thread.start()
    return thread, answers


def leave(client, body):
    """A request whose client goes away once it was sent."""
    raw = json.dumps(body).encode()
    lines = ["POST /v1/translate HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(raw)}"]
    connection = socket.create_connection(("127.0.0.1", client.port))
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + raw)
    return connection


def test_one_request_too_many_is_refused_at_once(slow):
    run, stepper = slow
    with serving(run, limits=Limits(queue=2, batch_wait=0.0)) as client:
        first = asking(client, {"text": SENTENCES[0]})
        until(lambda: stepper.steps)
        waiting = [asking(client, {"text": SENTENCES[1], "beam": beam}) for beam in (1, 2)]
        until(lambda: client.app.state.models.waiting()["toy"] == 2)
        refused = client.post("/v1/translate", {"text": "a"})
        assert stepper.steps == 1, "those before it still wait"
        assert refused.status == 503
        assert refused.json["error"]["kind"] == "busy"
        assert refused.headers["retry-after"] == "1"
        assert 'regard_queue_length{model="toy"} 2' in client.get("/metrics").text
        stepper.go.set()
        for thread, answers in (first, *waiting):
            thread.join()
            assert answers[0].status == 200
        assert client.post("/v1/translate", {"text": "a"}).status == 200


def test_a_request_is_given_up_at_its_deadline_and_the_model_goes_on(slow):
    run, stepper = slow
    with serving(run, limits=Limits(timeout=0.3)) as client:
        late = client.post("/v1/translate", {"text": SENTENCES[0]})
        assert late.status == 504
        assert late.json["error"] == {"kind": "timeout", "message": "no answer within 0.3 seconds"}
        stepper.go.set()
        until(lambda: client.post("/v1/translate", {"text": SENTENCES[0]}).status == 200)


def test_a_body_that_does_not_come_is_not_waited_for_and_one_cut_short_harms_nobody(translator):
    with serving(translator, limits=Limits(timeout=0.3)) as client:
        lines = (
            "POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
        )
        with socket.create_connection(("127.0.0.1", client.port)) as slow:
            slow.sendall(lines.encode())
            slow.settimeout(60)
            assert b" 408 " in slow.recv(1000)
    with serving(translator) as client:
        with socket.create_connection(("127.0.0.1", client.port)) as short:
            short.sendall(lines.encode())
        until(lambda: 'route="/v1/translate",status="499"} 1' in client.get("/metrics").text)
        assert client.get("/health").status == 200


def test_who_goes_away_is_dropped_from_the_queue_and_from_the_batch(slow):
    run, stepper = slow
    with serving(run) as client:
        first, _ = asking(client, {"text": SENTENCES[2], "beam": 3, "max_len": 1})
        until(lambda: stepper.steps == 1)
        gone = leave(client, {"text": SENTENCES[3], "beam": 1})
        thread, answers = asking(client, {"text": SENTENCES[0], "beam": 1})
        until(lambda: client.app.state.models.waiting()["toy"] == 2)
        stepper.next()
        first.join()
        until(lambda: stepper.steps == 2)
        queued = leave(client, {"text": SENTENCES[1], "beam": 2})
        until(lambda: client.app.state.models.waiting()["toy"] == 1)
        assert stepper.rows[1:] == [2], "two requests in one batch"
        gone.close()
        queued.close()
        until(lambda: 'regard_requests_total{route="/v1/translate",status="499"} 2' in client.get("/metrics").text)
        stepper.go.set()
        thread.join()
        assert answers[0].status == 200
        # The first step had begun; after it the one who left is no longer computed.
        assert set(stepper.rows[2:]) == {1}
        # The same pieces; a score may differ in its last digits, where two rows were summed in another order.
        assert near(answers[0].json, client.post("/v1/translate", {"text": SENTENCES[0], "beam": 1}).json)
        assert client.app.state.models.waiting()["toy"] == 0


@pytest.mark.parametrize("failure", [RuntimeError("a bug"), torch.OutOfMemoryError("too much")], ids=["bug", "memory"])
def test_one_poisonous_request_fails_alone(translator, failure, caplog):
    run = regard.load(translator.directory, "cpu")
    poison = run.vocabularies.source.encode("house")[0]
    start = run.model.start

    class Poisoned:
        def start(self, batch):
            if (batch.source.ids == poison).any():
                raise failure
            return start(batch)

        def step(self, choices, state):
            return run.model.step(choices, state)

    run.translator._stepper = Poisoned()
    texts = ["the cat", "a dog", "the house", "the small dog runs"]
    with serving(run) as client:
        found = in_one_queue(client, "toy", 4, lambda number: client.post("/v1/translate", {"text": texts[number]}))
        assert [one.status for one in found] == [200, 200, 500, 200]
        assert found[2].json["error"]["kind"] in ("internal", "out_of_memory")
        assert "bug" not in found[2].text
        assert "too much" not in found[2].text
        again = client.post("/v1/translate", {"text": texts[0]})
        assert (
            again.json["results"][0]["translations"][0]["text"]
            == found[0].json["results"][0]["translations"][0]["text"]
        )
        refused = client.error("/v1/translate", {"text": "cat " * 100, "overlong": "refuse"}, 422)
        assert refused[0] == "unusable_input"
    assert "failed on a request" in caplog.text


def job(run, **body):
    request = TranslateRequest(**body)
    return Job(TRANSLATE, run, request, TRANSLATE.check(run, request, TRANSLATE.inputs_of(request), Limits()), 5.0)


def test_what_is_alike_goes_together_oldest_first_within_the_budget(translator):
    queue = Queue(Limits(batch_tokens=12, batch_wait=0.0))

    def pulled():
        """The jobs of the next batch, and the numbers of their inputs."""
        key = next(iter(queue.first_of_each_key()))
        return [(one, asked.number) for one, asked in queue.pull(key)[0]]

    one, other, third, late = (
        job(translator, text="a big cat", beam=1),
        job(translator, text="a dog", beam=2),
        job(translator, text="a dog", beam=1, seed=3),
        job(translator, text="the dog sees a cat and sleeps", beam=1),
    )
    for item in (one, other, third, late):
        queue.put(item)
    assert pulled() == [(one, 0), (third, 0)]  # seeds matter to sampling only; the fourth is over the budget
    late.cancel()
    assert pulled() == [(other, 0)]
    assert len(queue) == 0
    sampled = [job(translator, text="a", temperature=1.0, seed=seed) for seed in (1, 2)]
    for item in sampled:
        queue.put(item)
    assert pulled() == [(sampled[0], 0)]
    assert pulled() == [(sampled[1], 0)]
    long, short = job(translator, text=("a dog",) * 5), job(translator, text="a cat")
    queue.put(long)
    queue.put(short)
    assert pulled() == [(long, number) for number in range(4)]  # as many as the budget holds
    assert pulled() == [(short, 0), (long, 4)]  # what is left of it comes behind all others
    queue.close()
    assert not queue.wait(idle=True)


@pytest.mark.parametrize("how", [{"beam": 16}, {"temperature": 1.0, "samples": 16, "seed": 3}], ids=["beam", "drawn"])
def test_who_asks_for_little_gets_through_between_the_parts_of_much(translator, how, monkeypatch):
    monkeypatch.setattr("regard.serve.queue.PART", 2 * 16 * 12)  # two texts at a time
    run = regard.load(translator.directory, "cpu")
    run.translator._stepper = stepper = Slow(run.model)
    with serving(run) as client:
        much, answers = asking(client, {"text": SENTENCES * 4, **how})
        until(lambda: stepper.steps == 1)
        little, answered = asking(client, {"text": SENTENCES[0], "beam": 1})
        until(lambda: client.app.state.models.waiting()["toy"] == 2)  # it, and what is left of much
        stepper.until_rows(1)  # the little one has begun, and much is not done
        assert not answers
        stepper.go.set()
        little.join()
        much.join()
        assert answered[0].status == 200
        alone = translator.translations(SENTENCES * 4, **how)
        expected = [
            plain(Translated(line=line, source=source, translations=tuple(found)))
            for line, source, found in zip(range(1, 17), SENTENCES * 4, alone, strict=True)
        ]
        assert near(answers[0].json["results"], json.loads(json.dumps(expected)))


def test_memory_stays_flat(translator):
    with serving(translator) as client:
        connection = client.connection()

        def ask(count):
            for number in range(count):
                body = json.dumps({"text": SENTENCES[number % 4], "beam": 1, "max_len": 3})
                connection.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
                assert connection.getresponse().read()

        ask(40)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ask(100)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        connection.close()
    assert grown < 4 << 10, f"{grown} KiB more after 100 requests"


@pytest.fixture
def process(translator, python):
    """`regard serve` as a process of its own, and its port."""
    command = [python, "-m", "regard", "serve", str(translator.directory), "--port", "0", "--grace", "60"]
    environment = {**os.environ, "REGARD_API_KEY": "key"}
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    line = started.stdout.readline()
    assert line.startswith("serving toy at http://127.0.0.1:"), line + started.stderr.read()
    yield started, int(line.rpartition(":")[2])
    started.kill()
    started.wait()
    started.stdout.close()
    started.stderr.close()


def test_sigterm_lets_what_runs_finish_and_ends_well(process):
    started, port = process
    client = Client(port, {"Authorization": "Bearer key"})
    assert client.post("/v1/translate", {"text": SENTENCES[0]}).status == 200
    thread, answers = asking(client, {"text": SENTENCES * 60, "beam": 16})
    until(lambda: 'regard_batch_requests_count{model="toy"} 2' in client.get("/metrics").text)
    started.send_signal(signal.SIGTERM)
    thread.join()
    assert answers[0].status == 200
    assert len(answers[0].json["results"]) == 240
    assert started.wait(60) == 0
    said = started.stderr.read()
    assert "a request may have 1,048,576 bytes, by what is served; --max-body says otherwise" in said
    assert "Traceback" not in said
    assert "POST /v1/translate 200" in said
    with pytest.raises(OSError):
        client.get("/health")


def test_a_port_that_is_taken_is_one_line(translator, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(translator.directory), "--port", str(port)]) == 2
    assert capsys.readouterr().err == f"regard: cannot listen on 127.0.0.1 port {port}: Address already in use\n"


class Panic(BaseException):
    """As a tokenizer's Rust raises it: no `Exception`."""


@pytest.mark.parametrize("place", ["encode", "start"])
def test_a_panic_fails_its_request_at_once_and_nothing_else(translator, place, monkeypatch):
    run = regard.load(translator.directory, "cpu")
    source = run.vocabularies.source
    poison = source.encode("house")[0]
    encode, start, model = source.encode, run.model.start, run.model

    def panicking(text):
        if "house" in text:
            raise Panic("at src/lib.rs")
        return encode(text)

    class Poisoned:
        def start(self, batch):
            if (batch.source.ids == poison).any():
                raise Panic("at src/lib.rs")
            return start(batch)

        def step(self, choices, state):
            return model.step(choices, state)

    if place == "encode":
        monkeypatch.setattr(source, "encode", panicking)
    else:
        run.translator._stepper = Poisoned()
    with serving(run, limits=Limits(timeout=1000.0, grace=1.0)) as client:
        assert client.post("/v1/translate", {"text": "the cat"}).status == 200
        for text in ("the house", "the house " * 500):  # a long one is prepared by another thread
            kind, said = client.error("/v1/translate", {"text": text}, 500)
            assert kind == "internal"
            assert "lib.rs" not in said
        assert client.post("/v1/translate", {"text": "the cat"}).status == 200
