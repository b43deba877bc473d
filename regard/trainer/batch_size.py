"""The largest batch that fits a device's memory, found by trying."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.optim import Optimizer

from regard.errors import RunError
from regard.tasks.config import RunConfig
from regard.training.cuda_graphs import GraphReplay
from regard.training.loop import train_step
from regard.training.objectives import Batch, Objective, precision_context

_CLOSE = 16  # stop where what fits and what does not differ by a 16th
_FIRST = 1024


@runtime_checkable
class HasTrialBatches(Protocol):
    """A job that can make batches of any size."""

    config: RunConfig

    @property
    def objective(self) -> Objective: ...

    def bounds(self) -> tuple[int, int]:
        """The fewest tokens that a batch can have, and how many there are to train on."""
        ...

    def trials(self, budget: int, *, pack: bool) -> list[Any]:
        """The batches of this budget that ask most of the memory, and a usual one."""
        ...


@dataclass(frozen=True, slots=True)
class BatchSizeFinder:
    """A model about to be trained, for trying batches on; put back as it was afterwards."""

    model: nn.Module
    optimizer: Optimizer
    objective: Objective
    device: torch.device
    precision: torch.dtype
    accumulate: int = 1
    replays: bool = False
    """Whether batches are captured as CUDA graphs: a graph keeps its memory, and validation needs some beside it."""

    def largest(self, job: HasTrialBatches, *, pack: bool) -> int:
        """The most tokens that a batch may have. Leaves weights, gradients and the optimiser as it found them."""
        least, most = job.bounds()
        weights = {name: value.detach().to("cpu", copy=True) for name, value in self.model.state_dict().items()}
        rates = [group["lr"] for group in self.optimizer.param_groups]
        was_training = self.model.training
        self.model.train()
        try:
            return largest_budget(lambda budget: self._fits(job.trials(budget, pack=pack)), least, most)
        finally:
            self.optimizer.zero_grad()
            self.optimizer.state.clear()
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
            self.model.load_state_dict(weights)
            self.model.train(was_training)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _fits(self, batches: list[Batch]) -> bool:
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0
        return all(self._trains_on(batch) for batch in batches)

    def _trains_on(self, batch: Batch) -> bool:
        # Of several batches to an update, the second meets the gradients of the first.
        parts = [batch] * min(2, self.accumulate)
        replay = GraphReplay(self.model, self.objective, self.device, self.precision) if self.replays else None
        options = {"device": self.device, "precision": self.precision}
        try:
            step = train_step(self.model, self.objective, parts, self.optimizer, replay=replay, **options)
            if replay is None or step.splits or not replay.takes(parts):
                return replay is None and not step.splits
            self.model.eval()
            with torch.no_grad(), precision_context(**options):
                self.objective.loss(self.model, batch.to(self.device))
        except torch.OutOfMemoryError:
            return False
        finally:
            self.model.train()
        return True


def largest_budget(fits: Callable[[int], bool], least: int, most: int) -> int:
    """About the largest number from `least` to `most` that fits: doubled while it does, then narrowed to a 16th."""
    if not fits(least):
        raise RunError(f"even the smallest batch, of {least} tokens, does not fit the memory")
    low, high = least, most + 1
    while low < most:
        size = min(most, max(_FIRST, 2 * low))
        if not fits(size):
            high = size
            break
        low = size
    while high - low > max(1, low // _CLOSE) and low < most:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
