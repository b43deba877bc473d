"""Vanishing and exploding gradients: the norm of the last prediction's gradient at each earlier time step.

A gradient that fades step by step cannot teach a model what it should have kept; one that grows step by step throws it
off. In a recurrent model it is a product of as many factors as there are steps between; attention has one step to all.
"""

import copy
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import JsonObject
from regard.errors import ConfigError, DataError, nearest
from regard.look.charts import Chart, Series, plot
from regard.look.page import figure, paragraph, static_page, table
from regard.nn.batch import Pairs, Tokens, Windows
from regard.nn.embeddings import Embedding
from regard.nn.recurrent.layers import RecurrentLayer
from regard.runs.files import CONFIG, run_names
from regard.tasks.config import RunConfig, make_config, presets
from regard.tasks.corpora import FIRST_TOKEN
from regard.tasks.run import Run, build_model, load
from regard.tasks.spec import GradientSide


def step_gradients(model: Any, batch: Any) -> list[Float[Tensor, " T"]]:
    """The gradient's norm at every token of one row, by sequence: of the source and of the target, or of the text.

    The loss is that of the last prediction alone; a gradient is taken at the vector that stands for the token where the
    model reads it. The model's own gradients are left as they are.
    """
    given: list[Tensor] = []

    def keep(module: nn.Module, inputs: object, vectors: Tensor) -> Tensor:
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
                    matrix.mul_(radius / float(torch.linalg.eigvals(matrix.cpu().double()).abs().max()))
                    scaled += 1
    return scaled


def gradients(
    models: Sequence[str | Path | Run],
    text: str,
    *,
    target: str | None = None,
    spectral_radius: float | None = None,
    overrides: Sequence[str] = (),
) -> JsonObject:
    """For each model, the norm of the last prediction's gradient at every step before it, ready for JSON.

    A model is a run, its directory, or the name of a preset, which is then taken with fresh weights, `overrides` being
    settings for it, and reads the words of the text as they are. A translation model reads the text, then `target`: by
    default its own translation or, untrained, the text again. `spectral_radius` first scales every matrix over a
    recurrent state to that radius.
    """
    if not models:
        raise ConfigError("no model to look at: name runs or presets")
    if not text.split():
        raise DataError("nothing to look at: the text is blank")
    entries = [_entry(model, text, target, spectral_radius, overrides) for model in models]
    folders = [model.directory if isinstance(model, Run) else Path(model) for model in models]
    trained = [folder.resolve() for folder, entry in zip(folders, entries, strict=True) if entry["trained"]]
    known = list(dict.fromkeys(trained))
    named = dict(zip(known, run_names(known), strict=True))
    for folder, entry in zip(folders, entries, strict=True):
        entry["name"] = named[folder.resolve()] if entry["trained"] else entry["name"]
    names = [entry["name"] for entry in entries]
    for index, entry in enumerate(entries):  # one model given twice, or a run called as a preset
        if names.count(entry["name"]) > 1:
            entry["name"] += f" ({names[: index + 1].count(entry['name'])})"
    return {"text": text, "target": target, "spectral_radius": spectral_radius, "models": entries}


def gradients_page(document: JsonObject) -> str:
    """The document as a self-contained page."""
    rows = [
        (
            one["name"],
            "trained" if one["trained"] else "fresh weights",
            str(len(one["steps"])),
            f"{one['factor_per_step']:.3f}",
            f"{one['steps'][0]['norm']:.1e}",
            f"{one['steps'][-1]['norm']:.1e}",
        )
        for one in document["models"]
    ]
    radius = document["spectral_radius"]
    notes = [
        paragraph(f"Text: {document['text']}"),
        paragraph(
            "How strongly the loss of the last prediction depends on each step before it: the norm of its gradient at "
            "the vector that the model read there. A line that falls is a gradient that vanishes, one that rises a "
            "gradient that explodes; each step multiplies it by about the factor given."
        ),
    ]
    if radius is not None:
        notes.append(paragraph(f"Every matrix over a recurrent state was scaled to a spectral radius of {radius:g}."))
    names = ("model", "weights", "steps", "factor per step back", "norm at the first step", "at the last")
    return static_page(
        "How far back the loss reaches",
        [*notes, figure(gradients_chart(document)), table(names, rows), _pieces(document)],
    )


