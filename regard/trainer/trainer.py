"""Train a run: data, tokenizer, model, loop, checkpoints and logs in one directory, stoppable anywhere."""

import math
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from regard import config as settings
from regard.config import JsonObject
from regard.data import Loader, Position
from regard.data.prepared_cache import whole_batches
from regard.data.sharing import Idle, Share, share
from regard.digests import verifying
from regard.errors import ConfigError, Diverged, NotWritten, ProcessLost, RegardError, RunError, memory_errors
from regard.nn.batch import padding
from regard.runs.checkpoint import Progress, checkpoints, load_weights_strictly, newest_whole, weights_of
from regard.runs.files import CHECKPOINTS, CONFIG, MODEL, alone_in, whole_or_nothing, write_json, write_text
from regard.runs.log import Log, NoLog
from regard.tasks.config import RunConfig, overridden
from regard.tasks.corpora import PreparedData, data_digest
from regard.tasks.planning import PLAN, Plan, TimeBudget, Timing, in_updates, most_updates, steps_for, validations_for
from regard.tasks.run import Run, build_model, choose_device, choose_precision, load, load_config, packs
from regard.tasks.spec import FollowsUpdates, Prepared, Report, Silence, Stream, TellsOutputs
from regard.trainer.batch_size import BatchSizeFinder, HasTrialBatches
from regard.trainer.checkpointing import Checkpointer
from regard.trainer.doctor import guard_rails
from regard.trainer.initialize import initialize_model
from regard.trainer.machine import check_machine, deterministic_algorithms, stop_signals
from regard.trainer.trackers import Reports, reporting
from regard.trainer.training_request import TrainingRequest, ready
from regard.training.config import lower_is_better
from regard.training.cuda_graphs import GraphReplay
from regard.training.loop import Step, fit, validate
from regard.training.objectives import Objective, compiled
from regard.training.optim import ExponentialAverage, make_optimizer
from regard.training.processes import ONE, Processes, joined, restarted, said_once
from regard.training.schedule import DropoutUntil, learning_rate
from regard.training.sharding import ShardedObjective, whole

SECONDS = 30.0
"""How long a training goes on at most without telling how it goes, unless one update takes longer."""


TIMED_UPDATES, TIMED_SHARE, TIMED_SECONDS, MOST_TIMED = 3, 0.015, 7.5, 4
"""Updates are timed to turn minutes into updates: so many at the least, for this share of the minutes and at the most
so long, until two stretches on end took the same within `SAME`, as the first updates load and compile what later ones
have; or so many times as long."""
SAME = 0.15

_BEFORE_TRAINING = (
    "before the first update: a model of fewer or narrower layers, or of a smaller vocabulary, takes less; `regard "
    "presets` names some"
)


class Stopped(RegardError):
    """Training was asked to stop, and has saved where it was."""

    exit_code = 130


