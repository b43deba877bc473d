"""The training loop: a generator of steps. Logging, validating and saving are its caller's."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.data.sharing import Idle, share
from regard.nn.batch import halves
from regard.training.cuda_graphs import GraphReplay
from regard.training.objectives import Batch, Objective, Weighing, precision_context, predictions
from regard.training.optim import ExponentialAverage
from regard.training.processes import ONE, Processes, local


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
    """How often a batch ran out of memory and was halved, in all processes."""


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
    processes: Processes = ONE,
) -> Iterator[Step]:
    """Train on each group of batches, one update per group, yielding after each; the first is numbered `start` + 1.

    `before` is called with the number of each update before it is made. `replay` finds gradients where it can. With
    several `processes` each is given its own shares of the same updates.
    """
    model.train()
    for number, parts in enumerate(updates, start + 1):
        if before is not None:
            before(number)
        seed_step(seed, number, processes.rank)
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
            processes=processes,
        )
        if average is not None:
            average.update(number)
        yield replace(step, learning_rate=rate)  # the whole rate, where even the first group has a share of it


def train_step(
    model: nn.Module,
    objective: Objective,
    parts: Sequence[Batch | Idle],
    optimizer: Optimizer,
    *,
    clip: float = 0.0,
    number: int = 1,
    device: torch.device | str = "cpu",
    precision: torch.dtype = torch.float32,
    replay: GraphReplay | None = None,
    processes: Processes = ONE,
) -> Step:
    """Update once from `parts`. Weighs by prediction, so how a batch was split changes nothing.

    A batch that runs out of memory is halved by rows, and the update begun again, as often as that takes. With several
    `processes`, `parts` are this one's share: what they count is added up first, and gradients in the end.
    """
    if isinstance(objective, Weighing):
        weighed = iter(objective.weighed([part for part in parts if not isinstance(part, Idle)], processes.total))
        parts = [part if isinstance(part, Idle) else next(weighed) for part in parts]
    (total_count,) = processes.total(sum(predictions(objective, part) for part in parts if not isinstance(part, Idle)))
    count, splits = int(total_count), 0
    while True:
        found = None
        if replay is not None and replay.takes(parts):
            found = replay.gradients(parts, count)
        if found is None:
            found = _gradients(model, objective, parts, count, device, precision, can_split=not processes.sharded)
        if not isinstance(found, int):
            break
        # Out here nothing holds on to the tensors of the failed pass any longer.
        optimizer.zero_grad()
        if torch.device(device).type == "cuda":
            torch.cuda.empty_cache()
        torch.manual_seed(torch.initial_seed())
        parts = [*parts[:found], *_halved(parts[found]), *parts[found + 1 :]]
        splits += 1
    total, named = found
    # The optimiser's own lists: walking through a model's modules would take the host longer than a launch.
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if processes is not ONE:
        splits = add_gradients(parameters, splits, processes)
        sums = torch.stack([total, *named.values()])
        processes.add([sums])
        total, *values = sums.unbind()
        named = dict(zip(named, values, strict=True))
    grad_norm = clip_gradients(parameters, clip, processes)
    optimizer.step()
    optimizer.zero_grad()
    return Step(number, total, grad_norm, count, optimizer.param_groups[0]["lr"], named, splits)


def _halved(part: Batch | Idle) -> list[Batch] | list[Idle]:
    return [part] if isinstance(part, Idle) else halves(part)


@torch.no_grad()
def add_gradients(parameters: Sequence[Tensor], splits: int, processes: Processes) -> int:
    """Add up every gradient over all processes, and how often each of them split a batch.

    After the backward pass, not in its course: so a process that ran out of memory can first try again in halves.
    """
    if processes.sharded:  # gradients were added up on the way, and nothing was split
        return splits
    there = [parameter.grad is not None for parameter in parameters]
    splits_of_all, *used = processes.total(splits, *there)
    # A parameter that no process used has no gradient; one that only another used has one here too.
    gradients: list[Tensor] = []
    for parameter, somewhere in zip(parameters, used, strict=True):
        if somewhere:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
    processes.add(gradients)
    return int(splits_of_all)


@torch.no_grad()
def clip_gradients(parameters: Sequence[Tensor], clip: float, processes: Processes = ONE) -> Tensor:
    """The norm of all gradients together, which are scaled down to `clip` where it is more; 0 leaves them alone.

    As `nn.utils.clip_grad_norm_`, in as many launches for any number of parameters, and without waiting for them.
    """
    gradients = [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return torch.zeros(())
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))  # pyright: ignore[reportPrivateImportUsage]
    if processes.sharded:
        squares = norm.square()
        processes.add([squares])
        norm = squares.sqrt()
    if clip > 0:
        torch._foreach_mul_(gradients, (clip / (norm + 1e-6)).clamp(max=1.0))  # pyright: ignore[reportPrivateImportUsage]
    return norm


def _gradients(
    model: nn.Module,
    objective: Objective,
    parts: Sequence[Batch | Idle],
    count: int,
    device: torch.device | str,
    precision: torch.dtype,
    *,
    can_split: bool,
) -> tuple[Tensor, dict[str, Tensor]] | int:
    """The loss per prediction and its parts, gradients added up; or the index of the part that ran out of memory."""
    sums: list[Tensor] = []
    names: list[str] = []
    for index, part in enumerate(parts):
        idle = isinstance(part, Idle)
        batch = part.batch if idle else part
        try:
            with precision_context(device, precision):
                loss = objective.loss(model, batch.to(device))
            assert loss.count == predictions(objective, batch), "an update is divided by the counts of its losses"
            (loss.total * 0 if idle else loss.total / count).backward()
        except torch.OutOfMemoryError:
            if not can_split or len(halves(batch)) < 2:
                raise
            return index
        names = list(loss.parts)
        # One small tensor per batch, and one division for all, however many parts are named.
        found = torch.stack([loss.total.detach(), *(value.detach() for value in loss.parts.values())])
        sums.append(torch.zeros_like(found) if idle else found)
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
    processes: Processes = ONE,
) -> dict[str, float]:
    """The loss per prediction over all batches, and its parts, dropout off; what runs out of memory is halved.

    Several `processes` are each given all batches, and read their share of the rows.
    """
    was_training = model.training
    model.eval()
    total, count, named = torch.zeros((), device=device), 0, {}
    following = (part for batch in batches for part in share([batch], processes.rank, processes.world))
    waiting = list[Batch | Idle]()
    while (part := waiting.pop() if waiting else next(following, None)) is not None:
        idle = isinstance(part, Idle)
        batch = part.batch if idle else part
        try:
            with precision_context(device, precision):
                loss = objective.loss(model, batch.to(device))
        except torch.OutOfMemoryError:
            if processes.sharded or len(parts := halves(batch)) < 2:
                raise
            waiting += reversed(parts)
            continue
        weight = 0 if idle else 1
        total += weight * loss.total
        count += weight * loss.count
        for name, value in loss.parts.items():
            named[name] = named.get(name, 0) + weight * value
    model.train(was_training)
    loss_total, all_count, *values = processes.total(float(total), count, *map(float, named.values()))
    return {
        "loss": loss_total / all_count,
        **{name: value / all_count for name, value in zip(named, values, strict=True)},
    }


def even_part(batches: Iterable[Any], share: float) -> Iterator[Any]:
    """This share of the batches, evenly spread, the first among them."""
    for number, batch in enumerate(batches):
        if math.ceil((number + 1) * share) > math.ceil(number * share):
            yield batch


def seed_step(seed: int, number: int, rank: int = 0) -> None:
    """Make all randomness of an update a function of (seed, number), so that resuming needs no random state.

    Processes other than the first have seeds of their own, so that their dropout masks differ.
    """
    torch.manual_seed((seed * 1_000_003 + number + rank * 7_368_787_000_003) % (1 << 62))
