"""What `regard.train` is asked for, to a configuration: a preset or a file, data by name or as rows, settings."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from regard import config as settings
from regard.config import JsonObject
from regard.data.iterables import is_rows, write_rows
from regard.errors import ConfigError, DataError, RunError
from regard.runs.files import CONFIG, write_errors
from regard.tasks.config import RunConfig, make_config
from regard.tasks.planning import Plan
from regard.tasks.planning import plan as make_plan
from regard.tasks.run import load_config
from regard.tasks.spec import TASKS, Report, Task, warn
from regard.training.processes import own_rank, restarted

ROWS = "data"
"""The folder in a run with the rows that Python gave."""

PARTS = {"train": "train", "valid": "valid", "validation": "valid", "test": "test"}
"""What parts of data are called, and what they are in settings."""


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """Everything that `regard.train` is given beside a configuration."""

    data: object = None
    valid: object = None
    test: object = None
    minutes: float | int | None = None
    start: str | Path | None = None
    sections: JsonObject = field(default_factory=dict)
    overrides: tuple[str, ...] = ()

    def anything(self) -> str:
        """The name of something that was given; empty where nothing was."""
        given = {"data": self.data, "valid": self.valid, "test": self.test, "minutes": self.minutes}
        given |= {"start": self.start, "overrides": self.overrides or None, **self.sections}
        return next((name for name, value in given.items() if value is not None), "")


@contextmanager
def ready(
    config: RunConfig | Plan | str | Path | None, asked: TrainingRequest, directory: Path, report: Report
) -> Iterator[RunConfig | Plan]:
    """The run as configured or planned. Rows are in its directory, and gone again where no run comes of it."""
    if isinstance(config, RunConfig | Plan):
        if name := asked.anything():
            raise ConfigError(
                f"{name} is decided by the {type(config).__name__} that is given: give it to what made that"
            )
        yield config
        return
    if config is not None and not isinstance(config, str | Path):
        raise ConfigError(
            f"a {type(config).__name__} is no configuration: give a preset's name, a .toml file, or what make_config "
            f"or plan gave; data goes into data="
        )
    if (directory / CONFIG).exists():
        if restarted():  # torchrun, after one of its processes failed
            yield load_config(directory)
            return
        raise RunError(f"{directory} already holds a run: choose another directory, or continue it with regard.resume")
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        yield _configured(config, asked, directory, report)
    except BaseException:
        if not own_rank() and not (directory / CONFIG).exists():
            shutil.rmtree(directory / ROWS, ignore_errors=True)
            for path in missing:
                with suppress(OSError):
                    path.rmdir()
        raise


def _configured(config: str | Path | None, asked: TrainingRequest, directory: Path, report: Report) -> RunConfig | Plan:
    own, parts = _parts(asked)
    rows = {part: given for part, given in parts.items() if is_rows(given)}
    files: JsonObject = {part: _names(part, given) for part, given in parts.items() if part not in rows}
    if config is None:
        sections = settings.merge(asked.sections, {"data": own} if own else {})
        for part, given in rows.items():
            _write(given, directory, part, (), report)
            files[part] = [str(_place(directory, part))]
        if "train" not in files:
            raise ConfigError("there is nothing to train on: name a preset that has its own data, or give data")
        if own_rank():
            return _of_a_follower(sections, asked.overrides)
        return make_plan(
            files["train"],
            valid=files.get("valid", ()),
            test=files.get("test", ()),
            minutes=asked.minutes,
            start=asked.start,
            overrides=asked.overrides,
            extra=sections,
        )
    if asked.minutes is not None:
        raise ConfigError(
            "minutes is for a run that is planned: with a preset or a file set train.steps or train.epochs"
        )
    # Where the rows will be, so that what is wrong with the settings is said before anything is written.
    files |= {part: [str(_place(directory, part))] for part in rows}
    begun = {"train": {"start_from": str(asked.start)}} if asked.start else {}
    extra = settings.merge(settings.merge(asked.sections, begun), {"data": {**own, **files}})
    made = make_config(config, None, asked.overrides, extra)
    if not rows:
        return made
    wanted = _columns(made.kind, made.data)
    for part, given in rows.items():
        _refuse_missing_files(part, given, wanted)
    found = [_write(given, directory, part, wanted, report) for part, given in rows.items()]
    if all({*wanted} <= {*columns} for columns in found if columns):
        return made
    # The rows have names of their own: those of the columns that hold what is wanted, where that can be told.
    told = made.kind.recognise([_place(directory, part) for part in rows])
    named = {*own, *settings.override({}, asked.overrides).get("data", {})}
    if told is None or named & {*made.kind.row_columns}:
        raise DataError(
            f"the rows have the columns {', '.join(found[0])}; a run for {made.task} reads {', '.join(wanted)}: say "
            f"which they are, data={{'train': rows, {', '.join(f'{name!r}: ...' for name in made.kind.row_columns)}}}"
        )
    warn(report, f"columns: {', '.join(f'data.{name}={value}' for name, value in told.data.items())}")
    return make_config(config, None, asked.overrides, settings.merge(extra, {"data": told.data}))


def _of_a_follower(sections: Mapping[str, Any], overrides: Sequence[str]) -> RunConfig:
    """What a process must know before the first, which alone looks at the data, tells it the run's settings: where it
    trains, and how long the processes wait for each other."""
    given = settings.override(sections, overrides).get("train", {})
    known = {name: given[name] for name in ("device", "process_timeout") if name in given}
    return make_config("tiny", extra={"train": known})  # any model will do: it is never made


def _refuse_missing_files(part: str, given: object, wanted: Sequence[str]) -> None:
    """A list of texts where rows have several values is one of file names, of which the first is not there."""
    if len(wanted) > 1 and isinstance(given, Sequence) and all(isinstance(one, str) for one in given):
        raise DataError(
            f"{part}: no such file: {given[0]!r:.60}; rows in place of files have {len(wanted)} values each "
            f"({', '.join(wanted)})"
        )


def _parts(asked: TrainingRequest) -> tuple[JsonObject, dict[str, object]]:
    """Settings of `[data]`, and what was given for each part of the data."""
    own: JsonObject = {}
    parts: dict[str, object] = {"valid": asked.valid, "test": asked.test}
    if isinstance(asked.data, Mapping) and _is_a_table(asked.data):
        parts["train"] = asked.data
    elif isinstance(asked.data, Mapping):
        for name, value in asked.data.items():
            part = PARTS.get(str(name))
            if part is not None and parts.get(part) is not None:
                raise ConfigError(f"{part} is given twice: in data and beside it")
            if part is None:
                own |= settings.sections(data={name: value})["data"]
            elif value is not None:
                parts[part] = value
    else:
        parts["train"] = asked.data
    return own, {part: given for part, given in parts.items() if given is not None}


def _is_a_table(data: Mapping[Any, Any]) -> bool:
    """Whether a dict holds columns, {"en": [...], "fr": [...]}, and neither settings nor parts of the data."""
    columns = all(isinstance(one, list | tuple) and len(one) for one in data.values())
    names = {str(name) for name in data}
    return bool(data) and columns and not (names & {*PARTS, "corpora", "mix"}) and not (names & _listed_settings())


def _listed_settings() -> set[str]:
    """The settings of any task's `[data]` whose values are lists, as the sizes of puzzles."""
    found = (one for name in TASKS for one in fields(TASKS.named(name).data))
    return {one.name for one in found if isinstance(one.default, tuple)}


