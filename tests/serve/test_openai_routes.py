"""The routes that clients of other servers speak: the same texts and vectors, in their shapes."""

import base64
import json

import numpy as np
import pytest
from serve_toys import serving

import regard
from regard.tasks.run import Run, build_model
from regard.text import Vocabularies
from regard.text.chat import Conversation


@pytest.fixture(scope="module")
def talker(writer):
    """A model of chats, untrained."""
    loaded = regard.load(writer.directory, "cpu")
    tokenizer = loaded.vocabularies.target
    tokenizer.inner.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    both = Vocabularies(tokenizer, tokenizer)
    config = loaded.config.with_vocabularies(both)
    return Run(loaded.directory, config, both, build_model(config).eval())


def test_an_answer_ends_at_every_stop_token_and_at_none_before_its_least_length(talker):
    tokenizer = talker.vocabularies.target
    ends = {tokenizer.eos, tokenizer.inner.token_to_id("<|im_end|>")}
    assert len(ends) == 2
    asked = [Conversation().say("user", text) for text in ("sun", "moon", "sky", "star", "sun moon")]
    endings = set()
    for talk in asked:
        for least in (0, 6):
            found = talker.beams(talk, beam=8, top_beams=8, max_len=8, min_len=least, length_penalty=0.0)
            for drawn in ({"temperature": 1.5, "samples": 20, "seed": 3}, {"temperature": 0}):
                generation = talker.generation(talk, max_len=8, min_len=least, **drawn)
                list(generation)
                found += generation.outputs
            for one in found:
                assert not ends & {*one.tokens}
                assert len(one.tokens) >= least
                endings.add(one.ended)
    assert endings == {"eos", "length"}


@pytest.fixture(scope="module")
def server(writer, talker, encoders):
    with serving({"words": writer, "talk": talker, "bert": encoders["words"]}) as client:
        yield client


def chunks(text):
    *parts, last = text.strip().split("\n\n")
    assert last == "data: [DONE]"
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def test_completions(server, writer):
    asked = {"model": "words", "prompt": "sun ", "max_tokens": 9, "temperature": 0, "top_p": 1, "n": 1, "user": "me"}
    answer = server.post("/v1/completions", asked).json
    (text,) = writer.generate("sun ", temperature=0, max_len=9)
    assert answer["object"] == "text_completion"
    assert [one["text"] for one in answer["choices"]] == [text]
    assert answer["choices"][0]["finish_reason"] in ("length", "stop")
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]
    drawn = {"model": "words", "prompt": ["m"], "temperature": 1.0, "n": 3, "seed": 4, "max_tokens": 6, "stop": " "}
    texts = writer.generate("m", temperature=1.0, samples=3, seed=4, max_len=6, stop=[" "])
    assert [one["text"] for one in server.post("/v1/completions", drawn).json["choices"]] == texts
    stream = chunks(
        server.post("/v1/completions", {**asked, "stream": True, "stream_options": {"include_usage": True}}).text
    )
    assert "".join(one["choices"][0]["text"] for one in stream if one["choices"]) == text
    assert stream[-1]["usage"] == answer["usage"]
    assert len({one["id"] for one in stream}) == 1


def test_chats(server, talker):
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "sky"}]},
    ]
    asked = {"messages": messages, "max_completion_tokens": 8, "temperature": 0}
    (text,) = talker.generate(Conversation().say("system", "be brief").say("user", "sky"), temperature=0, max_len=8)
    answer = server.post("/v1/chat/completions", asked).json
    assert answer["model"] == "talk"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": text}
    stream = chunks(server.post("/v1/chat/completions", {**asked, "stream": True}).text)
    deltas = [one["choices"][0]["delta"] for one in stream]
    assert "".join(one.get("content", "") for one in deltas) == text
    assert sum("role" in one for one in deltas) == (1 if text else 0)
    assert stream[-1]["choices"][0]["finish_reason"] == answer["choices"][0]["finish_reason"]
    own = server.post("/v1/generate", {"model": "talk", "prompt": "sky", "system": "be brief", "chat": "chatml",
                                       "temperature": 0, "max_tokens": 8}).json  # fmt: skip
    assert own["results"][0]["text"] == text


def test_embeddings(server, encoders):
    texts = ["the cat", "a dog sleeps"]
    answer = server.post("/v1/embeddings", {"model": "bert", "input": texts}).json
    assert np.allclose([one["embedding"] for one in answer["data"]], encoders["words"].embed(texts), atol=1e-5)
    packed = server.post("/v1/embeddings", {"input": texts[0], "encoding_format": "base64"}).json["data"][0][
        "embedding"
    ]
    assert np.allclose(np.frombuffer(base64.b64decode(packed), "<f4"), answer["data"][0]["embedding"], atol=1e-5)


@pytest.mark.parametrize(
    ("route", "body", "status", "said"),
    [
        ("completions", {"model": "words", "prompt": ["a", "b"]}, 400, "prompt has 2 texts"),
        (
            "completions",
            {"model": "words", "prompt": "a", "logit_bias": {}},
            400,
            "field 'logit_bias' is not served",
        ),
        ("completions", {"model": "words", "response_format": {}}, 400, "field 'response_format' is not served"),
        ("completions", {"model": "words", "max_token": 3}, 400, "did you mean 'max_tokens'?"),
        ("completions", {"model": "words", "prompt": "a", "presence_penalty": 1}, 400, "presence_penalty=1.0 is not"),
        ("chat/completions", {"model": "words", "messages": []}, 422, "model 'words' is a run for language"),
        ("chat/completions", {"messages": []}, 422, "answered after a message of the user"),
        ("chat/completions", {"messages": [{"role": "king", "content": "a"}]}, 422, "role='king' must be one of"),
        ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "must be text"),
        ("chat/completions", {"messages": ["hello"]}, 400, "messages[0]"),
        ("embeddings", {"model": "bert", "input": [[1, 2]]}, 400, "input"),
        ("embeddings", {"model": "words", "input": "a"}, 422, "not for /v1/embeddings; it does: generate"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_is_named(server, route, body, status, said):
    assert said in server.error(f"/v1/{route}", body, status)[1]
