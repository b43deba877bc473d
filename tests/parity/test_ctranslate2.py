"""CTranslate2 says what the run says: every setting that it can express, and the others refused by name."""

import json
from dataclasses import replace

import pytest
import torch
from engine_toys import V, language_model, largest_difference, outputs, saved, sentences, translator

import regard
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError, RegardError, RunError
from regard.interop import ctranslate2 as ours
from regard.interop.ctranslate2 import CTranslate2Translator
from regard.interop.engines import ENGINES, digest, export_run, use_engine
from regard.interop.parity import REPORT, NotEqual, check_engine_files, require
from regard.nn.batch import Pairs, Tokens
from regard.runs.checkpoint import weights_of
from regard.tasks.translator import encode_pair

pytest.importorskip("ctranslate2")
RELATIVE = {"positions": "relative", "relative_buckets": 8, "relative_distance": 12}
SETTINGS = {
    "as in 2017": {},
    "norm first": {"norm_first": True},
    "gelu": {"activation": "gelu"},
    "gelu by tanh": {"activation": "gelu-tanh"},
    "gated silu": {"activation": "silu", "gated": True},
    "rms": {"norm": "rms", "bias": False},
    "rms first": {"norm": "rms", "norm_first": True},
    "epsilon": {"norm_epsilon": 0.01},
    "learned from row 2": {"positions": "learned", "position_offset": 2},
    "learned on each side": {"positions": "learned", "own_positions": True},
    "linear": {"positions": "linear"},
    "no positions": {"positions": "none"},
    "halves": {"position_layout": "halves"},
    "rotary": {"positions": "rotary", "norm_first": True},
    "rotary, of a smaller base": {"positions": "rotary", "rotary_base": 20.0},
    "relative": {**RELATIVE, "scaled": False, "norm": "rms"},
    "places beside words": {"position_how": "concatenate", "position_width": 8},
    "head width": {"head_width": 5},
    "one key for all heads": {"kv_heads": 1},
    "two keys, rotary": {"kv_heads": 2, "positions": "rotary"},
    "tables apart": {"share": "none"},
    "vocabularies of two sizes": {"share": "none", "source_vocab_size": V + 5},
    "input tied": {"share": "input"},
    "output tied": {"share": "output"},
    "no bias of the output": {"output_bias": False},
    "embedding as it is": {"scale_embedding": False},
    "norm after embedding": {"norm_embedding": True},
    "output scaled": {"scale_output": True},
    "scores not scaled": {"scaled": False},
    "pruned": {"encoder_heads": (4, 2), "decoder_heads": (0, 3), "cross_heads": (1, 0)},
    "shallow decoder": {"encoder_layers": 3, "decoder_layers": 1},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_every_setting_gives_the_same_tokens_greedy_and_by_beam(settings, tmp_path, monkeypatch):
    # A search that goes on for long enough finds the best end, whatever it stops by, where length has no say.
    monkeypatch.setattr(ours, "PATIENCE", 6.0)
    run = translator(**settings)
    theirs = CTranslate2Translator(run, export_run(run, "ctranslate2", tmp_path / "out"))
    texts = sentences()
    for config in (DecodeConfig(beam=1, max_len=20), DecodeConfig(beam=4, max_len=20, length_penalty=0.0)):
        assert outputs(theirs, texts, config) == outputs(run.translator, texts, config)
        found, expected = theirs.translate(texts, config), run.translator.translate(texts, config)
        assert largest_difference(found, expected) < 1e-3


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"norm": "none"}, "model.norm=none"),
        ({"window": 3}, "model.window=3"),
        ({"residual": False}, "model.residual=False"),
        ({"positions": "alibi"}, "model.positions=alibi"),
        ({"qk_norm": True}, "model.qk_norm=True"),
    ],
)
def test_what_it_cannot_express_is_refused_by_name(settings, named, tmp_path):
    with pytest.raises(ConfigError, match=f"^{named} cannot be exported to CTranslate2: "):
        export_run(translator(**settings), "ctranslate2", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    run = regard.load(saved(translator(), tmp_path_factory.mktemp("runs") / "toy"), "cpu")
    return run, CTranslate2Translator(run, export_run(run, "ctranslate2", tmp_path_factory.mktemp("out") / "model"))


@pytest.mark.parametrize("form", ["gnmt", "power"])
def test_the_length_penalty_is_ours_in_both_forms(toy, form):
    run, theirs = toy
    texts, config = sentences(40), DecodeConfig(beam=4, top_beams=2, max_len=20, length_form=form)
    found, expected = theirs.translate(texts, config), run.translator.translate(texts, config)
    equal = [one[0].tokens == other[0].tokens for one, other in zip(found, expected, strict=True)]
    assert sum(equal) >= 38  # the rules by which searches stop differ: see PATIENCE
    for same, one, other in zip(equal, found, expected, strict=True):
        assert [each.score for each in one] == sorted((each.score for each in one), reverse=True)
        if same:
            assert one[0].score == pytest.approx(other[0].score, abs=1e-4)
            assert one[0].log_prob == pytest.approx(other[0].log_prob, abs=1e-4)


@pytest.mark.parametrize(
    "asked",
    [
        {"min_len": 6},
        {"forbid": (5, 6, 7, 8)},
        {"no_repeat": 2},
        {"force_end": True},
        {"max_len": 1},
        {"max_ratio": 1.0, "max_extra": 1},
    ],
    ids=str,
)
def test_limits_are_those_of_our_greedy_search(toy, asked):
    run, theirs = toy
    config = replace(DecodeConfig(beam=1, max_len=20, max_ratio=None), **asked)
    assert outputs(theirs, sentences(), config) == outputs(run.translator, sentences(), config)


def test_a_text_that_is_too_long_is_split_as_ever_and_a_blank_one_stays_blank(toy):
    run, theirs = toy
    texts, config = [" ".join(sentences(60)), "", "a0"], DecodeConfig(beam=1, max_len=20)
    assert outputs(theirs, texts, config) == outputs(run.translator, texts, config)


def test_samples_have_the_log_probabilities_of_the_model(toy):
    run, theirs = toy
    config = DecodeConfig(beam=1, max_len=8, temperature=0.8, top_k=5, top_p=0.9, samples=3)
    found = theirs.translate(sentences(8), config)
    assert all(len(one) == 3 for one in found)
    assert len({one.tokens for best in found for one in best}) > 4
    for sentence, best in zip(sentences(8), found, strict=True):
        for one in best:
            source, _ = encode_pair(run, sentence, "")
            target = [1, *one.tokens, *([2] if one.finished else [])]
            log_probs = run.model.logits(Pairs(Tokens.of([source]), Tokens.of([target])))[0].log_softmax(-1)
            expected = log_probs.gather(1, torch.tensor(target[1:])[:, None]).sum().item()
            assert one.log_prob == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("asked", [{"exact": True}, {"force_first": 5}, {"seed": 3, "temperature": 1.0}], ids=str)
def test_a_search_that_it_has_not_is_refused_by_name(toy, asked):
    name, value = next(iter(asked.items()))
    with pytest.raises(ConfigError, match=f"decode.{name}={value} does not apply to the engine ctranslate2"):
        toy[1].translate(["a0"], DecodeConfig(**asked))
    assert toy[1].translate(["a0"], DecodeConfig(seed=3)), "where nothing is sampled, no seed matters"


@pytest.mark.parametrize("quantization", ["int8", "int8_float32", "float16"])
def test_quantised_weights_are_smaller_and_the_run_keeps_its_own(quantization, tmp_path):
    run = translator(width=64, feed_forward=256)
    before = {name: weight.clone() for name, weight in weights_of(run.model).items()}
    sizes = {}
    for kind in ("float32", quantization):
        out = export_run(run, "ctranslate2", tmp_path / kind, kind)
        sizes[kind] = (out / "model.bin").stat().st_size
    assert sizes[quantization] < 0.6 * sizes["float32"]
    assert all(torch.equal(before[name], weight) for name, weight in weights_of(run.model).items())
    theirs = CTranslate2Translator(run, tmp_path / quantization)
    config = DecodeConfig(beam=1, max_len=20)
    found, expected = outputs(theirs, sentences(), config), outputs(run.translator, sentences(), config)
    assert sum(one == other for one, other in zip(found, expected, strict=True)) >= 12


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm": "rms", "activation": "silu", "gated": True, "positions": "rotary", "bias": False, "kv_heads": 2},
        {"positions": "none", "layer_heads": (0, 2), "head_width": 5, "tied": True},
    ],
    ids=["gpt-2", "llama", "pruned"],
)
def test_language_models_continue_texts_alike(settings, tmp_path):
    run = language_model(**settings)
    out = export_run(run, "ctranslate2", tmp_path / "out")
    report, _ = check_engine_files(run, "ctranslate2", out, sentences(12))
    greedy, beam = report["compared"]
    assert greedy["share"] == 1.0
    assert beam["equal"] >= 11
    assert greedy["largest_score_difference"] < 1e-3
    assert report["passed"] is True


