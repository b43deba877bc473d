"""Where a pointing run pointed."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from regard.data.puzzles.problems import Problem, in_unit_square
from regard.errors import ConfigError
from regard.look.document import AttentionMap, Candidate, Document, Sentence, Side
from regard.look.watch import Trace, watch
from regard.nn.batch import Pointings
from regard.tasks.looking.pieces import END
from regard.tasks.looking.wanted import Wanted
from regard.tasks.pointer import Answer
from regard.tasks.run import Run

CANDIDATES = 5


def pointing(run: Run, problems: Sequence[Problem | Any], wanted: Wanted, **decode: Any) -> Document:
    """What the page shows: the items, the answer, and the weight of every choice at every step."""
    if wanted.targets or wanted.edits or wanted.vectors:
        raise ConfigError("of a pointing run only weights can be shown: no targets, edits or vectors")
    made = run.pointer.checked(problems)
    found = [best[0] for best in run.pointer.answers(made, run.decode_config(**decode))]
    return Document(
        title=f"Where {run.directory.name} pointed",
        note="Each row is a step; its weights are the prediction itself. An item is named by its position, from 0.",
        sentences=tuple(_sentence(run, problem, best, wanted) for problem, best in zip(made, found, strict=True)),
    )


@torch.inference_mode()
def _sentence(run: Run, problem: Problem, best: Answer, wanted: Wanted) -> Sentence:
    device = next(run.model.parameters()).device
    batch = Pointings.of([in_unit_square(problem.items)], [np.array(best.order, dtype=np.int64)]).to(device)
    names = wanted.fitting(run.model, lambda name: (len(problem.items) + 1) ** 2)
    with watch(run.model, names, heads=wanted.heads) as trace:
        probabilities = run.model(batch)[0].exp().cpu()
    items = [f"item {place}: {_shown(item)}" for place, item in enumerate(problem.items)]
    choices, rows = [END, *items], [*(items[place] for place in best.order), END]
    return Sentence(
        source=_side(choices, items),
        target=_side(rows, rows[:-1]),
        attentions=tuple(_maps(trace, len(items), wanted)),
        candidates=tuple(_candidates(step, choices) for step in probabilities),
        scores={"score": f"{best.score:.3f}", "order": " ".join(map(str, best.order))},
    )


def _maps(trace: Trace, items: int, wanted: Wanted) -> Iterator[AttentionMap]:
    heads: dict[str, Any] = {} if wanted.heads is None else {"heads": wanted.heads}
    for name in trace.names:
        weights = trace.weights(name)[0].cpu()
        if weights.shape[-1] == items:  # items looking at items: the end, which comes first, looks at nothing
            weights = torch.nn.functional.pad(weights, (1, 0, 1, 0))
            yield AttentionMap(name=name, kind="self", rows="source", columns="source", weights=weights, **heads)
        else:
            yield AttentionMap(name=name, kind="cross", rows="target", columns="source", weights=weights, **heads)


def _candidates(step: torch.Tensor, choices: list[str]) -> tuple[Candidate, ...]:
    values, places = step.topk(min(CANDIDATES, len(choices)))
    pairs = zip(values.tolist(), places.tolist(), strict=True)
    return tuple(Candidate(piece=choices[place], probability=value) for value, place in pairs)


def _side(pieces: list[str], items: list[str]) -> Side:
    return Side(text="; ".join(items), pieces=tuple(pieces), names=True)


def _shown(item: np.ndarray) -> str:
    numbers = ", ".join(f"{value:.4g}" for value in item)
    return numbers if len(item) == 1 else f"({numbers})"
