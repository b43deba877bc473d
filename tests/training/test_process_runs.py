"""Runs trained by several processes: one directory, taken up by any number of them, whatever becomes of one."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from listeners import Told
from process_toys import TINY, Forked, alone, apart, config_of, group, prepared, together, updates, write_files

import regard
from regard.errors import ConfigError, Damaged, DataError, ProcessLost
from regard.nn.batch import row_count
from regard.runs.checkpoint import WEIGHTS, checkpoints, read_part, weights_of
from regard.runs.files import read_tensors
from regard.runs.log import read_log
from regard.trainer import time_budget
from regard.trainer.launch import launch
from regard.trainer.throughput import Throughput
from regard.trainer.time_budget import TimeBudget
from regard.trainer.training_run import TrainingRun
from regard.training import processes
from regard.training.processes import Processes, launched, local

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="torch's autograd cannot be forked once it has threads for a GPU"
)

SHORT = ["train.steps=6", "train.log_every=1", "train.save_every=2", "train.validate_every=5", "train.ema=0.9"]
SHORT += ["train.validate_sentences=2", "decode.max_len=4"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


def train(rank, world, config, directory):
    regard.train(config, directory)


def stop_at(rank, world, config, directory, step):
    """Trains to a step, after which the second process is asked to stop."""

    def ask():
        log = directory / "log.jsonl"
        while not log.exists() or sum(one["kind"] == "train" for one in read_log(log)) < step:
            time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGTERM)

    if rank == 1:
        threading.Thread(target=ask, daemon=True).start()
    regard.train(config, directory)


def resume(rank, world, directory, *overrides):
    told = Told()
    regard.resume(directory, overrides, told)
    return told.lines


def figures(directory):
    """The log without times."""
    timing = {"tokens_per_second", "seconds", "waiting", "padding"}  # the last is of one process's share
    records = read_log(directory / "log.jsonl")
    return [{key: value for key, value in record.items() if key not in timing} for record in records]


def near(one, other):
    assert len(one) == len(other)
    for mine, others in zip(one, other, strict=True):
        assert mine.keys() == others.keys()
        assert {key: value for key, value in mine.items() if not isinstance(value, str)} == pytest.approx(
            {key: value for key, value in others.items() if not isinstance(value, str)}, rel=1e-4, abs=1e-6
        )


@pytest.fixture(scope="module")
def by_one(files, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "one"
    regard.train(config_of("padded", files, *SHORT), directory)
    return directory


@pytest.mark.parametrize("shard", ["false", "true"])
def test_what_two_began_one_and_three_go_on_with(files, tmp_path, by_one, shard):
    """Stopped by a signal to the second process alone, which all heed; copies or shards, whoever takes them up."""
    config = config_of("padded", files, *SHORT, f"train.shard={shard}")
    ended = together(2, stop_at, config, tmp_path / "begun", 2)
    assert all(one[1].startswith("Stopped: stopped at step") for one in ended), ended
    assert [one[2] for one in ended] == [False, True], "only the first says so"
    saved = checkpoints(tmp_path / "begun/checkpoints")[-1]
    names = {path.name for path in saved.iterdir()}
    assert ("model-00002-of-00002.safetensors" in names) == (shard == "true")
    assert {Path(name).suffix for name in names} == {".json", ".safetensors"}
    step = int(saved.name[5:])
    assert 2 <= step < 6
    for world in (1, 3):
        directory = shutil.copytree(tmp_path / "begun", tmp_path / f"for-{world}")
        if world == 1:
            regard.resume(directory)
        else:
            told = together(3, resume, directory)
            what = "a shard" if shard == "true" else "a copy"
            assert f"continuing from step {step} of 6 in 3 processes, {what} of the model in each" in told[0]
            assert told[1:] == [[], []]
        near(figures(directory), figures(by_one))
        one, other = (read_tensors(path / "model.safetensors") for path in (directory, by_one))
        assert one.keys() == other.keys()
        for name in one:
            torch.testing.assert_close(one[name], other[name], rtol=1e-3, atol=1e-5)
    assert not list(tmp_path.rglob("*partial*"))


def test_a_damaged_shard_is_named_and_the_checkpoint_before_taken_up(files, tmp_path):
    config = config_of("padded", files, *SHORT, "train.shard=true", "train.steps=2", "train.save_every=1")
    assert together(2, train, config, tmp_path / "run") == [None, None]
    last = tmp_path / "run/checkpoints/step-2"
    shard = last / "optimizer-00002-of-00002.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    lines = together(2, resume, tmp_path / "run", "train.steps=3")[0]
    assert "step-2 is set aside" in lines[0], lines
    assert shard.name in lines[0]
    weights = read_part(tmp_path / "run/checkpoints/step-3", WEIGHTS)
    assert weights.keys() == read_tensors(tmp_path / "run/model.safetensors").keys()
    index = tmp_path / "run/checkpoints/step-3/model.index.json"
    record = json.loads(index.read_text())
    next(iter(record["tensors"].values()))["pieces"][0][0] = "../../config.json"
    index.write_text(json.dumps(record))
    with pytest.raises(Damaged, match="do not follow each other"):
        read_part(index.parent, WEIGHTS)
    (tmp_path / "run/checkpoints/step-3/optimizer-00001-of-00002.safetensors").unlink()
    lines = together(2, resume, tmp_path / "run", "train.steps=3")[0]
    assert "step-3 is set aside" in lines[0], "a shard that is missing is damage too"


def meet_and_die(rank, world):
    """The second process dies when it has met the first and has not yet agreed on anything with it."""
    if rank == 1:
        processes.ProcessGroup.from_first = lambda self, value: os._exit(1)
    with processes.joined(torch.device("cpu"), 10):
        pass


def test_a_process_that_dies_while_they_meet_is_said_in_one_line():
    survivor = Forked(2, meet_and_die).results(30, ends=True)[0]
    assert survivor[0] == "raised"
    assert survivor[1].startswith("ProcessLost: the processes did not find each other: ")
    assert len(survivor[1].splitlines()) == 1


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.long)])
def test_a_process_killed_at_random_ends_all_and_the_run_ends_the_same(files, tmp_path, kills):
    config = config_of("packed", files, *SHORT, "model.dropout=0.1")
    began = time.monotonic()
    assert together(2, train, config, tmp_path / "whole") == [None, None]
    usual = time.monotonic() - began
    dice, broken, done = random.Random(kills), tmp_path / "broken", False
    for _ in range(kills):
        begun = (broken / "config.json").exists()
        forked = Forked(2, resume, broken) if begun else Forked(2, train, config, broken)
        time.sleep(dice.random() * usual)
        victim = dice.randrange(2)
        forked.kill(victim)  # which is there until it is waited for, ended or not
        since = time.monotonic()
        ended = forked.results(15, ends=True)  # before they have met nobody can notice, but a launcher
        assert time.monotonic() - since < 20
        survivor = ended[1 - victim]
        if ended[victim] == ("ended", -signal.SIGKILL) and isinstance(survivor, tuple):
            met = survivor[0] == "raised"
            assert met or survivor == ("ended", -signal.SIGKILL)
            assert not met or survivor[1].startswith("ProcessLost"), survivor
            if met and victim == 1:
                assert "process 1 of 2 died" in survivor[1] or "did not find each other" in survivor[1]
        else:
            done = True
    if not done:
        begun = (broken / "config.json").exists()
        ended = together(2, *((resume, broken) if begun else (train, config, broken)))
        assert "raised" not in [one[0] for one in ended if one], ended
    for name in ("model.safetensors", "checkpoints/step-6/optimizer.safetensors"):
        assert (broken / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert figures(broken) == figures(tmp_path / "whole")


def hang(rank, world, config, directory):
    if rank == 1:
        threading.Timer(0.0, _stop_when, (directory,)).start()
    regard.train(config, directory)


def _stop_when(directory):
    while not (directory / "log.jsonl").exists():
        time.sleep(0.002)
    os.kill(os.getpid(), signal.SIGSTOP)


def test_a_process_that_hangs_ends_all_within_the_stated_time(files, tmp_path):
    config = config_of("padded", files, *SHORT, "train.steps=5000", "train.process_timeout=3")
    forked = Forked(2, hang, config, tmp_path / "run")
    os.waitpid(forked.pids[1], os.WUNTRACED)  # it has stopped
    since = time.monotonic()
    first = forked.result(0, 40)
    assert time.monotonic() - since < 30
    forked.kill(1)
    assert forked.result(1) == ("ended", -signal.SIGKILL)
    assert "process 1 of 2 died, or did not answer for 3 s; all have ended" in first[1], first
    assert f"continue with: regard train --resume {tmp_path / 'run'}" in first[1]
    assert first[2] is False


def fail(rank, world, config, directory):
    if rank == 1:

        def lap(self):
            raise DataError("the second one's disk has gone")

        Throughput.lap = lap
    regard.train(config, directory)


def test_what_fails_in_one_process_is_said_once_by_the_first(files, tmp_path):
    first, second = together(2, fail, config_of("padded", files, *SHORT), tmp_path / "run")
    assert first[1].startswith("ProcessLost: process 1 of 2 failed: the second one's disk has gone; all have ended")
    assert second[1] == "DataError: the second one's disk has gone"
    assert (first[2], second[2]) == (False, True)


def test_what_cannot_be_is_refused_once_and_leaves_nothing(files, tmp_path):
    config = config_of("padded", files, "data.max_len=1000", "train.batch_tokens=5")
    first, second = together(2, train, config, tmp_path / "run")
    assert first[1].startswith("ConfigError: train.batch_tokens=5"), first
    assert second[1].startswith("ProcessLost"), second
    assert (first[2], second[2]) == (False, True)
    assert not (tmp_path / "run").exists()


class Scarce:
    """An objective for which one process has memory for few rows."""

    def __init__(self, objective, most):
        self.objective, self.most, self.failed = objective, most, 0

    def loss(self, model, batch):
        if row_count(batch) > self.most:
            self.failed += 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.objective.loss(model, batch)


def scarce(rank, world, config, data):
    data.objective = Scarce(data.objective, 2 if rank == 1 else 1000)
    return updates(config, data, group(rank, world), 2, torch.float64), data.objective.failed


def test_a_batch_too_large_for_one_process_is_split_and_trains_the_same(files, tmp_path):
    config, data = prepared("padded", files, tmp_path)
    whole = alone(config, data, 2, torch.float64)
    (found, none), (_, some) = together(2, scarce, config, data)
    assert apart(whole, found) < 1e-9
    assert (none, some > 0) == (0, True)


class OneSided(torch.nn.Module):
    """Of its two weights a process uses only the first, or both; the third is used by none."""

    def __init__(self):
        super().__init__()
        self.common, self.rare, self.unused = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))


def one_sided(rank, world):
    from regard.training.loop import add_gradients

    model = OneSided()
    (model.common.sum() * (rank + 1) + (model.rare.sum() if rank else 0)).backward()
    assert (model.rare.grad is None) == (rank == 0)
    splits = add_gradients(list(model.parameters()), rank, group(rank, world))
    return splits, [None if one.grad is None else one.grad.tolist() for one in model.parameters()]


def test_a_weight_that_one_process_did_not_use_has_the_others_gradient():
    assert together(2, one_sided) == [(1, [[3.0, 3.0], [1.0, 1.0], None])] * 2


def speak(rank, world):
    with_group: Processes = group(rank, world)
    told = with_group.from_first({"a": [1.5, None]} if rank == 0 else None)
    rows = with_group.gathered(torch.full((2, 3), float(rank)))
    return told, with_group.total(rank, 0.5), rows[:, 0].tolist()


def test_processes_agree():
    assert together(3, speak) == [({"a": [1.5, None]}, [3.0, 1.5], [0, 0, 1, 1, 2, 2])] * 3
    assert not launched()


def test_settings_that_do_not_go_with_shards_are_refused(files):
    for setting in ("train.compile=true", "train.cuda_graphs=true"):
        with pytest.raises(ConfigError, match=r"does not go with train\.shard=true"):
            config_of("padded", files, "train.shard=true", setting)


def test_a_launcher_gives_the_first_process_its_output_and_its_exit_code(tmp_path, capfd):
    assert launch(2, ["--version"]) == 0
    assert capfd.readouterr().out.count("regard") == 1
    assert launch(2, ["train", "--nothing"]) == 2
    with pytest.raises(ProcessLost, match=r"process 0 of 1 was ended by SIGUSR1; all have ended; so it is"):
        launch(1, ["--help"], "; so it is", python=[*KILLED])


KILLED = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGUSR1)"]


@pytest.mark.long
def test_two_processes_from_the_command_line(files, tmp_path, capfd):
    """Where the first process is killed there is one line, and what it leaves goes on."""
    out = tmp_path / "run"
    settings = [f"--set={one}" for one in [*SHORT, "train.steps=100000", "model.width=8", "tokenizer.kind=word"]]
    pairs = files / "train.pairs.tsv"

    def kill():
        while not (out / "checkpoints" / "step-2").exists():
            time.sleep(0.02)
        for child in Path(f"/proc/{os.getpid()}/task/{threading.main_thread().native_id}/children").read_text().split():
            if b"RANK=0" in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                os.kill(int(child), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    arguments = ["train", "--preset", "tiny", "--data", str(pairs), "--out", str(out), *settings]
    with pytest.raises(ProcessLost, match=r"process 0 of 2 was ended by SIGKILL; all have ended; then resume"):
        launch(2, arguments, "; then resume")
    shown = capfd.readouterr()
    assert "in 2 processes, a copy of the model in each" in shown.err
    assert "Traceback" not in shown.err
    assert launch(2, ["train", "--resume", str(out), "--set", "train.steps=4"]) == 0
    assert capfd.readouterr().out.strip() == str(out)


@pytest.mark.long
def test_torchrun_starts_again_and_the_run_goes_on_by_itself(files, tmp_path):
    out, config = tmp_path / "run", config_of("padded", files, *SHORT, "train.steps=300", "train.save_every=20")
    (tmp_path / "run.json").write_text(json.dumps(config.to_mapping()), encoding="utf-8")
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1", "-m", "regard"]
    started = subprocess.Popen([sys.executable, *command, "train", str(tmp_path / "run.json"), "--out", str(out)])
    while not (out / "checkpoints" / "step-20").exists():
        time.sleep(0.02)
    for child in Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split():
        if b"RANK=1" in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            os.kill(int(child), signal.SIGKILL)
    assert started.wait(300) == 0
    assert together(2, train, config, tmp_path / "whole", seconds=200) == [None, None]
    assert (out / "model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


def by_minutes(rank, world, pairs, directory, settings, fewer):
    small = ["model.width=8", "model.heads=2", "model.feed_forward=8", "model.encoder_layers=1"]
    small += ["model.decoder_layers=1", "train.batch_tokens=200", "tokenizer.kind=word", "train.device=cpu"]
    small += ["train.validate_sentences=2", "decode.max_len=4", *settings]
    told, plan = Told(), regard.plan([pairs], minutes=0.2 if fewer else 0.02, overrides=small)
    if fewer and rank == 0:  # as where the first one's clock finds that updates have become slow
        TimeBudget.steps = lambda self, number, options: 3
        # However slow the machine is, more were paid for.
        time_budget.steps_for = lambda plan, seconds, timing: (
            10,
            "10 updates, as many as fit into the remaining seconds",
        )
    TimeBudget.due = lambda self, number, steps: fewer and number <= 2  # else a busy machine might find that by itself
    run = regard.train(plan, directory, told)
    return run.config.train.steps, told.lines


@pytest.mark.parametrize(
    ("settings", "fewer"), [([], False), (["train.shard=true", "train.ema=0.9"], True)], ids=["copies", "shards"]
)
def test_all_processes_time_updates_and_the_first_says_how_many_the_minutes_pay_for(files, tmp_path, settings, fewer):
    """Also in the course of the run, where it finds updates to be slower than they were."""
    pairs = str(files / "train.pairs.tsv")
    found = together(2, by_minutes, pairs, tmp_path / "run", settings, fewer)
    assert [len(one) for one in found] == [2, 2], found
    (steps, lines), (others, nothing) = found
    assert steps == others == json.loads((tmp_path / "run/config.json").read_text())["train"]["steps"]
    assert any("updates" in line and "remaining" in line for line in lines), lines
    assert nothing == []
    assert f"{steps:,} updates" in (tmp_path / "run/plan.md").read_text()
    assert any("3 updates instead of 10, to end within" in line for line in lines) == fewer
    assert steps == 3 or not fewer
    assert [one["step"] for one in figures(tmp_path / "run") if one["kind"] == "train"][-1] == steps


def of_rows(rank, world, rows, directory):
    from regard.trainer import training_request

    told = Told()
    small = ["task=classification", *TINY, "train.steps=3", "train.device=cpu", "tokenizer.vocab_size=100"]
    real = training_request.write_rows

    def late(*arguments, **options):
        time.sleep(1.0)
        return real(*arguments, **options)

    training_request.write_rows = late
    run = regard.train(data=rows, out=directory, overrides=small, report=told)
    return run.config.train.steps, told.lines


def test_rows_are_written_and_planned_for_by_the_first_process_alone(tmp_path):
    """Others neither look for what is not there yet nor remove it."""
    rows = [{"text": f"a text of {number} and {number % 7}", "label": "ab"[number % 2]} for number in range(300)]
    (steps, lines), other = together(2, of_rows, rows, tmp_path / "run")
    assert steps == 3
    assert other == (3, [])
    assert any(line.startswith("data: task classification") for line in lines)
    assert len((tmp_path / "run/data/train.jsonl").read_text().splitlines()) == 300


def refused_rows(rank, world, directory):
    if rank == 0:
        (directory / "data").mkdir(parents=True)
        (directory / "data" / "train.jsonl").write_text("what the first one writes")
        group(rank, world).total()
    else:
        group(rank, world).total()
        with pytest.raises(ConfigError, match="unknown"):
            regard.train("tiny", data=[("a", "b")], out=directory, overrides=["train.strange=1"])


def test_a_process_that_fails_leaves_the_rows_of_the_first(tmp_path):
    assert together(2, refused_rows, tmp_path / "run") == [None, None]
    assert (tmp_path / "run/data/train.jsonl").exists()


def after_timing(rank, world, config, data, directory):
    training = TrainingRun(config, directory, data, Told(), group(rank, world))
    before = [local(value).clone() for value in weights_of(training.model).values()]
    training.timed(0.0)
    after = [local(value) for value in weights_of(training.model).values()]
    averaged = [local(value) for value in training.average.weights.values()]
    return [all(map(torch.equal, before, found)) for found in (after, averaged)], len(training.optimizer.state)


def test_timing_leaves_weights_in_shards_as_they_were(files, tmp_path):
    config, data = prepared("padded", files, tmp_path, "train.shard=true", "train.ema=0.9")
    assert together(2, after_timing, config, data, tmp_path) == [([True, True], 0)] * 2
