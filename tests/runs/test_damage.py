"""Files that are not what was written, or cannot be: named, and mended where something whole is left to do it with."""

import errno
import json
import os
import resource
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from file_operations import failing
from listeners import StopAt, Told

import regard
from regard import digests, make_config
from regard.errors import Damaged, NotWritten, RegardError, RunError
from regard.runs.checkpoint import checkpoints, newest_whole, read_progress
from regard.runs.files import read_tensors, write_model, write_tensors
from regard.runs.log import read_log
from regard.trainer.checkpointing import SAVING
from regard.trainer.trainer import Stopped

SMALL = [
    "model.width=8",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.feed_forward=8",
    "tokenizer.kind=word",
    "data.world=0",
    "train.batch_tokens=100",
    "train.steps=5",
    "train.log_every=1",
    "train.validate_every=10",
    "train.validate_sentences=0",
    "train.save_every=1",
    "train.keep=3",
    "train.warmup=3",
    "train.ema=0.9",
    "train.threads=1",
]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Who reads on the same machine sees what was written, synced or not."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def config(folder):
    return make_config(None, "tiny", SMALL, {"data": {"train": [str(folder / "pairs.tsv")]}})


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run, and the same one stopped before its last update."""
    folder = tmp_path_factory.mktemp("runs")
    pairs = folder / "pairs.tsv"
    lines = [f"{'a b c d'[: 2 * (n % 4) + 1]}\t{'d c b a'[: 2 * (n % 3) + 1]}" for n in range(40)]
    pairs.write_text("\n".join(lines) + "\n", encoding="utf-8")
    regard.train(config(folder), folder / "whole")
    with pytest.raises(Stopped):
        regard.train(config(folder), folder / "stopped", StopAt(4))
    return folder / "whole", folder / "stopped"


@pytest.fixture
def whole(runs):
    return runs[0]


@pytest.fixture
def stopped(runs, tmp_path):
    return shutil.copytree(runs[1], tmp_path / "run")


def contents(directory):
    """Every file of a run by its name, but the log, which has times in it, and what was set aside."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "log.jsonl")
    found = {str(path.relative_to(directory)): path.read_bytes() for path in files}
    return {name: content for name, content in found.items() if "damaged" not in name}


def flip(path, share=0.7):
    """Change one bit."""
    content = bytearray(path.read_bytes())
    content[int(share * len(content))] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


