"""The training loop: a generator of steps. Logging, validating and saving are its caller's."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.nn.batch import halves
from regard.training.cuda_graphs import GraphReplay
from regard.training.objectives import Batch, Objective, Weighing, precision_context, predictions
from regard.training.optim import ExponentialAverage


@dataclass(frozen=True, slots=True)
class Step:
    """One update done: `loss` is per prediction. Tensors, so that only reading them waits for the device."""

    number: int
    loss: Tensor
    grad_norm: Tensor
    count: int
    learning_rate: float
    parts: dict[str, Tensor] = field(default_factory=dict)
    splits: int = 0
    """How often a batch ran out of memory and was halved."""


def fit(
    model: nn.Module,
    objective: Objective,
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
    before: Callable[[int], None] | None = None,
    replay: GraphReplay | None = None,
) -> Iterator[Step]:
    """Train on each group of batches, one update per group, yielding after each; the first is numbered `start` + 1.

    `before` is called with the number of each update before it is made. `replay` finds gradients where it can.
    """
    model.train()
    for number, parts in enumerate(updates, start + 1):
        if before is not None:
            before(number)
        seed_step(seed, number)
        rate = learning_rate(number)
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("share", 1.0)
        step = train_step(
            model,
            objective,
            parts,
            optimizer,
            clip=clip,
            number=number,
            device=device,
            precision=precision,
            replay=replay,
        )
        if average is not None:
            average.update(number)
        yield replace(step, learning_rate=rate)  # the whole rate, where even the first group has a share of it


def train_step(
    model: nn.Module,
    objective: Objective,
    parts: Sequence[Batch],
    optimizer: Optimizer,
    *,
    clip: float = 0.0,
    number: int = 1,
    device: torch.device | str = "cpu",
    precision: torch.dtype = torch.float32,
    replay: GraphReplay | None = None,
) -> Step:
    """Update once from `parts`. Weighs by prediction, so how a batch was split changes nothing.

    A batch that runs out of memory is halved by rows, and the update begun again, as often as that takes.
    """
    if isinstance(objective, Weighing):
        parts = objective.weighed(parts)
    count, splits = sum(predictions(objective, part) for part in parts), 0
    while True:
        found = None
        if replay is not None and replay.takes(parts):
            found = replay.gradients(parts)
        if found is None:
            found = _gradients(model, objective, parts, count, device, precision)
        if not isinstance(found, int):
            break
        # Out here nothing holds on to the tensors of the failed pass any longer.
        optimizer.zero_grad()
        if torch.device(device).type == "cuda":
            torch.cuda.empty_cache()
        torch.manual_seed(torch.initial_seed())
        parts = [*parts[:found], *halves(parts[found]), *parts[found + 1 :]]
        splits += 1
    total, named = found
    # The optimiser's own lists: walking through a model's modules would take the host longer than a launch.
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    grad_norm = clip_gradients(parameters, clip)
    optimizer.step()
    optimizer.zero_grad()
    return Step(number, total, grad_norm, count, optimizer.param_groups[0]["lr"], named, splits)


@torch.no_grad()
def clip_gradients(parameters: Sequence[Tensor], clip: float) -> Tensor:
    """The norm of all gradients together, which are scaled down to `clip` where it is more; 0 leaves them alone.

    As `nn.utils.clip_grad_norm_`, in as many launches for any number of parameters, and without waiting for them.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return torch.zeros(())
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))  # pyright: ignore[reportPrivateImportUsage]
    if clip > 0:
        torch._foreach_mul_(gradients, (clip / (norm + 1e-6)).clamp(max=1.0))  # pyright: ignore[reportPrivateImportUsage]
    return norm


def _gradients(
    model: nn.Module,
    objective: Objective,
    parts: Sequence[Batch],
    count: int,
    device: torch.device | str,
    precision: torch.dtype,
) -> tuple[Tensor, dict[str, Tensor]] | int:
    """The loss per prediction and its parts, gradients added up; or the index of the part that ran out of memory."""
    sums: list[Tensor] = []
    names: list[str] = []
    for index, part in enumerate(parts):
        try:
            with precision_context(device, precision):
                loss = objective.loss(model, part.to(device))
            assert loss.count == predictions(objective, part), "an update is divided by the counts of its losses"
            (loss.total / count).backward()
        except torch.OutOfMemoryError:
            if len(halves(part)) < 2:
                raise
            return index
        names = list(loss.parts)
        # One small tensor per batch, and one division for all, however many parts are named.
        sums.append(torch.stack([loss.total.detach(), *(value.detach() for value in loss.parts.values())]))
    total, *named = (torch.stack(sums).sum(0) / count).unbind()
    return total, dict(zip(names, named, strict=True))


@torch.no_grad()
def validate(
    model: nn.Module,
    objective: Objective,
    batches: Iterable[Batch],
    *,
    device: torch.device | str = "cpu",
    precision: torch.dtype = torch.float32,
) -> dict[str, float]:
    """The loss per prediction over all batches, and its parts, dropout off; what runs out of memory is halved."""
    was_training = model.training
    model.eval()
    total, count, named = torch.zeros((), device=device), 0, {}
    waiting, following = list[Batch](), iter(batches)
    while (batch := waiting.pop() if waiting else next(following, None)) is not None:
        try:
            with precision_context(device, precision):
                loss = objective.loss(model, batch.to(device))
        except torch.OutOfMemoryError:
            if len(parts := halves(batch)) < 2:
                raise
            waiting += reversed(parts)
            continue
        total += loss.total
        count += loss.count
        for name, value in loss.parts.items():
            named[name] = named.get(name, 0) + value
    model.train(was_training)
    return {"loss": float(total) / count, **{name: float(value) / count for name, value in named.items()}}


def seed_step(seed: int, number: int) -> None:
    """Make all randomness of an update a function of (seed, number), so that resuming needs no random state."""
    torch.manual_seed((seed * 1_000_003 + number) % (1 << 62))
