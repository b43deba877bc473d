"""A run loaded in another precision than it was trained in."""

import pytest
import torch

import regard
from regard.analysis.pruning import every_head, prune
from regard.errors import ConfigError, RunError
from regard.nn.quantized import Int8Linear
from regard.runs.checkpoint import weights_of
from regard.tasks.looking import LookOptions, document
from regard.tasks.run import PRECISIONS, inference_precision, load_config

SETTINGS = [
    "model.width=16",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.feed_forward=24",
    "model.max_len=24",
    "data.max_len=24",
    "tokenizer.kind=word",
    "train.steps=2",
    "train.batch_tokens=200",
    "train.threads=1",
]
WORDS = ["the", "a", "cat", "dog", "sees", "hears", "big", "small", "red", "house", "runs", "sleeps"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("precision")
    lines = [f"{a} {b}\t{b.upper()} {a.upper()}\n" for a in WORDS for b in WORDS]
    (folder / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    files = {"data": {name: [str(folder / "pairs.tsv")] for name in ("train", "valid")}}
    regard.train(regard.make_config(preset="tiny", overrides=SETTINGS, extra=files), folder / "run")
    return folder / "run"


def test_a_run_says_its_precision(folder):
    run = regard.load(folder, "cpu")
    assert run.precision == "float32"
    assert repr(run).startswith(f"<Run {folder}: translation with a ")
    assert "float32 on cpu" in repr(run)
    assert regard.load(folder, "cpu", "auto").precision == "float32"
    half = regard.load(folder, "cpu", "bfloat16", tell=lambda note: None)
    assert half.precision == "bfloat16"
    assert {one.dtype for one in half.model.parameters()} == {torch.bfloat16}
    assert isinstance(regard.load(folder, "cpu", "int8").model.decoder[0].feed_forward.inner, Int8Linear)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_run_translates_scores_and_evaluates_in_each(folder, precision):
    run = regard.load(folder, "cpu", precision, tell=lambda note: None)
    exact = regard.load(folder, "cpu")
    one, right = (each.translations(["the cat sees"], beam=3)[0][0] for each in (run, exact))
    assert one.log_prob == pytest.approx(right.log_prob, rel=0.1)
    found, scores = (regard.evaluate(each, limit=4) for each in (run, exact))
    assert found["perplexity"] == pytest.approx(scores["perplexity"], rel=0.05)
    assert document(run, ["the cat sees"], LookOptions(edits=True), beam=3, max_len=8).sentences[0].edited


def test_what_a_processor_is_slow_at_is_said(folder, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    for has in (True, False):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda has=has: has)
        told = []
        regard.load(folder, "cpu", "bfloat16", told.append)
        assert bool(told) is not has
    assert "float32 or int8 is faster" in told[0]


def test_what_cannot_be_is_refused_by_name(folder, monkeypatch):
    config = load_config(folder)
    with pytest.raises(ConfigError, match=r"precision=int9 must be one of .*int8"):
        regard.load(folder, "cpu", "int9")
    gpu = torch.device("cuda")
    with pytest.raises(ConfigError, match="precision=int8 is for a CPU, not for cuda"):
        inference_precision("int8", gpu, config)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    assert inference_precision("auto", gpu, config) == "bfloat16"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: False)
    assert inference_precision("auto", gpu, config) == "float32"
    with pytest.raises(ConfigError, match="does not have it; use float32"):
        inference_precision("bfloat16", gpu, config)
    recurrent = regard.make_config(preset="bahdanau-2015")
    assert inference_precision("auto", torch.device("cpu"), recurrent) == "float32"
    with pytest.raises(ConfigError, match="bfloat16 does not apply to a recurrent model"):
        inference_precision("bfloat16", torch.device("cpu"), recurrent)


def test_an_int8_run_is_neither_saved_nor_pruned(folder):
    run = regard.load(folder, "cpu", "int8")
    with pytest.raises(RunError, match="load the run with precision='float32'"):
        weights_of(run.model)
    with pytest.raises(RunError, match="load the run with precision='float32'"):
        prune(run, every_head(run.model)[:1])
