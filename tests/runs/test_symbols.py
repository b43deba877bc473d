"""Sequences of symbols: masked pre-training over an alphabet, planted contacts, and the heads that find them."""

import json

import numpy as np
import pytest
from listeners import StopAt

import regard
from regard import make_config
from regard.analysis import head_contacts
from regard.analysis.head_contacts import chance, contact_report, corrected, precision_at_length
from regard.cli import main
from regard.data.synthetic.proteins import PARTNERS, ProteinFamily, SymbolSequence, proteins, read_sequences
from regard.errors import ConfigError, DataError
from regard.trainer.trainer import Stopped

SMALL = [
    *("train.steps=4", "train.log_every=1", "train.warmup=2", "train.batch_tokens=512", "train.threads=1"),
    *("model.width=8", "model.heads=2", "model.feed_forward=8", "train.validate_every=4", "train.save_every=2"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files") / "proteins"
    assert main(["data", "proteins", str(folder), "--train", "40", "--valid", "4", "--test", "8"]) == 0
    return folder


@pytest.fixture(scope="module")
def run(files, tmp_path_factory):
    made = make_config(None, "proteins-tiny", SMALL, {"data": {"train": [str(files / "train.jsonl")]}})
    return regard.train(made, tmp_path_factory.mktemp("runs") / "proteins")


def test_the_ends_of_a_contact_go_together_and_a_family_keeps_its_own():
    found = list(proteins(400, families=2, seed=1))
    assert found == list(proteins(400, families=2, seed=1))
    assert found != list(proteins(400, families=2, seed=1, split="test"))
    family = ProteinFamily.of(0)
    own = [one for one in found if one.contacts == family.contacts]
    assert 100 < len(own) < 300
    right = [PARTNERS[one.text[first]] == one.text[second] for one in own for first, second in family.contacts]
    assert 0.93 < np.mean(right) < 0.98
    inside = {place for pair in family.contacts for place in pair}
    assert len(inside) == 2 * len(family.contacts)
    kept = [
        one.text[place] == family.usual[place]
        for one in own
        for place in range(len(family.usual))
        if place not in inside
    ]
    assert 0.87 < np.mean(kept) < 0.93
    assert all(second - first >= 6 for first, second in family.contacts)


def test_every_symbol_is_a_token_and_a_resumed_run_equals_an_unbroken_one(files, tmp_path):
    made = make_config(
        None, "proteins-tiny", [*SMALL, "model.dropout=0.1"], {"data": {"train": [str(files / "train.jsonl")]}}
    )
    whole = regard.train(made, tmp_path / "whole")
    assert len(whole.vocabularies.target.encode("ACDY")) == 4
    with pytest.raises(Stopped, match="stopped at step 2"):
        regard.train(made, tmp_path / "broken", StopAt(2))
    broken = regard.resume(tmp_path / "broken")
    assert (whole.directory / "model.safetensors").read_bytes() == (broken.directory / "model.safetensors").read_bytes()
    (found,) = whole.fill("ACD<mask>Y", top=2)
    assert len(found[0].text.replace(" ", "")) == 5


def test_precision_at_length_of_known_weights():
    sequence = SymbolSequence("A" * 10, ((0, 8), (1, 9)))
    perfect, blind = np.zeros((10, 10)), np.full((10, 10), 0.1)
    perfect[0, 8] = perfect[9, 1] = 1.0
    scores = precision_at_length(np.stack((perfect + perfect.T, blind)), sequence)
    assert scores[0] == 2 / 10
    assert chance(sequence) == 2 / 10  # ten pairs are that far apart
    # APC takes away what a place has with all others: a symmetric rank-one matrix is nothing but that.
    rows = np.arange(1.0, 6.0)
    assert np.abs(corrected(np.outer(rows, rows)[None])).max() < 1e-9


def test_the_best_head_is_chosen_on_one_half_and_measured_on_the_other(run, files, monkeypatch):
    sequences = read_sequences(files / "test.jsonl")
    report = contact_report(run, sequences)
    assert len(report["heads"]) == 4
    assert report["best"]["sequences"] == 4
    assert 0 < report["chance"] < 0.05

    def known(run, names, sequence):
        return np.array([0.0, 0.3, 0.1, 0.0])

    monkeypatch.setattr(head_contacts, "_measured", known)
    best = contact_report(run, sequences)["best"]
    assert (best["attention"], best["head"]) == ("encoder.0.attention", 1)
    assert best["times_chance"] == pytest.approx(0.3 / best["chance"])
    low, high = best["times_chance_interval"]
    assert low <= best["times_chance"] <= high


def test_the_command_says_it_and_refuses_what_cannot_be(run, files, tmp_path, capsys):
    command = ["heads", str(run.directory), "--device", "cpu", "--contacts"]
    assert main([*command, str(files / "test.jsonl")]) == 0
    assert "times chance" in capsys.readouterr().out
    assert main([*command, str(files / "test.jsonl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"]["precision_at_length"] >= 0
    bad = tmp_path / "bad.jsonl"
    for text, said in (
        ('{"text": "ACD", "contacts": [[0, 3]]}', "row 1: the contact [0, 3] must be two places below 3"),
        ('{"text": "ACD"}', "row 1 must have a 'text' and a list of 'contacts'"),
        ("", "is empty"),
    ):
        bad.write_text(text + "\n" * bool(text), encoding="utf-8")
        assert main([*command, str(bad)]) != 0
        assert said in capsys.readouterr().err
    assert main([*command, str(files / "test.jsonl"), "--world"]) != 0
    assert "--contacts has its own report" in capsys.readouterr().err


def test_symbols_that_are_not_tokens_and_runs_without_an_encoder_are_refused(run):
    spaced = [SymbolSequence("e4 e5 Nf3 Nc6 Bb5 a6 Ba4 Nf6 O-O", ((0, 7),))] * 2
    with pytest.raises(DataError, match="a token for each symbol"):
        contact_report(run, spaced)
    with pytest.raises(DataError, match="need two sequences"):
        contact_report(run, spaced[:1])
    assert spaced[0].symbols[2] == "Nf3"


def test_notes_and_moves_are_symbols_too_where_spaces_separate_them(tmp_path):
    (tmp_path / "games.txt").write_text("e4 e5 Nf3 Nc6\n\nd4 d5 c4 e6\n\n" * 8, encoding="utf-8")
    data = {"data": {"train": [str(tmp_path / "games.txt")]}}
    made = regard.train(make_config(None, "proteins-tiny", [*SMALL, "tokenizer.kind=spaced"], data), tmp_path / "run")
    assert len(made.vocabularies.target.encode("e4 Nc6 c4")) == 3
    with pytest.raises(ConfigError, match="contacts are looked for"):
        contact_report(_parser(tmp_path), [SymbolSequence("A" * 9, ((0, 8),))] * 2)


def _parser(tmp_path):
    (tmp_path / "one.trees").write_text("(S (NN a) (NN b))\n" * 4, encoding="utf-8")
    small = ["train.steps=1", "train.batch_tokens=200", "model.width=8", "model.heads=2", "model.feed_forward=8"]
    data = {"data": {"train": [str(tmp_path / "one.trees")]}}
    return regard.train(make_config(None, "parse-tiny", [*small, "train.threads=1"], data), tmp_path / "parser")
