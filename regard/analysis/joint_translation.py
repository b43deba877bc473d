"""Translations by several processes, wherever a run's translator is asked for many, as evaluating does."""

import dataclasses
import hashlib
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from regard import config as settings
from regard.analysis.file_jobs import FileJob
from regard.analysis.output_journal import Journal, Tally, Tell, journaled
from regard.analysis.worker_processes import Workers
from regard.config import JsonObject
from regard.decode.config import DecodeConfig
from regard.decode.constraints import WordLimits
from regard.errors import ConfigError
from regard.tasks.run import Run
from regard.tasks.translator import Translation


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
