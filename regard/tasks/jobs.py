"""Kinds of runs. A job knows what is particular to one: its data, its task and what a validation shows.

Trainer, checkpoints and logs know only `Job`. A new kind is a file here and an entry in JOBS.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import nn

from regard.data import Position
from regard.errors import ConfigError, nearest
from regard.tasks import images, labelled, language, masking, pointing, translation
from regard.tasks.config import RunConfig
from regard.tasks.report import Report
from regard.training.objectives import Objective


@runtime_checkable
class Stream(Protocol):
    """Batches without end; `position` is where the next one lies, and a stream started there goes on from it."""

    position: Position

    def __next__(self) -> Any: ...

    def batches(self, epoch: int = 0) -> int:
        """How many batches an epoch has."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Job(Protocol):
    """One run's data and task, ready to train on."""

    @property
    def task(self) -> Objective:
        """What is asked of the model."""
        ...

    def stream(self, position: Position, *, pin: bool, pack: bool) -> Stream:
        """Training batches from `position` on. Each says its `count` of predictions and its real `tokens`."""
        ...

    def validation(self) -> Iterable[Any] | None:
        """Validation batches, each once; None where there is nothing to validate on."""
        ...

    def scores(self, model: nn.Module) -> dict[str, float]:
        """What a validation shows beside the loss."""
        ...


Prepare = Callable[[RunConfig, Path, Report, bool], tuple[RunConfig, Job]]
"""Makes a job of a configuration in a run's directory. For a new run it also writes what must lie there, such as the
tokenizer, and returns the configuration with what only the data could tell, such as the vocabulary's size."""

JOBS: dict[str, Prepare] = {
    "translation": translation.prepare_job,
    "language": language.prepare_job,
    "images": images.prepare_job,
    "masking": masking.prepare_job,
    "classification": labelled.prepare_job,
    "tagging": labelled.prepare_job,
    "answering": labelled.prepare_job,
    "pointing": pointing.prepare_job,
}


def prepare_job(config: RunConfig, directory: Path, report: Report, *, new: bool) -> tuple[RunConfig, Job]:
    """The job that the configuration's `task` names."""
    if config.task not in JOBS:
        raise ConfigError(f"unknown task '{config.task}'{nearest(config.task, JOBS)}")
    return JOBS[config.task](config, directory, report, new)
