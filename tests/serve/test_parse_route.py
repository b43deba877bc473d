"""POST /v1/parse: the same trees as from Python, of texts and of lists of words."""

import pytest
from serve_toys import serving

import regard
from regard import make_config

SMALL = [
    *("data.trees=20", "train.steps=2", "train.warmup=1", "train.batch_tokens=1500", "train.threads=1"),
    *("model.width=8", "model.heads=2", "model.feed_forward=8", "train.validate_every=2", "model.max_open=3"),
    *("train.validate_sentences=2", "tokenizer.vocab_size=200"),
]


@pytest.fixture(scope="module")
def parser(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.tasks.parsing.TREES_HELD_OUT", 4)
        return regard.train(make_config(None, "parse-tiny", SMALL), tmp_path_factory.mktemp("runs") / "trees")


def test_sentences_and_words_are_parsed_and_what_cannot_be_is_refused(parser):
    with serving(parser) as client:
        several = client.post("/v1/parse", {"text": ["A dog sleeps.", ["a", "cat"]], "beam": 2})
        blank = client.post("/v1/parse", {"text": "  "})
        long = client.post("/v1/parse", {"text": "word " * 1000})
        listed = client.get("/v1/models").json["data"][0]["does"]
    assert several.status == 200, several.text
    trees = [one["trees"][0]["tree"] for one in several.json["results"]]
    assert trees == parser.parse(["A dog sleeps.", ["a", "cat"]], beam=2)
    assert blank.status == 422
    assert "sentence 1 has no words" in blank.json["error"]["message"]
    assert long.status in (413, 422)
    assert "parse" in listed
