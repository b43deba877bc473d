"""What is asked of which run and which files, and one loaded run that answers it, a chunk of inputs at a time."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

from regard.analysis.output_journal import Tally, Tell
from regard.config import JsonObject
from regard.errors import DataError, RunError
from regard.interop.engines import use_engine
from regard.runs.files import MODEL
from regard.tasks.ensemble import ensemble
from regard.tasks.run import Run, load
from regard.tasks.verbs import VERBS, Asked
from regard.tasks.verbs.spec import RefusedInput, answers, check_each, refused_record

WINDOW = 256
"""Inputs that a model is given together."""

CHUNK, GPU_CHUNK = WINDOW, 16 * WINDOW
"""Inputs of a chunk: on a GPU more, for there those of one window make room for the next as they end."""


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
