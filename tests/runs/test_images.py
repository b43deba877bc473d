"""The life of a model of images: train, stop and go on, classify, measure; from folders and from arrays."""

import base64
import io
import json
import sys

import numpy as np
import pytest
import torch
from image_toys import SMALL, shapes
from listeners import StopAt
from torch.testing import assert_close

import regard
from regard import make_config
from regard.cli import main
from regard.data.images import ImageArray
from regard.errors import ConfigError, DataError, RunError
from regard.look import rollout
from regard.look.packed_arrays import png_address
from regard.metrics.classification_metrics import wilson_interval
from regard.nn.embeddings import resized_positions
from regard.runs.files import read_json
from regard.tasks.looking import document
from regard.trainer.trainer import Stopped

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "shapes.npz"
    pictures, labels = shapes(120)
    others, their_labels = shapes(40, seed=1)
    np.savez(path, train_images=pictures, train_labels=labels, test_images=others, test_labels=their_labels)
    return path


def config(data, *settings):
    return make_config(None, "vit-digits", [*SMALL, *settings], {"data": {"train": [str(data)]}})


@pytest.fixture(scope="module")
def run(arrays, tmp_path_factory):
    return regard.train(config(arrays), tmp_path_factory.mktemp("runs") / "shapes")


def test_a_model_learns_classes_and_says_how_sure_it_is(run, arrays):
    saved = read_json(run.directory / "config.json")
    assert saved["model"]["labels"] == ["dark", "light"]
    assert len(saved["images"]["mean"]) == len(saved["images"]["std"]) == 1
    result = regard.evaluate(run)
    assert result["pictures"] == 40
    low, high = result["accuracy_interval"]
    assert low < result["accuracy"] <= high
    assert result["accuracy"] > 0.9
    pictures, labels = shapes(8, seed=2)
    found = run.classify(list(pictures))
    assert sum(best[0].label == label for best, label in zip(found, labels, strict=True)) >= 7
    assert sum(choice.probability for choice in found[0]) == pytest.approx(1)
    measured = regard.evaluate(run, ImageArray.of(pictures, labels))
    assert measured["pictures"] == 8
    assert sum(one["pictures"] for one in measured["by_class"]) == 8


def test_a_convolutional_network_learns_the_same_images_and_has_no_attention_to_look_at(arrays, tmp_path):
    settings = [one for one in SMALL if not one.startswith(("model.heads", "model.feed_forward"))]
    chosen = make_config(
        None,
        "convnet-digits",
        [*settings, "model.layers=1", "train.batch_tokens=80"],
        {"data": {"train": [str(arrays)]}},
    )
    run = regard.train(chosen, tmp_path / "run")
    assert regard.evaluate(run)["accuracy"] > 0.9
    assert regard.load(tmp_path / "run").classify(list(shapes(2)[0]))[0][0].label in ("dark", "light")
    with pytest.raises(ConfigError, match="convnet model has no attention to look at"):
        run.look([str(arrays)])
    with pytest.raises(ConfigError, match=r"image_size=10 must be a multiple of 4: stages=3 halve it 2 times"):
        make_config(None, "convnet-digits", ["model.image_size=10"]).model_config()


def test_a_resumed_run_equals_an_unbroken_one_byte_for_byte(arrays, tmp_path):
    everything = ["images.mixup=0.3", "images.cutmix=0.5", "images.erase=0.3", "images.flip=true", "train.steps=7"]
    made = config(arrays, *everything, "model.dropout=0.1")
    whole = regard.train(made, tmp_path / "whole")
    with pytest.raises(Stopped, match="stopped at step 4"):
        regard.train(made, tmp_path / "broken", StopAt(4))
    broken = regard.resume(tmp_path / "broken")
    one, other = ((found.directory / "model.safetensors").read_bytes() for found in (whole, broken))
    assert one == other


def test_folders_train_like_arrays_and_hold_some_images_out(tmp_path):
    pictures, labels = shapes(40)
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        folder = tmp_path / "data" / label
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / f"{number:02}.png")
    heard = []

    class Listener(StopAt):
        def say(self, text):
            heard.append(text)

    settings = ["train.steps=2", "images.held_out=0.25"]
    run = regard.train(config(tmp_path / "data", *settings), tmp_path / "run", Listener(0))
    assert any("30 images of 2 classes, 10 to validate on" in text for text in heard)
    assert regard.evaluate(run)["pictures"] == 10
    np.savez(tmp_path / "same.npz", images=pictures, labels=np.array(labels))
    again = regard.train(config(tmp_path / "same.npz", *settings), tmp_path / "again")
    assert run.config.model == again.config.model


