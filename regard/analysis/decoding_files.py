"""A file of inputs answered: in order, each line exactly once, by several processes, and taken up after a kill.

Inputs are answered in chunks, which are the same whoever answers them. What is written is noted in a journal beside the
output; after a kill the same command cuts off what came after its last note and goes on from there. Processes read the
inputs for themselves: they are told which chunk to answer and give back text, so that nothing is held but the few
chunks under way.
"""

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count, islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from regard import config as settings
from regard import errors
from regard.config import JsonObject
from regard.decode.config import DecodeConfig
from regard.decode.constraints import WordLimits
from regard.errors import ConfigError, DataError, NotWritten, ProcessLost, RegardError, RunError
from regard.interop.engines import use_engine
from regard.runs.files import MODEL, alone_with, check_output, sync, write_errors
from regard.tasks.ensemble import ensemble
from regard.tasks.run import Run, choose_device, load
from regard.tasks.spec import field_names
from regard.tasks.translator import Translation, Translator
from regard.tasks.verbs import VERBS, Asked
from regard.tasks.verbs.spec import RefusedInput, answers, check_each, refused_record, some_refused
from regard.trainer.launch import how_ended, start_process

WINDOW = 256
"""Inputs that a model is given together."""

CHUNK, GPU_CHUNK = WINDOW, 16 * WINDOW
"""Inputs of a chunk: on a GPU more, for there those of one window make room for the next as they end."""

NOTE_SECONDS = 1.0
"""Seconds between two notes in the journal: a kill loses so much, and the chunks under way."""

Tell = Callable[[str], object]
"""Is told one line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileJob:
    """What is asked of which run, and of which files: all that the output depends on."""

    verb: str
    """Nothing where sentences are sent to be translated."""
    run: str
    files: tuple[str, ...] = ()
    aligned: bool = False
    """Whether the files belong together line by line."""
    options: JsonObject = dataclasses.field(default_factory=dict)
    display: JsonObject = dataclasses.field(default_factory=dict)
    as_json: bool = False
    others: tuple[str, ...] = ()
    device: str = "auto"
    precision: str = "auto"
    engine: str = "torch"
    engine_files: str | None = None
    threads: int | None = None
    verify: bool = True

    def identity(self) -> JsonObject:
        """What must be the same for an output to be gone on with: the command, the weights, and what the files hold."""
        said = {name: value for name, value in dataclasses.asdict(self).items() if name not in ("threads", "verify")}
        said["run"] = [_stamp(Path(run)) for run in (self.run, *self.others)]
        return json.loads(json.dumps(said | {"files": [_content(Path(file)) for file in self.files]}))


def _stamp(run: Path) -> list[object]:
    try:
        status = (run / MODEL).stat()
    except OSError:
        return [os.path.realpath(run)]
    return [os.path.realpath(run), status.st_size, status.st_mtime_ns]


def _content(path: Path) -> list[object]:
    if path.is_dir():
        held = sorted((str(one.relative_to(path)), one.stat().st_size) for one in path.rglob("*") if one.is_file())
        return [os.path.realpath(path), hashlib.sha256(json.dumps(held).encode()).hexdigest()]
    try:
        with path.open("rb") as file:
            return [os.path.realpath(path), hashlib.file_digest(file, "sha256").hexdigest()]
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None


def answer_file(
    run: str | Path,
    verb: str,
    file: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    processes: int = 1,
    as_json: bool = False,
    device: str = "auto",
    precision: str = "auto",
    tell: Tell = lambda note: None,
    progress: Callable[[int, int | None], None] | None = None,
    **options: Any,
) -> int:
    """Answer every input of a file with a run, in order, and write the results to `out`; returns how many there are.

    `regard.answer_file("runs/demo", "translate", "test.en", "test.fr", processes=4, beam=5)` is
    `regard translate runs/demo --input test.en --output test.fr --processes 4 --beam 5`. Several files belong together
    line by line. After a kill the same call goes on where the output ends. `tell` hears that, and what was cut.

    Of several images or sounds those that cannot be read have a blank line in their place, or with `as_json` a record
    with an `error`; `tell` hears of each, and `SomeRefused` is raised once all others are written.
    """
    known = field_names(VERBS.named(verb).request) - {VERBS.named(verb).items}
    for name in options:
        if name not in known:
            raise ConfigError(f"unknown option '{name}' of {verb}{errors.nearest(name, known)}")
    aligned = not isinstance(file, str | Path)
    files = tuple(map(str, file)) if aligned else (str(file),)
    job = FileJob(
        verb=verb,
        run=str(run),
        files=files,
        aligned=aligned,
        options=options,
        as_json=as_json,
        device=device,
        precision=precision,
    )
    check_output(Path(out))
    return answer_job(job, Path(out), processes, tell, progress)


def restartable(files: Sequence[Path], out: Path) -> bool:
    """Whether such a job can be taken up again: from files that can be read twice, to one that can be cut."""
    return all(path.is_file() or path.is_dir() for path in files) and (not out.exists() or out.is_file())


def answer_job(
    job: FileJob,
    out: Path,
    processes: int = 1,
    tell: Tell = lambda note: None,
    progress: Callable[[int, int | None], None] | None = None,
) -> int:
    """Answer a job's inputs and write them to `out`, going on where an earlier call ended; how many there are."""
    for path in map(Path, job.files):
        if not path.exists():
            raise DataError(f"no such file: {path}")
    unit = VERBS.named(job.verb).unit
    with journaled(out, job.identity(), unit, tell) as journal:
        if journal.notes is not None:
            tell(f"all {journal.done.inputs:,} {unit} were done before")
        elif journal.done.inputs:
            tell(f"{journal.done.inputs:,} {unit} were done before; going on from there")
        if journal.notes is None:
            _answer_rest(job, journal, processes, tell, progress)
    done = journal.done
    _tell_all(journal.notes or "", tell)
    if done.refused:
        raise some_refused(VERBS.named(job.verb), done.refused, done.inputs)
    return done.inputs


