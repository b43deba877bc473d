"""A summary of a run's model: parameters by part, memory, and the FLOPs of one sentence."""

from torch import nn

from regard.config import JsonObject
from regard.nn.flops import forward_flops
from regard.tasks.run import Run
from regard.text import Vocabularies


def describe(run: Run, length: int | None = None) -> JsonObject:
    """Parameters by part, memory to use and to train, and floating-point operations at `length` tokens per side.

    By default 32 tokens, or as many as the model reads; of images, the patches of one.
    """
    task, model = run.task, run.model
    length = task.length(run.config, length)
    total = sum(parameter.numel() for parameter in model.parameters())
    forward = forward_flops(model, task.example(run.config, length))
    return {
        "model": run.config.model["name"],
        "parameters": total,
        "parameters_by_part": parameters_by_part(model),
        "vocabulary": vocabulary_sizes(run.vocabularies) if task.has_tokenizer else None,
        # Adam keeps two more numbers per parameter beside the weight and its gradient.
        "bytes": {"weights": 4 * total, "training": 16 * total},
        "flops": {
            "length": length,
            "sides": task.sides,
            "forward": forward,
            "training_step": 3 * forward,
            "forward_per_token": forward / (task.sides * length),
        },
    }


def vocabulary_sizes(vocabularies: Vocabularies) -> JsonObject:
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
