"""Models by name, from a hub of our own on loopback: what is fetched, what is not, and that offline stays offline."""

import hashlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import regard
from regard.cli import main
from regard.errors import ConfigError, RunError
from regard.interop.hub import checkpoint, looks_like_name
from regard.interop.huggingface.looking import look_at_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "someone/tiny-gpt2"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A tiny GPT-2 as the hub would have it: with pickled weights, code and another engine's files beside it."""
    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("tiny")
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(vocab_size=30, n_embd=8, n_layer=1, n_head=2, n_positions=16, **ends)
    transformers.GPT2LMHeadModel(config).save_pretrained(directory)
    words = ["<|endoftext|>", *(f"w{number}" for number in range(29))]
    own = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[0]))
    own.pre_tokenizer, own.decoder = pre_tokenizers.WhitespaceSplit(), decoders.WordPiece(cleanup=False)
    transformers.PreTrainedTokenizerFast(tokenizer_object=own, eos_token=words[0]).save_pretrained(directory)
    found = {path.name: path.read_bytes() for path in directory.iterdir()}
    return {**found, "pytorch_model.bin": b"pickle", "modeling.py": b"raise SystemExit", "onnx/model.onnx": b"graph"}


@pytest.fixture
def hub(files, tmp_path, monkeypatch):
    """A hub with two models, one of which is pickled; `asked` is what it was asked for."""
    asked = []
    repositories = {NAME: files, "someone/pickled": {"config.json": b"{}", "pytorch_model.bin": b"pickle"}}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_HEAD(self):
            self.answer(body=False)

        def do_GET(self):
            self.answer(body=True)

        def answer(self, body):
            path = self.path.partition("?")[0]
            asked.append(path)
            for name, content in repositories.items():
                if path in (
                    f"/api/models/{name}",
                    f"/api/models/{name}/revision/main",
                    f"/api/models/{name}/revision/{COMMIT}",
                ):
                    siblings = [{"rfilename": one} for one in content]
                    return self.send(
                        json.dumps({"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings}).encode(), body
                    )
                if path.startswith(f"/api/models/{name}/revision/"):
                    return self.refuse("RevisionNotFound")
                if path.startswith(f"/api/models/{name}/tree/"):
                    entries = [
                        {"type": "file", "path": one, "size": len(data), "oid": "0" * 40}
                        for one, data in content.items()
                    ]
                    return self.send(json.dumps(entries).encode(), body)
                for file, data in content.items():
                    if path in (f"/{name}/resolve/main/{file}", f"/{name}/resolve/{COMMIT}/{file}"):
                        return self.send(data, body)
            return self.refuse("RepoNotFound")

        def send(self, data, body):
            self.send_response(200)
            for key, value in {
                "Content-Length": str(len(data)),
                "ETag": f'"{hashlib.sha1(data).hexdigest()}"',
                "X-Repo-Commit": COMMIT,
                "Content-Type": "application/json",
            }.items():
                self.send_header(key, value)
            self.end_headers()
            if body:
                self.wfile.write(data)

        def refuse(self, code):
            self.send_response(404)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    constants = huggingface_hub.constants
    for key, value in {
        "ENDPOINT": address,
        "HUGGINGFACE_CO_URL_TEMPLATE": address + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_PROGRESS_BARS": True,
    }.items():
        monkeypatch.setattr(constants, key, value)
    yield asked
    server.shutdown()
    server.server_close()


def test_a_model_is_loaded_by_name_and_fetched_once_without_pickle_or_code(hub):
    said = []
    run = regard.load(f"hf:{NAME}", "cpu", tell=said.append)
    assert any("fetching someone/tiny-gpt2 at 0123456789ab from http://127.0.0.1" in one for one in said)
    assert run.task.name == "language"
    fetched = {path.rpartition("/")[2] for path in hub if "/resolve/" in path}
    assert fetched >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert not fetched & {"pytorch_model.bin", "modeling.py", "model.onnx"}
    hub.clear()
    again = regard.load(f"hf:{NAME}", "cpu", tell=said.append)
    assert hub == []  # what the cache has is not asked for
    assert again.directory == run.directory
    assert look_at_checkpoint(NAME, ["w1 w2"]).title == "Where tiny-gpt2 looked"
    assert hub == []


def test_commands_import_and_look_by_name(hub, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["import", "hf", NAME, "--revision", COMMIT, "--out", str(out)]) == 0
    assert (out / "model.safetensors").exists()
    assert main(["look", f"hf:{NAME}", "w1 w2", "--out", str(tmp_path / "page.html")]) == 0
    assert "Where tiny-gpt2 looked" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "fetching someone/tiny-gpt2" in capsys.readouterr().err


def test_what_the_hub_does_not_have_is_said(hub, tmp_path):
    with pytest.raises(RunError, match=r"no directory someone/nothing here, and no model of that name on http://127"):
        checkpoint("someone/nothing")
    with pytest.raises(RunError, match=r"no config.json with model.safetensors.*its weights are pytorch_model.bin"):
        checkpoint("someone/pickled")
    with pytest.raises(RunError, match="has no revision v9"):
        checkpoint(NAME, revision="v9")
    with pytest.raises(RunError, match="no model on the hub can have that name"):
        checkpoint(str(tmp_path / "not" / "there"))
    with pytest.raises(ConfigError, match="is a directory here"):
        checkpoint(str(tmp_path), revision="main")


def test_a_directory_that_is_not_there_but_looks_like_a_name_gets_a_hint(hub):
    with pytest.raises(
        RunError, match=f"no such run: {NAME}; a model of that name on the Hugging Face hub is hf:{NAME}"
    ):
        regard.load(NAME)
    assert hub == []
    assert [looks_like_name(one) for one in ("gpt2", NAME, "a/b/c", "./gpt2", "/tmp/x", "runs\\x")] == [True] * 2 + [
        False
    ] * 4


def test_a_hub_that_cannot_be_reached_is_said_in_one_line(hub, monkeypatch):
    closed = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    closed.close()
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
    with pytest.raises(
        RunError, match=f"no directory some/model here, and some/model could not be fetched from {address}"
    ):
        checkpoint("some/model")


def test_offline_stays_offline(hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for ask in (lambda: checkpoint(NAME), lambda: checkpoint(NAME, fresh=True), lambda: regard.load(f"hf:{NAME}")):
        with pytest.raises(RunError, match="since HF_HUB_OFFLINE is set"):
            ask()
    assert hub == []
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    there = checkpoint(NAME, tell=lambda said: None)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    hub.clear()
    assert checkpoint(NAME, fresh=True) == there
    assert hub == []
