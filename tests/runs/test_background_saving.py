"""Checkpoints that are written while training goes on: of the step that they say, one at a time, and never lost."""

import os
import signal
import threading
import time

import pytest
import torch
from listeners import StopAt, Told
from torch import nn

import regard
from regard import make_config
from regard.errors import NotWritten
from regard.runs import files
from regard.runs.checkpoint import Progress, checkpoints, read_part, read_progress
from regard.runs.log import read_log
from regard.trainer import checkpointing, training_run
from regard.trainer.checkpointing import SAVING, BackgroundSave, Checkpointer, HostCopies
from regard.trainer.trainer import Stopped
from regard.training.config import TrainConfig
from regard.training.objectives import SequenceToSequence
from regard.training.optim import make_optimizer

SMALL = ["model.width=8", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1", "model.feed_forward=8"]
SMALL += ["model.dropout=0.1", "tokenizer.kind=word", "data.world=0", "train.batch_tokens=100", "train.steps=5"]
SMALL += ["train.log_every=1", "train.validate_every=10", "train.validate_sentences=0", "train.save_every=2"]
SMALL += ["train.keep=3", "train.warmup=3", "train.ema=0.9", "train.threads=1"]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "pairs.tsv"
    lines = [f"{'a b c d'[: 2 * (n % 4) + 1]}\t{'d c b a'[: 2 * (n % 3) + 1]}" for n in range(40)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return make_config(None, "tiny", SMALL, {"data": {"train": [str(path)], "valid": [str(path)]}})


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole") / "run"
    regard.train(config, directory)
    return directory


@pytest.fixture
def held(monkeypatch):
    """Writing a checkpoint waits until it is let go. Gives what lets it go, and whether it has begun."""
    free, begun, write = threading.Event(), threading.Event(), checkpointing.write_checkpoint

    def slow(*arguments):
        begun.set()
        assert free.wait(60)
        return write(*arguments)

    monkeypatch.setattr(checkpointing, "write_checkpoint", slow)
    return free, begun


def contents(directory):
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "log.jsonl")
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def saving():
    return any(thread.name == SAVING for thread in threading.enumerate())


class At(Told):
    """Does something when it hears of a step."""

    def __init__(self, **work):
        super().__init__()
        self.work = work

    def step(self, values, total):
        self.work.get(f"step{values['step']}", lambda: None)()


def test_training_goes_on_while_a_checkpoint_is_written_and_it_holds_what_its_step_had(config, whole, tmp_path, held):
    """The write of step 2 is held back until step 4 has changed every weight."""
    free, begun = held
    run, seen = tmp_path / "run", []

    def later():
        assert begun.wait(60)
        seen.extend([saving(), checkpoints(run / "checkpoints")])
        free.set()

    regard.train(config, run, At(step4=later))
    assert seen == [True, []]
    assert contents(run) == contents(whole)
    assert not saving()


def test_a_stop_waits_for_what_is_being_written_and_saves_where_it_stopped(config, whole, tmp_path, held):
    free, begun = held
    run, stop = tmp_path / "run", StopAt(3)

    def let_go():
        assert begun.wait(60)
        threading.Timer(0.05, free.set).start()

    class Both(At):
        def step(self, values, total):
            super().step(values, total)
            stop.step(values, total)

    with pytest.raises(Stopped, match="stopped at step 3"):
        regard.train(config, run, Both(step3=let_go))
    assert [path.name for path in checkpoints(run / "checkpoints")] == ["step-2", "step-3"]
    assert not saving()
    regard.resume(run)
    # Step 3 was kept too, in the place of none of the others.
    assert contents(run)["model.safetensors"] == contents(whole)["model.safetensors"]
    assert (run / "checkpoints/step-5/optimizer.safetensors").read_bytes() == (
        whole / "checkpoints/step-5/optimizer.safetensors"
    ).read_bytes()


def test_a_second_ctrl_c_ends_at_once_but_for_what_is_being_written(config, whole, tmp_path, held, monkeypatch):
    """Which is whole by then, and is gone on from."""
    free, begun = held
    run = tmp_path / "run"
    asked, waits, wait = threading.Event(), threading.Event(), BackgroundSave.wait

    def noted(self, seconds=None):
        if asked.is_set() and seconds != 0:
            waits.set()
        return wait(self, seconds)

    monkeypatch.setattr(BackgroundSave, "wait", noted)

    def twice():
        assert begun.wait(60)
        os.kill(os.getpid(), signal.SIGINT)
        asked.set()

        def again():
            assert waits.wait(60)  # for step 2, so that the two signals are never one
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
            free.set()

        threading.Thread(target=again).start()

    said = r"^stopped at once, after step 3; the last checkpoint is step-2; continue with: regard train --resume "
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a worker of the suite ignores it
    try:
        with pytest.raises(Stopped, match=said):
            regard.train(config, run, At(step3=twice))
    finally:
        signal.signal(signal.SIGINT, before)
    assert not saving()
    assert not list(run.rglob("*.partial"))
    regard.resume(run)
    assert contents(run) == contents(whole)


def test_a_stop_at_a_step_that_is_being_saved_saves_it_once(config, tmp_path, monkeypatch):
    run, written, write = tmp_path / "run", [], checkpointing.write_checkpoint

    def noted(folder, progress, *rest):
        written.append(progress.step)
        return write(folder, progress, *rest)

    monkeypatch.setattr(checkpointing, "write_checkpoint", noted)
    with pytest.raises(Stopped, match="stopped at step 2"):
        regard.train(config, run, StopAt(2))
    assert written == [2]
    assert read_progress(run / "checkpoints/step-2").step == 2


def test_a_training_that_fails_leaves_what_was_being_saved_whole(config, tmp_path, held):
    free, begun = held
    run = tmp_path / "run"

    def fail():
        assert begun.wait(60)
        threading.Timer(0.05, free.set).start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        regard.train(config, run, At(step3=fail))
    assert [path.name for path in checkpoints(run / "checkpoints")] == ["step-2"]
    assert not saving()
    regard.resume(run)
    assert [one["step"] for one in read_log(run / "log.jsonl") if one["kind"] == "train"] == [1, 2, 3, 4, 5]


def test_waiting_long_for_the_disk_is_said_once(config, whole, tmp_path, held, monkeypatch):
    free, _ = held
    monkeypatch.setattr(training_run, "LONG_SAVE", 0.0)
    run = tmp_path / "run"

    class Waits(Told):
        def say(self, text):
            super().say(text)
            if text.startswith("waiting for the checkpoint"):
                free.set()

    told = Waits()
    regard.train(config, run, told)
    assert [line for line in told.lines if "waiting" in line] == [
        "waiting for the checkpoint of step 2, which has taken more than 0 s"
    ]
    assert contents(run) == contents(whole)


def test_what_the_thread_could_not_write_is_raised_where_its_outcome_is_asked_for(tmp_path):
    torch.manual_seed(0)
    model, options = nn.Linear(3, 2), TrainConfig()
    gone = tmp_path / "gone"
    one = Checkpointer(gone, options, model, make_optimizer(model, options), None, SequenceToSequence())
    one.begin(Progress(step=1))
    assert one.saving.step == 1
    with pytest.raises(NotWritten, match="cannot write"):
        one.saving.outcome()
    assert one.saving.step is None
    gone.mkdir()
    assert one.save(Progress(step=2)).kept == (2,)


def test_copies_keep_their_memory_and_their_values(tmp_path):
    tied = torch.randn(4, 3)
    tensors = {"a": tied, "b": tied.T, "step": torch.tensor(3.0), "none": torch.empty(0, 5)}
    copies = HostCopies()
    first = copies.of({"one": tensors})["one"]
    files.write_tensors(tmp_path / "copies", first)
    files.write_tensors(tmp_path / "own", {name: value.contiguous() for name, value in tensors.items()})
    assert (tmp_path / "copies").read_bytes() == (tmp_path / "own").read_bytes()
    tied.add_(1.0)
    assert not torch.equal(first["a"], tied)
    again = copies.of({"one": {**tensors, "step": torch.zeros(2)}})["one"]
    assert again["a"].data_ptr() == first["a"].data_ptr()
    assert torch.equal(again["b"], tied.T)
    assert again["step"].shape == (2,)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_copies_of_a_gpu_are_page_locked_and_of_the_moment(tmp_path):
    model = nn.Linear(512, 512, device="cuda")
    copies = HostCopies()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    found = copies.of({"model": dict(model.named_parameters())})["model"]
    with torch.no_grad():
        for value in model.parameters():
            value.zero_()
    assert all(value.is_pinned() and torch.equal(value, before[name].cpu()) for name, value in found.items())


def test_the_thread_is_no_daemon_so_a_process_that_ends_waits_for_it(tmp_path, held):
    free, begun = held
    torch.manual_seed(0)
    model, options = nn.Linear(3, 2), TrainConfig()
    one = Checkpointer(tmp_path, options, model, make_optimizer(model, options), None, SequenceToSequence())
    one.begin(Progress(step=1))
    assert begun.wait(60)
    (thread,) = (thread for thread in threading.enumerate() if thread.name == SAVING)
    assert not thread.daemon
    expected = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.zero_()
    free.set()
    one.saving.outcome()
    assert torch.equal(read_part(tmp_path / "checkpoints/step-1", "model")["weight"], expected)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoints", "model.safetensors"}
