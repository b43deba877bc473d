"""A file of inputs answered: in order, each line exactly once, by several processes, and taken up after a kill.

Inputs are answered in chunks, which are the same whoever answers them. What is written is noted in a journal beside the
output; after a kill the same command cuts off what came after its last note and goes on from there.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard import errors
from regard.analysis.file_jobs import ChunkAnswerer, FileJob, loaded
from regard.analysis.output_journal import Journal, Tell, journaled
from regard.analysis.worker_processes import ProcessAnswerer, Workers
from regard.errors import ConfigError, DataError
from regard.runs.files import check_output
from regard.tasks.spec import field_names
from regard.tasks.verbs import VERBS
from regard.tasks.verbs.spec import some_refused


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
    job: FileJob, journal: Journal, processes: int, tell: Tell, progress: Callable[[int, int | None], None] | None
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


@contextmanager
def answering(job: FileJob, processes: int, tell: Tell) -> Iterator[ChunkAnswerer | ProcessAnswerer]:
    """Who answers a job: this process, or so many others."""
    if processes == 1:
        yield ChunkAnswerer(job, loaded(job, tell))
        return
    with Workers(processes, job) as workers:
        yield ProcessAnswerer(workers)
