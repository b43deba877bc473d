"""POST /v1/score: the same as the command line prints; and runs averaged behind one name."""

import json

import pytest
from serve_toys import near, serving

import regard
from regard.cli import main
from regard.cli.serve import _averaged
from regard.errors import ConfigError

PAIRS = [["the cat", "THE CAT"], ["a dog sees", "A"]]


def test_pairs_and_texts_are_scored_as_the_command_line_says(translator, writer, capsys):
    with serving({"toy": translator, "words": writer}) as client:
        pairs = client.post("/v1/score", {"model": "toy", "input": PAIRS, "tokens": True})
        texts = client.post("/v1/score", {"model": "words", "input": ["sun moon", "sky"]})
        refused = client.post("/v1/score", {"model": "toy", "input": ["the cat"]})
        odd = client.post("/v1/score", {"model": "words", "input": [["sun", "moon"]]})
    for answer, run, words, more in (
        (pairs, translator, [text for pair in PAIRS for text in pair], ["--tokens"]),
        (texts, writer, ["sun moon", "sky"], []),
    ):
        assert answer.status == 200, answer.text
        assert main(["score", str(run.directory), *words, "--json", "--device", "cpu", *more]) == 0
        assert near(answer.json["results"], [json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert refused.status == odd.status == 400
    assert "pairs of two texts" in refused.json["error"]["message"]
    assert "this run scores texts, not pairs" in odd.json["error"]["message"]


def test_an_ensemble_is_served_under_one_name(translator):
    runs = _averaged({"toy": translator.directory}, [f"toy={translator.directory}"], "cpu", "float32")
    with serving(runs) as client:
        answer = client.post("/v1/translate", {"text": ["the cat"]})
        assert answer.status == 200, answer.text
        (model,) = client.get("/v1/models").json["data"]
        assert "look" not in model["does"]
        refused = client.post("/v1/translate", {"text": ["the cat"], "alignments": True})
        assert refused.status == 400
        assert "not an ensemble" in refused.json["error"]["message"]
    assert answer.json["results"][0]["translations"][0]["text"] == translator.translate(["the cat"])[0]
    assert isinstance(runs["toy"], regard.Run)
    for given in ("toy", "other=x"):
        with pytest.raises(ConfigError, match=f"--with={given}"):
            _averaged({"toy": translator.directory}, [given], "cpu", "float32")