def test_a_run_starts_from_another_with_a_new_head_and_stretched_positions(run, arrays, tmp_path):
    pictures, labels = shapes(40, seed=5)
    np.savez(tmp_path / "renamed.npz", images=pictures, labels=np.array([f"very {label}" for label in labels]))
    extra = {"data": {"train": [str(tmp_path / "renamed.npz")]}, "train": {"start_from": str(run.directory)}}
    few = ["train.steps=1", "train.learning_rate=1e-9", "train.batch_tokens=680", "train.threads=1"]
    made = make_config(None, "vit-tune", [*few, "model.image_size=12"], extra)
    assert made.images.mean == run.config.images.mean
    assert not made.images.shift  # changes are the preset's
    tuned = regard.train(made, tmp_path / "tuned")
    before, after = run.model, tuned.model
    assert after.embedding.positions.shape == (1, 37, 16)
    stretched = resized_positions(before.embedding.positions, (4, 4), (6, 6))
    assert_close(after.embedding.positions, stretched, atol=1e-6, rtol=1e-5)
    assert_close(after.blocks[1].attention.query.weight, before.blocks[1].attention.query.weight, atol=1e-6, rtol=1e-5)
    assert not torch.allclose(after.head.weight, before.head.weight, atol=1e-3)
    assert tuned.config.model_config().labels == ("very dark", "very light")
    extra["data"] = {"train": [str(arrays)]}
    again = regard.train(make_config(None, "vit-tune", few, extra), tmp_path / "again")
    assert_close(again.model.head.weight, before.head.weight, atol=1e-6, rtol=1e-5)
    assert regard.evaluate(again)["accuracy"] == regard.evaluate(run)["accuracy"]
    with pytest.raises(ConfigError, match="cannot change in a run that starts from"):
        make_config(None, "vit-tune", [*few, "model.width=32"], extra)


