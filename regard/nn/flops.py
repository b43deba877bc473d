"""Floating-point operations (FLOPs), counted as a model runs: matrix products alone, forward and backward."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from regard.nn.recurrent.layers import RecurrentLayer

Shape = Sequence[int]


def _attention(query: Shape, key: Shape, value: Shape, *args: object, **kwargs: object) -> int:
    return sdpa_flop_count(query, key, value)


def _attention_back(grad: Shape, query: Shape, key: Shape, value: Shape, *args: object, **kwargs: object) -> int:
    return sdpa_backward_flop_count(grad, query, key, value)


@contextmanager
def operations(model: nn.Module) -> Iterator[FlopCounterMode]:
    """A FLOP counter: `with operations(model) as counter: ...; counter.get_total_flops()`.

    torch's own counter does not see into the fused attention kernel on a CPU, nor into recurrent kernels. The first is
    counted by its shapes, a causal one like any other; recurrent layers take their plain loop meanwhile.
    """
    fused = {layer: layer.fused for layer in model.modules() if isinstance(layer, RecurrentLayer)}
    kernels = torch.ops.aten
    known = {
        kernels._scaled_dot_product_flash_attention_for_cpu: _attention,
        kernels._scaled_dot_product_flash_attention_for_cpu_backward: _attention_back,
    }
    for layer in fused:
        layer.fused = False
    try:
        with FlopCounterMode(display=False, custom_mapping=known) as counter:
            yield counter
    finally:
        for layer, was in fused.items():
            layer.fused = was


@torch.no_grad()
def forward_flops(model: nn.Module, batch: Any) -> int:
    """Operations of one forward pass over a batch, its head included, counted as they run."""
    was_training = model.training
    model.eval()
    with operations(model) as counter:
        model.logits(batch.to(next(model.parameters()).device))  # type: ignore[operator]
    model.train(was_training)
    return counter.get_total_flops()
