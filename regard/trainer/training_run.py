"""One training run while it runs: updates, validations, checkpoints and what is said, to its end or to a signal."""

import math
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from regard.config import JsonObject
from regard.data import Loader, Position
from regard.data.prepared_cache import whole_batches
from regard.data.sharing import Idle, Share, share
from regard.errors import ConfigError, Diverged, NotWritten, RegardError, RunError, memory_errors
from regard.nn.batch import StreamedWindows
from regard.runs.checkpoint import Progress, checkpoints, load_weights_strictly, weights_of
from regard.runs.files import CHECKPOINTS, CONFIG, MODEL, write_config, write_text
from regard.runs.log import Log, NoLog, read_log
from regard.tasks.config import RunConfig
from regard.tasks.corpora import PreparedData, data_digest
from regard.tasks.planning import PLAN, Decision, Plan, updates_in_words
from regard.tasks.run import build_model, choose_device, choose_precision, packs
from regard.tasks.spec import FollowsUpdates, Prepared, Report, Silence, Stream, TellsOutputs, warn
from regard.trainer.batch_size import BatchSizeFinder, HasTrialBatches
from regard.trainer.checkpointing import Checkpointer
from regard.trainer.initialize import initialize_model
from regard.trainer.machine import deterministic_algorithms, stop_signals
from regard.trainer.throughput import Throughput
from regard.trainer.time_budget import (
    FAR_SLOWER,
    LEAST_UPDATES,
    SAMPLED,
    Minutes,
    TimeBudget,
    Timing,
    batches_to_time,
    in_updates,
    seconds_per_update,
    seconds_to_time,
    seconds_to_validate,
)
from regard.training.cuda_graphs import GraphReplay
from regard.training.guard_rails import GuardRails
from regard.training.loop import Step, even_part, fit, validate
from regard.training.objectives import Objective, compiled
from regard.training.optim import ExponentialAverage, make_optimizer
from regard.training.processes import ONE, Processes, local
from regard.training.schedule import DropoutUntil, learning_rate
from regard.training.selection import is_better, reached, score_of
from regard.training.sharding import ShardedObjective, whole

SECONDS = 30.0
"""How long a training goes on at most without telling how it goes, unless one update takes longer."""

LONG_SAVE = 10.0
"""Seconds after which it is said, once, that training waits for a checkpoint to be written."""


class Stopped(RegardError):
    """Training was asked to stop, and has saved where it was."""

    exit_code = 130


def how_to_go_on(directory: Path) -> str:
    return f"continue with: regard train --resume {shlex.quote(str(directory))}"


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


