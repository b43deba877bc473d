"""What is refused: each in one shape, with a status and a sentence that says what to change."""

import json

import pytest
from serve_toys import Client, serving, until

import regard
from regard.errors import ConfigError, RegardError
from regard.serve import Limits, make_app
from regard.serve.models import named
from regard.serve.refusals import refusal

SMALL = Limits(body=4000, texts=3, characters=1500, tokens=10, beam=4, budget=100)


@pytest.fixture(scope="module")
def small(translator):
    with serving({"en-fr": translator}, limits=SMALL) as client:
        yield client


@pytest.mark.parametrize(
    ("body", "status", "kind", "said"),
    [
        ({}, 400, "bad_request", "missing field 'text'"),
        ({"text": "a", "bem": 3}, 400, "bad_request", "unknown field 'bem'; did you mean 'beam'?"),
        ({"text": "a", "beam": "3"}, 400, "bad_request", "beam='3' must be a whole number"),
        ({"text": "a", "beam": True}, 400, "bad_request", "beam=True must be a whole number"),
        ({"text": "a", "beam": 0}, 400, "bad_request", "beam=0 must be at least 1"),
        ({"text": "a", "beam": 5}, 400, "bad_request", "beam=5 is more than this server allows: 4"),
        ({"text": "a", "samples": 10**9}, 400, "bad_request", "samples=1000000000 is more"),
        ({"text": "a", "max_len": 11}, 400, "bad_request", "max_len=11 is more than this server allows: 10"),
        ({"text": "a", "temperature": -1}, 400, "bad_request", "temperature=-1.0 must be at least 0.001"),
        ({"text": "a", "temperature": 1e-300}, 400, "bad_request", "temperature=1e-300 must be at least 0.001"),
        ({"text": "a", "length_penalty": 8.8e15}, 400, "bad_request", "length_penalty=8800000000000000.0 is more than"),
        (b'{"text": "a", "length_penalty": 1e400}', 400, "bad_request", "length_penalty=inf is more than"),
        ({"text": "a", "seed": 1 << 64}, 400, "bad_request", "seed: a number of 65 bits is no setting"),
        ({"text": "a", "min_len": -1}, 400, "bad_request", "min_len=-1 must be at least 0"),
        ({"text": ["a"] * 3, "beam": 4}, 413, "too_large", "3 texts x 4 hypotheses x 10 tokens may take 120 tokens"),
        ({"text": "a", "top_k": 3}, 400, "bad_request", "top_k=3 needs a temperature"),
        ({"text": "a", "overlong": "cut"}, 400, "bad_request", "overlong='cut' must be one of"),
        ({"text": 3}, 400, "bad_request", "text=3 must be text"),
        ({"text": ["a", None]}, 400, "bad_request", "text"),
        ({"text": []}, 400, "bad_request", "text is an empty list"),
        ({"text": ["a"] * 4}, 413, "too_large", "text has 4 texts; this server takes 3 per request"),
        ({"text": "a" * 1501}, 413, "too_large", "text has 1501 characters; this server takes 1500"),
        ({"text": "a" * 4001}, 413, "too_large", "the body has more than 4,000 bytes (--max-body)"),
        ({"text": "a \ud83d b"}, 400, "bad_request", "half a surrogate pair at character 2"),
        ({"text": "a " * 100, "overlong": "refuse"}, 422, "unusable_input", "the model reads at most"),
        ({"text": "a", "model": "en-fx"}, 404, "unknown_model", "unknown model 'en-fx'; did you mean 'en-fr'?"),
        ([1], 400, "bad_request", "the body must be a JSON object"),
        (b"{", 400, "bad_request", "the body is not JSON"),
        (b'{"text": NaN}', 400, "bad_request", "NaN is not a number of JSON"),
        (b'{"text": "\xff"}', 400, "bad_request", "not UTF-8 text: byte 10"),
        (b"[" * 3000, 400, "bad_request", "the body is not JSON"),
    ],
    ids=lambda value: str(value)[:40] if not isinstance(value, bytes) else "bytes",
)
def test_bad_input_is_named(small, translator, body, status, kind, said):
    found, message = small.error("/v1/translate", body, status)
    assert found == kind
    assert said in message
    assert str(translator.directory) not in message
    assert "Traceback" not in message
    assert len(message) < 600


def test_the_wrong_way_to_ask_is_refused_in_the_same_shape(small):
    plain = small.send("POST", "/v1/translate", b'{"text": "a"}', {"Content-Type": "text/plain"})
    assert plain.status == 415
    assert small.get("/v1/translate").status == 405
    assert small.get("/v1/translate").json["error"]["kind"] == "method_not_allowed"
    assert small.get("/v1/translate").headers["allow"] == "POST"
    for path in ("/nothing", "/v1/translate/", "/docs", "/redoc", "/../etc/passwd", "/v1/%00"):
        assert small.get(path).status == 404, path
        assert small.get(path).json["error"]["kind"] == "not_found"


