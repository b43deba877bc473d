"""Runs that point: trained, stopped, taken up, asked, measured and looked into."""

import sys
from pathlib import Path

import numpy as np
import pytest

import regard
from regard import make_config
from regard.analysis.model_summary import describe
from regard.data.synthetic.puzzles import PUZZLES, Problem, sample_problems, write_problems
from regard.errors import ConfigError, DataError, RunError
from regard.look.attention_svg import svg
from regard.tasks.looking import document, page
from regard.tasks.pointing import is_simple
from regard.trainer.trainer import Stopped

sys.path.append(str(Path(__file__).parents[1] / "models"))
from listeners import StopAt

SMALL = [
    "model.width=8",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.feed_forward=8",
    "model.max_len=256",
    "data.puzzle_sizes=[4,6]",
    "train.batch_tokens=120",
    "train.steps=6",
    "train.log_every=1",
    "train.validate_every=6",
    "train.validate_sentences=20",
    "train.save_every=6",
    "train.warmup=2",
    "train.threads=1",
]


def config_of(puzzle, *more, data=None):
    return make_config(None, f"pointer-{puzzle}", [*SMALL, *more], {"data": data or {}})


@pytest.fixture(scope="module", params=PUZZLES)
def run(request, tmp_path_factory):
    return regard.train(config_of(request.param), tmp_path_factory.mktemp("runs") / request.param)


@pytest.mark.parametrize("given", ["drawn", "files"])
def test_a_resumed_run_equals_an_unbroken_one_byte_for_byte(given, tmp_path):
    data = {}
    if given == "files":
        write_problems(
            tmp_path / "a.jsonl", PUZZLES["hull"], sample_problems(PUZZLES["hull"], 40, (4, 6), seed=1, part="train")
        )
        data = {"train": [str(tmp_path / "a.jsonl")], "valid": [str(tmp_path / "a.jsonl")]}
    config = config_of("hull", "model.dropout=0.1", data=data)
    whole = regard.train(config, tmp_path / "whole")
    with pytest.raises(Stopped, match="stopped at step 3"):
        regard.train(config, tmp_path / "broken", StopAt(3))
    broken = regard.resume(tmp_path / "broken")
    one, other = ((run.directory / "model.safetensors").read_bytes() for run in (whole, broken))
    assert one == other


def test_answers_are_valid_in_any_batch_and_by_any_search(run):
    puzzle = run.pointer.puzzle
    problems = [problem.items.tolist() for problem in sample_problems(puzzle, 9, (4, 7), seed=5, part="test")]
    for settings in ({}, {"beam": 3}, {"temperature": 1.0, "seed": 3}):
        together = run.point(problems, **settings)
        for problem, order in zip(problems, together, strict=True):
            assert len(set(order)) == len(order)
            assert set(order) <= set(range(len(problem)))
            assert len(order) == len(problem) or not puzzle.complete
        if "temperature" not in settings:
            assert together == [run.point([problem], **settings)[0] for problem in problems]


def test_a_problem_is_the_same_moved_and_scaled(run):
    problem = sample_problems(run.pointer.puzzle, 1, (6, 6), seed=5, part="test")[0].items
    unit = (problem - problem.min(0)) / np.ptp(problem, axis=0).max()
    # Powers of two, so that bringing them back is exact.
    assert run.point([unit]) == run.point([unit * 1024 - 512])


def test_scores_come_with_intervals(run):
    found = regard.evaluate(run, limit=30)
    assert found["problems"] == 30
    assert found["sizes"] == [4, 6]
    names = {"sort": ["exact_match"], "hull": ["exact_match", "simple", "area_covered"]}
    for name in names.get(found["puzzle"], ["exact_match", "valid", "excess"]):
        low, high = found[f"{name}_interval"]
        assert low <= found[name] <= high
    if found["puzzle"] == "tsp":
        assert found["valid"] == 1
        assert found["excess"] > 0
        assert found["length"] > found["reference_length"]
        assert found["reference"] == "shortest"


def test_right_answers_score_as_such(run, monkeypatch):
    puzzle = run.pointer.puzzle
    problems = sample_problems(puzzle, 12, (4, 6), seed=5, part="test")

    def answers(problems, config=None):
        from regard.tasks.verbs.point import Pointed

        return [[Pointed(order=problem.order.tolist(), score=0.0, log_prob=0.0)] for problem in problems]

    monkeypatch.setattr(run.pointer, "answers", answers)
    found = regard.evaluate(run, problems)
    assert found["exact_match"] == 1
    assert found.get("area_covered", 1.0) == pytest.approx(1)
    assert found.get("excess", 0.0) == pytest.approx(0)


def test_the_page_shows_the_pointing(run):
    puzzle = run.pointer.puzzle
    (problem,) = sample_problems(puzzle, 1, (5, 5), seed=5, part="test")
    (sentence,) = document(run, [problem]).sentences
    (order,) = run.point([problem])
    shown = {one.name: one.array() for one in sentence.attentions}
    assert shown["pointing"].shape == (1, len(order) + 1, 6)
    np.testing.assert_array_equal(shown["pointing"][0].argmax(-1), [*(place + 1 for place in order), 0])
    assert "pointing" in page(run, [problem.items.tolist()])


def test_what_was_pointed_at_is_named_as_a_reader_would(run):
    puzzle = run.pointer.puzzle
    (problem,) = sample_problems(puzzle, 1, (5, 5), seed=5, part="test")
    found = document(run, [problem])
    (sentence,) = found.sentences
    names = sentence.source.pieces
    assert [name.split(": ")[0] for name in names] == ["⟨end⟩", *(f"item {place}" for place in range(5))]
    assert sentence.source.text == "; ".join(names[1:])
    assert {one.piece for step in sentence.candidates for one in step} <= set(names)
    for view in ("map", "lines", "text"):
        written = svg(found, view=view, attention="pointing")
        assert ">item 1: " in written
        assert "·" not in written


def test_a_run_describes_itself(run):
    facts = describe(run)
    assert facts["vocabulary"] is None
    assert facts["parameters"] == sum(parameter.numel() for parameter in run.model.parameters())
    assert facts["flops"]["forward"] > 0


def test_mistakes_are_said(run, tmp_path):
    with pytest.raises(RunError, match="is a run for pointing, not for translation"):
        run.translate(["a"])
    with pytest.raises(RunError, match="has no tokenizer"):
        _ = run.vocabularies
    with pytest.raises(DataError, match="problem 1: 3 is not a list"):
        run.point([3])
    with pytest.raises(DataError, match="the model reads at most 256"):
        run.point([Problem(np.zeros((257, run.pointer.puzzle.inputs)))])
    for setting, complaint in (
        ("data.puzzle=chess", "unknown puzzle 'chess'"),
        ("data.puzzle_sizes=[6,4]", "the fewest and the most"),
        ("data.puzzle_sizes=[1,300]", "at most model.max_len=256"),
        ("train.batch_tokens=12", "at least 13"),
        ("train.smoothing=0.1", "must be 0"),
        ("train.compile=true", "does not apply to task='pointing'"),
        ("task=translation", r"data\.puzzle.* does not apply to task='translation': it is for pointing"),
        ("data.world=5", r"data\.world does not apply to task='pointing': it is for translation"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            config_of("sort", setting)


def test_a_polygon_whose_sides_cross_is_not_simple():
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    assert is_simple(square)
    assert not is_simple(square[[0, 2, 1, 3]])
    assert not is_simple(square[:2])
