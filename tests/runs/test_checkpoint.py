"""Checkpoints and logs on disk: what does not fit, or lies, is refused in one line before it is used."""

import errno
import json
import os

import pytest
import torch
from torch import nn

from regard.errors import RunError
from regard.runs.checkpoint import (
    FORMAT,
    Progress,
    checkpoints,
    forget_checkpoints,
    load_checkpoint,
    load_weights_strictly,
    read_progress,
    save_checkpoint,
)
from regard.runs.files import read_tensors
from regard.runs.log import Log, read_log
from regard.trainer.checkpointing import Checkpointer
from regard.training.config import TrainConfig
from regard.training.objectives import SequenceToSequence
from regard.training.optim import ExponentialAverage, make_optimizer, optimizer_tensors, restore_optimizer


@pytest.fixture
def trained():
    """A model and its optimiser after one update."""
    model = nn.Linear(3, 2)
    optimizer = make_optimizer(model, TrainConfig())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda record: record.update(files=[]), "is not a checkpoint's$"),
        (lambda record: record.update(format="1"), "is not a checkpoint's$"),
        (lambda record: record.pop("step"), "is not a checkpoint's$"),
        (lambda record: record.update(step="12"), "step='12' must be a whole number"),
        (lambda record: record.update(best=[]), r"best=\[\] must be a number"),
        (lambda record: record.update(more=1), "unknown setting 'more'"),
        (lambda record: record["files"].update({"../progress.json": 1}), "is missing its ../progress.json"),
        (lambda record: record["files"].update({"model.safetensors": 7}), r"was cut short: \d+ of 7 bytes"),
        (lambda record: record.update(format=FORMAT + 1), "newer version of regard"),
    ],
)
def test_a_record_that_lies_is_refused(trained, tmp_path, change, said):
    path = save_checkpoint(tmp_path, Progress(step=12, best=1.5, best_step=6, data="d"), *trained)
    assert read_progress(path) == Progress(step=12, best=1.5, best_step=6, data="d")
    record = json.loads((path / "progress.json").read_text())
    (path / "digests.json").unlink()  # nothing else tells that it lies
    del record["files"]["digests.json"]
    change(record)
    (path / "progress.json").write_text(json.dumps(record))
    with pytest.raises(RunError, match=said):
        read_progress(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update({"exp_avg/weight": torch.zeros(1)}),
        lambda state: state.update({"exp_avg/weight": state["exp_avg/weight"].double()}),
        lambda state: state.update({"step/weight": torch.ones(2)}),
        lambda state: state.pop("exp_avg_sq/weight"),
        lambda state: state.update({"exp_avg/nobody": torch.zeros(1)}),
    ],
)
def test_an_optimisers_state_that_does_not_fit_is_refused(trained, change):
    # The fused kernel would write as far as the parameter reaches, past the end of what is shorter.
    model, optimizer = trained
    state = optimizer_tensors(model, optimizer)
    assert restore_optimizer(model, make_optimizer(model, TrainConfig()), state)
    change(state)
    fresh = make_optimizer(model, TrainConfig())
    with pytest.raises(RunError, match="the optimiser's state does not fit the model"):
        restore_optimizer(model, fresh, state)
    assert not fresh.state


def test_an_average_that_does_not_fit_is_refused(trained, tmp_path):
    average = ExponentialAverage(trained[0], 0.9)
    path = save_checkpoint(tmp_path, Progress(step=1), *trained, average)
    load_checkpoint(path, *trained, average)
    average.weights["weight"] = torch.zeros(4, 4)
    with pytest.raises(RunError, match=r"average\.safetensors do not fit the model"):
        load_checkpoint(path, *trained, average)


def test_of_many_weights_that_do_not_fit_eight_are_named(tmp_path):
    model = nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in range(9))
    with pytest.raises(RunError) as found:
        load_weights_strictly(model, {"0.weight": torch.zeros(3, 2), "more": torch.zeros(1)}, tmp_path)
    assert str(found.value).endswith("missing 7.weight; missing 8.weight" + "; and 2 more")
    assert "missing 1.weight; " in str(found.value)
    with pytest.raises(RunError, match=r"do not fit the model: extra more; weight is \(3, 2\), not \(2, 2\)$"):
        load_weights_strictly(model[0], {"weight": torch.zeros(3, 2), "more": torch.zeros(1)}, tmp_path)


def test_the_last_checkpoints_stay_and_those_that_are_wanted(trained, tmp_path):
    for step in (2, 4, 10, 20):
        save_checkpoint(tmp_path, Progress(step=step), *trained)
    (tmp_path / "step-x").mkdir()
    forget_checkpoints(tmp_path, 1, {4})
    assert [path.name for path in checkpoints(tmp_path)] == ["step-4", "step-20"]


def kept(folder, trained, progress, **options):
    """What a run keeps in the end that saved at steps 1, 2 and 3, its weights these numbers, and what is said of it."""
    model, optimizer = trained
    keeper = Checkpointer(folder, TrainConfig(keep=2, **options), model, optimizer, None, SequenceToSequence())
    for step in (1, 2, 3):
        with torch.no_grad():
            model.weight.fill_(step)
        saved = keeper.save(Progress(step=step, best_step=progress.best_step))
        assert read_tensors(folder / "model.safetensors")["weight"].unique().tolist() == [step]
    said = keeper.finish(saved).which
    return read_tensors(folder / "model.safetensors")["weight"].unique().tolist(), said


@pytest.mark.parametrize(
    ("options", "best", "weights", "said"),
    [
        ({}, 1, [3], None),
        ({"average_last": 1}, 1, [3], None),
        ({"average_last": 2}, 1, [2.5], "the model is the mean of 2 checkpoints"),
        ({"choose": "best"}, 1, [1], "the model is that of step 1, the best validated"),
        ({"choose": "best"}, 0, [3], None),
        ({"choose": "best"}, 7, [3], "the model is the last: that of step 7, the best validated, was not kept"),
    ],
)
def test_a_finished_run_keeps_the_weights_that_were_asked_for(trained, tmp_path, options, best, weights, said):
    assert kept(tmp_path, trained, Progress(step=3, best_step=best), **options) == (weights, said)
    always = {best} & {1} if options.get("choose") == "best" else set()
    assert {path.name for path in checkpoints(tmp_path / "checkpoints")} == {"step-2", "step-3"} | {
        f"step-{step}" for step in always
    }


def test_a_tensorboard_that_cannot_be_written_is_told_of_once_and_left_alone(tmp_path):
    class Full:
        def add_scalar(self, *_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    said = []
    log = Log(tmp_path, say=said.append)
    log._board = Full()
    for step in (1, 2):
        log.write("train", step, {"loss": 1.0})
    log.close()
    assert len(said) == 1
    assert "TensorBoard: No space left on device" in said[0]
    assert [record["step"] for record in read_log(tmp_path / "log.jsonl")] == [1, 2]


def test_a_log_is_read_for_its_records_alone(tmp_path):
    path = tmp_path / "log.jsonl"
    good = [{"kind": "train", "step": step} for step in (1, 2, 3)]
    odd = ["", "1", "[]", '{"step": "x"}', "[" * 100_000, '{"step": 1' + "0" * 5000 + "}", '{"kind": "tr']
    path.write_text("\n".join([*map(json.dumps, good[:2]), *odd[:3], json.dumps(good[2]), *odd[3:]]))
    assert read_log(path) == good
    path.write_bytes(path.read_bytes() + b"\xff\n")
    assert read_log(path) == good
    Log(tmp_path, resume_at=2).close()
    assert path.read_text() == "".join(json.dumps(record) + "\n" for record in good[:2])
