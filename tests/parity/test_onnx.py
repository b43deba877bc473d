"""ONNX graphs, run by onnxruntime, say what the run says: for any batch, beam, source and past, an empty one too."""

import json

import numpy as np
import pytest
from engine_toys import graphs, language_model, saved, sentences, translator

import regard
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError, RunError
from regard.interop.engines import export_run, translator_with, use_engine
from regard.interop.onnx import DECODER, ENCODER
from regard.interop.parity import REPORT, check_engine_files

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
SEARCHES = [
    DecodeConfig(beam=1, max_len=12),
    DecodeConfig(beam=4, top_beams=3, max_len=12),
    DecodeConfig(beam=3, max_len=12, length_form="power", length_penalty=1.0, exact=True, no_repeat=2, min_len=2),
    DecodeConfig(beam=1, max_len=12, temperature=0.9, samples=3, top_p=0.9, seed=5),
]


def same(run, directory):
    """The best outputs are equal, and so are the scores of the others: among these a toy has ties."""
    theirs = translator_with(run, "onnx", directory)
    for texts in (sentences(9), sentences(1)):
        for config in SEARCHES:
            found, expected = theirs.translate(texts, config), run.translator.translate(texts, config)
            assert [one[0].tokens for one in found] == [one[0].tokens for one in expected]
            for one, other in zip(found, expected, strict=True):
                assert [each.score for each in one] == pytest.approx([each.score for each in other], rel=1e-3, abs=1e-3)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx")
    run = regard.load(saved(translator(encoder_layers=1, decoder_layers=1), folder / "run"), "cpu")
    return run, graphs(run, folder / "out")


def test_every_search_of_ours_works_over_the_graphs(toy):
    same(*toy)


def test_graphs_have_named_tensors_and_axes_that_anyone_can_feed(toy):
    run, out = toy
    encoder, decoder = (onnxruntime.InferenceSession(out / name) for name in (ENCODER, DECODER))
    assert [one.name for one in encoder.get_inputs()] == ["tokens", "lengths"]
    assert [one.name for one in encoder.get_outputs()] == ["memory_key_0", "memory_value_0"]
    shapes = {one.name: one.shape for one in decoder.get_inputs()}
    assert shapes["tokens"] == ["sources", "beam"]
    assert shapes["memory_key_0"] == ["sources", 4, "source_length", 6]
    assert shapes["past_value_0"] == ["sources", "beam", 4, "past_length", 6]
    memory = encoder.run(None, {"tokens": np.array([[5, 6, 2]]), "lengths": np.array([3])})
    empty = np.zeros((1, 1, 4, 0, 6), np.float32)
    fed = {"tokens": np.array([[1]]), "lengths": np.array([3]), "past_key_0": empty, "past_value_0": empty}
    logits, key, _ = decoder.run(None, {**fed, "memory_key_0": memory[0], "memory_value_0": memory[1]})
    assert key.shape == (1, 1, 4, 1, 6)
    config = DecodeConfig(beam=1, max_len=1)
    (best,) = run.translator.translate(["b0 c0"], config)[0]
    assert logits.argmax() == (best.tokens or (2,))[0]


def test_the_engine_is_one_for_everything_that_translates(toy, tmp_path):
    run, out = toy
    native = regard.load(run.directory, "cpu")
    used = use_engine(regard.load(run.directory, "cpu"), "onnx", out)
    assert used.translate(sentences(5), beam=3) == native.translate(sentences(5), beam=3)
    report, lines = check_engine_files(native, "onnx", out, sentences(6))
    assert [one["share"] for one in report["compared"]] == [1.0, 1.0]
    assert json.loads((out / REPORT).read_text())["passed"] is True
    assert len(lines) == 2


def test_what_is_not_there_is_said(toy, tmp_path):
    run, _ = toy
    with pytest.raises(ConfigError, match="quantization=int8 is for CTranslate2"):
        export_run(run, "onnx", tmp_path / "out", "int8")
    with pytest.raises(RunError, match=r"is missing its encoder.onnx"):
        translator_with(run, "onnx", tmp_path)
    (tmp_path / ENCODER).write_bytes(b"no graph")
    with pytest.raises(RunError, match="onnxruntime cannot load"):
        translator_with(run, "onnx", tmp_path)
    with pytest.raises(ConfigError, match="a decoder without any head in its attention cannot be exported to ONNX"):
        export_run(translator(decoder_heads=(0, 0)), "onnx", tmp_path / "out")


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        {"norm_first": True, "positions": "rotary", "kv_heads": 2, "window": 3, "gated": True, "activation": "silu"},
        {"positions": "relative", "relative_buckets": 8, "relative_distance": 12, "norm": "rms", "bias": False},
        {"positions": "alibi", "qk_norm": True, "norm_embedding": True, "scale_output": True, "share": "none"},
        {"position_how": "concatenate", "position_width": 8, "norm_first": True},
        {"encoder_heads": (4, 2), "decoder_heads": (0, 3), "cross_heads": (1, 0), "positions": "learned"},
        {"positions": "none", "norm": "none", "scaled": False, "activation": "gelu"},
    ],
    ids=["rotary", "relative", "alibi", "concatenated", "pruned", "plain"],
)
def test_every_setting_gives_the_same_outputs(settings, tmp_path):
    run = translator(**settings)
    same(run, graphs(run, tmp_path / "out"))


@pytest.mark.parametrize(
    "settings",
    [
        {"layers": 1, "norm": "rms", "positions": "rotary", "kv_heads": 2, "window": 4, "bias": False},
        pytest.param({"layer_heads": (0, 2), "positions": "learned"}, marks=pytest.mark.long),
    ],
    ids=["llama", "pruned gpt-2"],
)
def test_language_models_read_a_prompt_at_once_and_go_on_step_by_step(settings, tmp_path):
    run = language_model(**settings)
    out = graphs(run, tmp_path / "out")
    assert not (out / ENCODER).exists()
    report, _ = check_engine_files(run, "onnx", out, sentences(9))
    assert [one["share"] for one in report["compared"]] == [1.0, 1.0]
    assert max(one["largest_score_difference"] for one in report["compared"]) < 1e-3
