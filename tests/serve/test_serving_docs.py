"""The examples of docs/serving.md work as they stand, and its tables leave nothing out."""

import dataclasses
import json
import re
import shlex
from pathlib import Path

import pytest
from serve_toys import serving

from regard import make_config
from regard.serve import Limits
from regard.serve.openapi import schema
from regard.serve.refusals import STATUS
from regard.serve.routes import endpoints
from regard.text.tokenizer_training import train_tokenizer

VERBS = endpoints()
PAGE = (Path(__file__).parents[2] / "docs/serving.md").read_text(encoding="utf-8")


def examples():
    """Every curl command of the page: its route, and the body it sends."""
    for command in re.findall(r"^curl .+?[^\\]$", PAGE, re.MULTILINE | re.DOTALL):
        words = shlex.split(command.replace("\\\n", " "))
        (address,) = [word for word in words if word.startswith("http://127.0.0.1:8080/")]
        yield address.removeprefix("http://127.0.0.1:8080"), words


@pytest.fixture(scope="module")
def server(translator, writer, encoders, pointer):
    names = {"films": "classes", "bert": "words", "names": "tags", "facts": "answers"}
    runs = {name: encoders[own] for name, own in names.items()}
    with serving({"demo": translator, "words": writer, "sort": pointer, **runs}) as client:
        yield client


@pytest.mark.parametrize(("route", "words"), list(examples()), ids=lambda value: str(value)[:30])
def test_every_example_is_answered(server, route, words):
    if "-d" not in words:
        assert server.get(route).status == 200
        return
    assert "Content-Type: application/json" in words
    answer = server.post(route, json.loads(words[words.index("-d") + 1]))
    assert answer.status == 200, answer.text


def test_the_answer_that_is_shown_has_the_fields_and_pieces_of_the_demonstration(server):
    shown = re.search(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
    (result,) = json.loads(shown)["results"]
    (translation,) = result["translations"]
    given = server.post("/v1/translate", {"text": result["source"]}).json["results"][0]
    assert result.keys() == given.keys() - {"unknown"}  # which is there where a word is: this server knows few
    assert translation.keys() == given["translations"][0].keys()
    words = train_tokenizer([translation["text"]], make_config(None, "demo").tokenizer)
    assert translation["pieces"] == words.pieces(words.encode(translation["text"]))


def test_the_description_for_tools_has_every_route_and_loads_nothing(server):
    found = server.get("/openapi.json").json
    assert {f"/v1/{name}" for name in VERBS} < found["paths"].keys()
    body = found["paths"]["/v1/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["text"]
    beam = {"type": "integer", "minimum": 1, "maximum": Limits().beam}
    assert body["properties"]["beam"] == {"anyOf": [beam, {"type": "null"}]}
    assert body["properties"]["overlong"] == {"enum": ["split", "truncate", "refuse"]}
    for path in found["paths"]:
        assert f"`POST {path}`" in PAGE or f"`GET {path}`" in PAGE
    assert "http" not in server.get("/openapi.json").text


@pytest.mark.parametrize("name", VERBS)
def test_every_number_of_a_request_has_its_bounds_in_the_schema(name):
    for field, found in schema(VERBS[name].body, Limits())["properties"].items():
        for kind in found.get("anyOf", [found]):
            if kind.get("type") in ("integer", "number"):
                assert kind["minimum"] <= kind["maximum"], field


def test_every_route_and_field_and_kind_of_failure_is_documented():
    for name, task in VERBS.items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `POST /v1/{name}` "))
        for field in dataclasses.fields(task.body):
            assert field.name == "model" or f"`{field.name}`" in row, f"{name}: {field.name}"
    for kind, status in STATUS.items():
        assert kind == "client_gone" or re.search(rf"^\| {status} \|.*`{kind}`", PAGE, re.MULTILINE), kind
