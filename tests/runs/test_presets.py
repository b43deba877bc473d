"""Every preset is a configuration that can be built; the recipes train on data of their kind."""

import re
from dataclasses import replace

import pytest

import regard
from regard.cli import main
from regard.cli.presets import CHOICES, ON_GPU
from regard.tasks.config import make_config, presets
from regard.tasks.planning import Machine
from regard.tasks.run import build_model

SIZES = {"multi30k": (10_000, 10_000), "letters-to-sounds": (40, 45), "debian-l10n": (32_000, 32_000)}


@pytest.mark.parametrize("name", sorted(presets()))
def test_every_preset_is_accepted_and_says_what_it_is(name):
    make_config(None, name)
    assert presets()[name]


@pytest.mark.parametrize("gpu", [None, "a GPU"])
def test_what_to_choose_by_data_and_machine_is_said_and_is_there(capsys, monkeypatch, gpu):
    monkeypatch.setattr("regard.tasks.planning.this_machine", lambda: Machine(gpu=gpu, cores=3))
    assert main(["presets"]) == 0
    said = capsys.readouterr().out
    head, *lines, note = said[said.index("  data  ") :].splitlines()
    heads = ["on this machine (a GPU)", "on a CPU"] if gpu else ["on this machine (3 CPU cores)", "on a GPU"]
    assert re.split(r"  +", head.strip()) == ["data", *heads]
    rows = [re.split(r"  +", line.strip()) for line in lines]
    assert [len(row) for row in rows] == [3] * len(CHOICES)
    small = next(row for row in rows if row[0] == "small images")
    assert small[1:] == (["vit-mnist*", "vit-digits"] if gpu else ["vit-digits", "vit-mnist*"])
    named = {name.removesuffix("*") for row in rows for name in row[1:]}
    assert named | ON_GPU <= set(presets())
    trained = {make_config(None, name).task for name in named}
    assert trained == {make_config(None, name).task for name in presets()}
    assert note.startswith("* measured on a GPU")


@pytest.mark.parametrize(("name", "millions"), [("multi30k", 7.84), ("letters-to-sounds", 7.40), ("debian-l10n", 60.5)])
def test_recipes_have_the_size_they_are_meant_to_have(name, millions):
    config = make_config(None, name)
    assert "recipe" in presets()[name]
    source, target = SIZES[name]
    sizes = {"source_vocab_size": source, "target_vocab_size": target}
    model = build_model(replace(config, model={**config.model, **sizes}))
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)


def test_letters_become_sounds(tmp_path):
    words = {"about": "AH B AW T", "bat": "B AE T", "tab": "T AE B", "but": "B AH T", "tub": "T AH B", "out": "AW T"}
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{word}\t{sounds}\n" for word, sounds in words.items()) * 8, encoding="utf-8")
    small = ["model.width=16", "model.heads=2", "model.feed_forward=16", "model.encoder_layers=1"]
    small += ["model.decoder_layers=1", "train.steps=4", "train.batch_tokens=200", "train.threads=1"]
    config = make_config(None, "letters-to-sounds", small, {"data": {"train": [str(path)]}})
    run = regard.train(config, tmp_path / "run")
    source, target = run.vocabularies.source, run.vocabularies.target
    assert source.pieces(source.encode("tub")) == ["t", "u", "b"]
    assert target.pieces(target.encode("T AH B")) == ["T", "AH", "B"]
    assert isinstance(run.translate(["bout"])[0], str)
