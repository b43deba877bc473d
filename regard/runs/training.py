"""Train a run: data, tokenizer, model, loop, checkpoints and logs in one directory, stoppable anywhere."""

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from regard import config as settings
from regard.data import Loader, PairStore, Position, evaluation_batches, prepare
from regard.errors import ConfigError, Diverged, RegardError, RunError
from regard.nn.batch import Pairs
from regard.runs.checkpoint import (
    Progress,
    checkpoints,
    forget_checkpoints,
    load_checkpoint,
    save_checkpoint,
    weights_of,
)
from regard.runs.config import RunConfig
from regard.runs.corpora import corpus_of, training_corpus
from regard.runs.files import read_tensors, write_json, write_tensors
from regard.runs.log import Log
from regard.runs.run import (
    CHECKPOINTS,
    CONFIG,
    MODEL,
    TOKENIZER,
    Run,
    absolute,
    build_model,
    choose_device,
    choose_precision,
    load,
    load_config,
    load_vocabularies,
)
from regard.runs.translator import Translator
from regard.text import Vocabularies, train_vocabularies
from regard.training.average import ExponentialAverage, mean_weights
from regard.training.loop import Step, fit, validate
from regard.training.metrics import corpus_scores
from regard.training.optim import make_optimizer
from regard.training.schedule import learning_rate
from regard.training.tasks import Translation


class Stopped(RegardError):
    """Training was asked to stop, and has saved where it was."""


@runtime_checkable
class Report(Protocol):
    """Whoever wants to hear how training goes."""

    def say(self, text: str) -> None: ...

    def step(self, values: Mapping[str, Any], total: int) -> None: ...

    def validation(self, values: Mapping[str, Any]) -> None: ...


class Silence:
    def say(self, text: str) -> None: ...

    def step(self, values: Mapping[str, Any], total: int) -> None: ...

    def validation(self, values: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class Stores:
    """The tokenised pairs to train on and, where there are any, to validate on, with some of those as text."""

    train: PairStore
    valid: PairStore | None
    sources: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)


def train(config: RunConfig, directory: str | Path, report: Report | None = None) -> Run:
    """Train a new run in `directory`, and return it ready to use."""
    directory, report = Path(directory), report or Silence()
    if (directory / CONFIG).exists():
        raise RunError(f"{directory} already holds a run: choose another directory, or continue it with --resume")
    new = not directory.exists()
    try:
        config.check()
        corpus = training_corpus(config.data)
        report.say("training the tokenizer")
        vocabularies = train_vocabularies(corpus, config.tokenizer)
        config = absolute(config.with_vocabularies(vocabularies))
        directory.mkdir(parents=True, exist_ok=True)
        stores = _prepare(config, vocabularies, directory, report)
        vocabularies.save(directory / TOKENIZER)
        write_json(directory / CONFIG, settings.to_mapping(config))
    except BaseException:
        # Nothing half-made stays: a directory without a configuration is not a run.
        if new and directory.exists() and not (directory / CONFIG).exists():
            shutil.rmtree(directory, ignore_errors=True)
        raise
    _Training(config, directory, vocabularies, stores, report).go(resume=None)
    return load(directory, config.train.device)


def resume(directory: str | Path, overrides: tuple[str, ...] = (), report: Report | None = None) -> Run:
    """Go on with the run in `directory` from its last checkpoint, exactly as if it had never stopped.

    `overrides` may change `[train]` settings, such as `train.steps=20000` to train for longer.
    """
    directory, report = Path(directory), report or Silence()
    config = load_config(directory)
    if overrides:
        if strange := [name for name in overrides if not name.startswith(("train.", "decode."))]:
            raise ConfigError(f"'{strange[0]}' cannot change in a run that has begun; only train.* and decode.* can")
        mapping = settings.override(settings.to_mapping(config), overrides)
        config = settings.from_mapping(RunConfig, mapping)
        write_json(directory / CONFIG, mapping)
    vocabularies = load_vocabularies(directory)
    found = checkpoints(directory / CHECKPOINTS)
    if not found:
        report.say("no checkpoint yet: starting from the first step")
    stores = _prepare(config, vocabularies, directory, report)
    _Training(config, directory, vocabularies, stores, report).go(resume=found[-1] if found else None)
    return load(directory, config.train.device)


