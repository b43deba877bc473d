"""Weights, gradients and optimiser state in shards, one per process: PyTorch's FSDP2 (`fully_shard`).

For what does not fit one GPU. A block's weights are gathered when it is reached and given up again after it; gradients
are added up and scattered on the way back. Everything between, the optimiser, clipping and averages of weights, works
on shards.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.nn.blocks import DecoderBlock, EncoderBlock
from regard.training.objectives import Batch, Loss, Objective


class _LossModule(nn.Module):
    """Model and objective as one module: whatever of the model an objective calls, its weights are there."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model, self._objective = model, objective

    def forward(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        loss = self._objective.loss(self.model, batch)
        return loss.total, dict(loss.parts)


class ShardedObjective:
    """An objective whose model lies in shards, one per process.

    All processes must find the loss of equally many batches, for on the way each waits for all.
    """

    def __init__(self, objective: Objective, model: nn.Module, device: torch.device) -> None:
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

        if not hasattr(FSDPModule, "set_force_sum_reduction_for_comms"):
            raise ConfigError(f"train.shard=true needs torch 2.9 or newer, and this is {torch.__version__}")
        self.objective = objective
        mesh = DeviceMesh.from_group(dist.group.WORLD, device.type)  # type: ignore[arg-type]
        for part in model.modules():
            if isinstance(part, EncoderBlock | DecoderBlock):
                fully_shard(part, mesh=mesh)
            if isinstance(part, DecoderBlock):  # another way through a block, of one whose attention is asked for
                register_fsdp_forward_method(part, "forward_and_point")
        self._root: Any = _LossModule(model, objective)
        fully_shard(self._root, mesh=mesh)
        for part in self._root.modules():
            if isinstance(part, FSDPModule):
                # Losses are divided by the count of all processes, so gradients are sums. By default they would be
                # means with NCCL and, without a word, sums with gloo.
                part.set_force_sum_reduction_for_comms(True)
                part.set_gradient_divide_factor(1.0)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        total, parts = self._root(batch)
        return Loss(total, self.predictions(batch), parts)

    def predictions(self, batch: Any) -> int:
        own: Any = getattr(self.objective, "predictions", None)
        return batch.count if own is None else own(batch)

    def weighed(self, parts: Any, total: Callable[..., list[float | int]]) -> list[Any]:
        own: Any = getattr(self.objective, "weighed", None)
        return list(parts) if own is None else own(parts, total)

    def give_up(self) -> None:
        """Leave the whole weights that a pass without a backward pass keeps: they are not what they were once the
        shards change."""
        for part in self._root.modules():
            if hasattr(part, "reshard"):
                part.reshard()


def own_rows(whole: Tensor, shard: Tensor) -> Tensor:
    """The rows of a whole tensor that this process keeps, as `shard`, which is one of torch's DTensors, has them."""
    sharded: Any = shard
    world, rank = sharded.device_mesh.size(), sharded.device_mesh.get_local_rank()
    chunks = whole.chunk(world)
    return chunks[rank] if rank < len(chunks) else whole[:0]


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, from the shards of all processes, which must all ask for it."""
    gather: Any = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def is_shard(tensor: Tensor) -> bool:
    return hasattr(tensor, "to_local")


def as_shard(rows: Tensor, like: Tensor) -> Tensor:
    """This process's rows of a tensor as a shard of it, which is spread over processes as `like` is."""
    sharded: Any = like
    where = {"device_mesh": sharded.device_mesh, "placements": sharded.placements}
    return type(sharded).from_local(rows, **where, run_check=False, shape=sharded.shape, stride=sharded.stride())


def first_row(tensor: Tensor, rank: int, world: int) -> int:
    """Where the rows of a process begin: shards are as large as the first, but for the last ones."""
    return min(tensor.shape[0], rank * -(-tensor.shape[0] // world))
