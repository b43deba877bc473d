"""Train a run: data, tokenizer, model, loop, checkpoints and logs in one directory, stoppable anywhere."""

import math
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from regard import config as settings
from regard.data import Position
from regard.data.prepared_cache import is_begun
from regard.digests import verifying
from regard.errors import ConfigError, ProcessLost, RunError, memory_errors
from regard.runs.checkpoint import newest_whole
from regard.runs.files import (
    CHECKPOINTS,
    CONFIG,
    IDENTITY,
    MODEL,
    alone_in,
    check_tokenizer,
    identity_of,
    read_json,
    whole_or_nothing,
    write_config,
)
from regard.runs.log import write_notes
from regard.tasks.config import RunConfig, overridden
from regard.tasks.planning import Plan
from regard.tasks.run import Run, choose_device, load, load_config, packs
from regard.tasks.spec import Prepared, Report, Silence, warn
from regard.trainer.machine import check_machine, own_threads
from regard.trainer.trackers import Reports, Tracked, reporting
from regard.trainer.training_request import TrainingRequest, ready
from regard.trainer.training_run import Stopped, TrainingRun, how_to_go_on
from regard.training.processes import Processes, joined, own_rank, restarted, said_once

__all__ = ["Adjust", "Stopped", "resume", "train"]

_BEFORE_TRAINING = (
    "before the first update: a model of fewer or narrower layers, or of a smaller vocabulary, takes less; `regard "
    "presets` names some"
)

Adjust = Callable[[RunConfig, Prepared], RunConfig]
"""Other settings for a run whose data is now known."""


def train(
    config: RunConfig | Plan | str | Path | None = None,
    out: str | Path | None = None,
    report: Reports = None,
    *,
    data: object = None,
    valid: object = None,
    test: object = None,
    minutes: float | int | None = None,
    start: str | Path | None = None,
    task: str | None = None,
    images: Mapping[str, Any] | None = None,
    tokenizer: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
    decode: Mapping[str, Any] | None = None,
    overrides: str | Sequence[str] = (),
    fit_memory: bool = False,
    adjust: Adjust | None = None,
    verify: bool = True,
    directory: str | Path | None = None,
) -> Run:
    """Train a new run in `out`, and return it ready to use: `regard.train("tiny", data=pairs, out="runs/first")`.

    `config` is the name of a preset, a file of settings, or what `make_config` or `plan` gave. Without it the data and
    the machine are looked at and a run is planned; `minutes` says how long it may take.

    `data`, `valid` and `test` are files or folders by name, or rows: an iterable of pairs, texts or dicts, a pandas or
    polars frame, a `datasets` dataset. Rows are written into the run, in `data/`, so that it can be resumed without
    them. A dict as `data` holds settings of that section, or the parts themselves: `{"train": rows, "valid": rows}`.

    Settings are given by section, `train={"steps": 100}, model={"width": 64}`, or as with `--set` in `overrides`.
    `report` is told how it goes: a `Report`, such as `regard.LiveCurves()`, names of trackers, `"tensorboard,wandb"`,
    or a list of both. Without a report, what is left out, cut or not as it should be is a `regard.RegardWarning`, and
    the rest is not shown.

    `start` is a run to start from. `fit_memory` first finds the largest `train.batch_tokens` that the GPU's memory
    holds, and trains with that. `adjust` may change settings of the model and of training once the data is known.
    `verify` compares what is read, a run to start from and data prepared before, with the digests that it was written
    with. `directory` is the older name of `out`.

    Processes that torchrun has started train the run together; where it starts them again after a failure, they go on.
    """
    directory = _where(out, directory)
    sections = settings.sections(
        **{"task": task, "images": images, "tokenizer": tokenizer, "model": model, "train": train, "decode": decode}
    )
    asked = TrainingRequest(data, valid, test, minutes, start, sections, settings.listed(overrides))
    with reporting(report, directory) as told, ready(config, asked, directory, told) as made:
        plan, config = (made, made.config) if isinstance(made, Plan) else (None, made)
        if plan is not None and own_rank() == 0:
            plan.tell(told)
        with verifying(verify), memory_errors(lambda: _BEFORE_TRAINING), _together(config, directory) as processes:
            if processes.rank:
                return _follow(directory, processes)
            if restarted() and (directory / CONFIG).exists():
                return _resume(load_config(directory), directory, {}, told, processes)
            return _train(config, directory, told, fit_memory, adjust, processes, plan)


