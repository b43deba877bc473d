"""The log of a training run: one JSON object per line, and the same to TensorBoard where it is wanted."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.config import JsonObject
from regard.errors import ConfigError, RunError
from regard.runs.files import whole_file, write_errors


class Log:
    """Appends records to `log.jsonl`. On resuming, records after `resume_at` are dropped, for they happen again."""

    def __init__(self, directory: Path, *, resume_at: int | None = None, tensorboard: bool = False) -> None:
        self.path = directory / "log.jsonl"
        if resume_at is not None and self.path.exists():
            kept = [record for record in read_log(self.path) if record.get("step", 0) <= resume_at]
            text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept)
            with whole_file(self.path) as aside:
                aside.write_text(text, encoding="utf-8", newline="\n")
        with write_errors(self.path):
            self._file = self.path.open("w" if resume_at is None else "a", encoding="utf-8", newline="\n")
        self._board = summary_writer()(str(directory / "tensorboard")) if tensorboard else None

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        with write_errors(self.path):
            self._file.write(json.dumps({"kind": kind, "step": step, **values}, ensure_ascii=False) + "\n")
            self._file.flush()
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        with suppress(OSError):  # every record was flushed when it was written; one that failed has been told of
            self._file.close()
        if self._board is not None:
            self._board.close()


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
            "train.tensorboard needs the tensorboard package: pip install 'regard[tensorboard]'"
        ) from None
    return SummaryWriter
