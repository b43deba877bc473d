"""Run directories and settings made to harm: refused in a line, at once, before they take memory or time."""

import json
import os
import shutil
import time

import pytest

import regard
from regard import config as settings
from regard import make_config
from regard.errors import ConfigError, RegardError, RunError
from regard.models import MODELS
from regard.models.size_limits import LARGEST, check_sizes
from regard.tasks.config import presets
from regard.tasks.run import load_config
from regard.text import tokenizer as text_tokenizer


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    (folder / "pairs.tsv").write_text("sun moon\tmoon sun\n" * 30, encoding="utf-8")
    small = ["model.width=16", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1", "data.world=0"]
    small += ["model.feed_forward=24", "train.batch_tokens=64", "train.steps=1", "train.threads=1", "data.max_len=16"]
    data = {"data": {"train": [str(folder / "pairs.tsv")]}}
    return regard.train(make_config(None, "tiny", small, data), folder / "run").directory


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


def changed(folder, **model):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["model"].update(model)
    del config["sha256"]
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"max_len": 10**12}, r"model\.max_len=1000000000000 must be at most 1,048,576$"),
        ({"max_len": 10**7}, r"model\.max_len=10000000 must be at most 1,048,576$"),
        ({"encoder_layers": 3_000}, r"model\.encoder_layers=3000 must be at most 2,000$"),
        ({"decoder_layers": 10**6}, r"model\.decoder_layers=1000000 must be at most 2,000$"),
        ({"width": 2**62}, r"model\.width=4611686018427387904 must be at most 262,144$"),
        ({"source_vocab_size": 2_000_000}, r"model\.source_vocab_size=2000000 must be at most 1,048,576$"),
        ({"width": 10**30}, "a number of 100 bits is no setting"),
        ({"encoder_heads": [1] * 2_000_000}, r"model\.encoder_heads has 2,000,000 entries"),
        ({"max_len": 2**20, "width": 2**12}, r"model\.max_len=1048576 makes a table of 4,294,967,296 numbers"),
        ({"max_len": 2**20, "positions": "rotary", "head_width": 2**12}, r"makes a table of 4,294,967,296 numbers"),
    ],
)
def test_sizes_that_no_memory_holds_are_refused_at_once(copy, model, said):
    changed(copy, **model)
    began = time.process_time()
    for use in (regard.load, regard.resume):
        with pytest.raises(RegardError, match=said):
            use(copy)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("name", [["translation"], {"translation": 1}, 5, "translations"])
def test_names_that_are_none_are_refused(copy, name):
    path = copy / "config.json"
    whole = json.loads(path.read_text())
    del whole["sha256"]
    for what, config in (
        ("task", {**whole, "task": name}),
        ("task", {**{key: value for key, value in whole.items() if key != "format"}, "task": name}),
        ("model", {**whole, "model": {**whole["model"], "name": name}}),
    ):
        path.write_text(json.dumps(config))
        with pytest.raises(RegardError, match=f"unknown {what} "):
            regard.load(copy)


def test_the_same_sizes_are_refused_in_a_new_run():
    for setting in ("model.max_len=10000000", "model.encoder_layers=3000", "model.width=4611686018427387904"):
        with pytest.raises(ConfigError, match=f"{setting} must be at most"):
            make_config(None, "tiny", [setting])


def test_every_preset_and_the_largest_models_there_are_may_be():
    for name in presets():
        check_sizes(regard.tasks.config.preset_mapping(name).get("model", {}))
    check_sizes({"layers": 126, "width": 16384, "feed_forward": 53248, "heads": 128, "max_len": 131072})
    check_sizes({"vocab_size": 901_629, "layers": 1000})
    names = {name for kind, _ in MODELS.values() for name in kind.__dataclass_fields__}
    assert names >= LARGEST.keys()  # no limit on what is no setting


def entries(count):
    return {f"w{index}": index for index in range(count)}


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("part", ["vocabulary", "list of added tokens"])
def test_a_vocabulary_of_millions_is_refused(copy, monkeypatch, part, sides):
    monkeypatch.setattr(text_tokenizer, "LARGEST_VOCABULARY", 1000)
    path = copy / "tokenizer.json"
    state = json.loads(path.read_text())
    if part == "vocabulary":
        state["model"]["vocab"] = entries(1001)
    else:
        state["added_tokens"] = [{**state["added_tokens"][0], "id": index} for index in range(1001)]
    path.write_text(json.dumps(state if sides == 1 else {"source": state, "target": state}))
    with pytest.raises(RunError, match=rf"tokenizer.json: its {part} has 1,001 entries; at most 1,000 are read"):
        regard.load(copy)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_only_regular_files_are_read(copy, name, kind):
    """A pipe that nobody writes to would keep a reader for ever, /dev/zero fill its memory."""
    (copy / name).unlink()
    if kind == "pipe":
        os.mkfifo(copy / name)
    else:
        (copy / name).symlink_to("/dev/zero")
    with pytest.raises(RunError, match=f"{name} is not a regular file"):
        regard.load(copy)


def test_a_log_that_is_no_regular_file_is_refused(copy):
    (copy / "log.jsonl").unlink()
    os.mkfifo(copy / "log.jsonl")
    with pytest.raises(RunError, match=r"log\.jsonl is not a regular file"):
        regard.resume(copy, ("train.steps=2",))


def test_a_configuration_that_never_ends_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "LARGEST_FILE", 1000)
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=r"zero\.toml has more than 1,000 bytes; at most so many are read"):
        make_config(tmp_path / "zero.toml")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", f"[{'.'.join('a' * 20_000)}]\nb = 1", "settings are nested more than 16 deep"),
        ("a.toml", f"{'.'.join('a' * 20_000)} = 1", "settings are nested more than 16 deep"),
        ("a.toml", f"a = {'[' * 300}{']' * 300}", "settings are nested more than 16 deep"),
        ("a.toml", f"a = {'[' * 20_000}{']' * 20_000}", "a.toml: "),
        ("a.json", '{"a": ' * 300 + "1" + "}" * 300, "settings are nested more than 16 deep"),
        ("a.toml", f"[train]\nsteps = 0x{'f' * 8000}", "a number of 32,000 bits is no setting"),
    ],
)
def test_settings_nested_deeply_or_without_end_are_refused(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=said):
        make_config(tmp_path / name)


def test_a_runs_own_settings_are_held_to_the_same(copy):
    path = copy / "config.json"
    config = json.loads(path.read_text())
    config["train"]["steps"] = json.loads("[" * 500 + "]" * 500)
    path.write_text(json.dumps(config))
    with pytest.raises(RunError, match="nested more than 16 deep"):
        load_config(copy)
    with pytest.raises(ConfigError, match="nested more than 16 deep"):
        make_config(None, "tiny", [f"{'.'.join('a' * 20_000)}=1"])
