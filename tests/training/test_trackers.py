"""Trackers hear every logged step and every validation, whatever they are, and never end a training."""

import json
import sys
import types
from importlib.metadata import EntryPoint

import pytest

import regard
from regard.runs.log import read_log
from regard.tasks.spec import Report, Silence
from regard.trainer import trackers
from regard.trainer.trackers import TRACKERS, Tracker, reporting

PAIRS = [("I am a student.", "Je suis étudiant."), ("Thanks.", "Merci.")] * 6
SMALL = {
    "data": {"train": PAIRS, "valid": PAIRS[:2], "max_len": 32},
    "model": {"width": 16, "heads": 2, "feed_forward": 24, "max_len": 32},
    "train": {"steps": 4, "warmup": 2, "threads": 1, "validate_every": 2, "log_every": 1},
    "decode": {"max_len": 8},
}


class Remembers:
    def __init__(self, directory):
        self.directory, self.heard, self.config, self.closed = directory, [], None, False
        made.append(self)

    def open(self, config):
        self.config = config

    def log(self, kind, step, values):
        self.heard.append((kind, step, dict(values)))

    def close(self):
        self.closed = True


class Breaks(Remembers):
    def log(self, kind, step, values):
        raise ConnectionError("no network here")


class Hears(Silence):
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


made = []


@pytest.fixture(autouse=True)
def added(monkeypatch):
    made.clear()
    for name, kind in (("remembers", Remembers), ("breaks", Breaks)):
        monkeypatch.setitem(TRACKERS._built_in, name, kind)


def test_a_tracker_hears_what_is_logged_and_is_closed(tmp_path):
    heard = Hears()
    regard.train("tiny", out=tmp_path / "run", report=[heard, "remembers, breaks"], **SMALL)
    kept, broken = made
    assert isinstance(kept, Tracker)
    logged = [record for record in read_log(tmp_path / "run/log.jsonl") if record["kind"] in ("train", "validation")]
    assert [(kind, step) for kind, step, _ in kept.heard] == [(one["kind"], one["step"]) for one in logged]
    assert kept.heard[0][2]["loss"] == pytest.approx(logged[0]["loss"])
    assert kept.config["train"]["steps"] == 4
    assert kept.closed
    assert [text for text in heard.said if "no network here" in text] == [
        "breaks: no network here; it gets nothing more of this training"
    ]
    assert not broken.heard
    regard.resume(tmp_path / "run", report="remembers", train={"steps": 5})
    assert [step for kind, step, _ in made[-1].heard if kind == "train"] == [5]


def test_what_is_no_tracker_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(regard.ConfigError, match="unknown tracker 'wandbb'; did you mean 'wandb'"):
        regard.train("tiny", out=tmp_path / "run", report="wandbb", **SMALL)
    assert not (tmp_path / "run").exists()
    with pytest.raises(regard.ConfigError, match="2 reports are given"), reporting([Silence(), Silence()], tmp_path):
        pass


def test_a_package_adds_a_tracker(monkeypatch, tmp_path):
    registry = trackers.Registry("regard.trackers", "tracker", {})
    point = EntryPoint("mine", f"{__name__}:Remembers", "regard.trackers")
    monkeypatch.setattr("regard.plugins.entry_points", lambda group: [point])
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Remembers.__module__])
    monkeypatch.setattr(trackers, "TRACKERS", registry)
    with reporting("mine", tmp_path) as report:
        assert isinstance(report, Report)
    assert made[-1].closed


def test_wandb_is_told_under_one_name_when_a_run_goes_on(monkeypatch, tmp_path):
    calls = []
    run = types.SimpleNamespace(
        log=lambda values, step: calls.append((step, values)), finish=lambda: calls.append("finished")
    )
    library = types.ModuleType("wandb")
    library.init = lambda **given: calls.append(given) or run
    monkeypatch.setitem(sys.modules, "wandb", library)
    (tmp_path / "config.json").write_text(json.dumps({"train": {"steps": 3}}), encoding="utf-8")
    for _ in range(2):
        with reporting("wandb", tmp_path) as report:
            report.step({"step": 1, "loss": 2.0, "kind": "train"}, 3)
            report.validation({"step": 1, "loss": 3.0})
    first, second = (one for one in calls if isinstance(one, dict))
    assert first == second
    assert first["config"] == {"train": {"steps": 3}}
    assert (1, {"train/loss": 2.0}) in calls
    assert (1, {"validation/loss": 3.0}) in calls
    assert calls[-1] == "finished"
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(regard.ConfigError, match=r"pip install 'regard\[wandb\]'"), reporting("wandb", tmp_path):
        pass


def test_tensorboard_writes_its_file(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with reporting("tensorboard", tmp_path) as report:
        report.step({"step": 1, "loss": 2.0}, 3)
    assert [path.stat().st_size > 40 for path in (tmp_path / "tensorboard").iterdir()] == [True]
    (tmp_path / "config.json").write_text('{"train": {"tensorboard": true}}', encoding="utf-8")
    heard = Hears()
    with reporting([heard, "tensorboard"], tmp_path) as report:
        report.step({"step": 1, "loss": 2.0}, 3)
    assert "writes the same already" in heard.said[0]
