"""Optimisers: Adam, AdamW and Muon, their state as named tensors, and averages of weights."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from regard.errors import ConfigError, RunError
from regard.nn.embeddings import Embedding, OutputProjection
from regard.training.config import TrainConfig
from regard.training.processes import ONE, Processes, local
from regard.training.sharding import as_shard, is_shard, own_rows, whole

_STACKS = {"encoder", "decoder", "blocks", "layers"}
_EMBEDDINGS = {"embedding", "source", "target"}


def make_optimizer(model: nn.Module, config: TrainConfig, processes: Processes = ONE) -> torch.optim.Optimizer:
    """Adam as in the 2017 paper, AdamW or Muon; weights decay in matrices, not in biases or norms.

    Several `processes` share Muon's work.
    """
    matrices = hidden_matrices(model) if config.optimizer == "muon" else []
    apart = {id(matrix) for matrix in matrices}
    parameters = [p for p in model.parameters() if p.requires_grad and id(p) not in apart]
    shares = layer_shares(model, config.layer_decay)
    groups = [
        {"params": [p for p in parameters if shares[p] == share and (p.ndim >= 2) == wide], "weight_decay": decay}
        | {"share": share}
        for share in sorted(set(shares.values()), reverse=True)
        for wide, decay in ((True, config.weight_decay), (False, 0.0))
    ]
    beta1, beta2 = config.betas
    if config.optimizer == "muon":
        return Muon(
            matrices,
            groups,
            lr=config.learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            betas=(beta1, beta2),
            eps=config.epsilon,
            precision=config.muon_precision,
            processes=processes,
        )
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=config.learning_rate, betas=(beta1, beta2), eps=config.epsilon, fused=True)


def layer_shares(model: nn.Module, decay: float) -> dict[nn.Parameter, float]:
    """Layer-wise learning rate decay, as a factor per parameter: `decay` for the last of a stack of layers, and as much
    again for each layer below it; embeddings have the smallest, all the rest 1."""
    parts = dict(model.named_children())
    stacks = [part for name, part in parts.items() if name in _STACKS and isinstance(part, nn.ModuleList)]
    if decay < 1.0 and not stacks:
        raise ConfigError(f"train.layer_decay={decay} does not apply to a model without a stack of layers")
    shares = dict.fromkeys(model.parameters(), 1.0)
    for stack in stacks:
        for number, layer in enumerate(stack):
            shares |= dict.fromkeys(layer.parameters(), decay ** (len(stack) - number))
    deepest = max(map(len, stacks), default=0)
    for name in _EMBEDDINGS & parts.keys():
        shares |= dict.fromkeys(parts[name].parameters(), decay ** (deepest + 1))
    return shares


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Every tensor the optimiser keeps, under `<its name>/<parameter's name>`."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{key}/{name}"] = torch.as_tensor(value)
    return tensors


def restore_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> bool:
    """Restore what `optimizer_tensors` gave; False, and nothing done, if that is another kind of optimiser's.

    Refuses what does not fit the model: the fused kernels read and write as far as a parameter reaches.
    """
    if any(name.startswith("momentum/") for name in tensors) != (isinstance(optimizer, Muon) and bool(tensors)):
        return False
    parameters, found = dict(model.named_parameters()), dict[Tensor, dict[str, Tensor]]()
    for full_name, value in tensors.items():
        key, _, name = full_name.partition("/")
        parameter = parameters.get(name)
        if parameter is None or not _is_state(key, value, parameter):
            raise RunError(f"the optimiser's state does not fit the model: {full_name}, {tuple(value.shape)}")
        # Adam's step counter is kept on the parameter's device, where the fused kernel reads it.
        state = torch.zeros_like(parameter) if value.shape == parameter.shape else torch.empty_like(value)
        found.setdefault(parameter, {})[key] = filled(state.to(parameter.device), value)
    for name, parameter in parameters.items():
        if parameter in found and found[parameter].keys() not in ({"momentum"}, {"step", "exp_avg", "exp_avg_sq"}):
            raise RunError(f"the optimiser's state does not fit the model: {name} has {', '.join(found[parameter])}")
    optimizer.state.update(found)
    return True


@torch.no_grad()
def filled(tensor: Tensor, values: Tensor) -> Tensor:
    """The tensor, or this process's shard of it, with these values, which are those of the whole."""
    local(tensor).copy_(own_rows(values, tensor) if is_shard(tensor) else values)
    return tensor


def _is_state(key: str, value: Tensor, parameter: nn.Parameter) -> bool:
    if key == "step":
        return value.shape == () and value.dtype == torch.float32
    return value.shape == parameter.shape and value.dtype == parameter.dtype


# A quintic that drives singular values from anywhere in (0, 1] to near 1 within five rounds.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_ROUNDS = 5
MuonPrecision = Literal["auto", "float32", "bfloat16"]


