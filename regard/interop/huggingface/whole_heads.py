"""A pruned model's weights with all its heads again: those that were removed weigh nothing.

Their formats know one number of heads for all layers. A head whose columns of the output matrix are zero adds nothing,
so the model with such heads in the place of removed ones says the same.
"""

from typing import Any

import torch
from torch import Tensor, nn

from regard.nn.attention import NoHeads
from regard.runs.checkpoint import weights_of


@torch.no_grad()
def whole_heads(model: nn.Module, config: Any) -> dict[str, Tensor]:
    """The model's weights by name, every attention with as many heads as `config` gives a layer that was not pruned."""
    weights, block = dict(weights_of(model)), config.block()
    alone, shared = block.heads * block.per_head, (block.kv_heads or block.heads) * block.per_head
    wanted = {"query": alone, "key": shared, "value": shared}
    for name, module in model.named_modules():
        if isinstance(module, NoHeads):
            weights |= _empty(name, weights.pop(f"{name}.bias", None), block.width, wanted)
        elif f"{name}.query.weight" in weights and f"{name}.output.weight" in weights:
            for part, rows in wanted.items():
                for kind in ("weight", "bias"):
                    if (key := f"{name}.{part}.{kind}") in weights:
                        weights[key] = _longer(weights[key], rows)
            key = f"{name}.output.weight"
            weights[key] = _longer(weights[key].mT, alone).mT
    return weights


def _empty(name: str, bias: Tensor | None, width: int, wanted: dict[str, int]) -> dict[str, Tensor]:
    """The weights of an attention that has lost all its heads."""
    found = {f"{name}.{part}.weight": torch.zeros(rows, width) for part, rows in wanted.items()}
    found[f"{name}.output.weight"] = torch.zeros(width, wanted["query"])
    if bias is not None:
        found |= {f"{name}.{part}.bias": torch.zeros(rows) for part, rows in wanted.items()}
        found[f"{name}.output.bias"] = bias
    return found


def _longer(weight: Tensor, rows: int) -> Tensor:
    """Rows of zeros below, where it has fewer."""
    missing = rows - weight.shape[0]
    return weight if not missing else torch.cat([weight, weight.new_zeros(missing, *weight.shape[1:])])