def _where(out: str | Path | None, directory: str | Path | None) -> Path:
    if (out is None) == (directory is None):
        raise ConfigError("out is missing: the directory to make the run in" if out is None else "give out alone")
    return settings.path_of(directory if out is None else out, "out")


@contextmanager
def _together(config: RunConfig, directory: Path) -> Iterator[Processes]:
    """The processes that train together, of which a failure is said once, with how to go on."""
    with said_once(), own_threads():
        try:
            with joined(choose_device(config.train.device), config.train.process_timeout) as processes:
                yield processes
        except ProcessLost as error:
            if not (directory / CONFIG).exists():
                raise
            raise ProcessLost(f"{error}; all have ended; {how_to_go_on(directory)}") from None


def _follow(directory: Path, processes: Processes) -> Run:
    """Train along with the first process, once it has prepared the data."""
    told = processes.wait_for_first()
    config = RunConfig.of(told["config"])
    config, prepared = config.kind.prepare(config, directory, Silence(), new=False)
    training = TrainingRun(config, directory, prepared, Silence(), processes)
    if (timing := told.get("timing")) is not None:
        training.timed(*timing)
        training.adopt(RunConfig.of(processes.from_first(None)))
        training.follow()
    if told["checkpoint"]:
        training.restore(directory / CHECKPOINTS / told["checkpoint"])
    return _gone(training)


def _gone(training: TrainingRun) -> Run:
    """Train, and load what all have trained."""
    training.go()
    training.processes.total()  # the first process has written it
    return load(training.directory, training.config.train.device)


def _train(
    config: RunConfig,
    directory: Path,
    report: Tracked,
    fit_memory: bool,
    adjust: Adjust | None,
    processes: Processes,
    plan: Plan | None = None,
) -> Run:
    began = time.monotonic()
    check_free(directory)
    config.check()
    if config.train.start_from == "":
        raise ConfigError(
            "this configuration fine-tunes a run that is there already: name it with --from RUN (train.start_from)"
        )
    config.kind.check_files(config, partial(warn, report))
    check_machine(config, fit_memory)
    if fit_memory and processes.world > 1:
        raise ConfigError(
            f"--fit tries the memory of one GPU; with {processes.world} processes set train.batch_tokens, which is "
            f"that of all together, to as many times what it finds for one"
        )
    timing = None if plan is None or plan.minutes is None else (plan.minutes, plan.asked)
    with (
        processes.first_works() as tell,
        whole_or_nothing(directory, is_begun, partial(warn, report)),
    ):  # as a long preparation may be
        check_free(directory)  # another process may have been faster
        config, prepared = config.kind.prepare(config, directory, report, new=True)
        config = prepared.config = _with_steps(config, prepared)
        if adjust is not None:
            config = prepared.config = adjust(config, prepared)
        training = TrainingRun(config, directory, prepared, report, processes)
        if fit_memory:
            config = training.fit_memory()
            config = training.config = prepared.config = _with_steps(config, prepared)
        if timing is not None:  # by all processes together, as they will train
            tell({"config": config.to_mapping(), "checkpoint": None, "timing": timing})
        if plan is not None:
            config = training.planned(plan, None if timing is None else training.timed(*timing), began)
        training.identify(identity_of(config.to_mapping(), training.progress.data))
        write_config(directory, config.to_mapping(), training.progress.run)
        write_notes(directory, report.warnings, partial(warn, report))
    if timing is not None:
        processes.from_first(config.to_mapping())
    else:
        tell({"config": config.to_mapping(), "checkpoint": None})
    with alone_in(directory):
        return _gone(training)


