"""Checkpoints that are damaged or made to harm: each is refused in words of ours, and nothing is left behind."""

import json
import math
import shutil
import struct

import pytest
import torch

import regard
from regard.cli import main
from regard.errors import ConfigError, RegardError, RunError
from regard.interop.huggingface import config_fields, export_run, import_directory
from regard.interop.huggingface.conversion import FAMILIES
from regard.interop.huggingface.generation_config import decode_settings
from regard.interop.huggingface.vit import image_settings
from regard.interop.huggingface.weights import in_one_line
from regard.runs.files import read_tensors, write_tensors

WEIGHT, OTHER = "transformer.h.0.mlp.c_fc.weight", "transformer.h.1.mlp.c_fc.weight"
ODD = (
    None,
    "x",
    "",
    [],
    {},
    [1],
    ["x"],
    [[1, 2]],
    {"a": 1},
    -1,
    0,
    10**30,
    True,
    False,
    1.5,
    math.nan,
    math.inf,
    "\x1b[31m",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    (folder / "text.txt").write_text("sun moon star\n" * 30, encoding="utf-8")
    small = ["model.width=16", "model.heads=2", "model.layers=2", "model.feed_forward=24", "model.bias=true"]
    small += ["model.positions=learned", "data.max_len=16", "train.batch_tokens=64", "train.steps=1", "train.threads=1"]
    data = {"data": {"train": [str(folder / "text.txt")]}}
    return export_run(regard.train(regard.make_config(None, "gpt-tiny", small, data), folder / "run"), folder / "out")


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


def refused(folder, pattern, kind=RunError):
    with pytest.raises(kind, match=pattern) as found:
        import_directory(folder, folder.parent / "new")
    assert not (folder.parent / "new").exists()
    return str(found.value)


def rewrite(folder, change):
    """Change the table at the front of the weights' file, not the numbers behind it."""
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    table = json.loads(raw[8 : 8 + size])
    text = change(table) or json.dumps(table).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + size :])


def doubled(table):
    """The same name twice, which JSON allows: once for its own numbers, once for another's."""
    return f'{json.dumps(table)[:-1]}, "{WEIGHT}": {json.dumps(table[OTHER])}}}'.encode()


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table[WEIGHT].update(shape=[1 << 40, 1 << 40]),
        lambda table: table[WEIGHT].update(shape=[-1, 5]),
        lambda table: table[WEIGHT].update(data_offsets=[0, 1 << 50]),
        lambda table: table[WEIGHT].update(data_offsets=[8, 0]),
        lambda table: table[WEIGHT].update(data_offsets=table[OTHER]["data_offsets"]),
        lambda table: table[WEIGHT].update(dtype="F33"),
        lambda table: table.update(more={"dtype": "F32", "shape": [1 << 62], "data_offsets": [0, 0]}),
        doubled,
        lambda table: b"{nope",
        lambda table: b"[" * 100_000,
    ],
)
def test_a_table_of_weights_that_lies_is_refused_before_memory_is_taken(copy, change):
    rewrite(copy, change)
    refused(copy, "cut short or is not safetensors")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_every_weight_that_is_not_a_number_is_named(copy, bad):
    weights = read_tensors(copy / "model.safetensors")
    weights[WEIGHT][0, 0] = bad
    weights[OTHER][-1, -1] = bad
    weights["transformer.ln_f.bias"][3] = bad
    write_tensors(copy / "model.safetensors", weights)
    said = refused(copy, "are not all finite numbers")
    assert said.endswith("transformer.ln_f.bias; transformer.h.{0,1}.mlp.c_fc.weight")


def test_numbers_that_float32_cannot_hold_are_refused(copy):
    weights = read_tensors(copy / "model.safetensors")
    weights[WEIGHT] = weights[WEIGHT].double() + 1e300
    write_tensors(copy / "model.safetensors", weights)
    refused(copy, f"not all finite numbers: {WEIGHT}")


