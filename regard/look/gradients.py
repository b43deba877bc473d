"""How much each earlier time step matters to the last prediction: the norm of the loss's gradient at that step.

A gradient that fades step by step cannot teach a model what it should have kept; one that grows step by step throws it
off. In a recurrent model it is a product of as many factors as there are steps between; attention has one step to all.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.nn.embeddings import Embedding
from regard.nn.recurrent.layers import RecurrentLayer


def step_gradients(model: Any, batch: Any) -> list[Float[Tensor, " T"]]:
    """The gradient's norm at every token of one row, by sequence: of the source and of the target, or of the text.

    The loss is that of the last prediction alone; a gradient is taken at the vector that stands for the token where the
    model reads it. The model's own gradients are left as they are.
    """
    given: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, vectors: Tensor) -> Tensor:
        vectors = vectors.detach().requires_grad_()
        given.append(vectors)
        return vectors

    hooks = [part.register_forward_hook(keep) for part in model.modules() if isinstance(part, Embedding)]
    was_training = model.training
    model.eval()
    try:
        with torch.enable_grad():
            last = model(batch)[:, -1:]
            loss, _ = model.head.loss(last, batch.labels[:, -1:])
            found = torch.autograd.grad(loss, given, allow_unused=True)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    pairs = zip(given, found, strict=True)
    return [torch.zeros(x.shape[1]) if grad is None else grad[0].norm(dim=-1) for x, grad in pairs]


def factor_per_step(norms: Sequence[float]) -> float:
    """By what the gradient is multiplied with each step back, on the geometric average; 1 neither fades nor grows.

    Fitted to the logarithms. The step just read is left out: it reaches the prediction by ways that no other has.
    """
    points = [(back, math.log(norm)) for back, norm in enumerate(reversed(norms)) if back and norm > 0]
    if len(points) < 2:
        return math.nan
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return math.exp(slope)


@torch.no_grad()
def set_spectral_radius(model: nn.Module, radius: float) -> int:
    """Scale every matrix over a recurrent state to that spectral radius; how many there were.

    The radius is the largest size of an eigenvalue: what a state is multiplied by, in the long run, where nothing
    squashes it. A gate's matrix counts as one of its own.
    """
    if not radius > 0:
        raise ConfigError(f"a spectral radius of {radius} must be above 0")
    scaled = 0
    for layer in model.modules():
        for cell in layer.cells if isinstance(layer, RecurrentLayer) else ():
            for name, part in cell.named_children():
                if name in ("inputs", "widen") or not isinstance(part, nn.Linear):
                    continue
                for matrix in part.weight.split(part.in_features):
                    matrix.mul_(radius / torch.linalg.eigvals(matrix.double()).abs().max())
                    scaled += 1
    return scaled
