import json
import random
import sys

import pytest
from serve_toys import WORDS, serving

import regard
from regard import make_config

SMALL = [
    "model.width=16",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.feed_forward=24",
    "model.max_len=24",
    "data.max_len=24",
    "tokenizer.kind=word",
    "tokenizer.vocab_size=2000",
    "train.batch_tokens=200",
    "train.steps=30",
    "train.validate_sentences=2",
    "train.warmup=3",
    "train.learning_rate=0.01",
    "train.threads=1",
    "train.ema=0",
    "decode.beam=3",
    "decode.max_len=12",
]


@pytest.fixture(scope="session")
def translator(tmp_path_factory):
    """A run that translates, a little trained."""
    folder, dice = tmp_path_factory.mktemp("pairs"), random.Random(0)
    rows = [[dice.choice(WORDS) for _ in range(dice.randint(2, 8))] for _ in range(60)]
    lines = [f"{' '.join(row)}\t{' '.join(row).upper()}\n" for row in rows]
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    (folder / "valid.tsv").write_text("".join(lines[:4]), encoding="utf-8")
    data = {"train": [str(folder / "train.tsv")], "valid": [str(folder / "valid.tsv")]}
    return regard.train(make_config(None, "tiny", SMALL, {"data": data}), tmp_path_factory.mktemp("runs") / "toy")


@pytest.fixture(scope="module")
def client(translator):
    with serving(translator) as client:
        yield client


@pytest.fixture
def python():
    return sys.executable


@pytest.fixture(scope="session")
def writer(tmp_path_factory):
    """A run that writes, its text longer than it reads at once."""
    folder, dice = tmp_path_factory.mktemp("text"), random.Random(0)
    text = "".join(dice.choice(["sun", "moon", "star", "été", "sky"]) + dice.choice(" \n") for _ in range(400))
    (folder / "train.txt").write_text(text, encoding="utf-8")
    shape = ["model.width=16", "model.heads=2", "model.layers=1", "model.feed_forward=24", "model.max_len=16"]
    more = ["data.max_len=16", "train.batch_tokens=64", "train.steps=20", "train.threads=1", "decode.max_len=20"]
    data = {"train": [str(folder / "train.txt")], "valid": [str(folder / "train.txt")]}
    made = make_config(None, "gpt-tiny", [*shape, *more, "train.validate_every=20"], {"data": data})
    return regard.train(made, tmp_path_factory.mktemp("runs") / "words")


@pytest.fixture(scope="session")
def encoders(tmp_path_factory):
    """A run of each kind that reads texts, by its task."""
    folder, dice = tmp_path_factory.mktemp("labelled"), random.Random(0)
    lines = [f"the {dice.choice(WORDS)} {dice.choice(WORDS)} was {dice.choice(['good', 'bad'])}." for _ in range(40)]
    asked = [{"question": "what was it?", "context": line, "answer": line.split()[1], "start": 4} for line in lines]
    tags = ["\n".join(f"{word}\t{'B-X' if word == 'cat' else 'O'}" for word in line.split()) for line in lines]
    files = {
        "text.txt": "\n\n".join("\n".join(lines[start : start + 4]) for start in range(0, 40, 4)),
        "classes.tsv": "".join(f"{line}\t{'good' if 'good' in line else 'bad'}\n" for line in lines),
        "pairs.jsonl": "".join(
            json.dumps({"one": line, "two": lines[0], "same": str("cat" in line)}) + "\n" for line in lines
        ),
        "tags.tsv": "\n\n".join(tags),
        "asked.jsonl": "".join(json.dumps(row) + "\n" for row in asked),
    }
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    shape = ["model.width=16", "model.heads=2", "model.layers=1", "model.feed_forward=24", "tokenizer.vocab_size=150"]
    more = ["train.batch_tokens=256", "train.steps=4", "train.warmup=2", "train.validate_every=4", "train.threads=1"]
    out, runs = tmp_path_factory.mktemp("encoders"), {}

    def made(name, preset, file, **data):
        start = [f"train.start_from={runs['words'].directory}"] if runs else shape
        data |= {part: [str(folder / file)] for part in ("train", "valid")}
        config = make_config(None, preset, [*more, *start, "data.max_len=32"], {"data": data})
        runs[name] = regard.train(config, out / name)

    made("words", "bert-tiny", "text.txt")
    made("classes", "bert-classify", "classes.tsv")
    made("pairs", "bert-classify", "pairs.jsonl", text="one", pair="two", label="same")
    made("tags", "bert-tag", "tags.tsv")
    made("answers", "bert-answer", "asked.jsonl")
    return runs


@pytest.fixture(scope="session")
def pointer(tmp_path_factory):
    """A run that sorts numbers, badly."""
    small = ["model.width=8", "model.heads=2", "model.encoder_layers=1", "model.feed_forward=8", "model.max_len=256"]
    small += ["data.puzzle_sizes=[4,6]", "train.batch_tokens=60", "train.steps=3", "train.validate_every=3"]
    small += ["train.validate_sentences=5", "train.warmup=2", "train.threads=1"]
    return regard.train(make_config(None, "pointer-sort", small), tmp_path_factory.mktemp("runs") / "sort")
