"""What a planned run counts in updates, how many its minutes pay for, and what it changes by itself."""

import pytest

import regard
from regard.runs.log import read_log
from regard.tasks.planning import Machine, in_updates
from regard.tasks.run import load_config

CPU = Machine(cores=2)
SMALL = ("model.width=16", "model.heads=2", "model.feed_forward=32", "train.threads=1", "train.validate_sentences=2")
PAIRS = (*SMALL, "model.encoder_layers=1", "model.decoder_layers=1")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    pairs = [f"{'abc'[n % 3]} {'de'[n % 2]} x{n % 71}\t{'fgh'[n % 3]} y{n % 71}" for n in range(426)]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    return folder


def planned(files, *overrides, name="pairs.tsv", **options):
    return regard.plan(files / name, machine=CPU, overrides=overrides, **options)


@pytest.mark.parametrize(("steps", "log_every"), [(4, 1), (79, 1), (100, 2), (800, 20), (2000, 50), (100_000, 50)])
def test_a_short_run_is_logged_often_enough_for_its_guard_rails(files, steps, log_every):
    plan = planned(files)
    assert in_updates(plan, plan.config, steps).train.log_every == log_every
    asked = planned(files, "train.log_every=7")
    assert in_updates(asked, asked.config, steps).train.log_every == 7


@pytest.mark.parametrize("asked", ["train.steps=40", "train.epochs=4"])
def test_what_is_counted_in_updates_follows_those_that_were_asked_for(files, tmp_path, asked):
    run = regard.train(planned(files, *PAIRS, asked, "train.save_every=13"), tmp_path / "run")
    options = load_config(run.directory).train
    every = -(-options.steps // 10)
    assert (options.validate_every, options.save_every, options.log_every) == (every, 13, 1)
    assert options.epochs == (4.0 if "epochs" in asked else 0.0)
    validated = [one["step"] for one in read_log(run.directory / "log.jsonl") if one["kind"] == "validation"]
    assert validated == sorted({*range(every, options.steps + 1, every), options.steps})
