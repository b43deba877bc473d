"""Many texts to token ids, in this process or in several: the same numbers either way, in the same order."""

import json
import os
import queue
import signal
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np

from regard.errors import ConfigError, DataError, RegardError
from regard.text.bpe_dropout import MergeDropout
from regard.text.tokenizer import Tokenizer

Label = TypeVar("Label")
Encoder = Callable[[Sequence[str]], list[list[int]]]

_LENGTH = struct.Struct("<Q")
_FAILED = b"\1"


class TokenizingLost(DataError):
    """A process that tokenises has ended before its work was done; what it was at can be tried again."""

    exit_code = 75


class EncodedTexts(NamedTuple):
    """The ids of texts one after the other, and how many each text has."""

    ids: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> "EncodedTexts":
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        ids = np.fromiter((token for row in rows for token in row), dtype=np.uint32, count=int(lengths.sum()))
        return cls(ids, lengths)


class Tokenizing:
    """Texts to ids with one tokenizer or more: `encode` takes jobs, each a list of texts for each tokenizer.

    With `workers` above 0 so many processes tokenise, each with a tokenizer of its own; with 0 this process does, with
    the threads of the `tokenizers` library. Results come in the order of the jobs, and only a few wait at a time, so
    memory stays flat. A process is sent text and sends back numbers, nothing else. It ends when this one does.
    """

    def __init__(self, tokenizers: Sequence[Tokenizer], workers: int = 0, drop: MergeDropout | None = None) -> None:
        check_workers(workers)
        self._tokenizers, self._workers, self._drop = tokenizers, workers, drop
        self._encoders = [] if workers else encoders(tokenizers, drop)
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._processes: list[_Process] = []

    def __enter__(self) -> "Tokenizing":
        setup = json.dumps(
            {
                "tokenizers": [[one.to_json(), *one.special_names] for one in self._tokenizers],
                "drop": None if self._drop is None else [self._drop.rate, self._drop.variant],
            }
        )
        for _ in range(self._workers):
            process = _Process(setup)
            self._processes.append(process)
            self._idle.put(process)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.close()

    def encode(
        self, jobs: Iterable[tuple[Label, Sequence[Sequence[str]]]]
    ) -> Iterator[tuple[Label, list[EncodedTexts]]]:
        """Each job's label, and its texts as ids; what a job takes goes on while its results are waited for."""
        if not self._workers:
            for label, texts in jobs:
                yield label, encoded(self._encoders, texts)
            return
        with ThreadPoolExecutor(self._workers, thread_name_prefix="regard-tokenizing") as pool:
            waiting: deque[tuple[Label, Future[list[EncodedTexts]]]] = deque()
            for label, texts in jobs:
                waiting.append((label, pool.submit(self._ask, texts)))
                if len(waiting) > 2 * self._workers:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()

    def _ask(self, texts: Sequence[Sequence[str]]) -> list[EncodedTexts]:
        process = self._idle.get()
        try:
            return process.encode(texts)
        finally:
            self._idle.put(process)


def check_workers(workers: int) -> None:
    if not 0 <= workers <= 256:
        raise ConfigError(f"data.workers={workers} must be from 0, which tokenises in this process, to 256")


def encoders(tokenizers: Sequence[Tokenizer], drop: MergeDropout | None) -> list[Encoder]:
    return [one.encode_batch if drop is None else drop.encoder(one) for one in tokenizers]


def encoded(encoders: Sequence[Encoder], texts: Sequence[Sequence[str]]) -> list[EncodedTexts]:
    return [EncodedTexts.of(encode(some)) for encode, some in zip(encoders, texts, strict=True)]


class _Process:
    """A process that tokenises what it is sent."""

    def __init__(self, setup: str) -> None:
        # The processes are many already; a thread for each core in each would only be in the way.
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", "from regard.text.tokenizing import serve; serve()"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self._setup: str | None = setup

    def encode(self, texts: Sequence[Sequence[str]]) -> list[EncodedTexts]:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None
        assert back is not None
        try:
            if self._setup is not None:
                _send(to, self._setup.encode())
                self._setup = None
            _send(to, json.dumps(texts, ensure_ascii=False).encode("utf-8", "surrogatepass"))
            answer = _received(back)
        except OSError:
            answer = None
        if answer is None:
            raise TokenizingLost(
                f"a process that tokenises ended with status {self._process.wait()}, perhaps for want of memory; "
                f"lower data.workers"
            )
        if answer[:1] == _FAILED:
            raise DataError(answer[1:].decode("utf-8", "replace"))
        return _unpacked(answer[1:])

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):  # it has ended already
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def serve() -> None:
    """Tokenise what comes on the standard input, until it ends; the first message says how."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that sends
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    if (setup := _received(requests)) is None:
        return
    state: dict[str, Any] = json.loads(setup)
    drop = None if state["drop"] is None else MergeDropout(*state["drop"])
    ways = encoders([Tokenizer.from_json(*one) for one in state["tokenizers"]], drop)
    while (request := _received(requests)) is not None:
        try:
            answer = b"\0" + _packed(encoded(ways, json.loads(request.decode("utf-8", "surrogatepass"))))
        except RegardError as error:
            answer = _FAILED + str(error).encode("utf-8", "replace")
        _send(answers, answer)


def _send(file: IO[bytes], message: bytes) -> None:
    file.write(_LENGTH.pack(len(message)))
    file.write(message)
    file.flush()


def _received(file: IO[bytes]) -> bytes | None:
    """The next message; None where there is none."""
    size = file.read(_LENGTH.size)
    if len(size) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(size)
    message = file.read(length)
    return message if len(message) == length else None


def _packed(results: Sequence[EncodedTexts]) -> bytes:
    parts = [struct.pack("<Q", len(results))]
    for ids, lengths in results:
        parts += [struct.pack("<QQ", len(lengths), len(ids)), lengths.astype("<i8").tobytes(), ids.tobytes()]
    return b"".join(parts)


def _unpacked(message: bytes) -> list[EncodedTexts]:
    (count,), place = struct.unpack_from("<Q", message), 8
    found = []
    for _ in range(count):
        texts, tokens = struct.unpack_from("<QQ", message, place)
        lengths = np.frombuffer(message, "<i8", texts, place + 16)
        ids = np.frombuffer(message, np.uint32, tokens, place + 16 + 8 * texts)
        place += 16 + 8 * texts + 4 * tokens
        found.append(EncodedTexts(ids, lengths))
    return found