def test_another_kind_of_model_is_refused(tmp_path):
    run = translator()
    run.model = torch.nn.Linear(1, 1)
    for engine in ENGINES:
        with pytest.raises(ConfigError, match="only transformer and gpt can"):
            export_run(run, engine, tmp_path / "out")


def test_the_report_of_parity_lies_beside_the_files_and_bad_parity_is_refused(tmp_path):
    run = translator()
    out = export_run(run, "ctranslate2", tmp_path / "out")
    report, lines = check_engine_files(run, "ctranslate2", out, [*sentences(10), " "])
    assert json.loads((out / REPORT).read_text()) == report
    assert [one["sentences"] for one in report["compared"]] == [10, 10]
    assert lines[0].startswith("greedy: 10 of 10 outputs equal (100.0%)")
    require(report, out)
    with torch.no_grad():
        run.model.head.weight.neg_()
    report, lines = check_engine_files(run, "ctranslate2", out, sentences(10))
    assert report["passed"] is False
    assert len(report["compared"][0]["different"]) == 5
    assert any(line.startswith("greedy, line 1: ") for line in lines)
    with pytest.raises(NotEqual, match=r"only .* of its greedy outputs are equal, and at least 99% should be"):
        require(report, out)
    assert json.loads((out / REPORT).read_text())["passed"] is False


