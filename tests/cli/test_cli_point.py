"""Puzzles from the command line: made, learnt, answered, measured and looked into."""

import json

import pytest

from regard.cli import main

SMALL = ["model.width=8", "model.heads=2", "model.encoder_layers=1", "model.feed_forward=8", "train.batch_tokens=100"]
SMALL += ["train.steps=4", "train.validate_every=4", "train.validate_sentences=4", "train.threads=1"]


@pytest.fixture(scope="module")
def tours(tmp_path_factory):
    """A folder of problems, and a run that has learnt a little of them."""
    folder = tmp_path_factory.mktemp("tours")
    sizes = ["--train", "30", "--valid", "5", "--test", "5", "--size", "5", "--fewest", "4"]
    assert main(["data", "tsp", str(folder / "data"), *sizes]) == 0
    files = [f"--{flag}={folder / 'data' / name}.jsonl" for flag, name in (("data", "train"), ("valid", "valid"))]
    settings = [f"--set={setting}" for setting in SMALL]
    assert main(["train", "--preset", "pointer-tsp", "--out", str(folder / "run"), *files, *settings]) == 0
    return folder


def test_problems_are_written_with_their_answers_and_are_the_same_again(cli, tmp_path):
    for name, key in (("sort", "numbers"), ("hull", "points"), ("tsp", "points")):
        sizes = ["--train", "7", "--valid", "2", "--test", "2", "--size", "5"]
        result = cli("data", name, tmp_path / name, *sizes)
        assert result.code == 0
        assert result.out.splitlines() == [
            str(tmp_path / name / f"{part}.jsonl") for part in ("train", "valid", "test")
        ]
        records = [json.loads(line) for line in (tmp_path / name / "train.jsonl").read_text().splitlines()]
        assert len(records) == 7
        assert all(len(record[key]) == 5 and record["order"] for record in records)
        cli("data", name, tmp_path / "again", *sizes)
        assert (tmp_path / name / "train.jsonl").read_bytes() == (tmp_path / "again" / "train.jsonl").read_bytes()


def test_point_answers_lists_and_files(cli, tours, tmp_path):
    result = cli("point", tours / "run", "[[0, 0], [10, 0], [10, 5], [0, 5]]", "--beam", "2")
    assert sorted(map(int, result.out.split())) == [0, 1, 2, 3]
    (tmp_path / "cities.csv").write_text("x,y\n1,2\n5,9\n7,3\n", encoding="utf-8")
    record = json.loads(cli("point", tours / "run", "-i", tmp_path / "cities.csv", "--json").out)
    assert sorted(record["order"]) == [0, 1, 2]
    assert record["log_prob"] <= 0
    assert len(cli("point", tours / "run", "-i", tours / "data" / "test.jsonl").out.splitlines()) == 5


def test_evaluate_says_how_much_longer_the_tours_are(cli, tours):
    shown = cli("evaluate", tours / "run", "--data", tours / "data" / "test.jsonl").out
    assert "valid tours        100.00 %" in shown
    assert "than the shortest tour" in shown
    found = json.loads(cli("evaluate", tours / "run", "--limit", "3", "--beam", "2", "--json").out)
    assert found["problems"] == 3
    assert found["decode"]["beam"] == 2
    out = tours / "answers.txt"
    assert cli("evaluate", tours / "run", "--data", tours / "data/test.jsonl", "--limit", 2, "--out", out).code == 0
    assert [len(json.loads(line)) > 1 for line in out.read_text(encoding="utf-8").splitlines()] == [True, True]


def test_look_writes_a_page(cli, tours, tmp_path):
    assert cli("look", tours / "run", "[[0, 0], [1, 0], [1, 1]]", "-o", tmp_path / "page.html").code == 0
    assert "pointed" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "pointer" in cli("describe", tours / "run").out


def test_mistakes_are_one_line(refused, tours, trained, tmp_path):
    assert "for pointing, not for translation" in refused("translate", tours / "run", "a")
    assert "for translation, not for pointing" in refused("point", trained, "[1]")
    assert "problem 1 is not JSON" in refused("point", tours / "run", "[1")
    assert "give problems" in refused("point", tours / "run")
    assert "is not 2 numbers" in refused("look", tours / "run", "[1, 2, 3]")
    for idle in (["--world"], ["--alternatives"], ["--stride", "3"], ["--max-len", "5"], ["--max-ratio", "1"]):
        said = refused("evaluate", tours / "run", *idle)
        name = idle[0].removeprefix("--").replace("-", "_")
        assert said.startswith(f"{name} does not apply to a run for pointing; its options: beam, beam_groups, "), said
    assert "--fewest=6 must be at most --size=5" in refused("data", "sort", tmp_path / "x", "--size=5", "--fewest=6")
    assert not (tmp_path / "x").exists()
