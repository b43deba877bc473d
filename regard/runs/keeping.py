"""What a training keeps: checkpoints on its way, the weights to use in the end."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn
from torch.optim import Optimizer

from regard.runs.checkpoint import (
    AVERAGE,
    CARRIED,
    Progress,
    checkpoints,
    forget_checkpoints,
    load_checkpoint,
    save_checkpoint,
    weights_of,
)
from regard.runs.files import plain_words, read_tensors, write_tensors
from regard.runs.run import CHECKPOINTS, MODEL
from regard.training.average import ExponentialAverage, mean_weights
from regard.training.config import TrainConfig
from regard.training.streams import StreamedLanguageModelling
from regard.training.tasks import Task


@dataclass(frozen=True, slots=True)
class Keeper:
    """A run's directory, and what of a training is kept in it."""

    directory: Path
    options: TrainConfig
    model: nn.Module
    optimizer: Optimizer
    average: ExponentialAverage | None
    task: Task

    def take_up(self, checkpoint: Path, say: Callable[[str], None]) -> Progress:
        """Put everything back as it was at a checkpoint."""
        progress = load_checkpoint(checkpoint, self.model, self.optimizer, self.average, say)
        if isinstance(self.task, StreamedLanguageModelling):
            self.task.restore(read_tensors(checkpoint / CARRIED))
        return progress

    def save(self, progress: Progress) -> None:
        """A checkpoint, and the weights to use so far, so that a run can be tried while it trains."""
        folder = self.directory / CHECKPOINTS
        with plain_words(folder):
            folder.mkdir(exist_ok=True)
        carried = self.task.tensors() if isinstance(self.task, StreamedLanguageModelling) else None
        save_checkpoint(folder, progress, self.model, self.optimizer, self.average, carried)
        best = {progress.best_step} if self.options.choose == "best" else set()
        forget_checkpoints(folder, self.options.keep, best)
        self._write_model()

    def finish(self, progress: Progress) -> str | None:
        """Write the weights that a finished run is used with, where those are not the last, just saved; says which."""
        folder, model = self.directory / CHECKPOINTS, self.directory / MODEL
        if self.options.average_last > 1:
            last = checkpoints(folder)[-self.options.average_last :]
            write_tensors(model, mean_weights(read_tensors(path / MODEL) for path in last))
            return f"the model is the mean of {len(last)} checkpoints" if len(last) > 1 else None
        if self.options.choose == "best" and progress.best_step:
            best = folder / f"step-{progress.best_step}"
            if best.exists():
                # Its average, if it had one, is what was validated, whatever was set when the run was taken up again.
                averaged = read_tensors(best / AVERAGE) if (best / AVERAGE).exists() else {}
                write_tensors(model, {**read_tensors(best / MODEL), **averaged})
                return f"the model is that of step {progress.best_step}, the best validated"
            return f"the model is the last: that of step {progress.best_step}, the best validated, was not kept"
        return None

    def _write_model(self) -> None:
        averaged = {} if self.average is None else self.average.weights
        write_tensors(self.directory / MODEL, {**weights_of(self.model), **averaged})