class Muon(Optimizer):
    """Updates each matrix by its orthogonalised momentum (singular values near 1), and `rest` by AdamW.

    The update is scaled by 0.2 sqrt(max(rows, columns)), which gives it the size of Adam's, so that one learning rate
    and one weight decay serve both. Matrices of one shape are updated together: few launches however many layers. Of
    several `processes` each orthogonalises its share of them, and gives the others what it found.
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
        precision: MuonPrecision = "auto",
        processes: Processes = ONE,
    ) -> None:
        self._processes = processes
        self._precision: MuonPrecision = precision
        rest = [dict(group) for group in rest]
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__([{"params": list(matrices)}, *rest], defaults)
        self._adam = AdamW(rest, lr=lr, betas=betas, eps=eps, fused=True)
        self._adam.state = self.state  # one place for all that is saved

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the loop computes gradients itself"
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
            torch._foreach_lerp_(_locals(momenta), _locals(gradients), 1 - group["momentum"])  # pyright: ignore[reportPrivateImportUsage]
            # Nesterov's: look from where the momentum is about to lead.
            ahead = torch._foreach_lerp(_locals(gradients), _locals(momenta), group["momentum"])  # pyright: ignore[reportPrivateImportUsage]
            if is_shard(parameters[0]):
                ahead = [as_shard(one, gradient) for one, gradient in zip(ahead, gradients, strict=True)]
            moves = list(self._orthogonalised(torch.stack([whole(one) for one in ahead])).unbind())
            if is_shard(parameters[0]):
                moves = [own_rows(move, parameter) for move, parameter in zip(moves, parameters, strict=True)]
            rate, size, here = group["lr"], 0.2 * max(rows, columns) ** 0.5, _locals(parameters)
            if group["weight_decay"]:
                torch._foreach_mul_(here, 1 - rate * group["weight_decay"])  # pyright: ignore[reportPrivateImportUsage]
            torch._foreach_add_(here, moves, alpha=-rate * size)  # pyright: ignore[reportPrivateImportUsage]

    def _orthogonalised(self, matrices: Tensor) -> Tensor:
        """Each process makes its share of them so, and all get all."""
        count, (rank, world) = len(matrices), (self._processes.rank, self._processes.world)
        if world == 1:
            return orthogonalised(matrices, self._precision)
        share = -(-count // world)
        mine = torch.zeros_like(matrices[:share] if count >= share else matrices)
        if len(own := matrices[rank * share : (rank + 1) * share]):
            mine[: len(own)] = orthogonalised(own, self._precision)
        return self._processes.gathered(mine)[:count]


def _locals(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [local(tensor) for tensor in tensors]


def orthogonalised(matrices: Tensor, precision: MuonPrecision = "auto") -> Tensor:
    """Each of a stack of matrices with its singular vectors kept and its singular values near 1 (Newton-Schulz)."""
    a, b, c = _QUINTIC
    # bfloat16 is exact enough for a direction, where the device multiplies it faster.
    narrow = precision == "bfloat16" or (precision == "auto" and matrices.device.type == "cuda")
    x = matrices.to(torch.bfloat16 if narrow else torch.promote_types(matrices.dtype, torch.float32))
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for _ in range(_ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The weights of linear layers inside the model: neither embeddings nor the output projection."""
    outer = {id(part.tokens.weight) for part in model.modules() if isinstance(part, Embedding)}
    outer |= {id(part.weight) for part in model.modules() if isinstance(part, OutputProjection)}
    inner = {id(part.weight) for part in model.modules() if isinstance(part, nn.Linear)} - outer
    return [parameter for parameter in model.parameters() if id(parameter) in inner and parameter.requires_grad]


class ExponentialAverage:
    """An exponential moving average (EMA) of the weights, with a smaller `decay` in the first updates."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._names = [name for name, _ in model.named_parameters()]
        self._followed: list[Tensor] = list(model.parameters())
        self.start()

    def start(self) -> None:
        """Start from the weights as they are."""
        copies = (parameter.detach().clone() for parameter in self._followed)
        self.weights = dict(zip(self._names, copies, strict=True))

    @torch.no_grad()
    def update(self, step: int) -> None:
        # Early weights are far from any good ones; the ramp forgets them.
        keep = min(self.decay, (1 + step) / (10 + step))
        averages = _locals(self.weights.values())
        torch._foreach_lerp_(averages, _locals(self._followed), 1 - keep)  # pyright: ignore[reportPrivateImportUsage]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model with the averaged weights, its own restored at the end. Takes no memory: the two are swapped."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for average, parameter in zip(_locals(self.weights.values()), _locals(self._followed), strict=True):
            own = parameter.clone()
            parameter.copy_(average)
            average.copy_(own)


def mean_weights(checkpoints: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights, one in memory at a time."""
    total: dict[str, Tensor] = {}
    count = 0
    for weights in checkpoints:
        for name, value in weights.items():
            value = value.double()
            total[name] = value if name not in total else total[name].add_(value)
        count += 1
    return {name: (value / count).float() for name, value in total.items()}