def gradients_chart(document: JsonObject, *, alone: bool = False) -> str:
    """The chart by itself: every model's norms against steps back, each relative to the step just before the last."""
    lines = []
    for one in document["models"]:
        norms = [step["norm"] for step in one["steps"]]
        base = next((norm for norm in reversed(norms[:-1]) if norm > 0), 1.0)
        lines.append(Series(name=one["name"], points=[(back, n / base) for back, n in enumerate(norms[-2::-1], 1)]))
    title = "Gradient of the last prediction at earlier steps (1 = one step back)"
    return plot(
        Chart(title=title, x="steps back", y="relative norm", series=lines, log_y=True, marks=False), alone=alone
    )


def _pieces(document: JsonObject) -> str:
    names = ("step", *(one["name"] for one in document["models"]))
    most = max(len(one["steps"]) for one in document["models"])
    rows = []
    for back in range(min(most, 200)):
        cells = []
        for one in document["models"]:
            step = one["steps"][-1 - back] if back < len(one["steps"]) else None
            cells.append("" if step is None else f"{step['piece']}  {step['norm']:.2e}")
        rows.append((f"{back} back", *cells))
    return table(names, rows)


def _entry(
    model: str | Path | Run, text: str, target: str | None, radius: float | None, overrides: Sequence[str]
) -> JsonObject:
    if isinstance(model, Run) or (Path(model) / CONFIG).exists():
        run = model if isinstance(model, Run) else load(model, "cpu")
        name, config, network, trained = run.directory.name, run.config, run.model, True
        sides = run.task.gradient_sides(run, text, target)
    elif str(model) in presets():
        config = make_config(None, str(model), overrides).with_stand_ins()
        name, network, trained = str(model), build_model(config), False
        sides = config.kind.gradient_words(text.split(), None if target is None else target.split(), _ids(config))
    else:
        raise ConfigError(f"'{model}' is neither a run nor a preset{nearest(str(model), presets())}")
    longest = config.model_config().max_len
    if max(len(ids) for _, ids, _ in sides) > longest:
        raise DataError(f"the text is longer than the {longest} tokens that {name} reads")
    if radius is not None:
        network = copy.deepcopy(network)  # the run's own stays as it was trained
        set_spectral_radius(network, radius)
    norms = step_gradients(network.cpu(), _batch(sides))
    steps = [
        {"side": side, "piece": piece, "norm": float(norm)}
        for (side, _, pieces), row in zip(sides, norms, strict=True)
        for piece, norm in zip(pieces, row.tolist(), strict=False)
    ]
    factor = factor_per_step([step["norm"] for step in steps])
    if not math.isfinite(factor):
        raise DataError(f"the text is too short to say how a gradient changes: {len(steps)} steps")
    return {"name": name, "trained": trained, "model": config.model["name"], "factor_per_step": factor, "steps": steps}


def _ids(config: RunConfig) -> Callable[[Sequence[str]], list[int]]:
    """Each word an id of its own: what fresh weights can tell apart."""
    sizes = config.tokenizer.vocab_size - FIRST_TOKEN
    known: dict[str, int] = {}
    return lambda words: [FIRST_TOKEN + known.setdefault(word, len(known)) % sizes for word in words]


def _batch(sides: Sequence[GradientSide]) -> Pairs | Windows:
    if len(sides) == 1:
        ids = sides[0][1]
        return Windows(Tokens.of([ids[:-1]]), torch.tensor([ids[1:]]), len(ids) - 1)
    (_, source, _), (_, target, _) = sides
    return Pairs(Tokens.of([source]), Tokens.of([target]), len(target) - 1)
