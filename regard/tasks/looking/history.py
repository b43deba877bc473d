"""What the heads of a run did at each of its checkpoints, on the same texts."""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from regard.errors import RunError
from regard.look.document import AttentionMap, Document, HeadHistory, History, Sentence
from regard.look.measures import measures_of
from regard.runs.checkpoint import checkpoints, load_weights_strictly, read_progress, weights_of
from regard.runs.files import CHECKPOINTS, MODEL, read_tensors
from regard.tasks.looking.wanted import Wanted
from regard.tasks.run import Run


def with_history(
    run: Run,
    document: Document,
    look: Callable[[Wanted], Document],
    wanted: Wanted,
    told: Callable[[int, int], None] | None = None,
) -> Document:
    """The document, with the measures of its heads at every checkpoint, read with the same outputs."""
    paths = checkpoints(run.directory / CHECKPOINTS)
    if len(paths) < 2:
        raise RunError(f"{run.directory} keeps {len(paths)} checkpoints; a history needs two: see train.keep")
    targets = tuple("" if one.target is None else one.target.text for one in document.sentences)
    given = document.sentences[0].target is not None
    plain = replace(wanted, vectors=False, edits=False, targets=targets if given else None)
    steps: list[int] = []
    found: dict[tuple[str, int], dict[str, list[float]]] = {}
    with _borrowed(run.model):
        for done, path in enumerate(paths, 1):
            steps.append(read_progress(path).step)
            load_weights_strictly(run.model, read_tensors(path / MODEL), path)
            for key, values in _measured(look(plain)).items():
                for name, value in values.items():
                    found.setdefault(key, {}).setdefault(name, []).append(value)
            if told is not None:
                told(done, len(paths))
    heads = tuple(
        HeadHistory(attention=name, head=head, measures={one: tuple(values) for one, values in measures.items()})
        for (name, head), measures in found.items()
    )
    return replace(document, history=History(steps=tuple(steps), heads=heads))


@contextmanager
def _borrowed(model: nn.Module):
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
            weights = attention.array()
            gold = _aligned(sentence, attention)
            found = measures_of(weights, within=attention.kind == "self", aligned=gold)
            for head in range(len(weights)):
                number = head if attention.heads is None else attention.heads[head]
                kept = values.setdefault((attention.name, number), {})
                for name, each in found.items():
                    kept.setdefault(name, []).append(float(each[head]))
    return {key: {name: float(np.mean(each)) for name, each in kept.items()} for key, kept in values.items()}


def _aligned(sentence: Sentence, attention: AttentionMap) -> list[tuple[int, int]]:
    if sentence.alignment is None or (attention.rows, attention.columns) != ("target", "source"):
        return []
    source, target = sentence.source.word_of or (), sentence.side("target").word_of or ()
    pairs = set(sentence.alignment)
    return [(row, column) for row, to in enumerate(target) for column, of in enumerate(source) if (of, to) in pairs]
