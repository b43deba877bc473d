"""A directory with the files and the small runs that the documents name."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import regard

NARROW = ["model.width=16", "model.heads=2", "model.feed_forward=24", "train.warmup=2", "train.threads=1"]


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A directory with the files and the runs that the blocks name."""
    home, dice = tmp_path_factory.mktemp("home"), random.Random(0)
    words = [
        "the",
        "sun",
        "the",
        "sea",
        "king",
        "queen",
        "man",
        "woman",
        "river",
        "good",
        "bad",
        "day",
        "was",
        "one",
        "two",
    ]
    text = "\n".join(" ".join(dice.choices(words, k=6)).capitalize() + "." for _ in range(300)) + "\n"
    (home / "corpus.txt").write_text(text, encoding="utf-8")
    labelled = [f"the day was {word}\t{word}\n" for word in ("good", "bad") for _ in range(8)]
    (home / "films.tsv").write_text("".join(labelled), encoding="utf-8")
    english = [
        "I am a student.",
        "The animal didn't cross the street because it was too tired.",
        "Thanks. It was wide.",
    ]
    french = ["Je suis étudiant.", "L'animal n'a pas traversé la rue.", "Merci. Elle était large."]
    pairs = [*zip(english, french, strict=True)] * 8
    (home / "pairs.tsv").write_text("".join("\t".join(pair) + "\n" for pair in pairs), encoding="utf-8")
    generator = np.random.default_rng(0)
    table = "".join(f"{word} {' '.join(map(str, generator.normal(size=8)))}\n" for word in sorted({*words}))
    (home / "glove.6B.50d.txt").write_text(table, encoding="utf-8")

    def train(name, preset, *settings, steps=2, **data):
        few = [*NARROW, f"train.steps={steps}", "train.validate_every=100", *settings]
        given = {key: [str(home / value)] if isinstance(value, str) else value for key, value in data.items()}
        regard.train(regard.make_config(None, preset, few, {"data": given}), home / "runs" / name)

    for name, rows in (
        ("train", pairs),
        ("valid", pairs[:3]),
        ("val", pairs[:3]),
        ("test", pairs[:3]),
        ("mine", pairs),
    ):
        (home / f"{name}.tsv").write_text("".join("\t".join(pair) + "\n" for pair in rows), encoding="utf-8")
        (home / f"{name}.en").write_text("".join(f"{source}\n" for source, _ in rows), encoding="utf-8")
        for language in ("fr", "de"):
            (home / f"{name}.{language}").write_text("".join(f"{target}\n" for _, target in rows), encoding="utf-8")
    (home / "corpus").mkdir()
    for name in ("train", "valid", "test"):
        shutil.copy(home / f"{name}.tsv", home / "corpus" / f"{name}.tsv")
    for name in ("book", "held-out", "articles", "another", "sentences", "long", "train", "valid", "test", "texts"):
        (home / f"{name}.txt").write_text(
            text if name in ("book", "articles", "train") else text[:400], encoding="utf-8"
        )
    (home / "reviews.txt").write_text("a good day\nthe bad sea\n", encoding="utf-8")
    (home / "reviews.tsv").write_text("".join(labelled), encoding="utf-8")
    (home / "examples").mkdir()
    shutil.copy(Path(__file__).parents[2] / "examples/lecture.en", home / "examples/lecture.en")

    short = ["model.max_len=64", "data.max_len=32", "model.layers=2"]
    train(
        "demo",
        "demo",
        "model.max_len=64",
        "data.max_len=64",
        "decode.max_len=8",
        "train.validate_every=2",
        world=0,
        train="pairs.tsv",
        valid="test.tsv",
    )
    train("words", "gpt-tiny", *short, "data.max_len=64", "decode.max_len=20", train="corpus.txt", valid="book.txt")
    train("bert", "bert-tiny", *short, "model.head=words", "tokenizer.vocab_size=200", train="corpus.txt")
    train("films", "bert-classify", *short, "tokenizer.vocab_size=200", train="films.tsv")
    for name in ("mine", "opus", "demo-2", "demo-3", "fast", "one", "other"):
        shutil.copytree(home / "runs/demo", home / "runs" / name)
    shutil.copytree(home / "runs/films", home / "runs/reviews")
    return home