def test_a_body_without_a_length_is_cut_off_too(small):
    connection = small.connection()
    connection.request(
        "POST",
        "/v1/translate",
        iter([b'{"text": "' + b"a" * 4000]),
        {"Content-Type": "application/json"},
        encode_chunked=True,
    )
    assert connection.getresponse().status == 413
    connection.close()


def test_a_server_with_a_key_tells_nothing_without_it(translator):
    with serving(translator, api_keys=["s3cret", "other"]) as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}, {"X-API-Key": "é"}):
            answer = Client(client.port, headers).post("/v1/translate", {"text": "a"})
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert Client(client.port, headers).get("/v1/models").status == 401
            assert Client(client.port, headers).get("/metrics").status == 401
        for headers in ({"Authorization": "Bearer s3cret"}, {"X-API-Key": "other"}):
            assert Client(client.port, headers).post("/v1/translate", {"text": "a"}).status == 200
        assert client.get("/health").status == client.get("/ready").status == 200


def test_only_pages_that_were_named_may_ask_from_a_browser(translator, client):
    def preflight(client, origin):
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        return client.send("OPTIONS", "/v1/translate", headers=asked).headers.get("access-control-allow-origin")

    assert preflight(client, "https://page.example") is None
    with serving(translator, allow_origins=["https://page.example"]) as friendly:
        assert preflight(friendly, "https://page.example") == "https://page.example"
        assert preflight(friendly, "https://other.example") is None


def test_a_host_name_that_is_not_ours_is_refused(translator):
    with serving(translator, allow_hosts=["localhost", "127.0.0.1", "[::1]"]) as client:
        assert client.get("/health").status == 200
        assert client.get("/health", Host="localhost:1234").status == 200
        assert client.get("/health", Host="[::1]:8080").status == 200
        assert client.get("/health", Host="evil.example").status == 403


def test_every_answer_carries_the_usual_headers(client):
    for answer in (client.get("/health"), client.get("/nothing"), client.post("/v1/translate", {"text": "a"})):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert len(answer.headers["x-request-id"]) == 12
        assert "server" not in answer.headers


def test_a_line_of_the_log_has_no_text_of_a_user(client, caplog):
    caplog.set_level("INFO", logger="regard.serve")
    client.post("/v1/translate?secret=text", {"text": "secret text"})
    client.get("/secret/text")

    def found():
        return [record.getMessage() for record in caplog.records if record.name == "regard.serve.access"]

    # Lines come after the answers they are about, so the last test's may be among them.
    until(lambda: any("GET (none) 404" in line for line in found()))
    assert not any("secret" in line for line in found())
    assert any("POST /v1/translate 200" in line and "toy" in line for line in found())


def test_messages_of_ours_keep_the_servers_paths_to_themselves(translator):
    with pytest.raises(RegardError) as caught:
        _ = translator.generator
    said = refusal(caught.value, [(str(translator.directory), "model 'toy'")])
    assert said.status == 422
    assert said.message == "model 'toy' is a run for translation, not for language"
    assert refusal(RuntimeError(f"bug in {translator.directory}")).message.startswith("the server failed")
    assert refusal(MemoryError()).kind == "out_of_memory"


def test_models_are_listed_without_their_places(small, translator):
    found = small.get("/v1/models").json["data"]
    assert [one["id"] for one in found] == ["en-fr"]
    assert found[0]["task"] == "translation"
    assert "translate" in found[0]["does"]
    assert str(translator.directory.parent) not in json.dumps(found)


def test_names_of_runs_are_checked(translator, tmp_path):
    assert list(named([translator, tmp_path / "other"])) == ["toy", "other"]
    with pytest.raises(ConfigError, match="two runs are called 'toy'"):
        named([translator, translator])
    with pytest.raises(ConfigError, match="cannot be the name"):
        named({"a b": translator})
    with pytest.raises(ConfigError, match="no run"):
        named([])
    with pytest.raises(RegardError, match="no such run"):
        make_app(tmp_path / "nothing")


def test_limits_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="queue=0 must be above 0"):
        Limits(queue=0)
    with pytest.raises(ConfigError, match="timeout=inf"):
        Limits(timeout=float("inf"))


def test_importing_regard_does_not_import_what_serving_needs(python):
    import subprocess

    code = "import sys, regard, regard.cli; assert not {'starlette', 'uvicorn', 'torch'} & set(sys.modules), 1"
    subprocess.run([python, "-c", code], check=True)
    assert regard.serve.make_app is make_app


def test_without_the_packages_one_line_says_what_to_install(monkeypatch, capsys):
    import regard.serve
    from regard.cli import main

    monkeypatch.setattr(regard.serve, "find_spec", lambda name: None)
    assert main(["serve", "runs/nothing"]) == 2
    said = capsys.readouterr().err
    assert said == "regard: serving needs starlette and uvicorn: pip install 'regard[serve]'\n"
