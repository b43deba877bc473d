"""Optimisers, and their state as named tensors."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.errors import ConfigError, RunError
from regard.training.config import TrainConfig
from regard.training.muon import Muon, hidden_matrices

_STACKS = {"encoder", "decoder", "blocks", "layers"}
_EMBEDDINGS = {"embedding", "source", "target"}


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam as in the 2017 paper, AdamW or Muon; weights decay in matrices, not in biases or norms."""
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
        )
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=config.learning_rate, betas=(beta1, beta2), eps=config.epsilon, fused=True)


def layer_shares(model: nn.Module, decay: float) -> dict[nn.Parameter, float]:
    """The share of the learning rate that each parameter has: `decay` for the last of a stack of layers, and as much
    less again for each further down; what makes vectors of tokens or patches has least, all the rest the whole."""
    parts = dict(model.named_children())
    stacks = [part for name, part in parts.items() if name in _STACKS and isinstance(part, nn.ModuleList)]
    if decay < 1.0 and not stacks:
        raise ConfigError(f"train.layer_decay={decay} is for models with a stack of layers, which this one has not")
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
    """Put back what `optimizer_tensors` gave; False, and nothing done, if that was another kind of optimiser's.

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
        found.setdefault(parameter, {})[key] = value.to(parameter.device).clone()
    for name, parameter in parameters.items():
        if parameter in found and found[parameter].keys() not in ({"momentum"}, {"step", "exp_avg", "exp_avg_sq"}):
            raise RunError(f"the optimiser's state does not fit the model: {name} has {', '.join(found[parameter])}")
    optimizer.state.update(found)
    return True


def _is_state(key: str, value: Tensor, parameter: nn.Parameter) -> bool:
    if key == "step":
        return value.shape == () and value.dtype == torch.float32
    return value.shape == parameter.shape and value.dtype == parameter.dtype
