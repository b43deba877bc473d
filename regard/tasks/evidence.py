"""Held-out data to judge heads by: as batches for the loss, and as the score that counts for each task."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from regard.errors import ConfigError, DataError
from regard.tasks.run import Run
from regard.training.loop import validate
from regard.training.objectives import Objective

BUDGET = 2048
"""Tokens of one batch, if one sequence has no more."""


class Evidence:
    """What heads are judged by. `name` is the score's; `sign` is -1 where less of it is better."""

    name, sign = "accuracy", 1
    unsloped: str | None = None
    """Why the loss has no slope by which to rank heads, where it has none."""

    def __init__(self, run: Run, objective: Objective, batches: Sequence[Any], count: int) -> None:
        if not count:
            raise DataError("nothing to judge heads by: nothing of it can be read by the model")
        device = next(run.model.parameters()).device
        self.objective, self.count = objective, count
        self.batches = [batch.to(device) for batch in batches]

    def values(self, model: nn.Module) -> dict[str, float]:
        """The loss and its parts, means."""
        return validate(model, self.objective, iter(self.batches), device=next(model.parameters()).device)

    def nll(self, model: nn.Module) -> float:
        """The mean negative log-likelihood of what is to be predicted."""
        return self.values(model)["nll"]

    def inputs(self, batch: Any) -> Any:
        """What of a batch the model is given."""
        return batch

    def score(self, run: Run) -> float:
        """Per cent of the predictions that are right."""
        return 100 * self.values(run.model)["accuracy"]


def held_out_files(run: Run, files: Sequence[str] | None) -> Sequence[str]:
    """The files to judge by: those given, or the run's own validation or test files."""
    found = files or run.config.data.valid or run.config.data.test
    if not found:
        raise ConfigError("nothing to judge heads by: the run names no validation or test set; give --data")
    return found


def evidence(run: Run, files: Sequence[str] | None = None, limit: int = 200) -> Evidence:
    """The first `limit` pairs, windows, texts or pictures of `files`, by default of the run's own held-out ones."""
    return run.task.evidence(run, files, limit)
