"""The log of a training run: one JSON object per line, and the same to TensorBoard where it is wanted."""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from regard.config import JsonObject
from regard.errors import ConfigError, NotWritten, RunError
from regard.runs.files import whole_file, write_errors

NOTE = "note"
"""The kind of records that hold what was said before a training; those of others are `train` and `validation`."""


class Log:
    """Appends records to `log.jsonl`. On resuming, records after `resume_at` are dropped, for they happen again.

    Records that cannot be written, as while the disk is full, wait for the next, and `say` is told, once; without a
    `say` that is an error.
    """

    def __init__(
        self,
        directory: Path,
        *,
        resume_at: int | None = None,
        tensorboard: bool = False,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.path, self._say = directory / "log.jsonl", say
        if resume_at is not None and self.path.exists():
            kept = [record for record in read_log(self.path) if record.get("step", 0) <= resume_at]
            text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept)
            with whole_file(self.path) as aside:
                aside.write_text(text, encoding="utf-8", newline="\n")
        with write_errors(self.path):
            # Unbuffered, so that what was written and what was not is known where a write fails.
            self._file: FileIO | None = self.path.open("wb" if resume_at is None else "ab", buffering=0)
        self._waiting, self._told = b"", False
        self._board = summary_writer()(str(directory / "tensorboard")) if tensorboard else None

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        self._waiting += (json.dumps({"kind": kind, "step": step, **values}, ensure_ascii=False) + "\n").encode()
        try:
            self._flush()
        except NotWritten as error:
            if self._say is None:
                raise
            if not self._told:
                self._say(f"{error}; its records wait for the next, and training goes on")
            self._told = True
        if self._board is not None:
            self._show(self._board, kind, step, values)

    def _show(self, board: Any, kind: str, step: int, values: Mapping[str, Any]) -> None:
        try:
            for name, value in values.items():
                if isinstance(value, int | float):
                    board.add_scalar(f"{kind}/{name}", value, step)
        except OSError as error:  # of a write before this one: its thread has ended
            if self._say is None:
                raise
            self._board = None
            self._say(f"cannot write for TensorBoard: {error.strerror or error}; it gets nothing more of this training")

    def close(self) -> None:
        try:
            self._flush()
        except NotWritten as error:  # it has been told of, unless it is new
            if self._say is not None:
                self._say(f"{error}: {self._waiting.count(10)} of its records are lost")
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        if self._board is not None:
            self._board.close()

    def _flush(self) -> None:
        """Write what waits. After a failure the file is opened again, for its disk may have come back as another."""
        with write_errors(self.path):
            if self._file is not None and self._was_removed():
                self._file.close()
                self._file = None
                if self._say is not None:
                    self._say(f"{self.path} was removed: it is begun again, without what came before")
            if self._file is None:
                self._file = self.path.open("ab", buffering=0)
            file, self._file = self._file, None
            try:
                while self._waiting:
                    self._waiting = self._waiting[file.write(self._waiting) :]
            except OSError:
                with suppress(OSError):
                    file.close()
                raise
            self._file, self._told = file, False

    def _was_removed(self) -> bool:
        """Whether someone has removed the log and left the run, which a lost mount does not."""
        return not self.path.exists() and self.path.parent.is_dir() and any(self.path.parent.iterdir())


def write_notes(directory: Path, notes: Iterable[str], say: Callable[[str], None]) -> None:
    """Begin a run's log with what was said before its training: records of kind `NOTE`, each once, at step 0."""
    log = Log(directory, say=say)
    for text in dict.fromkeys(notes):
        log.write(NOTE, 0, {"text": text})
    log.close()


class NoLog:
    """What a process has instead where another one writes the log."""

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


def read_log(path: Path) -> list[JsonObject]:
    """The records of a log; a last line that was cut short is left out, and so is whatever else is no record."""
    if path.exists() and not path.is_file():
        raise RunError(f"{path} is not a regular file")
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, dict) and isinstance(record.get("step", 0), int):
                records.append(record)
    return records


def summary_writer() -> Any:
    """TensorBoard's writer, where it is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError(
            "reporting to TensorBoard needs the tensorboard package: pip install 'regard[tensorboard]'"
        ) from None
    return SummaryWriter
