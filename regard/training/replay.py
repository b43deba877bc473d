"""A batch's gradients as one recording that a GPU replays: small models train as fast as the GPU, not as the host."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.training.tasks import Batch, Task, precision_context

WARM = 2  # updates made in the ordinary way first: what compiles or allocates on its first call has then done so


class Replay:
    """Forward and backward of one form of batch, recorded as a CUDA graph once and replayed for every batch after.

    Launching a kernel costs the host microseconds, and a step of a small model is a thousand kernels that each run for
    fewer: the GPU waits. A recording is launched whole. It reads its batch from, and leaves its gradients in, memory
    of its own. Dropout draws anew at each replay, as the generator's seed says. A batch of another form, such as a
    shorter last one, is not for it: `takes` says so.
    """

    def __init__(self, model: nn.Module, task: Task, device: torch.device, precision: torch.dtype) -> None:
        self.model, self.task, self.device, self.precision = model, task, device, precision
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._seen = 0
        self._form: Any = None
        self._graph: torch.cuda.CUDAGraph | None = None

    def takes(self, parts: Sequence[Batch]) -> bool:
        """Whether the gradients of these are to be replayed: one batch of the recorded form, once all is warm."""
        if len(parts) != 1 or not self.model.training:
            return False
        self._seen += 1
        if self._seen <= WARM:
            return False
        self._form = self._form or form(parts[0])
        return self._form == form(parts[0])

    def forget(self) -> None:
        """Record anew: something other than the weights and the batch has changed."""
        self._graph = None

    def gradients(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss a prediction and its parts; the gradients are left with the parameters."""
        if self._graph is None:
            self._record(batch)
        assert self._graph is not None
        for mine, given in zip(tensors(self._batch), tensors(batch), strict=True):
            mine.copy_(given, non_blocking=True)
        self._count.fill_(batch.count)
        self._graph.replay()
        for parameter, gradient in zip(self.parameters, self._gradients, strict=True):
            parameter.grad = gradient
        total, *named = self._sums.clone().unbind()
        return total, dict(zip(self._names, named, strict=True))

    def _record(self, batch: Batch) -> None:
        self._batch = batch.to(self.device)
        self._count = torch.ones((), device=self.device)
        for parameter in self.parameters:
            parameter.grad = None  # so that what is recorded writes gradients, and does not add to them
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        # The thread that prepares batches may go on: it pins memory, which a stricter mode would forbid.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            with precision_context(self.device, self.precision):
                loss = self.task.loss(self.model, self._batch)
            (loss.total / self._count).backward()
            sums = [loss.total.detach(), *(value.detach() for value in loss.parts.values())]
            self._sums = torch.stack(sums) / self._count
        self._names = list(loss.parts)
        self._gradients = [parameter.grad for parameter in self.parameters]
        self._graph = graph


def tensors(batch: Any) -> Iterator[Tensor]:
    """The tensors that a batch is made of, in their order."""
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, Tensor):
            yield value
        elif is_dataclass(value):
            yield from tensors(value)


def form(batch: Any) -> tuple:
    """What batches that one recording serves have in common: shapes, kinds, and whatever is true or false of them."""
    found: list[Any] = [type(batch)]
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, Tensor):
            found.append((tuple(value.shape), value.dtype))
        elif is_dataclass(value):
            found.append(form(value))
        elif not isinstance(value, int) or isinstance(value, bool):
            found.append(value)
    return tuple(found)
