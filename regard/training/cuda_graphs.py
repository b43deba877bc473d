"""CUDA graphs: a batch's forward and backward captured once and replayed, so that small models keep a GPU busy."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import Dataclass
from regard.nn.batch import tensors
from regard.training.objectives import Batch, Objective, precision_context

WARM = 2  # passes made in the ordinary way first: what compiles or allocates on its first call has then done so
MOST = 8  # forms of batches that are captured; more would fill the memory with graphs


class GraphReplay:
    """Forward and backward of a batch, captured as a CUDA graph once per form of batch and replayed ever after.

    Launching a kernel costs the host microseconds, and a step of a small model is a thousand kernels that each run for
    fewer: the GPU waits. A graph is launched whole. It reads its batch from, and leaves its gradients in, memory of its
    own. Dropout samples anew at each replay, by the generator's seed.

    A batch is replayed from its first time on: warming up before the capture leaves nothing behind. So a resumed run
    replays what an unbroken one did, and rounds alike.

    The parts of one update are played one after the other, each divided by the count of all, and added up.
    """

    def __init__(self, model: nn.Module, objective: Objective, device: torch.device, precision: torch.dtype) -> None:
        self.model, self.objective, self.device, self.precision = model, objective, device, precision
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._graphs: dict[tuple, _CapturedGraph | None] = {}
        self._sums: dict[Tensor, Tensor] = {}
        self._pool: Any = None

    def takes(self, parts: Sequence[Any]) -> bool:
        """Whether the gradients of these are to be replayed: in training, if all are batches that can be captured."""
        if not self.model.training or not all(isinstance(part, Batch) for part in parts):
            return False
        forms = {form(part) for part in parts}
        new = forms - self._graphs.keys()
        known = all(self._graphs[found] is not None for found in forms - new)
        return known and len(self._graphs) + len(new) <= MOST

    def forget(self) -> None:
        """Capture anew: something other than the weights and the batch has changed."""
        self._graphs.clear()
        self._sums.clear()
        self._pool = None

    def gradients(self, parts: Sequence[Any], count: int) -> tuple[Tensor, dict[str, Tensor]] | None:
        """The loss per prediction and its parts, gradients left with the parameters; None if out of memory.

        `count` is how many predictions the whole update makes, those of other processes included.
        """
        graphs = [self._graph_for(part) for part in parts]
        if any(captured is None for captured in graphs):
            return None
        try:
            return self._played(parts, graphs, count)
        except torch.OutOfMemoryError:  # for the sums
            for part in parts:
                self._graphs[form(part)] = None
            self._sums.clear()
            self._clear()
            torch.manual_seed(torch.initial_seed())
            return None

    def _played(
        self, parts: Sequence[Batch], graphs: Sequence["_CapturedGraph | None"], count: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        total: Tensor | None = None
        names: list[str] = []
        for number, (captured, part) in enumerate(zip(graphs, parts, strict=True), 1):
            assert captured is not None
            sums, gradients = captured.play(part, count)
            total, names = sums if total is None else total + sums, captured.names
            if len(parts) > 1:
                self._add(gradients, first=number == 1)
                continue
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                parameter.grad = gradient
        assert total is not None
        whole, *named = total.unbind()
        return whole, dict(zip(names, named, strict=True))

    def _graph_for(self, batch: Batch) -> "_CapturedGraph | None":
        found = form(batch)
        if found not in self._graphs:
            self._graphs[found] = self._captured(batch)
        return self._graphs[found]

    @torch.no_grad()
    def _add(self, gradients: Sequence[Tensor | None], *, first: bool) -> None:
        """Add one part's gradients to the sums of those before it, in other memory than that which they all leave."""
        if first:
            self._clear()
        begun: tuple[list[Tensor], list[Tensor]] = ([], [])
        added: tuple[list[Tensor], list[Tensor]] = ([], [])
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if gradient is None:
                continue
            sums, given = begun if parameter.grad is None else added
            if parameter not in self._sums:
                self._sums[parameter] = torch.empty_like(gradient)
            parameter.grad = self._sums[parameter]
            sums.append(self._sums[parameter])
            given.append(gradient)
        if begun[0]:
            torch._foreach_copy_(*begun)  # pyright: ignore[reportPrivateImportUsage]
        if added[0]:
            torch._foreach_add_(*added)  # pyright: ignore[reportPrivateImportUsage]

    def _captured(self, batch: Batch) -> "_CapturedGraph | None":
        batch, count = batch.to(self.device), torch.ones((), device=self.device)
        try:
            for _ in range(WARM):
                self._pass(batch, count)
            return self._capture(batch, count)
        except torch.OutOfMemoryError:
            return None
        finally:
            self._clear()
            torch.manual_seed(torch.initial_seed())  # the update samples as if nothing had been tried

    def _capture(self, batch: Batch, count: Tensor) -> "_CapturedGraph":
        self._clear()  # so that what is captured writes gradients, and does not add to them
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        # One is done before another plays, so all work in the same memory.
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        # The thread that prepares batches may go on: it pins memory, which a stricter mode would forbid.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            sums, names = self._pass(batch, count)
        return _CapturedGraph(graph, batch, count, sums, names, [parameter.grad for parameter in self.parameters])

    def _pass(self, batch: Batch, count: Tensor) -> tuple[Tensor, list[str]]:
        with precision_context(self.device, self.precision):
            loss = self.objective.loss(self.model, batch)
        (loss.total / count).backward()
        sums = [loss.total.detach(), *(value.detach() for value in loss.parts.values())]
        return torch.stack(sums) / count, list(loss.parts)

    def _clear(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


@dataclass(frozen=True, slots=True)
class _CapturedGraph:
    """A graph and the memory it works on: the batch it reads, the sums and gradients it leaves."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    count: Tensor
    sums: Tensor
    names: list[str]
    gradients: list[Tensor | None]

    def play(self, batch: Batch, count: int) -> tuple[Tensor, list[Tensor | None]]:
        """The batch's loss and its parts, divided by `count`, and its gradients, which the next to play writes over."""
        for mine, given in zip(tensors(self.batch), tensors(batch), strict=True):
            mine.copy_(given, non_blocking=True)
        self.count.fill_(count)
        self.graph.replay()
        return self.sums.clone(), self.gradients


def form(batch: Dataclass) -> tuple:
    """What batches that one graph serves have in common: shapes, types and flags."""
    found: list[Any] = [type(batch)]
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, Tensor):
            found.append((tuple(value.shape), value.dtype))
        elif isinstance(value, Dataclass):
            found.append(form(value))
        elif not isinstance(value, int) or isinstance(value, bool):
            found.append(value)
    return tuple(found)
