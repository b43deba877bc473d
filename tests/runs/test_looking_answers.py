"""Models that say a class of a text or of an image: what they say when each head is changed."""

import numpy as np
import pytest

import regard
from regard import make_config
from regard.errors import ConfigError
from regard.look import evened, masked
from regard.tasks.looking import LookOptions, document

SMALL = ["model.width=16", "model.heads=2", "model.layers=2", "model.feed_forward=24"]
BRIEF = ["train.steps=1", "train.warmup=1", "train.threads=1", "train.ema=0"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    pictures = np.random.default_rng(0).integers(0, 255, (20, 8, 8), dtype=np.uint8)
    labels = ["dark", "light"] * 10
    np.savez(folder / "a.npz", train_images=pictures, train_labels=labels, test_images=pictures, test_labels=labels)
    np.save(folder / "two.npy", pictures[:2])
    config = make_config(None, "vit-digits", [*SMALL, *BRIEF], {"data": {"train": [str(folder / "a.npz")]}})
    images = regard.train(config, folder / "images")
    (folder / "a.tsv").write_text("the sun is warm\tgood\nthe sea is cold\tbad\nwe slept\tgood\n" * 4, encoding="utf-8")
    settings = [*SMALL, *BRIEF, "tokenizer.vocab_size=90", "data.max_len=32", "train.batch_tokens=128"]
    texts = regard.train(
        make_config(None, "bert-classify", settings, {"data": {"train": [str(folder / "a.tsv")]}}), folder / "texts"
    )
    return {
        "images": (images, [str(folder / "two.npy")]),
        "texts": (texts, ["the sun is warm", "the sea is cold", "we slept"]),
    }


@pytest.mark.parametrize("kind", ["images", "texts"])
def test_edits_show_what_class_a_model_says_when_a_head_is_changed(runs, kind):
    run, given = runs[kind]
    found = document(run, given, LookOptions(edits=True))
    sentence = found.sentences[0]
    assert len(sentence.answers) == 2
    assert sum(one.probability for one in sentence.answers) == pytest.approx(1)
    assert [one.edit for one in sentence.edited] == ["masked"] * 4 + ["even"] * 4 + ["swapped"] * 4
    assert {one.other for one in sentence.edited if one.edit == "swapped"} == {1}
    item = run.classifier().arguments(given)[0] if kind == "images" else given[0]
    for one, change in ((sentence.edited[1], masked), (sentence.edited[6], evened)):
        with change(run.model, {one.attention: [one.head]}):
            choices = {choice.label: choice.probability for choice in run.classify([item])[0]}
        expected = [choices[answer.piece] for answer in sentence.answers]
        assert one.probabilities == pytest.approx(expected, abs=1e-5)
        assert np.exp(one.log_prob) == pytest.approx(expected[0], abs=1e-5)
        assert one.text == max(choices, key=choices.get)
    assert document(run, given).sentences[0].answers == ()
    assert found.to_mapping(packed=False)["sentences"][0]["answers"][0]["piece"] == sentence.answers[0].piece


def test_where_nothing_is_said_of_the_whole_edits_are_refused(runs, tmp_path):
    (tmp_path / "a.txt").write_text("The cat sleeps. A dog runs.\n\nThe sun is warm. It was late.\n" * 9)
    config = make_config(
        None,
        "bert-tiny",
        [*SMALL, *BRIEF, "model.head=words", "tokenizer.vocab_size=90"],
        {"data": {"train": [str(tmp_path / "a.txt")]}},
    )
    run = regard.train(config, tmp_path / "run")
    with pytest.raises(ConfigError, match="a run for masking gives no class of a text"):
        document(run, ["the cat"], LookOptions(edits=True))
    with pytest.raises(ConfigError, match="targets are for texts; an image has none"):
        document(runs["images"][0], runs["images"][1], LookOptions(targets=("x",)))