class TrainingRun:
    """The state of one training run while it runs, in this process of those that train it."""

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
        self.model = initialize_model(config, directory, report, prepared)
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
        self.split = self.idle = self.slow_disk = False
        self.rails = GuardRails(options)
        self.made: tuple[Objective, nn.Module, GraphReplay | None] | None = None
        self.minutes: Minutes | None = None
        self.decided = list[Decision]()
        self.scores = frozenset[str]()
        """What the last validation said beside the loss and its parts."""

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
        self.decided.append(Decision("train.batch_tokens", budget, "the most that fits the memory (--fit)"))
        self.config = self.prepared.config = replace(self.config, train=replace(options, batch_tokens=budget))
        return self.config

    def planned(self, plan: Plan, timing: Timing | None, began: float) -> RunConfig:
        """The configuration with as many updates as the plan's minutes pay for by `timing`; the plan is written down.

        From then on the number of updates is a setting like any other, so that resuming is exact. Where it was given,
        only what is counted in updates follows.
        """
        updates = updates_in_words(self.config.train.steps)
        updates = f"{plan.budget()}: {updates}." if self.config.train.epochs else f"{updates}, as asked."
        if timing is None or plan.minutes is None:
            self.adopt(in_updates(plan, self.config, self.config.train.steps))
        else:
            self.minutes = Minutes.of(plan, plan.minutes, timing, began)
            config, updates = self.minutes.first(self.config, timing)
            self.adopt(config)
            self.report.say(updates)
        write_text(self.directory / PLAN, plan.carried_out(self.config, self.decided).page(updates))
        return self.config

    def follow(self) -> None:
        """Hear from the first process when its minutes pay for another number of updates."""
        self.minutes = Minutes(None, TimeBudget(0.0, 0.0))

    def adopt(self, config: RunConfig) -> None:
        """Train with these settings, which differ in how long and how often."""
        self.config = self.prepared.config = config
        self.checkpointer = replace(self.checkpointer, options=config.train)
        self.rails = GuardRails(config.train)

    def timed(self, minutes: float | int, asked: Collection[str] = ()) -> Timing:
        """What an update and a validation take, of a run of so many minutes. Leaves weights and optimiser as they were.

        On a CPU one thread is timed too: where others use its cores, several threads wait for one another. The faster
        number is `train.threads` from then on, and `train.validate_share` what the minutes pay for of a large
        validation set, unless they are among the settings that were `asked` for.

        The validation is that of a model that has learnt nothing, whose outputs are as long as they may be: others take
        less.
        """
        self.report.say("timing some updates")
        weights = {name: local(value).detach().to("cpu", copy=True) for name, value in weights_of(self.model).items()}
        seconds = seconds_to_time(minutes)
        free = self.processes.world == 1 and "train.threads" not in asked and not self.config.train.threads
        several = free and self.device.type == "cpu" and torch.get_num_threads() > 1
        update, epoch = self._timed_threads(seconds) if several else self._timed_updates(seconds)
        if "train.validate_share" not in asked:
            self._validate_on_a_part(seconds_to_validate(minutes))
        validation = self._timed_validation()
        self.optimizer.zero_grad()
        self.optimizer.state.clear()
        with torch.no_grad():
            for name, value in weights_of(self.model).items():
                local(value).copy_(weights[name])
        if self.average is not None:
            self.average = ExponentialAverage(self.model, self.config.train.ema)
            self.checkpointer = replace(self.checkpointer, average=self.average)
        self.throughput = Throughput()
        return Timing(update=update, epoch=epoch, validation=validation)

    def _timed_threads(self, seconds: float) -> tuple[float, float]:
        """Seconds of an update with all threads or with one, whichever is faster, and the updates of an epoch."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        alone, epoch = self._timed_updates(seconds)
        torch.set_num_threads(threads)
        together, _ = self._timed_updates(seconds, most=FAR_SLOWER * alone)
        if together <= alone:
            return together, epoch
        torch.set_num_threads(1)
        self._decide("threads", 1, f"one thread is faster here than {threads}")
        return alone, epoch

    def _timed_updates(self, seconds: float, most: float = math.inf) -> tuple[float, float]:
        """Seconds of an update, timed no longer where one takes more than the `most`, and the updates of an epoch."""
        options = self.config.train
        stream = self._stream(Position())
        with closing(stream), deterministic_algorithms(options.deterministic):
            steps = self._fitted(stream, lambda number: 0.0)
            least = 1 if self.device.type == "cpu" else LEAST_UPDATES
            update = seconds_per_update(steps, seconds, self.processes, least=least, most=most)
            return update, stream.batches() / options.accumulate

    def _fitted(
        self,
        stream: Stream,
        learning_rate: Callable[[int], float],
        before: Callable[[int], None] | None = None,
    ) -> Iterator[Step]:
        """Updates on one after the other of the stream's batches, from where the run is."""
        options = self.config.train
        task, model, replay = self._compiled()
        return fit(
            model,
            task,
            self._updates(stream),
            self.optimizer,
            learning_rate,
            start=self.progress.step,
            clip=options.clip,
            seed=options.seed,
            device=self.device,
            precision=self.precision,
            average=self.average,
            before=before,
            replay=replay,
            processes=self.processes,
        )

    def _validate_on_a_part(self, most: float) -> None:
        """Have validations take the loss of an even part of the batches, where all would take more than so long."""
        began, share, line = time.monotonic(), 1.0, ""
        kept, count = batches_to_time(self.prepared.validation() or ())
        read = time.monotonic() - began
        if len(kept) < count and not isinstance(kept[0], StreamedWindows):  # which go on from one another
            with self._eager():
                self._loss_of(kept[:1])  # the first loads what the others have
                began = time.monotonic()
                self._loss_of(kept)
            whole = read + count * (time.monotonic() - began) / len(kept)
            if whole > most:
                share = max(SAMPLED / count, float(f"{most / whole:.2g}"))
                line = (
                    f"the validation loss is of an even {100 * share:.2g} % of the batches, as that of all {count:,} "
                    f"would take {whole:.0f} s each time"
                )
        share, line = self.processes.from_first((share, line))
        if share < self.config.train.validate_share:
            self._decide("validate_share", share, line)

    def _decide(self, name: str, value: Any, why: str) -> None:
        """Change a setting of training for a reason that is said here and in the plan."""
        self.report.say(f"{why}: train.{name}={value:g}")
        self.config = self.prepared.config = replace(self.config, train=replace(self.config.train, **{name: value}))
        self.decided.append(Decision(f"train.{name}", value, why))

    def _timed_validation(self) -> float:
        """Seconds of a validation; what a model that has learnt nothing writes is not told."""
        if (batches := self.prepared.validation()) is None:
            return 0.0
        with _hushed(self.prepared):
            return self._validate(batches)["seconds"]

    def restore(self, checkpoint: Path) -> None:
        """Go on from where a checkpoint was saved."""
        before = self.checkpointer.restore(checkpoint, self._warn)
        if before.data not in (None, self.progress.data):
            self._warn("the training data is not what it was: from here on this is another run")
        self.progress = replace(before, data=self.progress.data)

    def identify(self, identity: str | None) -> None:
        """Let the run's checkpoints say whose they are; None for one that older versions began."""
        self.progress = replace(self.progress, run=identity)
        self.checkpointer = replace(self.checkpointer, identity=identity)

    def go(self) -> None:
        """Train to the end, or to where a signal, a divergence or patience ends it."""
        options, begun = self.config.train, self.progress.step
        self.checkpointer = replace(self.checkpointer, settings=self.config.to_mapping())
        if self._done():
            self._end_again()
            return
        self._say_what_begins()
        self._updated(begun)
        if self.processes.from_first(begun) != begun:
            raise RunError(f"the processes do not see the same checkpoints in {self.directory}: it must be shared")
        if self.sharded is None:
            self.processes.spread(list(weights_of(self.model).values()))
        self._warn_of_settings()
        log = self._log()
        stop: Callable[[], bool] = bool
        try:
            with (
                stop_signals() as stop,
                deterministic_algorithms(options.deterministic),
                memory_errors(self._less_memory),
            ):
                self._loop(log, stop)
            if early := self._why_early():
                self.report.say(f"stopped early at step {self.progress.step} of {options.steps}{early}")
            if (which := self.checkpointer.finish(self.progress).which) is not None:
                self.report.say(which)
        except KeyboardInterrupt:
            if not stop():
                raise
            # A second signal: nothing more is begun, and what is being written is written to its end.
            self._collect(goes_on=False)
            raise Stopped(
                f"stopped at once, after step {self.progress.step}; {self._last_checkpoint()}; "
                f"{how_to_go_on(self.directory)}"
            ) from None
        except RuntimeError as error:
            if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                raise
            if stop():  # a signal to all of a terminal's processes ends the compiler too
                raise Stopped(
                    f"stopped while compiling, after step {self.progress.step}; {how_to_go_on(self.directory)}"
                ) from None
            raise RunError(self._not_compiled(error)) from error
        finally:
            try:
                self._collect(goes_on=False)  # what was begun is written to its end, also where training fails
            finally:
                log.close()

    def _end_again(self) -> None:
        """Say of a finished run that it is; it may have been killed before it had come to its end."""
        self.report.say(f"the run is finished: {self.progress.step} steps{self._why_early()}")
        ending = self.checkpointer.finish(self.progress)
        if ending.rewritten:
            self.report.say("its model was not yet the one to use and has been written")
        if ending.which is not None:
            self.report.say(ending.which)

    def _say_what_begins(self) -> None:
        options, begun = self.config.train, self.progress.step
        if begun:
            self.report.say(f"continuing from step {begun} of {options.steps}{self._by_whom()}")
            if self.checkpointer.mend():
                self._warn(f"its {MODEL} was missing or damaged and has been made again from step {begun}")
            return
        times = f", {options.epochs:g} epoch" + "s" * (options.epochs != 1) if options.epochs else ""
        steps = f"{options.steps} step" + "s" * (options.steps != 1)
        self.report.say(f"training for {steps}{times}{self._by_whom()}")
        if options.warmup_steps > options.steps:
            self._warn(f"the rate will not reach its peak: train.warmup={options.warmup} is more than train.steps")

    def _warn_of_settings(self) -> None:
        """Warn of settings that change nothing here."""
        options = self.config.train
        if options.patience and self.processes.rank == 0 and self.prepared.validation() is None:
            self._warn(f"train.patience={options.patience} never stops this run: there is nothing to validate on")
        if options.shard and self.sharded is None:
            self._warn("train.shard=true changes nothing here: one process alone keeps all")

    def _log(self) -> Log | NoLog:
        """The log, of which the guard rails have read what is there: what was said before is not said again, and losses
        of before count."""
        if self.processes.rank:
            return NoLog()
        options, begun = self.config.train, self.progress.step
        log = Log(self.directory, resume_at=begun, tensorboard=options.tensorboard, say=self._warn)
        if begun:
            for record in read_log(log.path):
                self.rails.record(record["kind"], record["step"], record)
        return log

    def _not_compiled(self, error: RuntimeError) -> str:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        return (
            f"torch could not compile the model: {reason}; go on without: regard train --resume "
            f"{shlex.quote(str(self.directory))} --set train.compile=false --set train.compile_blocks=false"
        )

    def _loop(self, log: "Log | NoLog", stop: Callable[[], bool]) -> None:
        stream = self._stream(Position(self.progress.epoch, self.progress.index))
        with closing(stream):
            for step in self._fitted(stream, self._learning_rate, self._before()):
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
                    if self.checkpointer.saving.step == step.number:  # as it was due anyway
                        self._collect(must=True)
                    else:
                        self._save(must=True)
                    self.processes.total()  # a process that ends before the first has saved would end that too
                    raise Stopped(f"stopped at step {step.number} and saved; {how_to_go_on(self.directory)}")

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

    def _before(self) -> Callable[[int], None] | None:
        """What to do before each update."""
        if not self.config.train.dropout_until:
            return None
        dropout, replay = DropoutUntil(self.model, self.config.train.dropout_until), self._compiled()[2]

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
        return self.progress.step >= self.config.train.steps or self._is_tired()

    def _is_tired(self) -> bool:
        """Whether as many validations as `train.patience` says were not better."""
        return bool(self.config.train.patience) and self.progress.stale >= self.config.train.patience

    def _why_early(self) -> str:
        """Why a run has ended before its last update, and what would let it go on; empty where it has not."""
        options, progress = self.config.train, self.progress
        if progress.step >= options.steps or not self._is_tired():
            return ""
        times = "validation" + "s" * (progress.stale != 1)
        kept = options.choose == "best" or options.average_last > 1
        hint = "" if kept else f"; train.choose=best would have kept the weights of step {progress.best_step}"
        return (
            f": {progress.stale} {times} without a better {options.select_by} than at step {progress.best_step} "
            f"(train.patience={options.patience}); to go on, resume with a higher one{hint}"
        )

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
            self.throughput.waited += time.monotonic() - began
            work = [part for part in shares if not isinstance(part, Idle)]
            (tokens_of_all,) = self.processes.total(sum(part.tokens for part in work))
            self.throughput.add(int(tokens_of_all), work)
            if not self.idle and any(isinstance(part, Idle) for part in shares):
                self.idle = True
                self._warn(
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
        if self.checkpointer.saving.wait(0.0):
            self._collect()
        if step.splits and not self.split:
            self.split = True
            self._warn(
                f"a batch of step {step.number} did not fit the memory and was split, as others like it will be; "
                f"a lower train.batch_tokens would be faster"
            )
        due = step.number % options.log_every == 0 or step.number == options.steps
        if self.device.type == "cpu" or due:
            self._check_finite(step)
        if due:
            values = {**self._values(step), **self.throughput.lap()}
            log.write("train", step.number, values)
            self._guard("train", step.number, values)
            self._tell(step, values)
        elif time.monotonic() - self.told > SECONDS:
            # For whoever waits. The log has the same steps however fast the machine is.
            self._tell(step, {**self._values(step), **self.throughput.read()})
        better = False
        if step.number % options.validate_every == 0 or step.number == options.steps:
            better = self._validate_now(log)
        if step.number % options.save_every == 0 or self._done() or (better and options.choose == "best"):
            self._check_finite(step)
            self._save(must=self._done())
        if self.minutes is not None and not self._done() and self.minutes.budget.due(step.number, options.steps):
            self._keep_to(self.minutes, step, log)

    def _keep_to(self, minutes: Minutes, step: Step, log: "Log | NoLog") -> None:
        """Make fewer updates where they have become slow, or more where they are faster than when they were timed.

        What has been saved by then is what the new number goes on from, so a run that is stopped later resumes exactly.
        Where that cannot be written the number stays as it is. Of several processes the first one's clock decides.
        """
        float(step.loss)  # which a GPU may still be busy with
        changed = minutes.other(step.number, self.config)
        told = self.processes.from_first(None if changed is None else changed.to_mapping())
        if told is None:
            return
        self._check_finite(step)
        before, after = self.config.train, RunConfig.of(told)
        if step.number // after.train.validate_every > step.number // before.validate_every:
            self._validate_now(log)  # else the next validation would be passed over
        began = time.monotonic()
        if not self.processes.from_first(self._save(wait=True) and self._written(CONFIG, after)):
            return
        minutes.budget.saving = time.monotonic() - began
        self.config = self.prepared.config = after
        self.checkpointer = replace(self.checkpointer, options=after.train, settings=after.to_mapping())
        self.rails.lasts(after.train)
        if minutes.plan is not None:
            self.report.say(minutes.note(step.number, before, after.train))
            self._written(PLAN, minutes.plan.carried_out(after, self.decided).page(minutes.updates))

    def _written(self, name: str, what: RunConfig | str) -> bool:
        """Write what has changed in the course of training; whether it was, by this process or by the first."""
        if self.processes.rank:
            return True
        try:
            if isinstance(what, str):
                write_text(self.directory / name, what)
            else:
                write_config(self.directory, what.to_mapping(), self.progress.run)
        except NotWritten as error:
            self._warn(f"{error}; training goes on for {self.config.train.steps:,} updates")
            return False
        return True

    def _validate_now(self, log: "Log | NoLog") -> bool:
        """Validate, where there is something to validate on; whether it was the best so far."""
        batches = self.prepared.validation()
        return batches is not None and self._note_validation(self._validate(batches), log)

    def _note_validation(self, values: dict[str, float], log: "Log | NoLog") -> bool:
        """Note a validation; whether it is the best so far."""
        step, name = self.progress.step, self.config.train.select_by
        found = reached(name, values)
        self._forget_other(name, values)
        best = self.progress.best
        better = is_better(name, values, best)
        stale = 0 if best is None or found < best else self.progress.stale + 1
        self.progress = replace(self.progress, stale=stale, best=found if best is None else min(best, found))
        if better:
            self.progress = replace(self.progress, best_step=step)
        if self.minutes is not None:
            self.minutes.budget.saw(values["seconds"], values["loss"])
        log.write("validation", step, values)
        self.report.validation({"step": step, **values})
        self._guard("validation", step, values)
        return better

    def _forget_other(self, name: str, values: Mapping[str, Any]) -> None:
        """Forget the best score where it is another, or of other rows, than that of this validation."""
        plain = name != "bleu" or getattr(self.prepared, "tokenize", None) == "13a"
        now = score_of(name, values, self.scores, self.config.train.validate_sentences, plain=plain)
        before, self.progress = self.progress, replace(self.progress, best_of=now)
        if before.best is not None and (before.best_of or name) != now:
            self.progress = replace(self.progress, best=None, stale=0)
            self._warn(
                f"the best score so far, of step {before.best_step}, does not compare with the {name} of step "
                f"{before.step}: it was another score, or of other rows; from here on the best counts anew"
            )

    def _guard(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        for warning in self.rails.record(kind, step, values):
            self._warn(f"{warning.kind}: {warning.line}")

    def _values(self, step: Step) -> JsonObject:
        parts = {name: float(value) for name, value in step.parts.items()}
        return {
            "loss": float(step.loss),
            **parts,
            "grad_norm": float(step.grad_norm),
            "learning_rate": step.learning_rate,
            "epoch": self.progress.epoch,
        }

    def _warn(self, text: str) -> None:
        warn(self.report, text)

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
        self._collect()
        kept = checkpoints(self.directory / CHECKPOINTS)
        last = f"the last good checkpoint is {kept[-1].name}" if kept else "there was no checkpoint yet"
        raise Diverged(
            f"training diverged at step {number}: {figures}; {last}. Try a lower train.learning_rate, a longer "
            f"train.warmup, train.clip=1.0 or train.precision=float32"
        )

    def _validate(self, batches: Iterable[Any]) -> dict[str, float]:
        began = time.monotonic()
        averaged = nullcontext() if self.average is None else self.average.applied()
        with averaged, self._eager():
            values = self._loss_of(even_part(batches, self.config.train.validate_share))
            if math.isnan(values["loss"]):  # an update may spoil the weights after its own loss was still a number
                self._diverged(self.progress.step, "the validation loss is not a number")
            scores = self._scores()
            self.scores, values = frozenset(scores), values | scores
        self.model.train()
        self._paused(time.monotonic() - began)
        # Whether it was the best is decided by the first process's figures in all.
        return self.processes.from_first(values | {"seconds": time.monotonic() - began})

    def _eager(self) -> AbstractContextManager[Any]:
        """What was compiled for training's batches would be compiled again for those of a validation."""
        return torch.compiler.set_stance("force_eager") if self.config.train.compile_blocks else nullcontext()

    def _loss_of(self, batches: Iterable[Any]) -> dict[str, float]:
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
        return values

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

    def _save(self, *, wait: bool = False, must: bool = False) -> bool:
        """Begin to save a checkpoint, once the one before is written; `wait` for its end too.

        Where it cannot be written, training goes on with the one before, unless it `must` be now. Whether it was
        written, or is being.
        """
        began = time.monotonic()
        self._collect()
        self.checkpointer.begin(self.progress)
        written = self._collect(must=must) if wait or must else True
        self._paused(time.monotonic() - began)
        return written

    def _collect(self, *, must: bool = False, goes_on: bool = True) -> bool:
        """Wait for the checkpoint that is being written, if one is, and say where it could not be; whether it was."""
        saving = self.checkpointer.saving
        if (step := saving.step) is None:
            return True
        if not saving.wait(LONG_SAVE) and not self.slow_disk:
            self.slow_disk = True
            self.report.say(f"waiting for the checkpoint of step {step}, which has taken more than {LONG_SAVE:.0f} s")
        try:
            self.progress = replace(self.progress, kept=saving.outcome().kept)
        except NotWritten as error:
            last = self._last_checkpoint()
            if must:
                raise NotWritten(f"{error} at step {step}; {last}: {how_to_go_on(self.directory)}") from None
            self._warn(f"{error} at step {step}; {last}{'; training goes on to the next save' * goes_on}")
            return False
        finally:
            while saving.notes:
                self._warn(saving.notes.pop(0))
        return True

    def _last_checkpoint(self) -> str:
        kept: list[Path] = []
        with suppress(OSError):  # the disk may have gone
            kept = checkpoints(self.directory / CHECKPOINTS)
        return f"the last checkpoint is {kept[-1].name}" if kept else "there is no checkpoint yet"

    def _paused(self, seconds: float) -> None:
        """Seconds in which nothing was trained."""
        self.throughput.pause(seconds)
        if self.minutes is not None:
            self.minutes.budget.paused += seconds
