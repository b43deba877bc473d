"""The page of every kind of run there is: each view it offers opens, and nothing goes wrong in it."""

import numpy as np
import pytest

import regard
from regard import Run, make_config
from regard.data import PairList
from regard.data.synthetic.speech import speak, utterance
from regard.tasks.looking import LookOptions, page
from regard.tasks.run import build_model
from regard.text import TokenizerConfig, train_vocabularies

PAIRS = PairList([("the cat sees a dog", "le chat voit un chien"), ("a dog runs", "un chien court")] * 3)
SMALL = ["model.width=16", "model.max_len=24", "data.max_len=24", "decode.max_len=8"]
BRIEF = ["train.steps=1", "train.warmup=1", "train.threads=1", "train.ema=0"]
TEXTS = ["the cat sees a dog", "a dog runs"]


def texts(preset, *settings, edits=True):
    """A model with fresh weights: what it says is nonsense, and that must show as well."""

    def make(folder):
        vocabularies = train_vocabularies(PAIRS, TokenizerConfig(kind="word", vocab_size=100, joint=True))
        config = make_config(None, preset, [*SMALL, *settings]).with_vocabularies(vocabularies)
        return Run(folder, config, vocabularies, build_model(config).eval()), TEXTS, LookOptions(edits=edits)

    return make


def encoder(folder):
    (folder / "a.txt").write_text(
        "The cat sleeps. A dog runs.\nThe sea is cold.\n\nThe sun is warm. It was late.\n" * 9
    )
    settings = ["model.width=16", "model.heads=2", "model.layers=2", "model.feed_forward=24", *BRIEF]
    config = make_config(
        None, "bert-tiny", [*settings, "tokenizer.vocab_size=90"], {"data": {"train": [str(folder / "a.txt")]}}
    )
    return regard.train(config, folder / "run"), ["the cat [MASK] ||| a dog runs"], LookOptions()


def images(folder):
    pictures = np.random.default_rng(0).integers(0, 255, (20, 8, 8), dtype=np.uint8)
    labels = ["dark", "light"] * 10
    np.savez(folder / "a.npz", train_images=pictures, train_labels=labels, test_images=pictures, test_labels=labels)
    np.save(folder / "two.npy", pictures[:2])
    settings = ["model.width=16", "model.heads=2", "model.layers=2", "model.feed_forward=24", *BRIEF]
    config = make_config(None, "vit-digits", settings, {"data": {"train": [str(folder / "a.npz")]}})
    return regard.train(config, folder / "run"), [str(folder / "two.npy")], LookOptions(edits=True)


def pointer(folder):
    settings = ["model.width=8", "model.heads=2", "model.encoder_layers=1", "model.feed_forward=8", *BRIEF]
    settings += ["data.puzzle_sizes=[4,6]", "train.batch_tokens=120", "train.validate_sentences=4"]
    return regard.train(make_config(None, "pointer-sort", settings), folder / "run"), [[3, 1, 2, 5]], LookOptions()


def speech(preset, *settings):
    """A model with fresh weights that hears two seconds of bundled speech."""

    def make(folder):
        vocabularies = train_vocabularies(PAIRS, TokenizerConfig(kind="word", vocab_size=100, joint=True))
        small = ["model.width=16", "model.bands=8", "decode.max_len=6", *settings]
        config = make_config(None, preset, small).with_vocabularies(vocabularies)
        sounds = [speak(utterance(0, "test", 0)).samples]
        return Run(folder, config, vocabularies, build_model(config).eval()), sounds, LookOptions(edits=True)

    return make


LAYERS = ("model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1")
ALWAYS = ["heads", "map", "grid", "text"]
KINDS = {
    "transformer": (
        texts("tiny", *LAYERS, "decode.beam=3"),
        [*ALWAYS, "neurons", "decoding", "edits", "positions"],
    ),
    "recurrent": (texts("bahdanau-2015"), [*ALWAYS, "neurons", "flow", "units", "decoding", "edits"]),
    "copying": (texts("see-2017"), [*ALWAYS, "neurons", "flow", "units", "decoding", "edits"]),
    "pointing back": (
        texts("merity-2017", "data.train=['x']"),
        [*ALWAYS, "neurons", "flow", "units", "decoding", "edits"],
    ),
    "convolutional": (
        texts("gehring-2017", "model.encoder_layers=1", "model.decoder_layers=2"),
        [*ALWAYS, "neurons", "decoding", "edits", "positions"],
    ),
    "gpt": (
        texts("gpt-tiny", "model.heads=2", "model.layers=2", "data.train=['x']"),
        [*ALWAYS, "neurons", "decoding", "edits", "positions"],
    ),
    "encoder": (encoder, [*ALWAYS, "neurons", "decoding", "positions"]),
    "images": (images, [*ALWAYS, "neurons", "edits", "patches", "positions"]),
    "pointer": (pointer, [*ALWAYS, "decoding"]),
    "speech": (speech("speech-tiny", *LAYERS), [*ALWAYS, "neurons", "decoding", "edits", "sound", "positions"]),
    "listening and spelling": (
        speech("listen-attend-spell"),
        [*ALWAYS, "flow", "units", "decoding", "edits", "sound"],
    ),
    "both ways": (texts("elmo-tiny", "data.train=['x']", edits=False), ["flow", "units", "decoding"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_view_of_every_kind_of_run_opens(browser, kind, tmp_path):
    make, views = KINDS[kind]
    run, given, wanted = make(tmp_path)
    path = tmp_path / "page.html"
    path.write_text(page(run, given, wanted), encoding="utf-8")
    opened = browser.page(path)
    tabs = opened.js("[...document.querySelectorAll('[role=tab]')].map((tab) => tab.dataset.key.slice(4))")
    assert tabs == views
    layers = opened.js("document.querySelector('select[data-key=attention]')?.options.length ?? 0")
    for view in views:
        opened.click(f"[data-key=tab-{view}]")
        assert opened.js("document.querySelector('#view').textContent.length") > 10
        for layer in range(layers):
            if opened.js("document.querySelector('select[data-key=attention]') !== null"):
                opened.choose("select[data-key=attention]", layer)
                assert opened.js("document.querySelector('#view').childElementCount") > 0
    opened.phone()
    for view in views:
        opened.js(f"document.querySelector('[data-key=tab-{view}]').click()")
        opened.settle()
        assert opened.js("document.scrollingElement.scrollWidth") <= 390, view
    assert opened.complaints() == []
    assert [one for one in opened.requests() if not one.startswith("data:")] == []
    opened.close()