def test_settings_that_do_not_apply_are_left_out_of_the_comparison_and_said(tmp_path):
    run = translator()
    run.config = replace(run.config, decode=replace(run.config.decode, exact=True))
    out = export_run(run, "ctranslate2", tmp_path / "out")
    report, lines = check_engine_files(run, "ctranslate2", out, sentences(4))
    assert report["decode_settings_left_out"] == {"decode.exact": True}
    assert "compared without decode.exact=True, which does not apply to ctranslate2" in lines


def test_an_engine_is_kept_beside_the_run_and_made_again_for_other_weights(tmp_path):
    directory = saved(translator(), tmp_path / "run")
    said = []
    run = use_engine(regard.load(directory, "cpu"), "ctranslate2", tell=said.append)
    native = regard.load(directory, "cpu")
    assert isinstance(run.translator, CTranslate2Translator)
    assert run.translate(sentences(), beam=1) == native.translate(sentences(), beam=1)
    use_engine(regard.load(directory, "cpu"), "ctranslate2", tell=said.append)
    assert len(said) == 1, "found the second time"
    with torch.no_grad():
        native.model.head.bias[5] += 3.0
    changed = use_engine(native, "ctranslate2", tell=said.append)
    assert len(said) == 2
    kept = list((directory / "cache" / "engines").iterdir())
    assert [one.name for one in kept] == [f"ctranslate2-{digest(changed)[:16]}"]


def test_files_of_another_model_or_engine_are_refused(tmp_path):
    run = translator()
    out = export_run(run, "ctranslate2", tmp_path / "out")
    with pytest.raises(RunError, match="has files for ctranslate2, not for onnx"):
        use_engine(run, "onnx", out)
    with pytest.raises(RunError, match="was made of another model"):
        use_engine(translator(norm_first=True), "ctranslate2", out)
    with pytest.raises(RunError, match="no such directory"):
        use_engine(run, "ctranslate2", tmp_path / "missing")
    with pytest.raises(RunError, match=r"is missing its regard.json"):
        use_engine(run, "ctranslate2", tmp_path)
    with pytest.raises(RunError, match="is not empty"):
        export_run(run, "ctranslate2", out)
    (out / "model.bin").write_bytes(b"short")
    with pytest.raises(RunError, match="CTranslate2 and "):
        use_engine(run, "ctranslate2", out)


def test_an_engine_is_for_runs_that_translate(tmp_path):
    with pytest.raises(ConfigError, match=r"engine=ctranslate2 is for runs that translate; .* is a run for language"):
        use_engine(language_model(), "ctranslate2")
    with pytest.raises(ConfigError, match="engine=tensorrt must be torch or one of ctranslate2, onnx"):
        use_engine(translator(), "tensorrt")
    with pytest.raises(ConfigError, match="needs an engine"):
        use_engine(translator(), "torch", tmp_path)
    run = translator()
    assert use_engine(run, "torch") is run


def test_names_of_tokens_are_all_different_even_beyond_the_tokenizer():
    names = ours.entries(translator().vocabularies.target, V + 3)
    assert len(set(names)) == len(names) == V + 3
    assert names[V:] == ["<token 41>", "<token 42>", "<token 43>"]


@pytest.mark.parametrize(("engine", "package"), [("ctranslate2", "ctranslate2"), ("onnx", "onnxscript")])
def test_a_missing_package_is_said_with_how_to_get_it(engine, package, tmp_path, monkeypatch):
    import importlib.util
    import sys

    found = importlib.util.find_spec
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.setattr(
        "regard.interop.onnx.find_spec", lambda name: None if name == package else found(name), raising=True
    )
    with pytest.raises(RegardError, match=rf"needs .*{package}: pip install 'regard\[{engine}\]'"):
        export_run(translator(), engine, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("asked", [{"beam": 4, "top_beams": 2}, {"beam": 1, "temperature": 1.0, "samples": 3}], ids=str)
def test_a_sentence_that_nobody_waits_for_is_left_out(toy, asked):
    _, theirs = toy
    config = DecodeConfig(max_len=10, **asked)
    found = theirs.translate(sentences(4), config, gone=lambda place: place == 2)
    assert all(one.tokens == () and one.log_prob == 0.0 for one in found[2])
    assert len({len(one) for one in found}) == 1
    assert all(one.log_prob < 0 for place in (0, 1, 3) for one in found[place])