def _answer_rest(
    job: FileJob, journal: "Journal", processes: int, tell: Tell, progress: Callable[[int, int | None], None] | None
) -> None:
    """Answer what is not in the journal yet. A single input that is refused raises its error, and has no output."""
    with answering(job, processes, tell) as source:
        for text, done, refused in source.chunks(journal.done.inputs):
            for said in refused:
                tell(said)
            journal.write(text, done)
            if progress is not None:
                progress(journal.done.inputs, None)
            if done.inputs < source.size:
                if refused and journal.done.inputs == 1:
                    error = DataError(refused[0])
                    error.quiet = True  # it has been told of
                    raise error
                break
        journal.notes = source.notes(journal.done)


def _tell_all(notes: str, tell: Tell) -> None:
    for line in notes.splitlines():
        tell(line)


# What was answered, and the journal of it.


@dataclasses.dataclass
class Tally:
    """How many inputs were answered, how many of their outputs were cut, and what else is to be said in the end."""

    inputs: int = 0
    cut: int = 0
    total: int = 0
    shortened: int = 0
    refused: int = 0
    unknown: dict[str, None] = dataclasses.field(default_factory=dict)

    def add(self, more: "Tally") -> None:
        self.inputs, self.cut = self.inputs + more.inputs, self.cut + more.cut
        self.total, self.shortened = self.total + more.total, self.shortened + more.shortened
        self.refused += more.refused
        self.unknown.update(more.unknown)

    def to_mapping(self) -> JsonObject:
        return {**vars(self), "unknown": list(self.unknown)}

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> "Tally":
        return cls(**{**mapping, "unknown": dict.fromkeys(mapping["unknown"])})