def zero(path):
    content = path.read_bytes()
    path.write_bytes(content[: -len(content) // 4] + bytes(len(content) // 4))


CHECKPOINT = ("model.safetensors", "optimizer.safetensors", "average.safetensors", "progress.json", "digests.json")


@pytest.mark.parametrize("damage", [flip, cut])
@pytest.mark.parametrize("name", CHECKPOINT)
def test_a_damaged_newest_checkpoint_is_set_aside_and_the_one_before_taken_up(stopped, whole, name, damage):
    newest, told = stopped / "checkpoints" / "step-4", Told()
    damage(newest / name)
    before = {path.name: path.read_bytes() for path in newest.iterdir()}
    regard.resume(stopped, report=told)
    (said,) = [line for line in told.lines if "set aside" in line]
    # Where the digests themselves are damaged, it is another file that does not match.
    assert name in said or name == "digests.json"
    assert said.endswith("; step-4 is set aside as step-4.damaged, and step-3 is taken up")
    assert {path.name: path.read_bytes() for path in newest.with_name("step-4.damaged").iterdir()} == before
    assert contents(stopped) == contents(whole)


def test_a_checkpoint_of_another_run_is_set_aside_and_the_one_before_taken_up(stopped, whole, runs, tmp_path):
    other = replace(config(runs[0].parent), train=replace(config(runs[0].parent).train, seed=9))
    with pytest.raises(Stopped):
        regard.train(other, tmp_path / "other", StopAt(4))
    newest, told = stopped / "checkpoints" / "step-4", Told()
    shutil.rmtree(newest)
    shutil.copytree(tmp_path / "other" / "checkpoints" / "step-4", newest)
    regard.resume(stopped, report=told)
    said = f"{newest} was saved by another run; step-4 is set aside as step-4.damaged, and step-3 is taken up"
    assert said in told.lines
    assert contents(stopped) == contents(whole)


def test_a_run_keeps_its_identity_and_one_of_before_has_none(stopped, whole):
    def identity(directory):
        return json.loads((directory / "config.json").read_text(encoding="utf-8")).get("run")

    assert identity(whole)
    assert identity(stopped) == identity(whole)
    regard.resume(stopped, train={"steps": 7, "seed": 9})
    assert identity(stopped) == identity(whole)
    newest = json.loads((stopped / "checkpoints" / "step-7" / "progress.json").read_text(encoding="utf-8"))
    assert newest["run"] == identity(whole)
    path = stopped / "config.json"  # as an earlier version wrote it
    found = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(
        json.dumps({name: found[name] for name in found if name not in ("run", "sha256")}), encoding="utf-8"
    )
    told = Told()
    regard.resume(stopped, train={"steps": 8}, report=told)
    assert not [line for line in told.lines if "set aside" in line]
    assert identity(stopped) is None
    assert (stopped / "checkpoints" / "step-8").is_dir()


def test_a_missing_file_of_a_checkpoint_is_damage_too(stopped, whole):
    for step, name in ((4, "optimizer.safetensors"), (3, "progress.json")):
        (stopped / "checkpoints" / f"step-{step}" / name).unlink()
    (stopped / "checkpoints" / "step-4.damaged").mkdir()  # of an earlier time
    regard.resume(stopped)
    assert {path.name for path in (stopped / "checkpoints").glob("*damaged*")} == {
        "step-3.damaged",
        "step-4.damaged",
        "step-4.damaged-2",
    }
    found, expected = contents(stopped), contents(whole)
    tensors = [name for name in expected if name.endswith(".safetensors")]
    assert {name: found[name] for name in tensors} == {name: expected[name] for name in tensors}


def test_a_checkpoint_that_lost_its_digests_is_damaged(stopped, whole):
    """What a bit was flipped in would else be taken for what an earlier version saved."""
    newest, told = stopped / "checkpoints" / "step-4", Told()
    flip(newest / "optimizer.safetensors")
    (newest / "digests.json").unlink()
    regard.resume(stopped, report=told)
    assert f"{newest} is missing its digests.json; step-4 is set aside as step-4.damaged" in told.lines[0]
    assert contents(stopped) == contents(whole)


def test_checkpoints_whose_names_are_swapped_are_set_aside(stopped, whole):
    """The mean, or the best, of a run would be made of others than it says."""
    folder, told = stopped / "checkpoints", Told()
    (folder / "step-4").rename(folder / "other")
    (folder / "step-3").rename(folder / "step-4")
    (folder / "other").rename(folder / "step-3")
    regard.resume(stopped, report=told)
    assert "step-4 holds what was saved at step 3, and is not what its name says; step-4 is set aside" in told.lines[0]
    assert "step-3 holds what was saved at step 4" in told.lines[1]
    assert (stopped / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_file_in_the_place_of_a_checkpoint_is_set_aside_and_one_of_all_is_refused(stopped, whole):
    newest, told = stopped / "checkpoints" / "step-4", Told()
    shutil.rmtree(newest)
    newest.write_text("x", encoding="utf-8")
    regard.resume(stopped, report=told)
    assert "step-4 is missing its progress.json; step-4 is set aside as step-4.damaged" in told.lines[0]
    assert contents(stopped) == contents(whole)
    shutil.rmtree(stopped / "checkpoints")
    (stopped / "checkpoints").write_text("x", encoding="utf-8")
    with pytest.raises(RunError, match="checkpoints is not a directory: put back what was there"):
        regard.resume(stopped)


def test_settings_other_than_were_written_are_refused_until_they_are_said_to_be_meant(stopped, whole):
    """A flipped bit can make another rate of one, with which the run would go on to other bytes."""
    path = stopped / "config.json"
    text = path.read_text(encoding="utf-8")
    assert '"warmup": 3' in text
    path.write_text(text.replace('"warmup": 3', '"warmup": 7'), encoding="utf-8")
    for use in (regard.load, regard.resume):
        with pytest.raises(RunError, match=r"config.json is not as it was written: it is damaged, or was edited"):
            use(stopped)
    assert regard.load(stopped, "cpu", verify=False).config.train.warmup == 7
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    (sealed,) = [number for number, line in enumerate(lines) if '"sha256"' in line]
    path.write_text("".join(lines[:sealed] + lines[sealed + 1 :]), encoding="utf-8")
    assert regard.load(stopped, "cpu").config.train.warmup == 7
    path.write_text(json.dumps(json.loads(text)), encoding="utf-8")  # another layout of the same
    regard.resume(stopped)
    assert (stopped / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_where_no_checkpoint_is_whole_nothing_is_changed(stopped):
    for path in checkpoints(stopped / "checkpoints"):
        flip(path / "optimizer.safetensors")
    before = contents(stopped)
    with pytest.raises(
        RunError, match=r"step-4 optimizer.safetensors is damaged.*no checkpoint before step-4 is whole"
    ):
        regard.resume(stopped)
    assert contents(stopped) == before


def test_a_checkpoint_without_digests_is_read_as_before_and_a_table_of_tensors_that_cannot_be_is_damage(stopped, whole):
    for path in checkpoints(stopped / "checkpoints"):
        (path / "digests.json").unlink()
        progress = json.loads((path / "progress.json").read_text(encoding="utf-8"))
        del progress["files"]["digests.json"]  # as earlier versions wrote it
        (path / "progress.json").write_text(json.dumps(progress), encoding="utf-8")
    other, told = shutil.copytree(stopped, stopped.with_name("other")), Told()
    regard.resume(stopped, report=told)
    assert not any("damaged" in line or "digest" in line for line in told.lines)
    assert (stopped / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    flip(other / "checkpoints" / "step-4" / "optimizer.safetensors", 0.0)
    regard.resume(other)
    assert (other / "checkpoints" / "step-4.damaged").is_dir()


def test_a_file_that_the_disk_no_longer_reads_is_damage(stopped, monkeypatch):
    real, told = digests.file_digest, Told()

    def unreadable(path):
        if path.name == "optimizer.safetensors" and path.parent.name == "step-4":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    monkeypatch.setattr(digests, "file_digest", unreadable)
    assert newest_whole(stopped / "checkpoints", told.say).name == "step-3"
    (said,) = told.lines
    assert "optimizer.safetensors is damaged: it cannot be read (Input/output error)" in said


def test_digests_are_not_compared_where_that_is_not_wanted(stopped, whole):
    flip(stopped / "checkpoints" / "step-4" / "optimizer.safetensors")
    flip(stopped / "model.safetensors", 0.99)
    regard.load(stopped, "cpu", verify=False)
    regard.resume(stopped, verify=False)
    assert not list((stopped / "checkpoints").glob("*damaged*"))
    assert contents(stopped) != contents(whole)


@pytest.mark.parametrize("damage", [flip, cut, zero, lambda path: path.unlink()])
def test_a_model_that_is_damaged_or_missing_is_refused_and_made_again_by_resuming(runs, tmp_path, damage):
    whole, before = runs
    finished, stopped = (shutil.copytree(run, tmp_path / run.name) for run in (whole, before))
    for run in (finished, stopped):
        damage(run / "model.safetensors")
        with pytest.raises(Damaged, match=rf"model.safetensors.*step-\d is whole: regard train --resume {run}"):
            regard.load(run, "cpu")
        told = Told()
        regard.resume(run, report=told)
        assert any("made again from step 4" in line or "has been written" in line for line in told.lines)
        assert contents(run) == contents(whole)


@pytest.mark.parametrize("place", [0, 8, 60, 100, 0.5, 1])
def test_every_byte_of_a_model_is_under_its_digest(whole, tmp_path, place):
    path = tmp_path / "model.safetensors"
    content = bytearray((whole / "model.safetensors").read_bytes())
    where = place if place > 1 else int(place * (len(content) - 1))
    content[where] ^= 1
    path.write_bytes(content)
    with pytest.raises(Damaged, match=r"model\.safetensors"):
        read_tensors(path)


def test_a_sealed_model_is_the_same_bytes_each_time_and_one_without_a_digest_is_read(whole, tmp_path):
    weights, found = read_tensors(whole / "model.safetensors"), set()
    shutil.copy(whole / "tokenizer.json", tmp_path)
    for _ in range(16):
        write_model(tmp_path, weights)
        found.add((tmp_path / "model.safetensors").read_bytes())
    assert found == {(whole / "model.safetensors").read_bytes()}
    write_tensors(tmp_path / "plain", weights)
    assert read_tensors(tmp_path / "plain").keys() == weights.keys()
    assert len((tmp_path / "plain").read_bytes()) < len(found.pop())


def test_what_a_kill_left_of_a_model_goes_with_the_next(whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / "run")
    (run / ".tmpAb3xY9").write_bytes(b"half a model")
    (run / ".tmp-notes.txt").write_bytes(b"somebody's")
    write_model(run, read_tensors(run / "model.safetensors"))
    assert not (run / ".tmpAb3xY9").exists()
    assert (run / ".tmp-notes.txt").exists()


def test_a_tokenizer_other_than_the_model_was_trained_with_is_refused(stopped, whole):
    """A vocabulary of which one word has become another can be read, and would translate and train on as if whole."""
    path = stopped / "tokenizer.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"a"', '"e"'), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != text
    before = contents(stopped)
    for use in (lambda: regard.load(stopped, "cpu"), lambda: regard.resume(stopped)):
        with pytest.raises(RunError, match=r"tokenizer\.json is not what the model was trained with.*--no-verify"):
            use()
    assert contents(stopped) == before
    regard.load(stopped, "cpu", verify=False)
    path.write_text(text, encoding="utf-8")
    regard.resume(stopped)
    assert contents(stopped) == contents(whole)


def test_a_mean_of_which_a_part_is_damaged_leaves_the_model_as_it_is_and_says_so(runs, tmp_path):
    run, told = shutil.copytree(runs[0], tmp_path / "run"), Told()
    flip(run / "checkpoints" / "step-4" / "model.safetensors")
    before = (run / "model.safetensors").read_bytes()
    regard.resume(run, ("train.average_last=3",), told)
    (said,) = [line for line in told.lines if "left as it is" in line]
    assert "step-4 model.safetensors is damaged" in said
    assert "set aside as step-4.damaged" in said
    assert (run / "model.safetensors").read_bytes() == before


@contextmanager
def restored_limit():
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield limits
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def save_of_the_step_before():
    """Wait until it is written, or could not be, so that what changes now changes for the next."""
    for thread in threading.enumerate():
        if thread.name == SAVING:
            thread.join()


class FullDisk(Told):
    """No file may grow beyond a few bytes between two steps: as on a full disk."""

    def __init__(self, limits, begins, ends=None):
        super().__init__()
        self.limits, self.begins, self.ends = limits, begins, ends

    def step(self, values, total):
        if values["step"] in (self.begins, self.ends):
            save_of_the_step_before()
        if values["step"] == self.begins:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, self.limits[1]))
        if values["step"] == self.ends:
            resource.setrlimit(resource.RLIMIT_FSIZE, self.limits)


def steps_of(directory):
    return [record["step"] for record in read_log(directory / "log.jsonl") if record["kind"] == "train"]


def test_a_full_disk_while_saving_is_said_and_training_goes_on(whole, tmp_path):
    run = tmp_path / "run"
    with restored_limit() as limits:
        told = FullDisk(limits, 2, 4)
        regard.train(config(whole.parent), run, told)
    lines = [line for line in told.lines if "training goes on to the next save" in line]
    assert len(lines) == 2
    assert all("was not written" in line or "cannot write" in line for line in lines)
    assert lines[1].endswith("at step 3; the last checkpoint is step-1; training goes on to the next save")
    assert sum("records wait" in line for line in told.lines) == 1
    assert [path.name for path in checkpoints(run / "checkpoints")] == ["step-1", "step-4", "step-5"]
    assert not list(run.rglob("*.partial"))
    assert steps_of(run) == steps_of(whole) == [1, 2, 3, 4, 5]
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_disk_that_is_still_full_in_the_end_is_an_error_and_the_run_resumes(whole, tmp_path):
    run = tmp_path / "run"
    with restored_limit() as limits, pytest.raises(NotWritten, match=r"at step 5; the last checkpoint is step-2: cont"):
        regard.train(config(whole.parent), run, FullDisk(limits, 3))
    regard.resume(run)
    assert steps_of(run) == [1, 2, 3, 4, 5]
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def too_large(*_):
    return torch.empty(1 << 50, dtype=torch.uint8)


@pytest.mark.parametrize("fail", [too_large, lambda *_: np.empty(1 << 50, np.uint8)])
def test_a_training_too_large_for_the_memory_ends_in_one_line(whole, tmp_path, monkeypatch, fail):
    with monkeypatch.context() as patch:
        patch.setattr("regard.trainer.training_run.make_optimizer", fail)
        with pytest.raises(
            RunError, match=r"^this machine ran out of memory before the first update: a model of fewer"
        ):
            regard.train(config(whole.parent), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with monkeypatch.context() as patch:
        patch.setattr("regard.training.objectives.SequenceToSequence.loss", fail)
        with pytest.raises(RunError, match=r"^this machine ran out of memory after step 0; a lower train.batch_tokens"):
            regard.train(config(whole.parent), tmp_path / "run")
    regard.resume(tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    monkeypatch.setattr("regard.tasks.run.load_weights_strictly", fail)
    with pytest.raises(
        RunError, match=r"^this machine ran out of memory while loading .*: its weights alone take 0.0 GB"
    ):
        regard.load(whole)


def test_other_errors_of_torch_keep_their_traceback(whole, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.training.objectives.SequenceToSequence.loss", lambda *_: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="size"):
        regard.train(config(whole.parent), tmp_path / "run")


def test_a_directory_that_is_gone_while_saving_is_said_and_training_goes_on(whole, tmp_path):
    run, told = tmp_path / "run", Told()

    class Lost(Told):
        def step(self, values, total):
            save_of_the_step_before()
            if values["step"] == 2:
                run.rename(tmp_path / "elsewhere")
            if values["step"] == 4:
                (tmp_path / "elsewhere").rename(run)

    told = Lost()
    regard.train(config(whole.parent), run, told)
    assert sum("training goes on to the next save" in line for line in told.lines) == 2
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_an_empty_directory_that_a_lost_mount_leaves_is_not_saved_into(whole, tmp_path):
    run = tmp_path / "run"

    class Lost(Told):
        def step(self, values, total):
            save_of_the_step_before()
            if values["step"] == 2:
                run.rename(tmp_path / "elsewhere")
                run.mkdir()
            if values["step"] == 4:
                run.rmdir()  # nothing was put there
                (tmp_path / "elsewhere").rename(run)

    told = Lost()
    regard.train(config(whole.parent), run, told)
    said = f"{run} does not hold the run any more, as where a mount is lost: nothing was saved at step "
    assert [line.removeprefix(said)[0] for line in told.lines if line.startswith(said)] == ["2", "3"], told.lines
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert steps_of(run) == [1, 2, 3, 4, 5]


def test_settings_and_log_that_are_removed_while_training_are_written_again(whole, tmp_path):
    run = tmp_path / "run"

    def remove():
        (run / "config.json").unlink()
        (run / "log.jsonl").unlink()

    told = AtStep(2, remove)
    regard.train(config(whole.parent), run, told)
    assert f"{run / 'config.json'} was gone and has been written again" in told.lines
    assert f"{run / 'log.jsonl'} was removed: it is begun again, without what came before" in told.lines
    assert contents(run) == contents(whole)
    assert steps_of(run) == [3, 4, 5]


@pytest.mark.parametrize("name", ["source.tokens", "target.tokens", "source.offsets", "target.offsets", "meta.json"])
def test_a_run_whose_prepared_data_is_damaged_prepares_it_again_and_ends_with_the_same_bytes(stopped, whole, name):
    (path,) = (stopped / "cache").glob(f"*/{name}")
    flip(path)
    orphan, told = stopped / "cache" / ".partial-locked-0123", Told()
    orphan.mkdir()
    regard.resume(stopped, report=told)
    said = f"{name} is damaged: it does not match its digest: it is prepared again"
    assert any(line.endswith(said) for line in told.lines)
    assert not orphan.exists()
    assert contents(stopped) == contents(whole)


@pytest.mark.parametrize("every", [31, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS], ids=["full", "read-only"])
def test_a_disk_that_takes_nothing_from_any_write_on_is_said_in_one_line_and_the_run_goes_on(
    whole, tmp_path, number, every
):
    """From each write of start-up, checkpoints and ending on: one line, and the same bytes once it is mended.

    Before the run has begun nothing is left of it.
    """
    said = []
    for first in count(1, every):
        run = tmp_path / str(first)
        with failing(run, first, number) as failed:
            try:
                regard.train(config(whole.parent), run)
            except RegardError as error:
                said.append(str(error))
        if not failed:
            break
        if (run / "config.json").exists():
            regard.resume(run)
        else:
            assert not run.exists() or not list(run.iterdir())
            regard.train(config(whole.parent), run)
        assert contents(run) == contents(whole), first
        assert steps_of(run) == [1, 2, 3, 4, 5]
        shutil.rmtree(run)
    assert first > 2 * every
    words = ("the disk is full", "No space left on device", "no permission to write", "Read-only file system")
    assert len(said) >= first // every - 1
    assert all("\n" not in line and any(word in line for word in words) for line in said), said


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("whoever runs this may not mount a file system")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("pages", [24, pytest.param(1, marks=pytest.mark.long)])
def test_a_disk_that_is_full_at_any_page_is_said_in_one_line_and_the_run_goes_on(whole, small_disk, pages):
    """With room for every number of pages that a run may need, until there is room for all of it."""
    run, ballast = small_disk / "run", small_disk / "ballast"
    for free in count(0, pages):
        room = os.statvfs(small_disk)
        ballast.write_bytes(bytes(room.f_bsize * (room.f_bavail - free)))
        told, ended = Told(), None
        try:
            regard.train(config(whole.parent), run, told)
        except RegardError as error:
            ended = str(error)
            assert "\n" not in ended
            assert "disk is full" in ended or "No space left" in ended, ended
        full = [line for line in told.lines if "disk is full" in line or "No space left" in line]
        ballast.unlink()
        if (run / "config.json").exists():
            regard.resume(run)
        else:
            assert not run.exists() or not list(run.iterdir())
            regard.train(config(whole.parent), run)
        assert contents(run) == contents(whole), free
        assert steps_of(run) == [1, 2, 3, 4, 5], free
        shutil.rmtree(run)
        if not full and ended is None:
            break
    assert free > 24


class AtStep(Told):
    """Does something once, after a step."""

    def __init__(self, step, work):
        super().__init__()
        self.wanted, self.work = step, work

    def step(self, values, total):
        if values["step"] == self.wanted:
            self.work()


def test_prepared_data_that_is_deleted_while_training_changes_nothing(whole, tmp_path):
    run = tmp_path / "run"
    regard.train(config(whole.parent), run, AtStep(2, lambda: shutil.rmtree(run / "cache")))
    found, wanted = contents(run), contents(whole)
    assert found == {name: content for name, content in wanted.items() if not name.startswith("cache")}
    assert steps_of(run) == [1, 2, 3, 4, 5]


def test_a_data_file_that_changes_between_epochs_changes_nothing_until_the_run_is_taken_up(tmp_path):
    """What is trained on was prepared at the start."""
    own, lines = tmp_path / "pairs.tsv", [f"{'a b c d'[: 2 * (n % 4) + 1]}\td c b" for n in range(12)]
    own.write_text("\n".join(lines) + "\n", encoding="utf-8")
    made = make_config(None, "tiny", [*SMALL, "train.batch_tokens=60"], {"data": {"train": [str(own)]}})
    regard.train(made, tmp_path / "whole")
    assert read_progress(tmp_path / "whole/checkpoints/step-5").epoch > 0
    regard.train(made, tmp_path / "run", AtStep(2, lambda: own.write_text("x\ty\n", encoding="utf-8")))
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    told = Told()
    regard.resume(tmp_path / "run", ("train.steps=6",), told)
    assert any("the training data is not what it was" in line for line in told.lines)


@pytest.mark.parametrize("jump", [-86400.0, 86400.0 * 365])
def test_a_clock_that_jumps_changes_nothing(whole, tmp_path, monkeypatch, jump):
    """Times are taken by a clock that only goes forward; the calendar's is for names of records at the most."""
    run, now = tmp_path / "run", time.time

    def leap():
        monkeypatch.setattr(time, "time", lambda: now() + jump)

    regard.train(config(whole.parent), run, AtStep(2, leap))
    assert contents(run) == contents(whole)
    seconds = [record["seconds"] for record in read_log(run / "log.jsonl") if record["kind"] == "train"]
    assert seconds == sorted(seconds)
    assert seconds[-1] < 600


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_log_is_no_reason_not_to_go_on(stopped, whole, damage):
    """Lines that are no records are left out; those after the checkpoint are written anew."""
    path = stopped / "log.jsonl"
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 128
    path.write_bytes({"flip": bytes(content), "cut": bytes(content[:-20]), "empty": b""}[damage])
    regard.resume(stopped)
    assert contents(stopped) == contents(whole)
    assert steps_of(stopped)[-1] == 5
    assert len(steps_of(stopped)) == len(set(steps_of(stopped)))
