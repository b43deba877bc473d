"""Hugging Face's ViT, imported and exported: the same vectors and logits, and images prepared alike."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from regard import Run
from regard.data.images import ImageConfig
from regard.errors import ConfigError, RegardError, RunError
from regard.interop.huggingface import export_run, import_directory
from regard.interop.huggingface.vit import image_settings, preprocessor_config
from regard.nn.batch import Images
from regard.runs.files import read_tensors, write_tensors
from regard.tasks.images import ImageClassifier

transformers = pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")
KINDS = ["classifier", "grey classifier", "pooler", "plain"]


def their_model(kind):
    torch.manual_seed(1)
    config = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=36, image_size=20, patch_size=4,
        num_channels=1 if "grey" in kind else 3, id2label={0: "cat", 1: "dog", 2: "crane", 3: "crane", 4: "émeu"},
        label2id={"cat": 0, "dog": 1, "crane": 3, "émeu": 4}, attn_implementation="eager",
    )  # fmt: skip
    if "classifier" in kind:
        model = transformers.ViTForImageClassification(config)
    else:
        model = transformers.ViTModel(config, add_pooling_layer=kind == "pooler")
    for name, parameter in model.named_parameters():
        # Far from how a model starts, so that no two parts could be mistaken for each other.
        norm = "layernorm" in name and name.endswith("weight")
        torch.nn.init.normal_(parameter, mean=float(norm), std=0.1 if name.endswith("bias") else 0.3)
    return model.eval()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Each kind as `transformers` saves it, and the run it was imported to."""
    made = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp("hf")
        model = their_model(kind)
        model.save_pretrained(folder / "theirs")
        made[kind] = folder / "theirs", model, import_directory(folder / "theirs", folder / "run")
    return made


def pixels(run, size=20, B=5):
    return torch.randn(B, run.config.model_config().channels, size, size, generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def assert_same(run, model, tolerance=1e-5):
    given = pixels(run)
    batch = Images(given, torch.zeros(5, dtype=torch.long), 5)
    if run.config.model_config().labels:
        assert_close(run.model.logits(batch), model(given).logits, atol=tolerance, rtol=tolerance)
        return
    theirs = model(given)
    assert_close(run.model.read(given), theirs.last_hidden_state, atol=tolerance, rtol=tolerance)
    if theirs.pooler_output is not None:
        assert_close(run.model(batch), theirs.pooler_output, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_equal_after_import_and_after_a_round_trip(kind, saved, tmp_path):
    folder, model, run = saved[kind]
    assert_same(run, model)
    export_run(run, tmp_path / "exported")
    assert_same(import_directory(tmp_path / "exported", tmp_path / "again"), model)
    options = {} if "classifier" in kind else {"add_pooling_layer": kind == "pooler"}
    theirs = type(model).from_pretrained(tmp_path / "exported", attn_implementation="eager", **options).eval()
    assert_same(run, theirs)
    one, other = (read_tensors(path / "model.safetensors") for path in (folder, tmp_path / "exported"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@torch.no_grad()
def test_stretched_positions_are_theirs(saved):
    _, model, run = saved["plain"]
    for size in (32, 12):
        given = pixels(run, size)
        expected = model(given, interpolate_pos_encoding=True).last_hidden_state
        assert_close(run.model.read(given), expected, atol=1e-5, rtol=1e-5)


def test_labels_go_over_and_one_that_occurs_twice_gets_its_number(saved, tmp_path):
    run = saved["classifier"][2]
    assert run.config.model_config().labels == ("cat", "dog", "crane", "crane (3)", "émeu")
    export_run(run, tmp_path / "out")
    theirs = transformers.ViTForImageClassification.from_pretrained(tmp_path / "out")
    assert theirs.config.id2label[4] == "émeu"
    assert theirs.config.label2id["crane (3)"] == 3
    picture = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    (choices,) = run.classify([picture])
    assert len(choices) == 5


@pytest.mark.parametrize("resize", ["stretch", "crop"])
@pytest.mark.parametrize("filter", ["bilinear", "bicubic"])
def test_images_are_prepared_as_theirs_are(resize, filter, saved, tmp_path):
    images = ImageConfig(resize=resize, filter=filter, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))
    assert image_settings(preprocessor_config(images, 20, 3), 20, 3) == images
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(preprocessor_config(images, 20, 3)))
    theirs = transformers.ViTImageProcessorPil.from_pretrained(tmp_path)
    picture = np.random.default_rng(0).integers(0, 256, (31, 45, 3), dtype=np.uint8)
    expected = theirs(Image.fromarray(picture), return_tensors="pt")["pixel_values"]
    run = saved["classifier"][2]
    classifier = ImageClassifier(run.model, replace(run.config, images=images))
    found = classifier.images(classifier.pixels([picture])).pixels
    assert found.shape == expected.shape
    assert_close(found, expected, atol=1.5 / 255 / 0.2, rtol=0)  # a step of a byte, where both round otherwise


def test_without_a_preprocessor_images_are_prepared_as_their_default(saved):
    assert saved["classifier"][2].config.images == ImageConfig(
        resize="stretch", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)
    )


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("qkv_bias", False, "qkv_bias=False"),
        ("hidden_act", "mish", "hidden_act='mish'"),
        ("image_size", [20, 24], "height and width alike"),
        ("num_hidden_layers", 4, "missing vit.encoder.layer.3"),
        ("num_hidden_layers", 2, "extra vit.encoder.layer.2"),
        ("hidden_size", 1 << 21, "hidden_size"),
        ("intermediate_size", 40, r"is \(36, 24\), not \(40, 24\)"),
        ("id2label", {"0": "a"}, "must name the 5 classes"),
        ("auto_map", {"AutoModel": "evil.py"}, "auto_map"),
    ],
)
def test_what_does_not_fit_is_named(field, value, message, saved, tmp_path):
    folder = saved["classifier"][0]
    config = json.loads((folder / "config.json").read_text())
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "config.json").write_text(json.dumps({**config, field: value}))
    (copy / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(RegardError, match=message):
        import_directory(copy, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"resample": 1}, "resample=1"),
        ({"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": 20}, "size="),
        ({"size": {"height": 24, "width": 24}}, "size="),
        ({"image_mean": [0.5]}, "must be 3 numbers"),
        ({"do_rescale": False}, "do_rescale=False"),
        ({"rescale_factor": 1.0}, "rescale_factor"),
    ],
)
def test_preparation_that_cannot_be_said_is_named(settings, message):
    with pytest.raises(ConfigError, match=message):
        image_settings(settings, 20, 3)


def test_a_pooler_beside_a_classifier_is_left_out(saved, tmp_path):
    folder, model, _ = saved["classifier"]
    weights = read_tensors(folder / "model.safetensors")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "config.json").write_bytes((folder / "config.json").read_bytes())
    write_tensors(copy / "model.safetensors", {**weights, "vit.pooler.dense.weight": torch.zeros(24, 24)})
    assert_same(import_directory(copy, tmp_path / "run"), model)


def test_what_vit_cannot_say_is_not_exported(saved, tmp_path):
    run = saved["pooler"][2]
    with pytest.raises(RunError, match="no head"):
        run.classify([np.zeros((20, 20, 3), np.uint8)])
    config = replace(run.config, model={**run.config.model, "norm": "rms"})
    other = Run(run.directory, config, None, run.model)
    with pytest.raises(ConfigError, match="norm='rms' is not supported"):
        export_run(other, tmp_path / "out")
    assert not (tmp_path / "out").exists()
