"""What a run is made of: parameters by part, memory, and the work of one sentence."""

from typing import Any

import numpy as np
import torch
from torch import nn

from regard.models.protocols import TextEncoder
from regard.nn.batch import Images, Pairs, Texts, Tokens
from regard.nn.operations import operations
from regard.nn.points import Pointings
from regard.tasks.run import Run
from regard.text import Vocabularies


def describe(run: Run, length: int | None = None) -> dict[str, Any]:
    """Parameters by part, memory to use and to train, and floating-point operations at `length` tokens a side.

    By default 32 tokens, or as many as the model reads.
    """
    model = run.model
    if run.config.task == "images":
        return _of_pictures(run)
    length = min(32, run.config.model_config().max_len) if length is None else length
    total = sum(parameter.numel() for parameter in model.parameters())
    pointing = run.config.task == "pointing"
    forward = pointing_flops(model, length) if pointing else forward_flops(model, length)
    sides = 2 if run.config.task in ("translation", "pointing") else 1
    return {
        "model": run.config.model["name"],
        "parameters": total,
        "parameters_by_part": parameters_by_part(model),
        "vocabulary": None if pointing else vocabulary_sizes(run.vocabularies),
        # Adam keeps two more numbers a parameter beside the weight and its gradient.
        "bytes": {"weights": 4 * total, "training": 16 * total},
        "flops": {
            "length": length,
            "sides": sides,
            "forward": forward,
            "training_step": 3 * forward,
            "forward_per_token": forward / (sides * length),
        },
    }


def _of_pictures(run: Run) -> dict[str, Any]:
    """The same of a model of pictures, whose tokens are the patches of one and [CLS]."""
    config: Any = run.config.model_config()
    total = sum(parameter.numel() for parameter in run.model.parameters())
    device = next(run.model.parameters()).device
    pixels = torch.zeros(1, config.channels, config.image_size, config.image_size, device=device)
    with operations(run.model) as counter, torch.no_grad():
        found = run.model(Images(pixels, torch.zeros(1, dtype=torch.long, device=device), 1))
        if config.labels:
            run.model.head(found)  # type: ignore[operator]
    forward = counter.get_total_flops()
    return {
        "model": run.config.model["name"],
        "parameters": total,
        "parameters_by_part": parameters_by_part(run.model),
        "bytes": {"weights": 4 * total, "training": 16 * total},
        "flops": {
            "length": config.max_len,
            "sides": 1,
            "forward": forward,
            "training_step": 3 * forward,
            "forward_per_token": forward / config.max_len,
        },
    }


def vocabulary_sizes(vocabularies: Vocabularies) -> dict[str, Any]:
    return {
        "source": vocabularies.source.vocab_size,
        "target": vocabularies.target.vocab_size,
        "joint": vocabularies.joint,
    }


def parameters_by_part(model: nn.Module) -> dict[str, int]:
    """Parameters of each named part of the model; one that is tied counts once, where it comes first."""
    parts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = name.split(".")[0]
        parts[part] = parts.get(part, 0) + parameter.numel()
    for name, child in model.named_children():
        if any(True for _ in child.parameters()):
            parts.setdefault(name, 0)
    return parts


@torch.no_grad()
def forward_flops(model: nn.Module, length: int) -> int:
    """Operations of one pair of `length` source and `length` target tokens, head included, counted as they run."""
    row, target = Tokens.of([[4] * length]), Tokens.of([[4] * (length + 1)])
    return _counted(model, Texts(row) if isinstance(model, TextEncoder) else Pairs(row, target))


@torch.no_grad()
def pointing_flops(model: nn.Module, length: int) -> int:
    """Operations of one problem of `length` items that are all pointed at."""
    inputs: int = model.config.inputs  # type: ignore[union-attr, assignment]
    return _counted(model, Pointings.of([np.zeros((length, inputs))], [np.arange(length)]))


def _counted(model: nn.Module, batch: Any) -> int:
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    with operations(model) as counter:
        model.logits(batch.to(device))  # type: ignore[operator]
    model.train(was_training)
    return counter.get_total_flops()