def _with_steps(config: RunConfig, prepared: Prepared) -> RunConfig:
    """The configuration with as many updates as its epochs take, where it counts in epochs."""
    options = config.train
    if not options.epochs:
        return config
    pack = packs(config.architecture()[1], options.pack, choose_device(options.device))
    with closing(prepared.stream(Position(), pin=False, pack=pack)) as stream:
        batches = options.epochs * stream.batches()
    return replace(config, train=replace(options, steps=max(1, math.ceil(batches / options.accumulate))))


def check_free(directory: Path) -> None:
    """Refuse a directory that holds a run."""
    if (directory / CONFIG).exists():
        raise RunError(f"{directory} already holds a run: choose another directory, or continue it with --resume")


def resume(
    directory: str | Path,
    overrides: str | Sequence[str] = (),
    report: Reports = None,
    *,
    train: Mapping[str, Any] | None = None,
    decode: Mapping[str, Any] | None = None,
    verify: bool = True,
) -> Run:
    """Go on with the run in `directory` from its last checkpoint, exactly as if it had never stopped.

    `train` and `decode` may change settings of these sections, such as `train={"steps": 20000}` to train for longer;
    `overrides` are the same as with `--set`. `report` is told how it goes, as in `train`. `verify` compares the
    checkpoint, the weights and the prepared data with the digests that they were written with; a damaged checkpoint is
    set aside, and the one before it taken up.
    """
    directory = settings.path_of(directory, "the run to resume")
    layer = settings.override(settings.sections(train=train, decode=decode), settings.listed(overrides))
    with verifying(verify), memory_errors(lambda: _BEFORE_TRAINING), said_once():
        config = load_config(directory)
        with reporting(report, directory) as told, _together(config, directory) as processes:
            if processes.rank:
                return _follow(directory, processes)
            return _resume(config, directory, layer, told, processes)


def _resume(config: RunConfig, directory: Path, layer: Mapping[str, Any], report: Report, processes: Processes) -> Run:
    changed = settings.by_name(layer)
    if changed:
        whole = {name: f"{name}={value}" for name, value in changed.items()}
        if strange := [said for name, said in whole.items() if not name.startswith(("train.", "decode."))]:
            raise ConfigError(f"'{strange[0]}' cannot change in a run that has begun; only train.* and decode.* can")
        if begun := [said for name, said in whole.items() if name in ("train.start_from", "train.vectors")]:
            raise ConfigError(f"'{begun[0]}' says what a run starts from; this one has begun")
        config = RunConfig.of(overridden(config.to_mapping(), layer))
        config.check()
    check_machine(config)
    with alone_in(directory, partial(warn, report)):
        with processes.first_works() as tell:
            identity = read_json(directory / CONFIG).get(IDENTITY)
            found = newest_whole(directory / CHECKPOINTS, partial(warn, report), identity)
            recount = "train.epochs" in changed
            training = _resumed(config, directory, found, report, processes, recount=recount)
            training.identify(identity)
            if changed:
                write_config(directory, training.config.to_mapping(), identity)
        tell({"config": training.config.to_mapping(), "checkpoint": found.name if found else None})
        return _gone(training)


def _resumed(
    config: RunConfig, directory: Path, found: Path | None, report: Report, processes: Processes, *, recount: bool
) -> TrainingRun:
    if not found and (directory / MODEL).exists():
        raise RunError(
            f"{directory} has a model but no checkpoint to resume, as where it was imported; train on from it in a new "
            f"run: regard train --from {shlex.quote(str(directory))} --data FILES --out RUN"
        )
    check_tokenizer(directory)
    if not found:
        report.say("no checkpoint yet: starting from the first step")
    config, prepared = config.kind.prepare(config, directory, report, new=False)
    if recount:
        config = prepared.config = _with_steps(config, prepared)
    training = TrainingRun(config, directory, prepared, report, processes)
    if found:
        training.restore(found)
    return training