def test_the_command_line_trains_classifies_and_measures(arrays, run, tmp_path, capfd):
    pictures, _ = shapes(3, seed=4)
    np.save(tmp_path / "three.npy", pictures)
    for number, picture in enumerate(pictures):
        Image.fromarray(picture).save(tmp_path / f"{number}.png")
    capfd.readouterr()
    assert main(["classify", str(run.directory), str(tmp_path / "0.png"), "--top", "2"]) == 0
    name, first, _, second, _ = capfd.readouterr().out.split()
    assert name == str(tmp_path / "0.png")
    assert {first, second} == {"dark", "light"}
    assert main(["classify", str(run.directory), str(tmp_path), "--json"]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["input"] for line in lines] == [str(tmp_path / f"{number}.png") for number in range(3)]
    assert main(["classify", str(run.directory), "--input", str(tmp_path / "three.npy"), "--json"]) == 0
    from_array = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["classes"][0]["label"] for line in from_array] == [line["classes"][0]["label"] for line in lines]
    (tmp_path / "list.txt").write_text(f"{tmp_path / '2.png'}\n{tmp_path / '1.png'}\n")
    assert main(["classify", str(run.directory), "--input", str(tmp_path / "list.txt"), "--json"]) == 0
    assert [json.loads(line)["input"][-5:] for line in capfd.readouterr().out.splitlines()] == ["2.png", "1.png"]
    assert main(["evaluate", str(run.directory)]) == 0
    assert "accuracy" in capfd.readouterr().out
    assert main(["evaluate", str(run.directory), "--data", str(arrays), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["pictures"] == 40
    assert main(["describe", str(run.directory)]) == 0
    assert "vit" in capfd.readouterr().out
    for wrong in (["--limit", "3"], ["--world"]):
        assert main(["evaluate", str(run.directory), *wrong]) == 2
        assert "does not apply to a run for images; its options: none" in capfd.readouterr().err
    (tmp_path / "broken.png").write_bytes(b"nothing")
    assert main(["classify", str(run.directory), str(tmp_path / "broken.png")]) == 2
    assert capfd.readouterr().err.count("\n") == 1
    assert (
        main(["classify", str(run.directory), *(str(tmp_path / one) for one in ("1.png", "broken.png", "2.png"))]) == 1
    )
    said = capfd.readouterr()
    assert [line.split("\t")[0][-5:] for line in said.out.splitlines()] == ["1.png", "", "2.png"]
    assert said.err.count("broken.png cannot be read") == 1
    assert "1 of 3 inputs was refused" in said.err


def test_a_page_shows_where_every_patch_looks(run, tmp_path, capfd):
    pictures, _ = shapes(2, seed=4)
    (tmp_path / "dark").mkdir()
    Image.fromarray(pictures[0]).save(tmp_path / "dark" / "0.png")
    found = document(run, [str(tmp_path / "dark" / "0.png")])
    (sentence,) = found.sentences
    picture = sentence.picture
    assert (picture.rows, picture.columns, picture.first) == (4, 4, 1)
    assert len(sentence.source.pieces) == 17
    shown = Image.open(io.BytesIO(base64.b64decode(picture.image.partition(",")[2])))
    assert np.array_equal(np.asarray(shown), pictures[0])
    with torch.no_grad(), regard.watch(run.model) as trace:
        run.classify([pictures[0]])
    for attention in sentence.attentions:
        assert attention.array() == pytest.approx(trace.weights(attention.name)[0].numpy(), abs=1e-4)
    rolled = sentence.rollout.array()
    assert rolled.shape == (2, 17, 17)
    assert rolled.sum(-1) == pytest.approx(np.ones((2, 17)), abs=1e-4)
    layers = [trace.weights(name) for name in trace.names]
    assert rolled[1] == pytest.approx(rollout(layers)[0].numpy(), abs=1e-4)
    assert sentence.scores["truth"] == "dark"
    np.save(tmp_path / "two.npy", pictures)
    assert main(["look", str(run.directory), str(tmp_path / "two.npy"), "--out", str(tmp_path / "page.html")]) == 0
    assert capfd.readouterr().out.strip() == str(tmp_path / "page.html")
    assert "data:image/png;base64," in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_an_image_in_colour_becomes_a_png():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    shown = Image.open(io.BytesIO(base64.b64decode(png_address(pixels).partition(",")[2])))
    assert np.array_equal(np.asarray(shown), pixels)


def test_digits_are_written_as_arrays(tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert main(["data", "digits", str(tmp_path / "none")]) == 2
    assert "scikit-learn" in capfd.readouterr().err
    assert not (tmp_path / "none").exists()
    monkeypatch.undo()
    pytest.importorskip("sklearn.datasets")
    assert main(["data", "digits", str(tmp_path / "digits")]) == 0
    with np.load(tmp_path / "digits" / "digits.npz") as found:
        assert found["train_images"].shape == (1438, 8, 8)
        assert found["test_images"].shape == (359, 8, 8)
        assert found["train_images"].max() == 255


def test_arrays_need_no_pillow(arrays, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "PIL"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "PIL", None)
    run = regard.train(config(arrays, "train.steps=1"), tmp_path / "run")
    assert regard.evaluate(run)["pictures"] == 40
    with pytest.raises(ConfigError, match=r"regard\[images\]"):
        run.classify([tmp_path / "a.png"])


def test_what_cannot_be_is_refused_before_work(arrays, run, tmp_path):
    with pytest.raises(ConfigError, match="no such file or folder"):
        regard.train(config(tmp_path / "nowhere"), tmp_path / "run")
    with pytest.raises(ConfigError, match="must be at least 17"):
        config(arrays, "train.batch_tokens=16")
    with pytest.raises(ConfigError, match="which needs 'images'"):
        config(arrays, "task=language")
    with pytest.raises(ConfigError, match="3 numbers for model"):
        config(arrays, "images.mean=[0.1,0.2,0.3]", "images.std=[1,1,1]", "model.channels=1")
    np.savez(tmp_path / "one.npz", images=shapes(4)[0], labels=np.zeros(4, np.int64))
    with pytest.raises(DataError, match="one class alone"):
        regard.train(config(tmp_path / "one.npz"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(RunError, match="not for translation"):
        run.translate(["a"])
    with pytest.raises(RunError, match="no tokenizer"):
        run.vocabularies  # noqa: B018
    with pytest.raises(DataError, match="must be rows, columns"):
        run.classify([np.zeros((2, 2, 2, 2))])


def test_wilsons_interval_holds_what_it_says():
    assert wilson_interval(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-3)
    assert wilson_interval(9, 10) == pytest.approx((0.5958, 0.9821), abs=1e-3)
    rng = np.random.default_rng(0)
    inside = 0
    for right in rng.binomial(50, 0.9, 400).tolist():
        low, high = wilson_interval(right, 50)
        inside += low <= 0.9 <= high
    assert 370 <= inside <= 396


def test_a_batch_too_large_for_the_images_is_cut_to_them(arrays, tmp_path):
    run = regard.train(config(arrays, "train.steps=2", "train.batch_tokens=100000"), tmp_path / "run")
    assert torch.isfinite(next(run.model.parameters())).all()
