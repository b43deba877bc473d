"""The other tasks: each answers what its command prints, alone or together with others."""

import json

import pytest
from serve_toys import in_one_queue, near, serving

from regard.cli import main

LINES = ["the cat dog was good.", "the red house was bad.", "a", "the big cat sleeps and runs and sees the house."]
CASES = {
    "classes": [
        ("classify", {"input": LINES}, [*LINES]),
        ("classify", {"input": LINES[0], "top": 2}, [LINES[0], "--top=2"]),
    ],
    "pairs": [("classify", {"input": [LINES[:2], LINES[2:]]}, [*LINES]), ("classify", {"input": LINES}, [*LINES])],
    "tags": [("tag", {"text": LINES}, [*LINES])],
    "words": [
        (
            "fill",
            {"text": ["the [MASK] was [MASK].", "a [MASK]"], "top": 3},
            ["the [MASK] was [MASK].", "a [MASK]", "--top=3"],
        ),
        ("follows", {"input": [LINES[:2], LINES[2:]]}, [*LINES]),
        ("embed", {"text": LINES}, [*LINES]),
        (
            "embed",
            {"text": LINES[0], "pooling": "first", "normalise": False},
            [LINES[0], "--pooling=first", "--no-normalise"],
        ),
    ],
    "answers": [
        ("answer", {"question": "what was it?", "text": LINES[3], "top": 3}, ["what was it?", LINES[3], "--top=3"])
    ],
}


@pytest.fixture(scope="module")
def server(encoders, pointer):
    with serving({**encoders, "sort": pointer}) as client:
        yield client


@pytest.mark.parametrize(
    ("name", "task", "body", "arguments"), [(name, *case) for name, cases in CASES.items() for case in cases]
)
def test_an_answer_is_what_the_command_prints_alone_or_in_a_crowd(
    server, encoders, name, task, body, arguments, capsys
):
    command = "embed-text" if task == "embed" else task
    assert main([command, str(encoders[name].directory), *arguments, "--json", "--device", "cpu"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    # Beside it, requests of other lengths that go in the same batch.
    field = next(iter(body))
    single = name != "pairs" and task != "follows"
    others = [{**body, field: text} for text in ("the [MASK] dog", LINES[3] + " [MASK]")] if single else []
    bodies = [{"model": name, **one} for one in (body, *others)]
    found = in_one_queue(server, name, len(bodies), lambda number: server.post(f"/v1/{task}", bodies[number]))
    assert [one.status for one in found] == [200] * len(found), found[-1].text
    assert near(found[0].json, {"model": name, "results": printed})


def test_problems_are_answered_as_by_the_command(server, pointer, capsys):
    problems = [[0.3, 0.1, 0.2], [5, 4, 3, 2, 1]]
    assert main(["point", str(pointer.directory), *map(str, problems), "--json", "--beam=2", "--device", "cpu"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert near(server.post("/v1/point", {"problems": problems, "beam": 2}).json["results"], printed)
    assert "problem 1" in server.error("/v1/point", {"problems": [["a"]]}, 422)[1]
    assert server.error("/v1/point", {"problems": [[0.5] * 300]}, 422)[0] == "unusable_input"


@pytest.mark.parametrize(
    ("task", "body", "status", "said"),
    [
        ("classify", {"input": "a"}, 400, "missing field 'model': one of classes, pairs"),
        ("classify", {"model": "classes", "input": [["a", "b"]]}, 422, "classifies texts, not pairs"),
        ("classify", {"model": "pairs", "input": ["a"]}, 422, "classifies pairs"),
        ("classify", {"model": "pairs", "input": [["a", "b", "c"]]}, 400, "pairs of two texts"),
        ("classify", {"model": "classes", "input": "a", "top": 0}, 400, "top=0 must be at least 1"),
        ("tag", {"text": "a", "top": 1}, 400, "unknown field 'top'"),
        ("tag", {"model": "words", "text": "a"}, 422, "model 'words' is a run for masking, not for /v1/tag"),
        ("fill", {"model": "words", "text": "no hidden word"}, 422, "has no [MASK] to fill"),
        ("fill", {"model": "words", "text": "[MASK] " * 100}, 422, "tokens"),
        ("fill", {"model": "words", "text": "[MASK]", "top": 21}, 400, "top=21 is more than this server allows: 20"),
        ("answer", {"question": " ", "text": "a"}, 422, "an answer needs a question and a text"),
        ("embed", {"model": "words", "text": "a", "pooling": "last"}, 400, "pooling='last' must be one of"),
        ("translate", {"text": "a"}, 422, "no model here is for /v1/translate"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_cannot_be_is_named(server, task, body, status, said):
    assert said in server.error(f"/v1/{task}", body, status)[1]
