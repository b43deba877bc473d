"""Kills trainings outright, at every file operation and at random instants, and compares what restarts end with.

    python tests/training/kill_harness.py --kind translation --random 70

Children are forked from this process, so that none has to import torch, and killed by SIGKILL. After each kill the
training is started again, as whoever finds its directory would: by `resume` where it has begun, else by `train`. In the
end every file must be that of an unbroken run, but for the times in its log, and there may be no other.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import torch

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
from file_operations import Operations  # pyright: ignore[reportMissingImports]
from process_toys import config_of, write_files  # pyright: ignore[reportMissingImports]

import regard
from regard.runs.log import read_log

KINDS = {
    "translation": ("packed", ["train.validate_sentences=2", "decode.max_len=4"]),
    "language": ("language", []),
    "classification": ("classification", []),
}
# Dropout, so that states of random numbers matter; a validation and an average too; older checkpoints go.
SETTINGS = ["train.steps=6", "train.log_every=1", "train.save_every=2", "train.validate_every=3", "train.ema=0.9"]
SETTINGS += ["train.keep=2", "model.dropout=0.1"]
LIMIT = 120
"""Seconds that one training may take."""


class Kill(Operations):
    """Counts changes to files, as what it is made of does; the one numbered `kill_at` ends the process before it."""

    def hear(self, event, arguments):
        if self._changes(event, arguments):
            self.count += 1
            if self.count == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def _changes(self, event, arguments):
        if event in ("os.truncate", "os.symlink", "os.link"):
            return self._inside(arguments[0])
        return super()._changes(event, arguments)


def forked(work):
    """The process id of a child that does this work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn where a thread runs
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.fsync = lambda descriptor: None  # who reads on the same machine sees what was written, synced or not
        torch.set_num_threads(1)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # nothing of the parent's may run here


def ended(pid, seconds=LIMIT):
    """The exit code of a child, below zero for a signal; one that takes longer is ended, and fails."""
    until = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"a training did not end within {seconds} s")
        time.sleep(0.002)


def contents(directory):
    """Every file and folder by its name, of files what they hold; of the log its records without times."""
    timing = {"tokens_per_second", "seconds", "waiting"}
    found = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if name == "log.jsonl":
            records = [{key: one[key] for key in one if key not in timing} for one in read_log(path)]
            steps = [record["step"] for record in records if record["kind"] == "train"]
            assert steps == sorted(set(steps)), f"a step is there twice: {steps}"
            found[name] = records
        else:
            found[name] = path.read_bytes() if path.is_file() else "a folder"
    return found


class Harness:
    """Trainings of one kind, each to be killed and started again."""

    def __init__(self, kind, folder, *settings):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        toy, own = KINDS[kind]
        self.config = config_of(toy, write_files(self.folder), *SETTINGS, *own, *settings)
        self.kills = self.restarts = 0
        self.whole = self.folder / "whole"
        began = time.monotonic()
        assert ended(forked(lambda: self.start(self.whole))) == 0
        self.usual = time.monotonic() - began
        self.expected = contents(self.whole)
        assert [one["step"] for one in self.expected["log.jsonl"] if one["kind"] == "train"] == [
            *range(1, self.config.train.steps + 1)
        ]

    def start(self, directory):
        """Train, or go on where that has begun."""
        if (directory / "config.json").exists():
            regard.resume(directory)
        else:
            regard.train(self.config, directory)

    def operations(self):
        """How many changes to files an unbroken training makes."""
        directory, read, write = self.folder / "counted", *os.pipe()

        def count():
            counted = Kill(directory, 0, "")
            sys.addaudithook(counted.hear)
            self.start(directory)
            os.write(write, str(counted.count).encode())

        assert ended(forked(count)) == 0
        shutil.rmtree(directory)
        number = int(os.read(read, 20))
        os.close(read)
        os.close(write)
        return number

    def kill_at(self, *numbers):
        """Kill a training at each of these operations, one after the other, and compare what it ends with."""
        directory = self.folder / "killed"
        for number in numbers:

            def work(number=number):
                sys.addaudithook(Kill(directory, number, "").hear)
                self.start(directory)

            code = ended(forked(work))
            self.kills += code == -signal.SIGKILL
            assert code in (0, -signal.SIGKILL), (numbers, code)
        self.finish(directory, f"killed at operations {numbers}")

    def kill_after(self, *seconds):
        """The same, killed so many seconds after each start."""
        directory = self.folder / "killed"
        for one in seconds:
            pid = forked(lambda: self.start(directory))
            time.sleep(one)
            os.kill(pid, signal.SIGKILL)  # which is there until it is waited for, ended or not
            code = ended(pid)
            self.kills += code == -signal.SIGKILL
            assert code in (0, -signal.SIGKILL), (seconds, code)
        self.finish(directory, f"killed after {seconds} s")

    def finish(self, directory, how):
        assert ended(forked(lambda: self.start(directory))) == 0, how
        self.restarts += 1
        found = contents(directory)
        assert found.keys() == self.expected.keys(), (how, sorted({*found} ^ {*self.expected}))
        differ = [name for name in found if found[name] != self.expected[name]]
        assert not differ, (how, differ)
        shutil.rmtree(directory)


def every(kind, folder, at_random, seed=0, part=(0, 1)):
    """Kill at every operation, or this part of them, then at so many random instants, five in a run."""
    harness, dice = Harness(kind, folder), random.Random(seed)
    count = harness.operations()
    numbers = range(1, count + 1)[part[0] :: part[1]]
    for number in numbers:
        harness.kill_at(number)
    enumerated, wanted = harness.kills, at_random
    assert enumerated == len(numbers), "each operation was come to"
    while harness.kills - enumerated < wanted:
        harness.kill_after(*(dice.random() * harness.usual for _ in range(5)))
    return {
        "kind": kind,
        "operations": count,
        "killed at operations": enumerated,
        "killed at random": harness.kills - enumerated,
        "restarts that ended with other bytes": 0,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=KINDS, default="translation")
    parser.add_argument("--random", type=int, default=70)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = every(options.kind, Path(folder), options.random, options.seed)
    print(json.dumps(found | {"seconds": round(time.monotonic() - began, 1)}), flush=True)


if __name__ == "__main__":
    main()
