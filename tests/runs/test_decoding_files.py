"""Files of inputs: order kept, each line once, by any number of processes, taken up wherever a kill came."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
import warnings
from itertools import count
from pathlib import Path

import pytest
from file_operations import Killed, killed

import regard
from regard.analysis import decoding_files, file_jobs, output_journal, worker_processes
from regard.analysis.decoding_files import answer_job
from regard.analysis.file_jobs import FileJob
from regard.analysis.joint_translation import translating_together
from regard.analysis.output_journal import Journal, Tally
from regard.analysis.worker_processes import InOrder, Workers
from regard.cli import main
from regard.errors import ConfigError, DataError, NotWritten, ProcessLost, RunError, SomeRefused

RUNS = Path(__file__).parents[1] / "compatibility/runs_0_1_0"
TRANSFORMER = RUNS / "transformer"


class Upper:
    """Stands for a loaded run: every line in capitals, four at a time; those that are bad are refused."""

    size = 4

    def __init__(self, job):
        self.path, self.answered = Path(job.files[0]), 0

    def chunks(self, first):
        with self.path.open(encoding="utf-8") as lines:
            for _, _ in zip(range(first), lines, strict=False):
                pass
            for _ in count():
                some = [line.strip() for _, line in zip(range(self.size), lines, strict=False)]
                self.answered += len(some)
                done = Tally(len(some), cut=sum("3" in one for one in some), total=len(some))
                done.unknown = dict.fromkeys(one[-1] for one in some)
                refused = [one for one in some if one.startswith("bad")]
                done.refused = len(refused)
                yield "".join(f"{'' if one in refused else one.upper()}\n" for one in some), done, refused

    def notes(self, done):
        return f"{done.cut} of {done.total} were cut; unknown: {' '.join(sorted(done.unknown))}"


class Forked:
    """A process like those that Workers start, forked from this one so that it need not import torch."""

    def __init__(self, command, world, own=(), *, stdin=None, stdout=None):
        asked, answers = os.pipe(), os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn where a thread runs
            self.pid = os.fork()
        if not self.pid:
            os.dup2(asked[0], 0)
            os.dup2(answers[1], 1)
            os.closerange(3, 256)  # among them the other's ends of these pipes
            try:
                worker_processes.serve_requests()
            finally:
                os._exit(0)
        os.close(asked[0])
        os.close(answers[1])
        self.lock = threading.Lock()  # whoever reads its replies may wait for it while it is ended
        self.stdin, self.stdout, self.returncode = os.fdopen(asked[1], "wb"), os.fdopen(answers[0], "rb"), None

    def kill(self):
        with self.lock:
            if self.returncode is None:
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, seconds=None):
        with self.lock:
            if self.returncode is None:
                self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            return self.returncode


@pytest.fixture
def upper(monkeypatch):
    """Jobs are answered by Upper, and every chunk is noted."""
    monkeypatch.setattr(output_journal, "NOTE_SECONDS", 0.0)
    monkeypatch.setattr(decoding_files, "ChunkAnswerer", lambda job, run: Upper(job))
    monkeypatch.setattr(decoding_files, "loaded", lambda job, tell: None)


@pytest.fixture
def forked(monkeypatch):
    monkeypatch.setattr(worker_processes, "start_process", Forked)


def lines(path, many):
    path.write_text("".join(f"line {number}\n" for number in range(many)), encoding="utf-8")
    return FileJob(verb="translate", run="nowhere", files=(str(path),))


def answered(job, out, *heard):
    told = []
    assert answer_job(job, out, tell=told.append) == len(Path(job.files[0]).read_text().splitlines())
    return told


def test_a_kill_at_any_file_operation_is_gone_on_from(upper, tmp_path):
    job = lines(tmp_path / "in.txt", 10)
    told = answered(job, tmp_path / "whole.txt")
    assert told == ["1 of 10 were cut; unknown: 0 1 2 3 4 5 6 7 8 9"]
    whole = (tmp_path / "whole.txt").read_bytes()
    assert whole == b"".join(b"LINE %d\n" % number for number in range(10))
    for number in count(1):
        folder = tmp_path / str(number)
        folder.mkdir()
        with killed(folder, number) as found:
            answer_job(job, folder / "out.txt")
        if not found:
            break
        assert answered(job, folder / "out.txt")[-1] == told[-1], found
        assert (folder / "out.txt").read_bytes() == whole, found
        assert os.listdir(folder) == ["out.txt"], found
    assert number > 5  # the journal, the output, both opened, the output's name, the journal removed


def test_inputs_that_are_refused_are_told_of_and_counted_wherever_a_kill_came(upper, tmp_path):
    (tmp_path / "in.txt").write_text("a\nb\nbad 1\nc\nd\nbad 2\ne\n", encoding="utf-8")
    job = FileJob(verb="translate", run="nowhere", files=(str(tmp_path / "in.txt"),))
    for number in count(1):
        folder, told = tmp_path / str(number), []
        folder.mkdir()
        with killed(folder, number) as found, pytest.raises(SomeRefused):
            answer_job(job, folder / "out.txt", tell=told.append)
        if found:
            with pytest.raises(SomeRefused, match="2 of 7 texts were refused; the others are answered"):
                answer_job(job, folder / "out.txt", tell=told.append)
        assert (folder / "out.txt").read_text(encoding="utf-8") == "A\nB\n\nC\nD\n\nE\n", found
        assert os.listdir(folder) == ["out.txt"], found
        assert {"bad 1", "bad 2"} <= set(told), found
        if not found:
            break
    assert number > 5


def test_a_single_input_that_is_refused_is_an_error_and_leaves_nothing(upper, tmp_path):
    (tmp_path / "in.txt").write_text("bad\n", encoding="utf-8")
    job, told = FileJob(verb="translate", run="nowhere", files=(str(tmp_path / "in.txt"),)), []
    with pytest.raises(DataError, match=r"^bad$") as error:
        answer_job(job, tmp_path / "out.txt", tell=told.append)
    assert not isinstance(error.value, SomeRefused)
    assert told == ["bad"]
    assert os.listdir(tmp_path) == ["in.txt"]


def test_a_kill_at_any_byte_is_gone_on_from(upper, tmp_path):
    """Whatever of the journal and of the output is there by then: never a line twice, nor one left out."""
    job, folder, states = lines(tmp_path / "in.txt", 10), tmp_path / "begun", []
    folder.mkdir()
    own, write = folder / ".out.txt.journal", Journal.note

    def note(self):
        write(self)
        states.append((own.read_bytes(), (folder / ".out.txt.partial").read_bytes()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "note", note)
        answer_job(job, folder / "out.txt")
    whole = (folder / "out.txt").read_bytes()
    assert len(states) == 4, "one for each chunk, and the end"
    for (before, _), (journal, partial) in zip([(b"", b""), *states], states, strict=False):
        for end in range(len(before), len(journal) + 1, 41):
            own.write_bytes(journal[:end])
            (folder / ".out.txt.partial").write_bytes(partial)
            told = answered(job, folder / "out.txt")
            assert (folder / "out.txt").read_bytes() == whole, journal[:end]
            done = sum(json.loads(line)["done"]["inputs"] for line in journal[:end].splitlines()[1:] if _is_json(line))
            assert (f"{done:,} texts were done before" in " ".join(told)) == bool(done), told
            assert os.listdir(folder) == ["out.txt"]


def _is_json(line):
    try:
        return bool(json.loads(line))
    except ValueError:
        return False


def interrupted(job, out, upper_patch, after):
    """Leave an output of which so many chunks are written."""

    class Stops(Upper):
        def chunks(self, first):
            for number, one in enumerate(super().chunks(first)):
                if number == after:
                    raise KeyboardInterrupt
                yield one

    told = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding_files, "ChunkAnswerer", lambda job, run: Stops(job))
        with pytest.raises(KeyboardInterrupt):
            answer_job(job, out, tell=told.append)
    return told


def test_what_was_begun_otherwise_is_begun_anew_and_said(upper, tmp_path):
    job, out = lines(tmp_path / "in.txt", 10), tmp_path / "out.txt"
    assert interrupted(job, out, upper, 2) == ["8 texts are done: the same command goes on from there"]
    assert not out.exists()
    assert answered(job, out)[0] == "8 texts were done before; going on from there"
    for change, why in (
        ({"options": {"beam": 3}}, "options differ"),
        ({"precision": "bfloat16"}, "precision differ"),
        ({"as_json": True}, "as_json differ"),
    ):
        interrupted(job, out, upper, 1)
        assert why in answered(FileJob(**{**vars(job), **change}), out)[0]
    interrupted(job, out, upper, 1)
    lines(tmp_path / "in.txt", 11)
    assert "files differ" in answered(job, out)[0]
    interrupted(job, out, upper, 2)
    with (tmp_path / ".out.txt.partial").open("r+b") as file:
        file.write(b"other")
    assert "has been changed since" in answered(job, out)[0]
    assert len(out.read_text().splitlines()) == 11
    assert interrupted(job, out, upper, 0) == [], "nothing was done"
    assert sorted(os.listdir(tmp_path)) == ["in.txt", "out.txt"]


def test_two_cannot_write_to_one_output(upper, tmp_path, monkeypatch):
    job, out = lines(tmp_path / "in.txt", 10), tmp_path / "out.txt"

    class Twice(Upper):
        def chunks(self, first):
            with pytest.raises(RunError, match="written to by another process"):
                answer_job(job, out)
            yield from super().chunks(first)

    monkeypatch.setattr(decoding_files, "ChunkAnswerer", lambda job, run: Twice(job))
    answered(job, out)


def test_a_full_disk_keeps_what_was_noted(upper, tmp_path, monkeypatch):
    job, out, sync, left = lines(tmp_path / "in.txt", 20), tmp_path / "out.txt", os.fsync, [6]

    def full(descriptor):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    told = []
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(NotWritten, match="the disk is full"):
            answer_job(job, out, tell=told.append)
    assert told == ["12 texts are done: the same command goes on from there"]
    assert answered(job, out)[0] == "12 texts were done before; going on from there"
    assert out.read_text().splitlines() == [f"LINE {number}" for number in range(20)]


def test_what_cannot_be_read_is_not_said_to_be_what_cannot_be_written(upper, tmp_path, monkeypatch):
    job, out = lines(tmp_path / "in.txt", 10), tmp_path / "out.txt"

    class Unreadable(Upper):
        def chunks(self, first):
            yield next(super().chunks(first))
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(decoding_files, "ChunkAnswerer", lambda job, run: Unreadable(job))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        answer_job(job, out)
    missing = FileJob(verb="translate", run="nowhere", files=(str(tmp_path / "in.txt"),))
    monkeypatch.setattr("hashlib.file_digest", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output")))
    with pytest.raises(DataError, match=r"cannot read .*in\.txt: Input/output"):
        answer_job(missing, out)


def test_memory_is_flat(upper, tmp_path, monkeypatch):
    monkeypatch.setattr(output_journal, "NOTE_SECONDS", 0.05)
    monkeypatch.setattr(Upper, "size", 256)
    peaks = []
    for many in (2_000, 20_000):
        job = lines(tmp_path / "in.txt", many)
        tracemalloc.start()
        answered(job, tmp_path / "out.txt")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 3_000_000, peaks  # which reading the output to count its lines takes


def test_replies_come_in_order_and_few_are_asked_for_ahead():
    replies = InOrder(iter({"n": number} for number in range(20)), ahead=3)
    taken = [replies.take() for _ in range(3)]
    for number, request in reversed(taken):
        replies.put(number, request)
    read = iter(replies)
    assert [next(read)["n"] for _ in range(2)] == [0, 1]
    assert [replies.take()[0] for _ in range(2)] == [3, 4], "as many as were read"
    replies.fail(ProcessLost("process 1 of 2 was ended by SIGKILL"))
    assert next(read)["n"] == 2
    with pytest.raises(ProcessLost, match="SIGKILL"):
        next(read)
    assert replies.take() is None


def test_processes_write_what_one_writes_and_one_that_dies_leaves_what_is_done(forked, tmp_path, monkeypatch):
    monkeypatch.setattr(file_jobs, "CHUNK", 5)
    monkeypatch.setattr(output_journal, "NOTE_SECONDS", 0.0)
    text = "".join("a b\n" if number % 4 else "\n" for number in range(31))
    (tmp_path / "in.txt").write_text(text, encoding="utf-8")
    asked = {"run": TRANSFORMER, "verb": "translate", "file": tmp_path / "in.txt", "beam": 2, "device": "cpu"}
    assert regard.answer_file(**asked, out=tmp_path / "one.txt") == 31
    assert regard.answer_file(**asked, out=tmp_path / "three.txt", processes=3) == 31
    whole = (tmp_path / "one.txt").read_bytes()
    assert (tmp_path / "three.txt").read_bytes() == whole
    assert [not line for line in whole.splitlines()] == [not line for line in text.splitlines()]
    write, told, started = Journal.write, [], []

    class Noted(Forked):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            started.append(self)

    def kill(self, *given):
        write(self, *given)
        if self.done.inputs == 10:
            os.kill(started[0].pid, signal.SIGKILL)
            os.kill(started[1].pid, signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", kill)
        patch.setattr(worker_processes, "start_process", Noted)
        with pytest.raises(ProcessLost, match=r"process [01] of 2 was ended by SIGKILL"):
            regard.answer_file(**asked, out=tmp_path / "killed.txt", processes=2, tell=told.append)
    assert "texts are done: the same command goes on from there" in told[-1]
    regard.answer_file(**asked, out=tmp_path / "killed.txt", tell=told.append)
    assert "were done before; going on from there" in " ".join(told)
    assert (tmp_path / "killed.txt").read_bytes() == whole
    with pytest.raises(ConfigError, match=r"no_repeat=-1|must"):
        regard.answer_file(**asked, no_repeat=-1, out=tmp_path / "bad.txt", processes=2)
    assert not list(tmp_path.glob(".*"))


def test_evaluating_by_processes_gives_the_same_scores(forked, tmp_path, monkeypatch):
    monkeypatch.setattr(file_jobs, "CHUNK", 4)
    (tmp_path / "pairs.tsv").write_text("a b\tb a\nc\tc\na\ta c\n" * 5, encoding="utf-8")
    pairs = [str(tmp_path / "pairs.tsv")]
    run = regard.load(TRANSFORMER, "cpu")
    alone = regard.evaluate(run, pairs)
    with translating_together(run, FileJob(verb="", run=str(TRANSFORMER), device="cpu", precision="float32"), 2):
        assert regard.evaluate(run, pairs) == alone
    with (
        pytest.raises(ConfigError, match="is scored by one process"),
        translating_together(regard.load(RUNS / "gpt", "cpu"), FileJob(verb="", run=str(RUNS / "gpt")), 2),
    ):
        pass


def test_evaluating_by_processes_is_gone_on_with_after_a_kill(forked, tmp_path, monkeypatch):
    """What was translated and noted is found, the rest alone is asked for, and the scores are equal."""
    monkeypatch.setattr(file_jobs, "CHUNK", 4)
    monkeypatch.setattr(output_journal, "NOTE_SECONDS", 0.0)
    (tmp_path / "pairs.tsv").write_text("".join(f"a b\tb a\nc\tc\n{'a ' * n}\ta c\n" for n in range(1, 6)), "utf-8")
    pairs, out = [str(tmp_path / "pairs.tsv")], tmp_path / "out.txt"
    run, job = regard.load(TRANSFORMER, "cpu"), FileJob(verb="", run=str(TRANSFORMER), device="cpu")
    texts, write, asked, told = [], Journal.write, [], []
    alone = regard.evaluate(run, pairs, out=texts.append)

    def evaluated(found):
        with translating_together(run, job, 2, out, told.append):
            return regard.evaluate(run, pairs, out=found.append)

    def write_two(self, text, more):
        if self.done.inputs == 8:
            raise Killed("before the third chunk")
        write(self, text, more)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", write_two)
        with pytest.raises(Killed):
            evaluated([])
    assert len(list(tmp_path.glob(".*"))) == 2
    monkeypatch.setattr(Journal, "write", lambda self, text, more: asked.append(more.inputs) or write(self, text, more))
    found = []
    assert evaluated(found) == alone
    assert found == texts
    assert asked == [4, 3]
    assert told == [f"8 {run.task.unit} were done before; going on from there"]
    assert not list(tmp_path.glob(".*"))


def test_the_command_says_what_it_found_done(tmp_path, capsys):
    """From the command line, with processes of its own; and a file of prompts."""
    shutil.copytree(TRANSFORMER, tmp_path / "run")
    (tmp_path / "in.txt").write_text("a b\n" * 300, encoding="utf-8")
    asked = ["translate", str(tmp_path / "run"), "--input", str(tmp_path / "in.txt"), "--device", "cpu"]
    out = ["--output", str(tmp_path / "out.txt")]
    with killed(tmp_path, 1, "os.rename") as found:
        main([*asked, *out])
    assert found
    command = [sys.executable, "-m", "regard", *asked, *out, "--processes", "2"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert "300 texts were done before" in ended.stderr
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 300
    assert main([*asked, "--processes", "2"]) == 2
    assert "--processes=2 is for files: give --input and --output" in capsys.readouterr().err
    (tmp_path / "prompts.txt").write_text("a\n42\n\n", encoding="utf-8")
    files = ["--input", str(tmp_path / "prompts.txt"), "--output", str(tmp_path / "texts.txt")]
    assert main(["generate", str(RUNS / "gpt"), *files, "--max-tokens", "3", "--device", "cpu"]) == 0
    texts = (tmp_path / "texts.txt").read_text().split("\n")
    assert [text[:2] for text in texts[:2]] == ["a" + texts[0][1:2], "42"]
    assert len(texts) == 4


def test_a_worker_that_cannot_start_says_why_once(forked, tmp_path):
    with pytest.raises(RunError, match="no such run"), Workers(2, FileJob(verb="translate", run=str(tmp_path / "no"))):
        pass