@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.float8_e4m3fn, torch.complex64])
def test_weights_of_another_kind_are_named(copy, kind):
    weights = read_tensors(copy / "model.safetensors")
    weights[WEIGHT] = weights[WEIGHT].to(kind)
    write_tensors(copy / "model.safetensors", weights)
    refused(copy, rf"{WEIGHT} holds \w+, not one of F32")


def test_all_of_many_faults_are_named_in_one_line():
    faults = [f"missing h.{layer}.{part}.weight" for part in ("ln_1", "ln_2") for layer in range(40)]
    said = in_one_line([*faults, "wte is (3, 5), not (4, 5)", "extra h.77.ln_1.weight"])
    numbers = ",".join(map(str, range(40)))
    assert said == (
        f"missing h.{{{numbers}}}.ln_1.weight; missing h.{{{numbers}}}.ln_2.weight; wte is (3, 5), not (4, 5); "
        f"extra h.77.ln_1.weight"
    )
    assert in_one_line(f"extra {index}" for index in range(1000)).endswith("; and 800 more")


def test_strange_names_neither_fill_nor_steer_a_terminal(copy, capsys):
    nothing = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    rewrite(copy, lambda table: table.update({"\x1b[31mred\nline": nothing, "x" * 1_000_000: nothing}))
    assert main(["import", "hf", str(copy), "--out", str(copy.parent / "new")]) == 2
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert said.count("\n") == 1
    assert len(said) < 1000
    assert "extra \\x1b[31mred line" in said


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../a.safetensors", "a/b.safetensors", "..safetensors", "a.bin", 3, ["a"]]
)
def test_an_index_leads_nowhere_else(copy, name):
    (copy / "model.safetensors").rename(copy / "a.safetensors")
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
    refused(copy, "no part of it")


def test_a_name_in_two_parts_is_refused(copy):
    shutil.copy(copy / "model.safetensors", copy / "b.safetensors")
    (copy / "model.safetensors").rename(copy / "a.safetensors")
    table = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(table))
    refused(copy, "which another part holds too")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
@pytest.mark.parametrize("text", ['{"a":' + "[" * 100_000, '{"a": ' + "9" * 5000 + "}", "\udcff", '{"a": 1'])
def test_json_that_cannot_be_read_is_refused(copy, name, text):
    (copy / name).write_bytes(text.encode("utf-8", errors="surrogateescape"))
    assert refused(copy, f"{name} was cut short or is not JSON").count(name) == 1


def test_json_of_any_size_is_not_read(copy, monkeypatch):
    monkeypatch.setattr(config_fields, "LARGEST_JSON", 100)
    refused(copy, r"config\.json has \d+ bytes; of JSON at most 100")


class Asked(dict):
    """A configuration that remembers which of its fields were asked for."""

    def __init__(self, *given):
        super().__init__(*given)
        self.fields = set()

    def get(self, key, default=None):
        self.fields.add(key)
        return super().get(key, default)


READERS = {name: family.settings for name, family in FAMILIES.items()}
READERS["generation"] = lambda config: decode_settings(config, 40, 61)
READERS["images"] = lambda config: image_settings(config, 16, 3)


@pytest.mark.parametrize("name", READERS)
def test_any_value_of_any_field_is_taken_or_refused_by_its_name(name):
    plain, read = Asked(), READERS[name]
    read(plain)
    assert len(plain.fields) > 5
    said = []
    for field in sorted(plain.fields):
        for value in ODD:
            try:
                read({field: value})
            except RegardError as error:
                said.append((field, value, str(error)))
    assert len(said) > 20
    assert [one for one in said if one[0] not in one[2]] == []


@pytest.mark.parametrize("value", ODD)
def test_odd_kinds_of_model_and_odd_tokens_are_refused(copy, value):
    path = copy / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"model_type": value}))
    refused(copy, "model_type=", ConfigError)
    path.write_text(json.dumps(config | {"eos_token_id": value}))
    if value in (None, [1]) or (isinstance(value, int) and not isinstance(value, bool)):
        import_directory(copy, copy.parent / "run")  # a number that no token has, or none, says nothing
    else:
        refused(copy, "eos_token_id=", RegardError)