class Journal:
    """An output that is being written, and what is known of it: after a kill, as of the last note."""

    def __init__(self, out: Path, partial: Path, path: Path) -> None:
        self.out, self.partial, self.path = out, partial, path
        self.forget()

    def forget(self) -> None:
        self.done, self._since, self._bytes, self._crc = Tally(), Tally(), 0, 0
        self._file: BinaryIO | None = None
        self._log: BinaryIO | None = None
        self.notes: str | None = None
        """What is said in the end, once all is done."""
        self.noted, self._when = 0, time.monotonic()

    def begin(self, identity: JsonObject, out: Path) -> str | None:
        """Go on with what is there, or start anew; says why anew, where something was there."""
        before = self.path.stat().st_size > 0
        why = self._found(identity)
        if self.notes is not None and not self.partial.exists() and out.exists():
            return None  # the kill came between the output's name and the end
        if why is not None:
            self.forget()
            self.partial.unlink(missing_ok=True)
            # Made here, and by nobody else: a link of this name in a folder of many could lead to any file.
            os.close(os.open(self.partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            self.path.write_text(json.dumps({"job": identity}) + "\n", encoding="utf-8", newline="\n")
        self._file = self.partial.open("ab")
        self._log = self.path.open("ab")
        return why if before else None

    def _found(self, identity: JsonObject) -> str | None:
        """Take over what the journal says. Returns why that cannot be."""
        whole, at = [], 0
        for line in self.path.read_bytes().splitlines(keepends=True):
            try:
                whole.append(json.loads(line))
            except ValueError:  # the kill came while this was written
                break
            at += len(line)
        before = whole[0]["job"] if whole else {}
        if before != identity:
            names = sorted(name for name in {*before, *identity} if before.get(name) != identity.get(name))
            return f"it was begun by another command, or on other data ({', '.join(names)} differ)"
        for note in whole[1:]:
            self.done.add(Tally.of(note["done"]))
            self._bytes, self._crc, self.notes = note["bytes"], note["crc"], note.get("notes")
        self.noted = self.done.inputs
        if self.partial.is_symlink() or not self.partial.is_file() or not self._unchanged():
            return "what had been written has been changed since"
        os.truncate(self.path, at)
        os.truncate(self.partial, self._bytes)
        return None

    def _unchanged(self) -> bool:
        """Whether the output holds what the last note says; what comes after that is cut off."""
        found, left = 0, self._bytes
        with self.partial.open("rb") as file:
            while left and (some := file.read(min(left, 1 << 20))):
                found, left = zlib.crc32(some, found), left - len(some)
        return not left and found == self._crc

    def write(self, text: str, more: Tally) -> None:
        """Add results; they are noted now or with later ones."""
        assert self._file is not None, "what is finished is not written to"
        data = text.encode()
        with write_errors(self.out):
            self._file.write(data)
        self._bytes, self._crc = self._bytes + len(data), zlib.crc32(data, self._crc)
        more.unknown = {word: None for word in more.unknown if word not in self.done.unknown}
        self.done.add(more)
        self._since.add(more)
        if time.monotonic() - self._when >= NOTE_SECONDS:
            self.note()

    def note(self) -> None:
        """Say in the journal what is written by now, once it is on the disk."""
        if self._file is None or self._log is None:
            return
        note: JsonObject = {"done": self._since.to_mapping(), "bytes": self._bytes, "crc": self._crc}
        with write_errors(self.out):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._log.write(json.dumps(note | ({} if self.notes is None else {"notes": self.notes})).encode() + b"\n")
            self._log.flush()
            os.fsync(self._log.fileno())
        self._since, self.noted, self._when = Tally(), self.done.inputs, time.monotonic()

    def close(self) -> None:
        for file in (self._file, self._log):
            with suppress(OSError):  # a full disk, of which a note has told already
                if file is not None:
                    file.close()


@contextmanager
def journaled(out: Path, identity: JsonObject, unit: str, tell: Tell) -> Iterator[Journal]:
    """A journal of `out`, which has its name when all is written.

    What was begun before is gone on with. After an error what is written stays for the same command to go on with,
    unless that is nothing, or the command or its data are what is wrong, and must change.
    """
    real = Path(os.path.realpath(out))
    partial_file, path = real.with_name(f".{real.name}.partial"), real.with_name(f".{real.name}.journal")
    # What is read or computed meanwhile is not under `write_errors`: its errors are not of the output.
    with alone_with(path, out):
        journal = Journal(out, partial_file, path)
        try:
            with write_errors(out):
                why = journal.begin(identity, real)
            if why is not None:
                tell(f"{out} is begun anew: {why}")
            yield journal
            journal.note()
        except (Exception, KeyboardInterrupt) as error:
            with suppress(OSError, NotWritten):  # the disk is full, perhaps: then the note before counts
                journal.note()
            if journal.noted and not isinstance(error, ConfigError | DataError):
                tell(f"{journal.noted:,} {unit} are done: the same command goes on from there")
            else:
                partial_file.unlink(missing_ok=True)
                path.unlink(missing_ok=True)
            raise
        finally:
            journal.close()
        with write_errors(out):
            if partial_file.exists():
                os.replace(partial_file, real)
                sync(real.parent)
            path.unlink()


# Who answers: this process, or several others.


class ChunkAnswerer:
    """One loaded run that answers a job's inputs, a chunk at a time."""

    def __init__(self, job: FileJob, run: Run) -> None:
        self.job, self.verb, self.run, self.size = job, VERBS.named(job.verb), run, chunk_size(run)
        if not self.verb.offered(self.run):
            getattr(self.run, job.verb)  # says which tasks have it, where this one has not
            raise RunError(f"{job.run} is a run for {self.run.task.name}, which does not {job.verb}")
        options = {name: tuple(one) if isinstance(one, list) else one for name, one in job.options.items()}
        self.request = self.verb.without_inputs(**options)
        self.display = self.verb.display(**job.display) if self.verb.display else None
        files = tuple(map(Path, job.files))
        self._inputs, self._at = self.verb.inputs(self.run, (), files if job.aligned else files[0]), 0

    def answer(self, first: int, size: int) -> tuple[str, Tally, list[str]]:
        """The results of so many inputs from the one numbered `first`, as text; fewer at the end. Of inputs that were
        refused, why."""
        for _ in islice(self._inputs, first - self._at):
            pass
        items = list(islice(self._inputs, size))
        self._at = first + len(items)
        made = check_each(self.verb, self.run, self.request, items)
        found: dict[int, Any] = {first + place: one for place, one in enumerate(made) if isinstance(one, RefusedInput)}
        asked = [Asked(self.request, item, first + place) for place, item in enumerate(made)]
        asked = [one for one in asked if one.number not in found]
        windows = iter([asked[start : start + WINDOW] for start in range(0, len(asked), WINDOW)])
        for one, result in answers(self.verb, self.run, lambda: next(windows, []), refuse=True):
            if self.verb.piece is None or not isinstance(result, self.verb.piece):
                found[one.number] = result
        lines, done, refused = [], Tally(inputs=len(items)), []
        for number in range(first, first + len(items)):
            result = found.pop(number)
            if isinstance(result, RefusedInput):
                lines.append(refused_record(self.verb, result, as_json=self.job.as_json))
                refused.append(str(result.error))
                done.refused += 1
                continue
            lines.append(self._text(result))
            cut, total = self.verb.cut(result)
            more = dict.fromkeys(self.verb.unknown(result))
            done.add(Tally(0, cut, total, int(self.verb.shortened(result)), unknown=more))
        return "".join(f"{line}\n" for line in lines), done, refused

    def _text(self, result: Any) -> str:
        if self.job.as_json:
            return "\n".join(json.dumps(record, ensure_ascii=False) for record in self.verb.records(result))
        return self.verb.line(result, self.display)

    def chunks(self, first: int) -> Iterator[tuple[str, Tally, list[str]]]:
        for number in count():
            yield self.answer(first + number * self.size, self.size)

    def notes(self, done: Tally) -> str:
        """What is said in the end: what was cut, what was longer than the model reads, which words are unknown."""
        said = [self.verb.note(self.run, self.request, done.cut, done.total)] if done.inputs else []
        said += [self.verb.shortened_note(self.run, done.shortened, done.inputs)] if done.shortened else []
        said += [self.run.task.unknown_note(self.run, list(done.unknown))] if done.unknown else []
        return "\n".join(filter(None, said))


def chunk_size(run: Run) -> int:
    return GPU_CHUNK if run.device.type == "cuda" else CHUNK


def loaded(job: FileJob, tell: Tell, device: str | None = None) -> Run:
    """The run, with the others and the engine that the job names."""
    names = (job.run, *job.others)
    runs = [load(name, device or job.device, job.precision, tell, verify=job.verify) for name in names]
    if job.threads is not None:
        import torch

        torch.set_num_threads(job.threads)
    run = use_engine(runs[0], job.engine, job.engine_files, tell) if job.engine != "torch" else runs[0]
    run = ensemble(runs) if job.others else run
    if job.threads is not None and "translator" in run.task.parts:
        run.translator.threads = job.threads
    return run


class ProcessAnswerer:
    """Several processes that each load the run and answer the chunks that they are given."""

    def __init__(self, workers: "Workers") -> None:
        self.workers, self.size = workers, workers.size

    def chunks(self, first: int) -> Iterator[tuple[str, Tally, list[str]]]:
        asked = ({"first": first + number * self.size, "size": self.size} for number in count())
        for reply in self.workers.map(asked):
            yield reply["text"], Tally.of(reply["done"]), reply["refused"]

    def notes(self, done: Tally) -> str:
        (reply,) = self.workers.map(iter([{"notes": done.to_mapping()}]))
        return reply["notes"]


@contextmanager
def answering(job: FileJob, processes: int, tell: Tell) -> Iterator[ChunkAnswerer | ProcessAnswerer]:
    """Who answers a job: this process, or so many others."""
    if processes == 1:
        yield ChunkAnswerer(job, loaded(job, tell))
        return
    with Workers(processes, job) as workers:
        yield ProcessAnswerer(workers)


class Workers:
    """Processes that are told in JSON what to do, and answer so. When one fails, all end."""

    def __init__(self, world: int, job: FileJob) -> None:
        self.world, self._job, self._started = world, job, list[subprocess.Popen[bytes]]()

    def __enter__(self) -> "Workers":
        try:
            self._start(0)
            # An engine's files are made by the first process, and found by the others.
            ready = [self._reply(0)] if self._job.engine != "torch" else []
            for rank in range(1, self.world):
                self._start(rank)
            ready += [self._reply(rank) for rank in range(len(ready), self.world)]
            self.size: int = ready[0]["size"]
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._started:
            with suppress(OSError):
                process.kill()
            process.wait()
            for end in (process.stdin, process.stdout):
                if end is not None:
                    with suppress(OSError):
                        end.close()

    def _start(self, rank: int) -> None:
        command = [sys.executable, "-m", "regard.analysis.decoding_files"]
        self._started.append(start_process(command, self.world, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        self._tell(rank, {"job": dataclasses.asdict(self._job), "rank": rank})

    def _tell(self, rank: int, message: JsonObject) -> None:
        with suppress(BrokenPipeError):  # it has ended: reading its reply says how
            stdin: Any = self._started[rank].stdin
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()

    def _reply(self, rank: int) -> JsonObject:
        stdout: Any = self._started[rank].stdout
        line = stdout.readline()
        if not line.endswith(b"\n"):
            code = self._started[rank].wait(10)
            raise ProcessLost(f"process {rank} of {self.world} {how_ended(code)}")
        reply = json.loads(line)
        if "error" in reply:
            kind = getattr(errors, reply["kind"], ProcessLost)
            raise kind(reply["error"])
        return reply

    def map(self, requests: Iterator[JsonObject]) -> Iterator[JsonObject]:
        """A reply for each request, in order. Few are asked for before their turn."""
        replies = InOrder(requests, ahead=4 * self.world)

        def serve(rank: int) -> None:
            try:
                while (one := replies.take()) is not None:
                    number, request = one
                    self._tell(rank, request)
                    replies.put(number, self._reply(rank))
            except BaseException as error:
                replies.fail(error)

        threads = [threading.Thread(target=serve, args=(rank,), daemon=True) for rank in range(self.world)]
        for thread in threads:
            thread.start()
        try:
            yield from replies
        finally:
            replies.close()
        for thread in threads:
            thread.join()


class InOrder:
    """Requests handed out to whoever takes the next, and their replies in the order of the requests."""

    def __init__(self, requests: Iterator[JsonObject], ahead: int) -> None:
        self._requests, self._ahead, self._changed = requests, ahead, threading.Condition()
        self._given = self._read = 0
        self._replies: dict[int, JsonObject] = {}
        self._failure: BaseException | None = None
        self._over = False

    def take(self) -> tuple[int, JsonObject] | None:
        """The next request and its number; None at the end. Waits while too many replies wait for their turn."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._given - self._read < self._ahead)
            request = None if self._over else next(self._requests, None)
            if request is None:
                self._over = True
                self._changed.notify_all()
                return None
            self._given += 1
            return self._given - 1, request

    def put(self, number: int, reply: JsonObject) -> None:
        with self._changed:
            self._replies[number] = reply
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure, self._over = self._failure or error, True
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[JsonObject]:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self._read in self._replies
                        or self._failure is not None
                        or (self._over and self._read == self._given)
                    )
                )
                if self._read not in self._replies:
                    if self._failure is not None:
                        raise self._failure
                    return
                reply = self._replies.pop(self._read)
                self._read += 1
                self._changed.notify_all()
            yield reply


# Translations by several processes, wherever a run's translator is asked for many.


class KeptOutputs:
    """Translations that were noted in a journal, by what was asked for: after a kill, those of the command before."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._where: dict[str, tuple[int, int]] = {}
        at = 0
        with journal.partial.open("rb") as lines:
            for line in lines:
                self._where[line[:_KEY].decode()] = at, len(line)
                at += len(line)

    def __contains__(self, key: str) -> bool:
        return key in self._where

    def __getitem__(self, key: str) -> list[Any]:
        start, size = self._where[key]
        with self._journal.partial.open("rb") as file:
            file.seek(start + _KEY)
            return json.loads(file.read(size - _KEY))

    def add(self, key: str, outputs: list[Any]) -> None:
        self._journal.write(f"{key} {json.dumps(outputs)}\n", Tally(len(outputs)))


_KEY = 2 * hashlib.sha256().digest_size
"""Characters of a key."""


def _key(request: JsonObject) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


@contextmanager
def _kept_beside(out: Path, job: FileJob, unit: str, tell: Tell) -> Iterator[KeptOutputs]:
    """What is translated on the way to `out`, kept beside it until that is written; what a kill left is found."""
    real = Path(os.path.realpath(out))
    kept = real.with_name(f".{real.name}.outputs")
    with journaled(kept, job.identity(), unit, tell) as journal:
        if journal.done.inputs:
            tell(f"{journal.done.inputs:,} {unit} were done before; going on from there")
        yield KeptOutputs(journal)
    kept.unlink()


@contextmanager
def translating_together(
    run: Run, job: FileJob, processes: int, out: Path | None = None, tell: Tell = lambda note: None
) -> Iterator[None]:
    """Let so many processes translate where `run.translator.stream` is asked, as evaluating does.

    Where that is to be written to `out`, which must be done inside, translations are kept beside it on the way: after a
    kill the same again asks only for those that are missing.
    """
    if "translator" not in run.task.parts:
        raise ConfigError(
            f"--processes is for runs that translate or summarize; a run for {run.task.name} is scored by one process"
        )
    with ExitStack() as stack:
        kept = None if out is None else stack.enter_context(_kept_beside(out, job, run.task.unit, tell))
        workers = stack.enter_context(Workers(processes, job))
        run.translator.elsewhere = partial(_stream, workers, kept)
        try:
            yield
        finally:
            run.translator.elsewhere = None


def _stream(
    workers: Workers,
    kept: KeptOutputs | None,
    sentences: Iterable[str],
    config: DecodeConfig,
    overlong: str,
    words: WordLimits,
) -> Iterator[list[Translation]]:
    how: JsonObject = {"config": settings.to_mapping(config, nulls=True), "overlong": overlong}
    how["words"] = dataclasses.asdict(words)
    lines, keys = iter(sentences), deque[str]()

    def requests() -> Iterator[JsonObject]:
        """What is still to be asked for; the key of each chunk is noted first, in order."""
        before = 0
        while some := list(islice(lines, workers.size)):
            request = {"sentences": some, "before": before, **how}
            keys.append(_key(request) if kept is not None else "")
            if kept is None or keys[-1] not in kept:
                yield request
            before += len(some)

    def found_before() -> Iterator[list[Any]]:
        while kept is not None and keys and keys[0] in kept:
            yield kept[keys.popleft()]

    def chunks() -> Iterator[list[Any]]:
        for reply in workers.map(requests()):
            yield from found_before()
            key = keys.popleft()
            if kept is not None:
                kept.add(key, reply["outputs"])
            yield reply["outputs"]
        yield from found_before()

    for outputs in chunks():
        for best in outputs:
            yield [
                Translation(**{**one, "tokens": tuple(one["tokens"]), "pieces": tuple(one["pieces"])}) for one in best
            ]


def _outputs(translator: Translator, asked: Mapping[str, Any]) -> list[Any]:
    config = settings.from_mapping(DecodeConfig, asked["config"], "decode")
    found = translator.translate(
        asked["sentences"],
        config,
        overlong=asked["overlong"],
        before=asked["before"],
        words=WordLimits(**asked["words"]),
    )
    return [[_plain(one) for one in best] for best in found]


def _plain(one: Translation) -> JsonObject:
    return {field.name: getattr(one, field.name) for field in dataclasses.fields(one) if field.name != "alignment"}


def serve_requests() -> None:
    """The life of one of the processes: a job on standard input, then requests, each answered by one line."""
    # What libraries print must not get among the replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the first process's to hear

    def reply(**message: Any) -> None:
        replies.write(json.dumps(message).encode() + b"\n")
        replies.flush()

    try:
        requests = map(json.loads, os.fdopen(0, "rb", closefd=False))
        begun = next(requests)
        job, rank = FileJob(**{name: _tuples(name, value) for name, value in begun["job"].items()}), begun["rank"]
        run = loaded(job, _say if rank == 0 else _say_nothing, _device_of(job.device, rank))
        answerer = ChunkAnswerer(job, run) if job.verb else None
        reply(size=chunk_size(run))
        for asked in requests:
            if answerer is None:
                reply(outputs=_outputs(run.translator, asked))
            elif "notes" in asked:
                reply(notes=answerer.notes(Tally.of(asked["notes"])))
            else:
                text, done, refused = answerer.answer(asked["first"], asked["size"])
                reply(text=text, done=done.to_mapping(), refused=refused)
    except RegardError as error:
        reply(error=str(error), kind=type(error).__name__)
    except Exception as error:
        traceback.print_exc()
        reply(error=f"a process failed: {error!r}", kind="ProcessLost")


def _tuples(name: str, value: Any) -> Any:
    return tuple(value) if name in ("files", "others") else value


def _device_of(device: str, rank: int) -> str:
    """A process's own device: of several GPUs, one after the other."""
    import torch

    where = choose_device(device)
    if where.type != "cuda" or where.index is not None:
        return device
    return f"cuda:{rank % torch.cuda.device_count()}"


def _say(note: str) -> None:
    print(f"regard: {note}", file=sys.stderr)


def _say_nothing(note: str) -> None:
    """Another process says it."""


if __name__ == "__main__":
    serve_requests()
