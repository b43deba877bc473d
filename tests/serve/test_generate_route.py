"""POST /v1/generate: texts whole or streamed, whoever else writes at the same time."""

import json

import pytest
from serve_toys import Slow, in_one_queue, near, serving, until

import regard
from regard.cli import main
from regard.serve import Limits

BODIES = [
    {"prompt": "sun ", "temperature": 0},
    {"prompt": "moon star sky été sun moon star", "temperature": 0, "max_tokens": 40},
    {"prompt": "", "temperature": 1.0, "samples": 3, "seed": 5, "max_tokens": 12},
    {"prompt": "s", "temperature": 0.8, "top_k": 4, "seed": 1},
    {"prompt": "star " * 9, "temperature": 1.0, "seed": 2, "max_tokens": 30, "stop": ["s", "é"]},
    {"prompt": "sky ", "temperature": 0, "repetition_penalty": 1.4},
    {"prompt": "sun ", "beam": 3, "top_beams": 2, "max_tokens": 6},
    {"prompt": "moon mo", "beam": 3, "top_beams": 2, "max_tokens": 6, "stop": "o"},
]


def printed(run, body, capsys):
    """What the command prints for it."""
    flags = []
    for name, value in body.items():
        for one in value if isinstance(value, list) else [value]:
            flags += [] if name == "prompt" else [f"--{name.replace('_', '-')}={one}"]
    assert main(["generate", str(run.directory), body["prompt"], *flags, "--json", "--device", "cpu"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def events(text):
    """The events of a stream."""
    found = [part.partition("data: ") for part in text.strip().split("\n\n")]
    return [(head.strip(), json.loads(data)) for head, _, data in found]


@pytest.fixture(scope="module")
def server(writer):
    with serving(writer) as client:
        yield client


def test_texts_are_what_the_command_prints_alone_and_in_a_crowd(server, writer, capsys):
    crowd = BODIES * 3
    found = in_one_queue(server, "words", len(crowd), lambda number: server.post("/v1/generate", crowd[number]))
    for body, *answers in zip(BODIES, *(found[start : start + len(BODIES)] for start in (0, 8, 16)), strict=True):
        expected = printed(writer, body, capsys)
        for answer in answers:
            assert answer.status == 200, answer.text
            assert near(answer.json, {"model": "words", "results": expected})


@pytest.mark.parametrize("body", BODIES[:6], ids=lambda body: body["prompt"][:8])
def test_a_stream_adds_up_to_the_answer(server, body):
    whole = server.post("/v1/generate", body).json
    stream = server.post("/v1/generate", {**body, "stream": True})
    assert stream.headers["content-type"].startswith("text/event-stream")
    *pieces, (_, last) = events(stream.text)
    assert last == {"done": True, **whole}
    for sample, result in enumerate(whole["results"]):
        assert "".join(piece["text"] for _, piece in pieces if piece["sample"] == sample) == result["text"]
    assert len(pieces) > 1 or not whole["results"][0]["text"]


def slow(writer, free=0):
    run = regard.load(writer.directory, "cpu")
    run.generator.stepper = stepper = Slow(run.model, free)
    return run, stepper


def asked(client, **body):
    """A connection on which this was asked, and not yet answered."""
    connection = client.connection()
    connection.request("POST", "/v1/generate", json.dumps(body), {"Content-Type": "application/json"})
    return connection


def test_a_stream_comes_token_by_token_and_ends_when_the_client_leaves(writer):
    run, stepper = slow(writer, free=4)
    with serving(run, limits=Limits(tokens=100000)) as client:
        connection = asked(client, prompt="sun", temperature=0, max_tokens=100000, stream=True)
        answer = connection.getresponse()
        assert answer.fp.readline().strip()
        until(lambda: stepper.steps == 5)  # where it stands until it may go on
        answer.close()
        connection.close()
        until(lambda: 'route="/v1/generate",status="200"} 1' in client.get("/metrics").text)
        stepper.go.set()
        until(lambda: not client.models["words"].worker.under_way)
        assert stepper.steps == 5
        assert client.post("/v1/generate", {"prompt": "sun", "max_tokens": 3, "temperature": 0}).status == 200
        assert stepper.steps <= 5 + 3


def test_who_asks_for_little_does_not_wait_for_who_asks_for_much(writer):
    with serving(writer, limits=Limits(tokens=1000000)) as client:
        much = asked(client, prompt="sun", temperature=0, max_tokens=1000000)
        until(lambda: client.models["words"].worker.under_way)
        assert client.post("/v1/generate", {"prompt": "moon", "temperature": 1.0, "max_tokens": 5}).status == 200
        assert client.models["words"].worker.under_way, "the long text is still being written"
        much.close()
        until(lambda: not client.models["words"].worker.under_way)


def test_one_that_fails_while_it_is_written_fails_alone(writer, capsys):
    run = regard.load(writer.directory, "cpu")
    model, poison = run.model, run.vocabularies.target.encode("é")[0]

    class Poisoned:
        def start(self, batch):
            if (batch.ids[:, 0] == poison).any():
                raise RuntimeError("a bug")
            return model.start(batch)

        def step(self, choices, state):
            return model.step(choices, state)

    run.generator.stepper = Poisoned()
    prompts = ["sun", "moon", "été", "sky"]
    with serving(run) as client:
        bodies = [{"prompt": prompt, "temperature": 0} for prompt in prompts]
        found = in_one_queue(client, "words", 4, lambda number: client.post("/v1/generate", bodies[number]))
        assert [one.status for one in found] == [200, 200, 500, 200]
        for body, answer in zip(bodies, found, strict=True):
            if answer.status == 200:
                assert answer.json["results"] == printed(writer, body, capsys)
        stream = client.post("/v1/generate", {**bodies[2], "stream": True})
        assert events(stream.text)[-1][0] == "event: error"
        assert events(stream.text)[-1][1]["error"]["kind"] == "internal"


def test_a_stream_that_takes_too_long_says_so(writer):
    run, stepper = slow(writer)
    with serving(run, limits=Limits(timeout=0.3)) as client:
        stream = client.post("/v1/generate", {"prompt": "sun", "stream": True})
        assert events(stream.text) == [
            ("event: error", {"error": {"kind": "timeout", "message": "no answer within 0.3 seconds"}})
        ]
        stepper.go.set()


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"prompt": "a", "max_tokens": 0}, 400, "max_tokens=0 must be at least 1"),
        ({"prompt": "a", "max_tokens": 1025}, 400, "max_tokens=1025 is more than this server allows: 1024"),
        ({"prompt": "a", "temperature": -1}, 400, "temperature=-1.0 must be 0, or at least 0.001"),
        ({"prompt": "a", "repetition_penalty": 0}, 400, "repetition_penalty=0.0 must be at least 0.01"),
        ({"prompt": "a", "stop": [""]}, 400, "stop must be"),
        ({"prompt": "a", "stop": ["a"] * 17}, 400, "stop must be"),
        ({"prompt": "a", "beam": 2, "stream": True}, 400, "a beam has none before its end"),
        ({"prompt": "a", "beam": 2, "temperature": 1.0}, 400, "is for sampling, beam for beam search"),
        ({"prompt": "a", "system": "b"}, 400, "give chat with its form"),
        ({"prompt": "a", "chat": "chatlm"}, 400, "did you mean 'chatml'?"),
        ({"prompt": "a", "chat": "chatml"}, 422, "the vocabulary has no '<|im_start|>'"),
        ({"prompt": "a", "max_len": 3}, 400, "unknown field 'max_len'; did you mean"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_is_named(server, body, status, said):
    assert said in server.error("/v1/generate", body, status)[1]
