"""A run's attention on given inputs, as the viewer's document; with a history, also at each of its checkpoints."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.config import Setting
from regard.errors import ConfigError, RunError
from regard.look.document import Document, HeadHistory, History
from regard.look.measures import measures_of
from regard.look.page import render
from regard.look.position_tables import position_tables
from regard.runs.checkpoint import (
    WEIGHTS,
    checkpoints,
    load_weights_strictly,
    read_part,
    read_progress,
    weights_of,
)
from regard.runs.files import CHECKPOINTS
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.looking.steps import END, START, readable
from regard.tasks.run import Run, load

__all__ = ["END", "START", "LookOptions", "document", "load_at", "page", "readable"]


def page(run: Run, texts: Sequence[Any], options: LookOptions | None = None, **decode: Setting) -> str:
    """A self-contained page with what the run makes of each text and every attention on the way.

    For a pointing run, `texts` are problems, as `Run.point` takes them.
    """
    return render(document(run, texts, options, **decode))


def load_at(path: str | Path, device: str = "auto", *, verify: bool = True) -> tuple[Run, str]:
    """A run, or one as it was at a checkpoint (`runs/demo/checkpoints/step-500`), and its name."""
    path = Path(path)
    if path.parent.name != CHECKPOINTS or path not in checkpoints(path.parent):
        run = load(path, device, verify=verify)
        return run, run.directory.name
    run = load(path.parent.parent, device, verify=verify)
    load_weights_strictly(run.model, read_part(path, WEIGHTS), path)
    return run, f"{run.directory.name} at step {read_progress(path).step:,}"


def document(run: Run, texts: Sequence[Any], options: LookOptions | None = None, **decode: Setting) -> Document:
    """What the page shows; `options` say how much of it."""
    options, task = options or LookOptions(), run.task
    searched = [f"{name}={value}" for name, value in decode.items() if (name, value) != ("beam", 1)]
    if searched and not task.searches:
        raise ConfigError(f"{searched[0]} is for a search; looking into a run for {task.name} searches for nothing")
    if options.targets and not (task.searches or task.takes_targets):
        raise ConfigError(f"targets are for translations; a run for {task.name} has none")
    if (options.start, options.end) != (None, None) and not task.hears:
        raise ConfigError(f"start and end are for sounds; a run for {task.name} looks at whole inputs")

    def look(options: LookOptions) -> Document:
        return task.look(run, texts, options, **decode)

    found = replace(look(options), positions=position_tables(run.model))
    if options.features:
        found = _with_features_said(found, options.features)
    return _with_history(run, found, look, options) if options.history else found


def _with_features_said(document: Document, features: Iterable[str]) -> Document:
    """The document with a note on the features that tell no piece from another, which no unit can go with."""
    if not any(one.recurrences for one in document.sentences):
        raise ConfigError("features are for the units of a recurrence, and none is on this page")
    told = {one.name for sentence in document.sentences for one in sentence.features}
    same = [name for name in features if name not in told]
    said = f"No unit can go with {', '.join(same)}: of these texts it matches nothing, or all." if same else ""
    return replace(document, note=" ".join(filter(None, (document.note, said))))


def _with_history(
    run: Run, document: Document, look: Callable[[LookOptions], Document], options: LookOptions
) -> Document:
    """The document, with the measures of its heads at every checkpoint, read with the same outputs."""
    paths = checkpoints(run.directory / CHECKPOINTS)
    if len(paths) < 2:
        raise RunError(f"{run.directory} keeps {len(paths)} checkpoints; a history needs two: see train.keep")
    targets = tuple("" if one.target is None else one.target.text for one in document.sentences)
    given = document.sentences[0].target is not None
    plain = replace(options, vectors=False, edits=False, targets=targets if given else None)
    steps: list[int] = []
    found: dict[tuple[str, int], dict[str, list[float]]] = {}
    with _borrowed(run.model):
        for done, path in enumerate(paths, 1):
            steps.append(read_progress(path).step)
            load_weights_strictly(run.model, read_part(path, WEIGHTS), path)
            for key, values in _measured(look(plain)).items():
                for name, value in values.items():
                    found.setdefault(key, {}).setdefault(name, []).append(value)
            if options.told is not None:
                options.told(done, len(paths))
    heads = tuple(
        HeadHistory(attention=name, head=head, measures={one: tuple(values) for one, values in measures.items()})
        for (name, head), measures in found.items()
    )
    return replace(document, history=History(steps=tuple(steps), heads=heads))


@contextmanager
def _borrowed(model: nn.Module) -> Iterator[None]:
    """The model's own weights come back, whatever is put in their place."""
    own = {name: value.detach().clone() for name, value in weights_of(model).items()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, value in weights_of(model).items():
                value.copy_(own[name])


def _measured(document: Document) -> dict[tuple[str, int], dict[str, float]]:
    """The measures of every head, the mean over the sentences that have them."""
    values: dict[tuple[str, int], dict[str, list[float]]] = {}
    for sentence in document.sentences:
        for attention in sentence.attentions:
            weights, gold = attention.array(), sentence.aligned_pieces(attention)
            found = measures_of(weights, within=attention.kind == "self", aligned=gold)
            for head in range(len(weights)):
                number = head if attention.heads is None else attention.heads[head]
                kept = values.setdefault((attention.name, number), {})
                for name, each in found.items():
                    kept.setdefault(name, []).append(float(each[head]))
    return {key: {name: float(np.mean(each)) for name, each in kept.items()} for key, kept in values.items()}
