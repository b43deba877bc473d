"""Everything a comparison says about one run: what it scores, what it cost, how it got there."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import torch

from regard.comparison.budget import count_parameters
from regard.config import JsonObject
from regard.errors import RunError
from regard.nn.flops import operations
from regard.runs.files import MODEL, read_json, write_json
from regard.runs.log import read_log
from regard.tasks.config import RunConfig
from regard.tasks.run import build_model, load, load_config

MEASURES = "measures.json"
SHORT, LONG = 12, 30
"""Sentences of fewer words than the first are short, of at least as many as the second long."""


def measure(
    directory: Path, *, limit: int | None = None, progress: Callable[[int, int], None] | None = None
) -> JsonObject:
    """What is known of the run in `directory`, ready for JSON, and kept there until its weights change."""
    kept = directory / MEASURES
    found = read_json(kept) if kept.exists() else {}
    if "diverged" in found:
        return {**_about(directory), **found}
    key = {"weights": _digest(directory / MODEL), "limit": limit, "form": 1}
    if found.get("key") == key:
        return found
    run = load(directory, "cpu")
    test = run.task.compared(run, limit, progress)
    result = {"key": key, **_about(directory), "test": test, "headline": run.task.headline(test)}
    write_json(kept, result)
    return result


def _about(directory: Path) -> JsonObject:
    """What the run is and what its training was, without its weights."""
    config = load_config(directory)
    updates, seconds, tokens, curve, validations = training_curves(directory)
    flops = flops_per_token(config)
    return {
        "name": directory.name,
        "task": config.task,
        "loss_unit": config.kind.loss_unit,
        "model": dict(config.model),
        "parameters": count_parameters(config),
        "updates": updates,
        "seconds": seconds,
        "tokens": tokens,
        "flops_a_token": flops,
        "flops": flops * tokens,
        "curve": _with_flops(curve, flops),
        "validations": _with_flops(validations, flops),
    }


def training_curves(directory: Path) -> tuple[int, float, float, list[JsonObject], list[JsonObject]]:
    """Updates, seconds and tokens of training, then its logged losses and validations, each with all three."""
    if not (directory / "log.jsonl").exists():
        raise RunError(f"{directory} is missing its log.jsonl")
    step = seconds = tokens = 0
    before = last = 0.0
    curve: list[JsonObject] = []
    validations: list[JsonObject] = []
    for record in read_log(directory / "log.jsonl"):
        if record.get("kind") == "train":
            # A run that was stopped counts its seconds from nothing again.
            lap = record["seconds"] - last if record["seconds"] >= last else record["seconds"]
            last = record["seconds"]
            step, seconds = record["step"], seconds + lap
            tokens += record["tokens_per_second"] * lap
            curve.append(
                {"step": step, "seconds": seconds, "tokens": tokens, "loss": record.get("nll", record["loss"])}
            )
            before = seconds
        elif record.get("kind") == "validation":
            record = record if "nll" in record else {**record, "nll": record["loss"]}
            scores = {name: record[name] for name in ("nll", "bleu", "exact_match") if name in record}
            validations.append({"step": record["step"], "seconds": before, "tokens": tokens, **scores})
    return step, seconds, tokens, curve, validations


def flops_per_token(config: RunConfig, length: int = 32) -> float:
    """Operations of training on one token, forward and back, counted on a batch of equal rows; products alone."""
    task, model = config.kind, build_model(config)
    length = task.length(config, min(length, config.model_config().max_len - 2))
    batch = task.example(config, length, 4)
    _, objective, _ = task.random_batches(config, 0)
    with torch.enable_grad(), operations(model) as counter:
        objective.loss(model, batch).total.backward()
    return counter.get_total_flops() / batch.tokens


def _with_flops(points: list[JsonObject], flops: float) -> list[JsonObject]:
    return [{**point, "flops": flops * point["tokens"]} for point in points]


def _digest(path: Path) -> str:
    if not path.exists():
        raise RunError(f"{path.parent} is missing its {path.name}")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
