import random
import sys

import pytest
from serve_toys import WORDS, serving

import regard
from regard.runs import make_config

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