def _prepare(config: RunConfig, vocabularies: Vocabularies, directory: Path, report: Report) -> Stores:
    cache = Path(config.data.cache) if config.data.cache else directory / "cache"

    def store(corpus) -> PairStore:
        return prepare(corpus, vocabularies, cache, max_len=config.data.max_len, overlong=config.data.overlong)

    report.say("reading and tokenising the training pairs")
    train_store = store(training_corpus(config.data))
    report.say(train_store.counts.describe())
    corpus = corpus_of(config.data, "valid")
    if corpus is None:
        return Stores(train_store, None)
    shown = [pair for pair, _ in zip(corpus, range(config.train.validate_sentences), strict=False)]
    return Stores(train_store, store(corpus), [source for source, _ in shown], [target for _, target in shown])


class _Training:
    """The state of one training run while it runs."""

    def __init__(
        self, config: RunConfig, directory: Path, vocabularies: Vocabularies, stores: Stores, report: Report
    ) -> None:
        self.config, self.directory, self.stores, self.report = config, directory, stores, report
        options = config.train
        if options.threads:
            torch.set_num_threads(options.threads)
        self.device = choose_device(options.device)
        self.precision = choose_precision(options.precision, self.device)
        self.model = build_model(config).to(self.device)
        self.optimizer = make_optimizer(self.model, options)
        self.average = ExponentialAverage(self.model, options.ema) if options.ema else None
        self.task = Translation(options.smoothing)
        model_config = config.model_config()
        self.width = getattr(model_config, "width", None)
        self.translator = Translator(self.model, vocabularies, config.decode, model_config.max_len)
        self.progress = Progress(step=0)
        self.clock = _Clock()

    def go(self, resume: Path | None) -> None:
        """Train to the end, or to where a signal, a divergence or patience ends it."""
        options = self.config.train
        if resume is not None:
            self.progress = load_checkpoint(resume, self.model, self.optimizer, self.average)
            if self._done():
                self.report.say(f"the run is finished: {self.progress.step} steps")
                return
            self.report.say(f"continuing from step {self.progress.step}")
        log = Log(self.directory, resume_at=self.progress.step if resume else None, tensorboard=options.tensorboard)
        try:
            with _stop_signals() as stop:
                self._loop(log, stop)
            self._finish()
        finally:
            log.close()

    def _loop(self, log: Log, stop: Callable[[], bool]) -> None:
        options = self.config.train
        position = Position(self.progress.epoch, self.progress.index)
        loader = Loader(
            self.stores.train,
            budget=options.batch_tokens,
            seed=options.seed,
            position=position,
            pin=self.device.type == "cuda",
        )
        model = torch.compile(self.model, dynamic=True) if options.compile else self.model
        with loader:
            steps = fit(
                model,  # type: ignore[arg-type]
                self.task,
                self._updates(loader),
                self.optimizer,
                self._learning_rate,
                start=self.progress.step,
                clip=options.clip,
                seed=options.seed,
                device=self.device,
                precision=self.precision,
                average=self.average,
            )
            for step in steps:
                self.progress = replace(
                    self.progress, step=step.number, epoch=loader.position.epoch, index=loader.position.index
                )
                self._after(step, log)
                if self._done():
                    break
                if stop():
                    self._save()
                    raise Stopped(f"stopped at step {step.number}; `regard train --resume {self.directory}` continues")

    def _done(self) -> bool:
        options = self.config.train
        tired = bool(options.patience) and self.progress.stale >= options.patience
        return self.progress.step >= options.steps or tired

    def _updates(self, loader: Loader) -> Iterator[list[Pairs]]:
        while True:
            parts = [next(loader) for _ in range(self.config.train.accumulate)]
            self.clock.tokens += sum(int(part.source.lengths.sum()) + part.count for part in parts)
            yield parts

    def _learning_rate(self, step: int) -> float:
        options = self.config.train
        return learning_rate(
            step,
            kind=options.schedule,
            peak=options.learning_rate,
            warmup=options.warmup,
            total=options.steps,
            width=self.width,
            floor=options.floor,
        )

    def _after(self, step: Step, log: Log) -> None:
        """Log, validate and save where it is time."""
        options = self.config.train
        due = step.number % options.log_every == 0 or step.number == options.steps
        if self.device.type == "cpu" or due:
            self._check_finite(step)
        if due:
            values = self._values(step)
            log.write("train", step.number, values)
            self.report.step({"step": step.number, **values}, options.steps)
        better = False
        if self.stores.valid is not None and (
            step.number % options.validate_every == 0 or step.number == options.steps
        ):
            better = self._judge(self._validate(), log)
        if step.number % options.save_every == 0 or self._done() or (better and options.choose == "best"):
            self._check_finite(step)
            self._save()

    def _judge(self, values: dict[str, float], log: Log) -> bool:
        """Note a validation; whether it is the best so far."""
        step, best = self.progress.step, self.progress.best
        better = best is None or values["nll"] < best
        if better:
            self.progress = replace(self.progress, best=values["nll"], best_step=step, stale=0)
        else:
            self.progress = replace(self.progress, stale=self.progress.stale + 1)
        log.write("validation", step, values)
        self.report.validation({"step": step, **values})
        return better

    def _values(self, step: Step) -> dict[str, Any]:
        parts = {name: float(value) for name, value in step.parts.items()}
        return {
            "loss": float(step.loss),
            **parts,
            "grad_norm": float(step.grad_norm),
            "learning_rate": step.learning_rate,
            "epoch": self.progress.epoch,
            **self.clock.lap(step.number),
        }

    def _check_finite(self, step: Step) -> None:
        if bool(torch.isfinite(step.loss)) and bool(torch.isfinite(step.grad_norm)):
            return
        kept = checkpoints(self.directory / CHECKPOINTS)
        last = f"the last good checkpoint is {kept[-1].name}" if kept else "there was no checkpoint yet"
        raise Diverged(
            f"training diverged at step {step.number}: loss {float(step.loss):g}, gradient norm "
            f"{float(step.grad_norm):g}; {last}. Try a lower train.learning_rate, a longer train.warmup, "
            f"train.clip=1.0 or train.precision=float32"
        )

    def _averaged(self):
        return nullcontext() if self.average is None else self.average.applied(self.model)

    def _validate(self) -> dict[str, float]:
        assert self.stores.valid is not None
        began = time.monotonic()
        with self._averaged():
            batches = evaluation_batches(self.stores.valid, self.config.train.batch_tokens)
            values = validate(self.model, self.task, batches, device=self.device, precision=self.precision)
            if self.stores.sources:
                greedy = replace(self.config.decode, beam=1, top_beams=1)
                found = [best[0].text for best in self.translator.translate(self.stores.sources, greedy)]
                scores = corpus_scores(found, self.stores.references)
                values |= {"bleu": scores.bleu, "exact_match": scores.exact_match}
        self.model.train()
        self.clock.pause(time.monotonic() - began)
        return values | {"seconds": time.monotonic() - began}

    def _save(self) -> None:
        began = time.monotonic()
        folder = self.directory / CHECKPOINTS
        folder.mkdir(exist_ok=True)
        save_checkpoint(folder, self.progress, self.model, self.optimizer, self.average)
        best = {self.progress.best_step} if self.config.train.choose == "best" else set()
        forget_checkpoints(folder, self.config.train.keep, best)
        self._write_model()
        self.clock.pause(time.monotonic() - began)

    def _write_model(self) -> None:
        """The weights to use so far, so that a run can be tried while it trains."""
        weights = dict(weights_of(self.model))
        if self.average is not None:
            weights |= self.average.weights
        write_tensors(self.directory / MODEL, weights)

    def _finish(self) -> None:
        options, folder = self.config.train, self.directory / CHECKPOINTS
        if options.average_last > 1:
            last = checkpoints(folder)[-options.average_last :]
            mean = mean_weights(read_tensors(path / MODEL) for path in last)
            write_tensors(self.directory / MODEL, mean)
            self.report.say(f"the model is the mean of {len(last)} checkpoints")
        elif options.choose == "best" and self.progress.best_step:
            path = folder / f"step-{self.progress.best_step}"
            name = MODEL if self.average is None else "average.safetensors"
            write_tensors(self.directory / MODEL, read_tensors(path / name))
            self.report.say(f"the model is that of step {self.progress.best_step}, the best validated")
        else:
            self._write_model()


class _Clock:
    """Tokens a second of training alone, validation and saving left out."""

    def __init__(self) -> None:
        self.tokens = 0
        self._since, self._paused, self._step = time.monotonic(), 0.0, 0
        self._trained = 0.0

    def pause(self, seconds: float) -> None:
        self._paused += seconds

    def lap(self, step: int) -> dict[str, float]:
        now = time.monotonic()
        seconds = max(1e-9, now - self._since - self._paused)
        self._trained += seconds
        values = {"tokens_per_second": round(self.tokens / seconds, 1), "seconds": round(self._trained, 2)}
        self._since, self._paused, self._step, self.tokens = now, 0.0, step, 0
        return values


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Asks whether SIGINT or SIGTERM has come; a second one ends at once, as usual."""
    asked: list[int] = []

    def note(number: int, frame: Any) -> None:
        asked.append(number)
        signal.signal(number, before[number])

    before: dict[int, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, note)
    except ValueError:
        # Signals belong to the main thread; elsewhere nobody can send them to us.
        yield lambda: False
        return
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