class Throughput:
    """Tokens per second of training alone, validation and saving left out."""

    def __init__(self) -> None:
        self.tokens = 0
        self._since, self._paused, self._trained = time.monotonic(), 0.0, 0.0

    def pause(self, seconds: float) -> None:
        """Leave so many seconds out."""
        self._paused += seconds

    def read(self) -> dict[str, float]:
        """The speed since the last lap, and the seconds trained in all."""
        seconds = self._seconds(time.monotonic())
        return {"tokens_per_second": round(self.tokens / seconds, 1), "seconds": round(self._trained + seconds, 2)}

    def lap(self) -> dict[str, float]:
        """The same, and a new lap begins."""
        values, now = self.read(), time.monotonic()
        self._trained += self._seconds(now)
        self._since, self._paused, self.tokens = now, 0.0, 0
        return values

    def seconds(self) -> float:
        """Those since the last lap."""
        return self._seconds(time.monotonic())

    def _seconds(self, now: float) -> float:
        return max(1e-9, now - self._since - self._paused)


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
    or a list of both. `start` is a run to start from. `fit_memory` first finds the largest `train.batch_tokens` that
    the GPU's memory holds, and trains with that. `adjust` may change settings of the model and of training once the
    data is known. `verify` compares what is read, a run to start from and data prepared before, with the digests that
    it was written with. `directory` is the older name of `out`.

    Processes that torchrun has started train the run together; where it starts them again after a failure, they go on.
    """
    directory = _where(out, directory)
    sections = settings.sections(
        **{"task": task, "images": images, "tokenizer": tokenizer, "model": model, "train": train, "decode": decode}
    )
    asked = TrainingRequest(data, valid, test, minutes, start, sections, settings.listed(overrides))
    with reporting(report, directory) as told, ready(config, asked, directory, told) as made:
        plan, config = (made, made.config) if isinstance(made, Plan) else (None, made)
        with verifying(verify), memory_errors(lambda: _BEFORE_TRAINING), _together(config, directory) as processes:
            if processes.rank:
                return _follow(directory, processes)
            if restarted() and (directory / CONFIG).exists():
                return _resume(load_config(directory), directory, {}, told, processes)
            return _train(config, directory, told, fit_memory, adjust, processes, plan)


def _where(out: str | Path | None, directory: str | Path | None) -> Path:
    if (out is None) == (directory is None):
        raise ConfigError("out is missing: the directory to make the run in" if out is None else "give out alone")
    return Path(directory if out is None else out)  # type: ignore[arg-type]


@contextmanager
def _together(config: RunConfig, directory: Path) -> Iterator[Processes]:
    """The processes that train together, of which a failure is said once, with how to go on."""
    with said_once():
        try:
            with joined(choose_device(config.train.device), config.train.process_timeout) as processes:
                yield processes
        except ProcessLost as error:
            if not (directory / CONFIG).exists():
                raise
            raise ProcessLost(f"{error}; all have ended; {_again(directory)}") from None


def _again(directory: Path) -> str:
    return f"continue with: regard train --resume {shlex.quote(str(directory))}"


def _follow(directory: Path, processes: Processes) -> Run:
    """Train along with the first process, once it has prepared the data."""
    told = processes.wait_for_first()
    config = RunConfig.of(told["config"])
    config, prepared = config.kind.prepare(config, directory, Silence(), new=False)
    training = _Trainer(config, directory, prepared, Silence(), processes)
    if (seconds := told.get("timing")) is not None:
        training.timed(seconds)
        training.adopt(RunConfig.of(processes.from_first(None)))
    if told["checkpoint"]:
        training.restore(directory / CHECKPOINTS / told["checkpoint"])
    return _gone(training)


def _gone(training: "_Trainer") -> Run:
    """Train, and load what all have trained."""
    training.go()
    training.processes.total()  # the first process has written it
    return load(training.directory, training.config.train.device)


def _train(
    config: RunConfig,
    directory: Path,
    report: Report,
    fit_memory: bool,
    adjust: Adjust | None,
    processes: Processes,
    plan: Plan | None = None,
) -> Run:
    began = time.monotonic()
    _check_free(directory)
    config.check()
    if config.train.start_from == "":
        raise ConfigError(
            "this configuration fine-tunes a run that is there already: name it with --from RUN (train.start_from)"
        )
    config.kind.check_files(config, report.say)
    check_machine(config, fit_memory)
    if fit_memory and processes.world > 1:
        raise ConfigError(
            f"--fit tries the memory of one GPU; with {processes.world} processes set train.batch_tokens, which is "
            f"that of all together, to as many times what it finds for one"
        )
    timing = None if plan is None or plan.minutes is None else min(TIMED_SECONDS, TIMED_SHARE * 60 * plan.minutes)
    if timing is not None and processes.world > 1 and config.train.shard:
        raise ConfigError(
            "--minutes times updates and takes them back, which train.shard=true does not do: give --set train.steps=N"
        )
    with processes.first_works() as tell, whole_or_nothing(directory):
        _check_free(directory)  # another process may have been faster
        config, prepared = config.kind.prepare(config, directory, report, new=True)
        config = prepared.config = _with_steps(config, prepared)
        if adjust is not None:
            config = prepared.config = adjust(config, prepared)
        training = _Trainer(config, directory, prepared, report, processes)
        if fit_memory:
            config = training.fit_memory()
            config = training.config = prepared.config = _with_steps(config, prepared)
        if timing is not None:  # by all processes together, as they will train
            tell({"config": config.to_mapping(), "checkpoint": None, "timing": timing})
        if plan is not None:
            config = training.planned(plan, None if timing is None else training.timed(timing), began)
        write_json(directory / CONFIG, config.to_mapping())
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


def _check_free(directory: Path) -> None:
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
    `overrides` are the same as with `--set`. `verify` compares the checkpoint, the weights and the prepared data with
    the digests that they were written with; a damaged checkpoint is set aside, and the one before it taken up.
    """
    directory = Path(directory)
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
    with alone_in(directory):
        with processes.first_works() as tell:
            found = newest_whole(directory / CHECKPOINTS, report.say)
            recount = "train.epochs" in changed
            training = _resumed(config, directory, found, report, processes, recount=recount)
            if changed:
                write_json(directory / CONFIG, training.config.to_mapping())
        tell({"config": training.config.to_mapping(), "checkpoint": found.name if found else None})
        return _gone(training)


