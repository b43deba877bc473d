"""Run directories that regard 0.1.0 wrote: they load, answer as they did, and train on from where they stopped.

Every run of `runs_0_1_0/` has an `expected.json` with what 0.1.0 answered; `make_runs.py` says how they came to be.
All is asked through the public interface: what is in a package's rooms may move.
"""

import json

import pytest
from outputs import DATA, RUNS, called, commanded, differences, environment, logged, placed, resumed

import regard

NAMES = sorted(path.name for path in RUNS.iterdir())
EXPECTED = {name: json.loads((RUNS / name / "expected.json").read_text(encoding="utf-8")) for name in NAMES}
RESUMABLE = [name for name in NAMES if "resumed" in EXPECTED[name]]
NEAR = 1e-5
MENDED = {
    # 0.1.0 measured ELMo's backward model on the tokens that had the least to their right.
    ("elmo", "evaluate"): {
        "nll": 1.770216,
        "perplexity": 5.8721215,
        "bits_per_character": 0.72968052,
        "bits_per_byte": 0.72968052,
    }
}
"""What 0.1.0 got wrong, by the run and what it is asked, and what is right."""


def expected(name, asked, result):
    return {**result, **MENDED[name, asked]} if (name, asked) in MENDED else result


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_0_1_0_answers_as_it_did(name, tmp_path):
    run = regard.load(placed(name, tmp_path), "cpu")
    for call in EXPECTED[name]["calls"]:
        right = expected(name, call["call"], call["result"])
        assert not differences(called(run, call, tmp_path), right, NEAR, call["call"])


@pytest.mark.parametrize("name", NAMES)
def test_commands_print_of_a_run_of_0_1_0_what_they_did(name, tmp_path):
    placed(name, tmp_path)
    for one in EXPECTED[name]["commands"]:
        right = expected(name, one["command"][0], one["result"])
        assert not differences(commanded(one["command"], tmp_path), right, NEAR, one["command"][0])


@pytest.mark.parametrize("name", RESUMABLE)
def test_a_run_of_0_1_0_that_was_stopped_in_an_epoch_is_finished_as_it_would_have_been(name, tmp_path):
    before = EXPECTED[name]["resumed"]
    run = placed(name, tmp_path)
    found = resumed(run)
    assert not differences(found["log"], before["log"], NEAR, "log")
    assert not any("not what it was" in line for line in found["said"]), found["said"]
    assert any("continuing from step" in line for line in found["said"]), found["said"]
    if EXPECTED[name]["environment"] == environment():
        assert found["model_sha256"] == before["model_sha256"]
    regard.load(run, "cpu")


def test_a_stopped_run_of_0_1_0_takes_other_settings_and_keeps_them(tmp_path):
    run = placed("bert", tmp_path)
    regard.resume(run, ("train.steps=244", "train.save_every=100"))
    assert logged(run)[-1]["step"] == 244
    assert (run / "checkpoints" / "step-244").is_dir()
    assert regard.load(run, "cpu").fill("The [MASK] is sick.")


def test_a_new_run_starts_from_one_of_0_1_0(tmp_path):
    first = placed("bert", tmp_path)
    data = {part: [str(tmp_path / DATA.name / f"{part}-classes.tsv")] for part in ("train", "valid")}
    settings = ["train.steps=2", "train.batch_tokens=200", "train.warmup=1", "train.device=cpu", "data.max_len=32"]
    extra = {"data": data, "train": {"start_from": str(first)}}
    run = regard.train(regard.make_config(None, "bert-classify", settings, extra), tmp_path / "tuned")
    (choices,) = run.classify(["The cat is sick."])
    assert {choice.label for choice in choices} == {"definite", "demonstrative", "indefinite"}


def test_every_task_and_every_way_of_training_is_among_the_runs():
    configs = {name: json.loads((RUNS / name / "config.json").read_text(encoding="utf-8")) for name in NAMES}
    tasks = {"translation", "language", "masking", "classification", "tagging", "answering", "images", "pointing"}
    assert {config["task"] for config in configs.values()} == tasks
    stopped = [configs[name] for name in RESUMABLE]
    assert {config["task"] for config in stopped} == tasks - {"tagging", "answering"}
    train = [config["train"] for config in stopped]
    assert any(one["ema"] for one in train)
    assert any(one["optimizer"] == "muon" and one["pack"] == "always" for one in train)
    assert any(one["average_last"] > 1 for one in train)
    assert any(config["data"]["carry"] for config in stopped)
    assert {config["tokenizer"]["joint"] for config in configs.values() if config["task"] == "translation"} == {
        True,
        False,
    }


def test_the_saved_runs_are_small_and_name_no_folder_of_the_machine_that_made_them():
    files = [path for folder in (RUNS, DATA) for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 2_000_000
    assert not [path for path in files if "cache" in path.parts]
    configs = [path for path in files if path.name in ("config.json", "expected.json")]
    assert not [path for path in configs if "/tmp/" in path.read_text(encoding="utf-8")]
