"""The training loop: a generator of steps. What to log, validate and save is its caller's business."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.training.average import ExponentialAverage
from regard.training.tasks import Batch, Task


@dataclass(frozen=True, slots=True)
class Step:
    """One update done: `loss` is per prediction. Tensors, so that nobody waits for a device who does not read them."""

    number: int
    loss: Tensor
    grad_norm: Tensor
    count: int
    learning_rate: float
    parts: dict[str, Tensor] = field(default_factory=dict)


def fit(
    model: nn.Module,
    task: Task,
    updates: Iterable[Sequence[Batch]],
    optimizer: Optimizer,
    learning_rate: Callable[[int], float],
    *,
    start: int = 0,
    clip: float = 0.0,
    seed: int = 0,
    device: torch.device | str = "cpu",
    precision: torch.dtype = torch.float32,
    average: ExponentialAverage | None = None,
) -> Iterator[Step]:
    """Train on each group of batches, one update a group, yielding after each; the first is numbered `start` + 1."""
    model.train()
    for number, parts in enumerate(updates, start + 1):
        seed_step(seed, number)
        rate = learning_rate(number)
        for group in optimizer.param_groups:
            group["lr"] = rate
        step = train_step(model, task, parts, optimizer, clip=clip, number=number, device=device, precision=precision)
        if average is not None:
            average.update(model, number)
        yield step


def train_step(
    model: nn.Module,
    task: Task,
    parts: Sequence[Batch],
    optimizer: Optimizer,
    *,
    clip: float = 0.0,
    number: int = 1,
    device: torch.device | str = "cpu",
    precision: torch.dtype = torch.float32,
) -> Step:
    """Update once from `parts`. Weighs by prediction, so how a batch was split changes nothing."""
    count = sum(part.count for part in parts)
    total, named = torch.zeros((), device=device), {}
    for part in parts:
        with precision_context(device, precision):
            loss = task.loss(model, part.to(device))
        (loss.total / count).backward()
        total += loss.total.detach()
        for name, value in loss.parts.items():
            named[name] = named.get(name, 0) + value.detach() / count
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    grad_norm = nn.utils.clip_grad_norm_(parameters, clip if clip > 0 else torch.inf)
    optimizer.step()
    optimizer.zero_grad()
    return Step(number, total / count, grad_norm, count, optimizer.param_groups[0]["lr"], named)


@torch.no_grad()
def validate(
    model: nn.Module,
    task: Task,
    batches: Iterable[Batch],
    *,
    device: torch.device | str = "cpu",
    precision: torch.dtype = torch.float32,
) -> dict[str, float]:
    """The loss per prediction over all batches, and its parts, with dropout off."""
    was_training = model.training
    model.eval()
    total, count, named = torch.zeros((), device=device), 0, {}
    for batch in batches:
        with precision_context(device, precision):
            loss = task.loss(model, batch.to(device))
        total += loss.total
        count += loss.count
        for name, value in loss.parts.items():
            named[name] = named.get(name, 0) + value
    model.train(was_training)
    return {"loss": float(total) / count, **{name: float(value) / count for name, value in named.items()}}


def seed_step(seed: int, number: int) -> None:
    """Make all randomness of an update a function of (seed, number), so that resuming needs no random state."""
    torch.manual_seed((seed * 1_000_003 + number) % (1 << 62))


def precision_context(device: torch.device | str, precision: torch.dtype) -> AbstractContextManager:
    if precision == torch.float32:
        return nullcontext()
    return torch.autocast(torch.device(device).type, precision)
