"""What `regard export hf` says of its own: the numbers of `transformers` beside the run's."""

import json

import pytest
import torch
from engine_toys import LONGEST, V, language_model, saved, sentences, translator, vocabulary

from regard.cli import main
from regard.interop import parity
from regard.interop.huggingface import export_run
from regard.interop.parity import NotEqual, check_huggingface, require
from regard.tasks.config import RunConfig
from regard.tasks.run import Run, build_model
from regard.text import Vocabularies

MARIAN = {"position_layout": "halves", "activation": "silu"}


@pytest.mark.parametrize("kind", ["marian", "gpt-2", "llama"])
def test_logits_are_compared_where_a_model_writes(kind, tmp_path):
    pytest.importorskip("transformers")
    llama = {"norm": "rms", "activation": "silu", "gated": True, "positions": "rotary", "bias": False}
    run = translator(**MARIAN) if kind == "marian" else language_model(**(llama if kind == "llama" else {"tied": True}))
    out = export_run(run, tmp_path / "out")
    report, (line,) = check_huggingface(run, out, sentences(6))
    assert json.loads((out / "parity.json").read_text()) == report
    assert report["largest_difference"] < 1e-4 * max(1.0, report["largest_number"])
    assert report["positions"] == report["positions_with_the_same_largest"] > 12
    assert line.startswith("logits of 6 inputs: largest difference ")
    require(report, out)
    with torch.no_grad():
        run.model.head.weight.mul_(1.1)
    with pytest.raises(NotEqual, match="numbers differ by "):
        require(check_huggingface(run, out, sentences(6))[0], out)


def test_vectors_are_compared_where_a_model_reads(tmp_path):
    pytest.importorskip("transformers")
    sizes = {"width": 16, "heads": 2, "layers": 1, "feed_forward": 24}
    config = RunConfig(model={"name": "bert", "vocab_size": V, "max_len": LONGEST, **sizes}, task="masking")
    tokenizer = vocabulary()
    run = Run(tmp_path, config, Vocabularies(tokenizer, tokenizer), build_model(config).eval())
    report, (line,) = check_huggingface(run, export_run(run, tmp_path / "encoder"), sentences(5))
    assert line.startswith("vectors of 5 inputs")
    assert report["passed"] is True
    config = RunConfig(model={"name": "vit", "image_size": 8, "patch_size": 4, "labels": (), **sizes}, task="images")
    run = Run(tmp_path, config, None, build_model(config).eval())
    report, (line,) = check_huggingface(run, export_run(run, tmp_path / "out"))
    assert line.startswith("vectors of 4 inputs")
    assert report["passed"] is True


def test_the_command_compares_and_says_so(tmp_path, capfd):
    pytest.importorskip("transformers")
    directory = saved(translator(**MARIAN), tmp_path / "run")
    assert main(["export", "hf", str(directory), "--out", str(tmp_path / "out")]) == 0
    written = capfd.readouterr()
    assert written.out.strip() == str(tmp_path / "out")
    assert "regard: logits of 100 inputs: largest difference" in written.err, "of the corpus that comes with regard"


def test_without_transformers_nothing_is_compared_which_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(parity, "find_spec", lambda name: None)
    report, lines = check_huggingface(translator(), tmp_path)
    assert json.loads((tmp_path / "parity.json").read_text()) == report
    assert report["passed"] is None
    assert lines == ["not compared: the package transformers is not here: pip install 'regard[hf]'"]
    require(report, tmp_path)
