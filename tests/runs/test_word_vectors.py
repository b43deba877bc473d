"""Word vectors in a run: as the start of its words, frozen or tuned; the command line; a picture."""

import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch

import regard
from regard import make_config
from regard.cli import main
from regard.errors import ConfigError
from regard.tasks.spec import Silence
from regard.text.word_vectors import WordVectors, read_vectors
from regard.trainer.initialize import save_vectors

WORDS = ["the", "cat", "sees", "dog", "hears"]


class Heard(Silence):
    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    (folder / "text.txt").write_text("The cat sees the dog , odd \n the dog hears the cat \n" * 30, encoding="utf-8")
    matrix = np.random.default_rng(0).normal(size=(5, 8), scale=3.0).astype(np.float32)
    save_vectors(WordVectors(tuple(WORDS), matrix), folder / "file.bin")
    return folder


def config(files, *more):
    settings = ["model.width=8", "model.layers=1", "data.max_len=8", "train.batch_tokens=24", "train.steps=4"]
    settings += ["train.warmup=1", "train.threads=1", f"train.vectors={files / 'file.bin'}", "train.weight_decay=0.1"]
    return make_config(None, "lstm-words", [*settings, *more], {"data": {"train": [str(files / "text.txt")]}})


def test_words_start_from_vectors_and_may_stay_there_while_missing_ones_are_named(files, tmp_path):
    heard = Heard()
    frozen = regard.train(config(files, "train.freeze_vectors=true", "model.tied=false"), tmp_path / "frozen", heard)
    assert "6 of 9 words start from the file's vectors; missing: ↵, ,, odd" in heard.lines
    vectors = read_vectors(files / "file.bin")
    factor = 8**-0.5 / vectors.matrix.std()
    table, tokenizer = frozen.model.embedding.tokens.weight.detach(), frozen.vocabularies.target
    for word in ("the", "cat", "The"):
        (i,) = tokenizer.encode(word)
        assert torch.allclose(table[i], torch.from_numpy(vectors[word.lower()] * factor))
    tuned = regard.train(config(files), tmp_path / "tuned")
    (cat,) = tokenizer.encode("cat")
    moved = tuned.model.embedding.tokens.weight[cat] - torch.from_numpy(vectors["cat"] * factor)
    assert 0 < moved.abs().max() < 0.3


def test_vectors_that_do_not_fit_are_refused(files, tmp_path):
    with pytest.raises(ConfigError, match=r"vectors of 8 numbers, and the model's words 6; set model.width=8"):
        regard.train(config(files, "model.width=6"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="would freeze the head too"):
        regard.train(config(files, "train.freeze_vectors=true"), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"needs tokenizer.kind='word' or 'spaced', not 'bpe'"):
        config(files, "tokenizer.kind=bpe")
    with pytest.raises(ConfigError, match=r"train.freeze_vectors=true needs train.vectors"):
        make_config(None, "lstm-words", ["train.freeze_vectors=true"])


def test_the_command_line_makes_compares_and_draws_vectors(files, tmp_path, capsys):
    out, picture = tmp_path / "vectors.txt", tmp_path / "plane.svg"
    made = ["vectors", "train", str(files / "text.txt"), "--out", str(out), "--width", "6", "--min-count", "2"]
    assert main([*made, "--threads", "1", "--epochs", "1"]) == 0
    assert "words, 6 numbers each" in capsys.readouterr().out
    found = read_vectors(out)
    assert {"the", "cat", ",", "odd"} <= set(found.words)
    assert "↵" not in found.words
    assert main(["vectors", "near", str(out), "cat", "--count", "2", "--json"]) == 0
    assert [row["word"] for row in json.loads(capsys.readouterr().out)] == [word for word, _ in found.near("cat", 2)]
    assert main(["vectors", "analogy", str(out), "the", "cat", "dog", "--count", "1"]) == 0
    assert capsys.readouterr().out.split()[1] == found.analogy("the", "cat", "dog", 1)[0][0]
    assert main(["vectors", "plane", str(out), "the", "cat", "dog", "hears", "--out", str(picture)]) == 0
    texts = [node.text for node in ET.parse(picture).getroot().iter() if node.tag.endswith("}text")]
    assert texts[:4] == ["the", "cat", "dog", "hears"]
    assert "of the variance" in texts[4]
    capsys.readouterr()
    assert main(["vectors", "near", str(out), "zebra"]) == 2
    assert capsys.readouterr().err == "regard: there is no vector of 'zebra'\n"
    assert main(["vectors", "train", str(files / "text.txt"), "--out", str(out), "--min-count", "9999"]) == 2
    assert "no word occurs 9999 times" in capsys.readouterr().err