def _names(part: str, given: object) -> list[str]:
    """Files and folders by name."""
    several = [given] if isinstance(given, str | Path) else given
    if not isinstance(several, list | tuple) or not all(isinstance(one, str | Path) for one in several):
        raise ConfigError(
            f"{part}={str(given)[:60]!r} is neither names of files nor rows: give a path, several, or an iterable of "
            f"pairs, texts or dicts"
        )
    return [str(one) for one in several]


def _place(directory: Path, part: str) -> Path:
    return directory / ROWS / f"{part}.jsonl"


def _columns(task: Task, data: Any) -> tuple[str, ...]:
    """What the columns of a row are called."""
    if not task.row_columns:
        raise ConfigError(f"a run for {task.name} is trained from files, not from rows in memory: give their names")
    return tuple(str(name) for setting in task.row_columns if (name := getattr(data, setting)) is not None)


def _write(given: object, directory: Path, part: str, columns: tuple[str, ...], report: Report) -> tuple[str, ...]:
    """Write rows to their place; gives the names of their columns, none in a process that leaves it to the first."""
    if own_rank():
        return ()
    path = _place(directory, part)
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    found = write_rows(given, path, columns=columns, progress=lambda rows: report.progress("writing rows", rows))
    report.say(f"{found.rows:,} rows ({', '.join(found.columns)}) are now in {path}")
    return found.columns
