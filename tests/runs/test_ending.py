"""A run that was killed at its end: resuming it gives what an unbroken one has, wherever the kill came."""

import shutil
from itertools import count

import pytest
import torch
from file_operations import killed
from listeners import StopAt, Told
from torch import nn

import regard
from regard import make_config
from regard.errors import RunError
from regard.runs.checkpoint import Progress, checkpoints, forget_checkpoints, read_progress
from regard.runs.files import read_json, write_json
from regard.trainer.checkpointing import Checkpointer
from regard.trainer.trainer import Stopped
from regard.training.config import TrainConfig
from regard.training.objectives import SequenceToSequence
from regard.training.optim import ExponentialAverage, make_optimizer

SMALL = [
    "model.width=8",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.feed_forward=8",
    "model.dropout=0.1",
    "tokenizer.kind=word",
    "data.world=0",
    "train.batch_tokens=100",
    "train.steps=5",
    "train.log_every=1",
    "train.validate_every=2",
    "train.validate_sentences=0",
    "train.save_every=1",
    "train.keep=3",
    "train.warmup=3",
    "train.threads=1",
]
ENDINGS = {
    "last": (),
    "mean": ("train.average_last=3",),
    "exponential": ("train.ema=0.9",),
    # The rate is such that the first validation stays the best.
    "best": ("train.choose=best", "train.keep=1", "train.learning_rate=30.0"),
    "best, exponential": ("train.choose=best", "train.keep=1", "train.ema=0.5", "train.learning_rate=30.0"),
}
REWRITTEN = "its model was not yet the one to use and has been written"
every_ending = pytest.mark.parametrize("ending", ENDINGS)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Who reads on the same machine sees what was written, synced or not."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "pairs.tsv"
    lines = [f"{'a b c d'[: 2 * (n % 4) + 1]}\t{'d c b a'[: 2 * (n % 3) + 1]}" for n in range(40)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def config(corpus, ending):
    return make_config(None, "tiny", [*SMALL, *ENDINGS[ending]], {"data": {"train": [corpus], "valid": [corpus]}})


def contents(directory):
    """Every file of a run by its name, but the log, which has times in it."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "log.jsonl")
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def runs(corpus, tmp_path_factory):
    """For each ending, an unbroken run, and one that has its last update still before it."""
    made = {}

    def get(ending):
        if ending not in made:
            folder = tmp_path_factory.mktemp("runs")
            regard.train(config(corpus, ending), folder / "whole")
            with pytest.raises(Stopped):
                regard.train(config(corpus, ending), folder / "before", StopAt(4))
            made[ending] = folder / "whole", folder / "before"
        return made[ending]

    return get


@pytest.mark.parametrize("ending", ["mean", "exponential", "best"])
def test_a_run_killed_before_anything_of_its_ending_got_its_name_is_mended_by_resuming(runs, tmp_path, ending):
    whole, before = runs(ending)
    expected = contents(whole)
    assert expected["model.safetensors"] != contents(before)["model.safetensors"]
    for number in count(1):
        out = tmp_path / str(number)
        shutil.copytree(before, out)
        with killed(out, number, "os.rename") as found:
            regard.resume(out)
        if not found:
            break
        regard.resume(out)
        assert contents(out) == expected, found
    assert number > 8  # the log, files of a checkpoint, itself, an older one, the model


@every_ending
def test_a_kill_at_any_file_operation_of_the_ending_is_mended(tmp_path, ending):
    def keeper(folder):
        options = dict(map(split, ENDINGS[ending]))
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        average = ExponentialAverage(model, 0.9) if "ema" in options else None
        options = TrainConfig(**{"keep": 3, **options})
        return Checkpointer(folder, options, model, make_optimizer(model, options), average, SequenceToSequence())

    def go(folder, until):
        """Train on from the last checkpoint, if there is one; the best was at step 2."""
        one, found = keeper(folder), checkpoints(folder / "checkpoints")
        progress = one.restore(found[-1], print) if found else Progress(step=0)
        for step in range(progress.step + 1, until + 1):
            with torch.no_grad():
                one.model.weight.add_(torch.full((2, 3), float(step)))
            if one.average is not None:
                one.average.update(step)
            progress = one.save(Progress(step=step, best_step=min(step, 2)))
        if until == 5:
            one.finish(progress)

    (tmp_path / "whole").mkdir()
    (tmp_path / "before").mkdir()
    go(tmp_path / "whole", 5)
    go(tmp_path / "before", 4)
    expected = contents(tmp_path / "whole")
    for number in count(1):
        out = tmp_path / str(number)
        shutil.copytree(tmp_path / "before", out)
        with killed(out, number) as found:
            go(out, 5)
        if not found:
            break
        go(out, 5)
        assert contents(out) == expected, found
    assert number > 20


def split(setting):
    name, _, value = setting.removeprefix("train.").partition("=")
    return name, value if name == "choose" else float(value) if "." in value else int(value)


@every_ending
def test_other_weights_in_the_place_of_the_final_ones_are_put_right_and_said(runs, tmp_path, ending):
    whole, _ = runs(ending)
    out, told = tmp_path / "run", Told()
    shutil.copytree(whole, out)
    model, other = out / "model.safetensors", checkpoints(out / "checkpoints")[-2 if ending == "last" else -1]
    regard.resume(out, report=told)
    assert contents(out) == contents(whole)
    assert REWRITTEN not in told.lines
    for spoil in (lambda: shutil.copy(other / "model.safetensors", model), model.unlink, lambda: cut_short(model)):
        spoil()
        assert contents(out) != contents(whole)
        told = Told()
        regard.resume(out, report=told)
        assert contents(out) == contents(whole)
        assert REWRITTEN in told.lines


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(("ending", "named"), [("mean", "the mean of checkpoints"), ("best", "that of step 2")])
def test_a_model_whose_checkpoints_were_deleted_is_left_as_it_is(runs, tmp_path, ending, named, old):
    whole, _ = runs(ending)
    out, told = tmp_path / "run", Told()
    shutil.copytree(whole, out)
    first, *_, last = checkpoints(out / "checkpoints")
    shutil.rmtree(first)
    if old:  # as a version that did not note which checkpoints stay wrote it
        record = read_json(last / "progress.json")
        del record["kept"], record["files"]["digests.json"]
        write_json(last / "progress.json", {**record, "format": 1})
        (last / "digests.json").unlink()
    assert (read_progress(last).kept is None) == old
    regard.resume(out, report=told)
    assert contents(out)["model.safetensors"] == contents(whole)["model.safetensors"]
    assert any("left as it is" in line and named in line for line in told.lines)
    (out / "model.safetensors").unlink()
    with pytest.raises(RunError, match=f"it cannot be made again: it was {named}"):
        regard.resume(out)


def test_a_finished_run_is_given_another_ending_by_its_settings(runs, tmp_path):
    whole, _ = runs("last")
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    regard.resume(out, ("train.average_last=3",))
    mean, _ = runs("mean")
    assert contents(out)["model.safetensors"] == contents(mean)["model.safetensors"]


def test_what_a_kill_left_of_checkpoints_goes_with_the_next(tmp_path):
    for name in (".step-3.partial", ".step-2.removed", "step-4", "step-5"):
        (tmp_path / name).mkdir()
    forget_checkpoints(tmp_path, 1, set())
    assert [path.name for path in tmp_path.iterdir()] == ["step-5"]
