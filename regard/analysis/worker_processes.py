"""Processes that each load a run and answer in JSON what they are told to: chunks of a file, or sentences to translate.

They read the inputs for themselves: they are told which chunk to answer and give back text, so that nothing is held but
the few chunks under way.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any

from regard import config as settings
from regard import errors
from regard.analysis.file_jobs import ChunkAnswerer, FileJob, chunk_size, loaded
from regard.analysis.output_journal import Tally
from regard.config import JsonObject
from regard.decode.config import DecodeConfig
from regard.decode.constraints import WordLimits
from regard.errors import ProcessLost, RegardError
from regard.tasks.run import choose_device
from regard.tasks.translator import Translation, Translator
from regard.trainer.launch import how_ended, start_process


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
        command = [sys.executable, "-m", __name__]
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