def _resumed(
    config: RunConfig, directory: Path, found: Path | None, report: Report, processes: Processes, *, recount: bool
) -> "_Trainer":
    if not found and (directory / MODEL).exists():
        raise RunError(
            f"{directory} has a model but no checkpoint to resume, as where it was imported; train on from it in a new "
            f"run: regard train --from {shlex.quote(str(directory))} --data FILES --out RUN"
        )
    if not found:
        report.say("no checkpoint yet: starting from the first step")
    config, prepared = config.kind.prepare(config, directory, report, new=False)
    if recount:
        config = prepared.config = _with_steps(config, prepared)
    training = _Trainer(config, directory, prepared, report, processes)
    if found:
        training.restore(found)
    return training


@contextmanager
def _hushed(prepared: Prepared) -> Iterator[None]:
    """Validations tell nothing of what they write."""
    if not isinstance(prepared, TellsOutputs):
        yield
        return
    told, prepared.report = prepared.report, Silence()
    try:
        yield
    finally:
        prepared.report = told


class _Trainer:
    """The state of one training run while it runs."""

    def __init__(
        self, config: RunConfig, directory: Path, prepared: Prepared, report: Report, processes: Processes = ONE
    ) -> None:
        self.config, self.directory, self.prepared, self.report = config, directory, prepared, report
        self.processes, self.objective = processes, prepared.objective
        options = config.train
        if options.threads:
            torch.set_num_threads(options.threads)
        self.device = choose_device(options.device)
        self.precision = choose_precision(options.precision, self.device)
        self.model = initialize_model(config, directory, report)
        self.sharded: ShardedObjective | None = None
        if options.shard and processes is not ONE:
            if drop := getattr(config.model_config(), "layer_drop", 0):
                raise ConfigError(
                    f"model.layer_drop={drop} does not go with train.shard=true: all must gather all layers"
                )
            # Moves to the device what stays of it.
            self.objective = self.sharded = ShardedObjective(prepared.objective, self.model, self.device)
            processes.sharded = True
        else:
            self.model.to(self.device)
        self.optimizer = make_optimizer(self.model, options, processes)
        self.average = ExponentialAverage(self.model, options.ema) if options.ema else None
        self.width = getattr(config.model_config(), "width", None)
        self.progress = Progress(step=0, data=data_digest(config.data))
        kept = (self.model, self.optimizer, self.average, prepared.objective)
        self.checkpointer = Checkpointer(directory, options, *kept, processes)
        self.throughput = Throughput()
        self.told = time.monotonic()
        self.split = self.idle = False
        self.rails = guard_rails(config, options.validate_sentences)
        self.waited, self.padded = 0.0, (0, 0)
        self.made: tuple[Objective, nn.Module, GraphReplay | None] | None = None
        self.budget: TimeBudget | None = None
        self.plan: Plan | None = None
        self.page = ""

    def fit_memory(self) -> RunConfig:
        """The configuration with the largest token budget that the memory holds."""
        if not isinstance(self.prepared, HasTrialBatches):
            raise ConfigError(f"--fit cannot be used with task='{self.config.task}' yet")
        options = self.config.train
        self.report.say("finding the largest batch that fits the memory")
        trial = BatchSizeFinder(
            self.model,
            self.optimizer,
            self.prepared.objective,
            self.device,
            self.precision,
            accumulate=options.accumulate,
            replays=options.cuda_graphs,
        )
        with deterministic_algorithms(options.deterministic):
            budget = trial.largest(self.prepared, pack=self._packs())
        self.report.say(f"train.batch_tokens={budget} is the most that fits")
        self.config = self.prepared.config = replace(self.config, train=replace(options, batch_tokens=budget))
        return self.config

    def planned(self, plan: Plan, timing: Timing | None, began: float) -> RunConfig:
        """The configuration with as many updates as the plan's minutes pay for by `timing`; the plan is written down.

        From then on the number of updates is a setting like any other, so that resuming is exact.
        """
        if timing is None or plan.minutes is None:
            updates = f"{self.config.train.steps:,} updates, as asked."
        else:
            most = most_updates(plan, timing.epoch)
            began -= plan.seconds
            if self.processes.world == 1:  # several would have to agree on every change
                self.budget = TimeBudget(60.0 * plan.minutes, began, most, timing.validation, timing.update)
            left = max(1.0, began + 60.0 * plan.minutes - time.monotonic())
            steps, updates = steps_for(plan, left, timing)
            checks = validations_for(left, timing)
            self.adopt(in_updates(plan, self.config, steps, checks))
            self.report.say(updates)
            if self.budget is None:
                self.report.say("the number of updates stays as timed, also where these processes get slower or faster")
        self.plan, self.page = plan, plan.with_config(self.config).page(updates)
        write_text(self.directory / PLAN, self.page)
        return self.config

    def adopt(self, config: RunConfig) -> None:
        """Train with these settings, which differ in how long and how often."""
        self.config = self.prepared.config = config
        self.checkpointer = replace(self.checkpointer, options=config.train)
        self.rails = guard_rails(config, config.train.validate_sentences)

    def timed(self, seconds: float) -> Timing:
        """What an update and a validation take, timed for so many seconds. Leaves weights and optimiser as they were.

        On a CPU one thread is timed too: where others use its cores, several threads wait for one another. The faster
        number is `train.threads` from then on, unless that was given.

        The validation is that of a model that has learnt nothing, whose outputs are as long as they may be: others take
        less.
        """
        self.report.say("timing some updates")
        weights = {name: value.detach().to("cpu", copy=True) for name, value in self.model.state_dict().items()}
        threads = torch.get_num_threads()
        update, epoch = self._timed_updates(seconds)
        free = self.processes.world == 1 and not self.config.train.threads
        if free and self.device.type == "cpu" and threads > 1:
            torch.set_num_threads(1)
            alone, _ = self._timed_updates(seconds)
            if alone < update:
                self.report.say(f"one thread is faster here than {threads}: train.threads=1")
                self.config = replace(self.config, train=replace(self.config.train, threads=1))
                self.prepared.config, update = self.config, alone
            else:
                torch.set_num_threads(threads)
        validation = self._timed_validation()
        self.optimizer.zero_grad()
        self.optimizer.state.clear()
        self.model.load_state_dict(weights)
        if self.average is not None:
            self.average = ExponentialAverage(self.model, self.config.train.ema)
            self.checkpointer = replace(self.checkpointer, average=self.average)
        self.throughput = Throughput()
        self.waited, self.padded = 0.0, (0, 0)
        return Timing(update=update, epoch=epoch, validation=validation)

    def _timed_updates(self, seconds: float) -> tuple[float, float]:
        """Seconds of an update, once they have come to be the same, and the updates of an epoch."""
        options = self.config.train
        stream = self._stream(Position())
        task, model, replay = self._compiled()
        with closing(stream), deterministic_algorithms(options.deterministic):
            steps = fit(
                model,
                task,
                self._updates(stream),
                self.optimizer,
                lambda number: 0.0,
                clip=options.clip,
                seed=options.seed,
                device=self.device,
                precision=self.precision,
                average=self.average,
                replay=replay,
                processes=self.processes,
            )
            update, began = self._stretch(steps, seconds), time.perf_counter()
            while True:
                before, update = update, self._stretch(steps, seconds)
                late = time.perf_counter() - began > MOST_TIMED * seconds
                if self._first_says(late or abs(update / before - 1) < SAME):
                    return update, stream.batches() / options.accumulate

    def _stretch(self, steps: Iterator[Step], seconds: float) -> float:
        """What an update takes, of those of so many seconds."""
        began, made = time.perf_counter(), 0
        while True:
            step, made = next(steps), made + 1
            if self._first_says(made >= TIMED_UPDATES and time.perf_counter() - began > seconds):
                float(step.loss)  # a GPU has done it only when someone has read it
                return (time.perf_counter() - began) / made

    def _first_says(self, yes: bool) -> bool:
        """What the first process decides by its clock, so that all do the same."""
        return any(self.processes.total(yes and self.processes.rank == 0))

    def _timed_validation(self) -> float:
        """Seconds of a validation; what a model that has learnt nothing writes is not told."""
        if (batches := self.prepared.validation()) is None:
            return 0.0
        with _hushed(self.prepared):
            return self._validate(batches)["seconds"]

    def restore(self, checkpoint: Path) -> None:
        """Go on from where a checkpoint was saved."""
        before = self.checkpointer.restore(checkpoint, self.report.say)
        if before.data not in (None, self.progress.data):
            self.report.say("the training data is not what it was: from here on this is another run")
        self.progress = replace(before, data=self.progress.data)

    def go(self) -> None:
        """Train to the end, or to where a signal, a divergence or patience ends it."""
        options, begun = self.config.train, self.progress.step
        if self._done():
            self.report.say(f"the run is finished: {begun} steps")
            ending = self.checkpointer.finish(self.progress)  # it may have been killed before it had come to its end
            if ending.rewritten:
                self.report.say("its model was not yet the one to use and has been written")
            if ending.which is not None:
                self.report.say(ending.which)
            return
        if begun:
            self.report.say(f"continuing from step {begun} of {options.steps}{self._by_whom()}")
            if self.checkpointer.mend():
                self.report.say(f"its {MODEL} was missing or damaged and has been made again from step {begun}")
        else:
            times = f", {options.epochs:g} epoch" + "s" * (options.epochs != 1) if options.epochs else ""
            self.report.say(f"training for {options.steps} steps{times}{self._by_whom()}")
        if not begun and options.warmup_steps > options.steps:
            self.report.say(f"the rate will not reach its peak: train.warmup={options.warmup} is more than train.steps")
        self._updated(begun)
        if self.processes.from_first(begun) != begun:
            raise RunError(f"the processes do not see the same checkpoints in {self.directory}: it must be shared")
        if self.sharded is None:
            self.processes.spread(list(weights_of(self.model).values()))
        if options.shard and self.sharded is None:
            self.report.say("train.shard=true changes nothing here: one process alone keeps all")
        log: Log | NoLog = NoLog()
        if self.processes.rank == 0:
            log = Log(self.directory, resume_at=begun or None, tensorboard=options.tensorboard, say=self.report.say)
        stop: Callable[[], bool] = bool
        try:
            with (
                stop_signals() as stop,
                deterministic_algorithms(options.deterministic),
                memory_errors(self._less_memory),
            ):
                self._loop(log, stop)
            if (which := self.checkpointer.finish(self.progress).which) is not None:
                self.report.say(which)
        except RuntimeError as error:
            if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                raise
            if stop():  # a signal to all of a terminal's processes ends the compiler too
                raise Stopped(
                    f"stopped while compiling, after step {self.progress.step}; {_again(self.directory)}"
                ) from None
            reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise RunError(
                f"torch could not compile the model: {reason}; go on without: regard train --resume "
                f"{shlex.quote(str(self.directory))} --set train.compile=false --set train.compile_blocks=false"
            ) from error
        finally:
            log.close()

    def _loop(self, log: "Log | NoLog", stop: Callable[[], bool]) -> None:
        options = self.config.train
        position = Position(self.progress.epoch, self.progress.index)
        stream = self._stream(position)
        task, model, replay = self._compiled()
        with closing(stream):
            steps = fit(
                model,
                task,
                self._updates(stream),
                self.optimizer,
                self._learning_rate,
                start=self.progress.step,
                clip=options.clip,
                seed=options.seed,
                device=self.device,
                precision=self.precision,
                average=self.average,
                before=self._before(replay),
                replay=replay,
                processes=self.processes,
            )
            for step in steps:
                self.progress = replace(
                    self.progress, step=step.number, epoch=stream.position.epoch, index=stream.position.index
                )
                self._updated(step.number)
                self._after(step, log)
                if self._done():
                    break
                (stopping,) = self.processes.total(stop())
                if stopping:
                    self._check_finite(step)
                    self._save(must=True)
                    self.processes.total()  # a process that ends before the first has saved would end that too
                    raise Stopped(f"stopped at step {step.number} and saved; {_again(self.directory)}")

    def _less_memory(self) -> str:
        return (
            f"after step {self.progress.step}; a lower train.batch_tokens with a higher train.accumulate trains the "
            f"same in less, and a smaller model takes less"
        )

    def _by_whom(self) -> str:
        """How many processes train, where there are several."""
        if self.processes.world == 1:
            return ""
        what = "a shard" if self.sharded is not None else "a copy"
        return f" in {self.processes.world} processes, {what} of the model in each"

    def _before(self, replay: GraphReplay | None) -> Callable[[int], None] | None:
        """What to do before each update."""
        if not self.config.train.dropout_until:
            return None
        dropout = DropoutUntil(self.model, self.config.train.dropout_until)

        def before(number: int) -> None:
            if dropout(number) and replay is not None:
                replay.forget()

        return before

    def _packs(self) -> bool:
        return packs(type(self.model), self.config.train.pack, self.device)

    def _compiled(self) -> tuple[Objective, nn.Module, GraphReplay | None]:
        """Objective and model, compiled as asked: for one shape where batches have one, for any length where padded;
        and what replays them. Made once, so that what was compiled and captured to be timed serves training too."""
        if self.made is None:
            one_shape = self._packs() or self.config.kind.one_shape
            task, model = compiled(self.objective, self.model, self.config.train, dynamic=not one_shape)
            replays = self.config.train.cuda_graphs and self.device.type == "cuda"
            replay = GraphReplay(model, task, self.device, self.precision) if replays else None
            self.made = task, model, replay
        return self.made

    def _done(self) -> bool:
        options = self.config.train
        tired = bool(options.patience) and self.progress.stale >= options.patience
        return self.progress.step >= options.steps or tired

    def _stream(self, position: Position) -> Stream:
        """The run's batches, or of several processes this one's shares of them."""
        where = {"pin": self.device.type == "cuda", "pack": self._packs()}
        prepared: Any = self.prepared
        if self.processes.world > 1 and isinstance(prepared, PreparedData):
            share = Share(self.processes.rank, self.processes.world, self.config.train.accumulate)
            return prepared.stream(position, **where, share=share)
        return self.prepared.stream(position, **where)

    def _shares(self, stream: Stream) -> list[Any]:
        """This process's shares of the next update."""
        if isinstance(stream, Loader) and stream.share is not None:
            return [next(stream) for _ in range(stream.parts)]
        parts = [next(stream) for _ in range(self.config.train.accumulate)]
        return share(parts, self.processes.rank, self.processes.world)

    def _updates(self, stream: Stream) -> Iterator[list[Any]]:
        """This process's shares of one update after the other."""
        while True:
            began = time.monotonic()
            shares = self._shares(stream)
            self.waited += time.monotonic() - began
            for part in shares:
                hidden, places = (0, 0) if isinstance(part, Idle) else padding(part)
                self.padded = self.padded[0] + hidden, self.padded[1] + places
            tokens = sum(part.tokens for part in shares if not isinstance(part, Idle))
            (tokens_of_all,) = self.processes.total(tokens)
            self.throughput.tokens += int(tokens_of_all)
            if not self.idle and any(isinstance(part, Idle) for part in shares):
                self.idle = True
                self.report.say(
                    f"a batch has fewer rows than there are processes ({self.processes.world}), so not all have work "
                    f"in it, nor in others like it; a higher train.batch_tokens, or fewer processes, would be faster"
                )
            yield shares

    def _learning_rate(self, step: int) -> float:
        options = self.config.train
        return learning_rate(
            step,
            kind=options.schedule,
            peak=options.learning_rate,
            warmup=options.warmup_steps,
            total=options.steps,
            width=self.width,
            floor=options.floor,
            decay=options.decay,
        )

    def _after(self, step: Step, log: "Log | NoLog") -> None:
        """Log, validate and save where it is time."""
        options = self.config.train
        if step.splits and not self.split:
            self.split = True
            self.report.say(
                f"a batch of step {step.number} did not fit the memory and was split, as others like it will be; "
                f"a lower train.batch_tokens would be faster"
            )
        due = step.number % options.log_every == 0 or step.number == options.steps
        if self.device.type == "cpu" or due:
            self._check_finite(step)
        if due:
            values = {**self._values(step), **self._lap()}
            log.write("train", step.number, values)
            self._guard("train", step.number, values)
            self._tell(step, values)
        elif time.monotonic() - self.told > SECONDS:
            # For whoever waits. The log has the same steps however fast the machine is.
            self._tell(step, {**self._values(step), **self.throughput.read()})
        better = False
        if step.number % options.validate_every == 0 or step.number == options.steps:
            batches = self.prepared.validation()
            better = batches is not None and self._note_validation(self._validate(batches), log)
        if step.number % options.save_every == 0 or self._done() or (better and options.choose == "best"):
            self._check_finite(step)
            self._save(must=self._done())
        if self.budget is not None and not self._done() and self.budget.due(step.number, options.steps):
            self._keep_to_budget(step)

    def _keep_to_budget(self, step: Step) -> None:
        """Make fewer updates where they have become slow, or more where they are faster than when they were timed.

        What has been saved by then is what the new number goes on from, so a run that is stopped later resumes exactly.
        """
        assert self.budget is not None
        assert self.plan is not None
        float(step.loss)  # which a GPU may still be busy with
        options = self.config.train
        steps = self.budget.steps(step.number, options)
        if steps == options.steps:
            return
        line = (
            f"an update takes {1000 * self.budget.update:.1f} ms: {steps:,} updates rather than {options.steps:,} go "
            f"into {self.budget.seconds:.0f} s"
        )
        self._check_finite(step)
        self._save(must=False)
        checks = round(options.steps / options.validate_every)
        self.config = self.prepared.config = in_updates(self.plan, self.config, steps, max(1, checks))
        self.checkpointer = replace(self.checkpointer, options=self.config.train)
        self.page += f"\nAt update {step.number:,}: {line}.\n"
        write_json(self.directory / CONFIG, self.config.to_mapping())
        write_text(self.directory / PLAN, self.page)
        self.report.say(line)

    def _note_validation(self, values: dict[str, float], log: "Log | NoLog") -> bool:
        """Note a validation; whether it is the best so far."""
        step, best = self.progress.step, self.progress.best
        reached = self._reached(values)
        # Scores of few texts are often equal: the later weights, of a lower rate, are then the better ones.
        better = best is None or reached < best or (reached == best and self.config.train.select_by != "loss")
        stale = 0 if best is None or reached < best else self.progress.stale + 1
        self.progress = replace(self.progress, stale=stale)
        if better:
            self.progress = replace(self.progress, best=reached, best_step=step)
        if self.budget is not None:
            self.budget.validation = values["seconds"]
        log.write("validation", step, values)
        self.report.validation({"step": step, **values})
        self._guard("validation", step, values)
        return better

    def _lap(self) -> dict[str, float]:
        """Speed since the last lap, and what of it was waiting for data and what of the batches is padding."""
        hidden, places = self.padded
        shares = {"waiting": round(min(1.0, self.waited / self.throughput.seconds()), 3)}
        shares |= {"padding": round(hidden / places, 3)} if hidden else {}
        self.waited, self.padded = 0.0, (0, 0)
        return {**self.throughput.lap(), **shares}

    def _guard(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        for warning in self.rails.record(kind, step, values):
            self.report.say(f"{warning.kind}: {warning.line}")

    def _reached(self, values: Mapping[str, float]) -> float:
        """What validations are told apart by, less being better: the score that was asked for, turned round, or the
        likelihood where the objective says it, else the loss."""
        name = self.config.train.select_by
        if name == "loss":
            return values.get("nll", values["loss"])
        if name not in values:
            raise ConfigError(f"train.select_by='{name}' is none of what a validation says: {', '.join(values)}")
        return values[name] if lower_is_better(name) else -values[name]

    def _values(self, step: Step) -> JsonObject:
        parts = {name: float(value) for name, value in step.parts.items()}
        return {
            "loss": float(step.loss),
            **parts,
            "grad_norm": float(step.grad_norm),
            "learning_rate": step.learning_rate,
            "epoch": self.progress.epoch,
        }

    def _tell(self, step: Step, values: JsonObject) -> None:
        self.told = time.monotonic()
        self.report.step({"step": step.number, **values}, self.config.train.steps)

    def _updated(self, number: int) -> None:
        if isinstance(self.report, FollowsUpdates):
            self.report.updated(number, self.config.train.steps)

    def _check_finite(self, step: Step) -> None:
        if bool(torch.isfinite(step.loss)) and bool(torch.isfinite(step.grad_norm)):
            return
        figures = f"loss {float(step.loss):g}, gradient norm {float(step.grad_norm):g}"
        self._diverged(step.number, figures)

    def _diverged(self, number: int, figures: str) -> NoReturn:
        kept = checkpoints(self.directory / CHECKPOINTS)
        last = f"the last good checkpoint is {kept[-1].name}" if kept else "there was no checkpoint yet"
        raise Diverged(
            f"training diverged at step {number}: {figures}; {last}. Try a lower train.learning_rate, a longer "
            f"train.warmup, train.clip=1.0 or train.precision=float32"
        )

    def _validate(self, batches: Iterable[Any]) -> dict[str, float]:
        began = time.monotonic()
        # What was compiled for training's batches would be compiled again for these.
        eager = torch.compiler.set_stance("force_eager") if self.config.train.compile_blocks else nullcontext()
        averaged = nullcontext() if self.average is None else self.average.applied()
        with averaged, eager:
            values = validate(
                self.model,
                self.objective,
                whole_batches(batches),
                device=self.device,
                precision=self.precision,
                processes=self.processes,
            )
            if self.sharded is not None:
                self.sharded.give_up()
            if math.isnan(values["loss"]):  # an update may spoil the weights after its own loss was still a number
                self._diverged(self.progress.step, "the validation loss is not a number")
            values |= self._scores()
        self.model.train()
        self._paused(time.monotonic() - began)
        # Whether it was the best is decided by the first process's figures in all.
        return self.processes.from_first(values | {"seconds": time.monotonic() - began})

    def _scores(self) -> dict[str, float]:
        """The task's own scores; of a model in shards from a whole copy of it, which lives as long as that takes."""
        if self.sharded is None:
            return self.prepared.scores(self.model)
        if getattr(self.prepared.scores, "__func__", None) is PreparedData.scores:  # which has none
            return {}
        copy = build_model(self.config)
        weights = {name: whole(tensor.detach()).cpu() for name, tensor in weights_of(self.model).items()}
        load_weights_strictly(copy, weights, self.directory)
        return self.prepared.scores(copy.to(self.device).eval())

    def _save(self, *, must: bool) -> None:
        """Save a checkpoint. Where that cannot be, training goes on with the one before, unless it `must` be now."""
        began = time.monotonic()
        try:
            self.progress = self.checkpointer.save(self.progress)
        except NotWritten as error:
            kept: list[Path] = []
            with suppress(OSError):  # the disk may have gone
                kept = checkpoints(self.directory / CHECKPOINTS)
            last = f"the last checkpoint is {kept[-1].name}" if kept else "there is no checkpoint yet"
            if must:
                raise NotWritten(f"{error} at step {self.progress.step}; {last}: {_again(self.directory)}") from None
            self.report.say(f"{error} at step {self.progress.step}; {last}; training goes on to the next save")
        self._paused(time.monotonic() - began)

    def _paused(self, seconds: float) -> None:
        """Seconds in which nothing was trained."""
        self.throughput.pause(seconds)
        if self.budget is not None:
            self.budget.paused += seconds
