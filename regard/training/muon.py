"""Muon: the matrices inside a model by orthogonalised momentum, everything else by AdamW."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from regard.nn.embedding import Embedding, OutputProjection

# A quintic that drives singular values from anywhere in (0, 1] to near 1 within five rounds.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_ROUNDS = 5


class Muon(Optimizer):
    """Moves each matrix by its momentum with all singular values brought to about 1, and `rest` by AdamW.

    The move is scaled by 0.2 sqrt(max(rows, columns)), which gives it the size of Adam's, so that one learning rate and
    one weight decay serve both. Matrices of one shape are worked out together: few launches however many layers.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        rest: Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
    ) -> None:
        rest = [dict(group) for group in rest]
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__([{"params": list(matrices)}, *rest], defaults)
        self._adam = AdamW(rest, lr=lr, betas=betas, eps=eps, fused=True)
        self._adam.state = self.state  # one place for all that is saved

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the loop works out gradients itself"
        for mine, its in zip(self.param_groups[1:], self._adam.param_groups, strict=True):
            its["lr"] = mine["lr"]
        self._adam.step()
        group = self.param_groups[0]
        shapes: dict[tuple[int, int], list[Tensor]] = {}
        for parameter in group["params"]:
            if parameter.grad is not None:
                rows, columns = parameter.shape
                shapes.setdefault((rows, columns), []).append(parameter)
        for (rows, columns), parameters in shapes.items():
            for parameter in parameters:
                if "momentum" not in self.state[parameter]:
                    self.state[parameter]["momentum"] = torch.zeros_like(parameter)
            momenta = [self.state[parameter]["momentum"] for parameter in parameters]
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])  # pyright: ignore[reportPrivateImportUsage]
            # Nesterov's: look from where the momentum is about to lead.
            ahead = torch._foreach_lerp(gradients, momenta, group["momentum"])  # pyright: ignore[reportPrivateImportUsage]
            moves = list(orthogonalised(torch.stack(ahead)).unbind())
            rate, size = group["lr"], 0.2 * max(rows, columns) ** 0.5
            if group["weight_decay"]:
                torch._foreach_mul_(parameters, 1 - rate * group["weight_decay"])  # pyright: ignore[reportPrivateImportUsage]
            torch._foreach_add_(parameters, moves, alpha=-rate * size)  # pyright: ignore[reportPrivateImportUsage]


def orthogonalised(matrices: Tensor) -> Tensor:
    """Each of a stack of matrices with its singular vectors kept and its singular values near 1 (Newton-Schulz)."""
    a, b, c = _QUINTIC
    # bfloat16 is exact enough for a direction, where the device multiplies it faster.
    x = matrices.to(torch.bfloat16) if matrices.device.type == "cuda" else matrices.float()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for _ in range(_ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The weights of linear layers inside the model: not tables of token vectors, not the head."""
    outer = {id(part.tokens.weight) for part in model.modules() if isinstance(part, Embedding)}
    outer |= {id(part.weight) for part in model.modules() if isinstance(part, OutputProjection)}
    inner = {id(part.weight) for part in model.modules() if isinstance(part, nn.Linear)} - outer
    return [parameter for parameter in model.parameters() if id(parameter) in inner and parameter.requires_grad]
