"""A beam search told as a tree: every candidate of every step, with what became of it."""

from collections.abc import Sequence

import numpy as np

from regard.decode.beam import Candidates
from regard.decode.stepper import Hypothesis
from regard.look.decoding import Branch
from regard.tasks.looking.pieces import named
from regard.text import Tokenizer


def tree(steps: Sequence[Candidates], best: Hypothesis, tokenizer: Tokenizer) -> tuple[tuple[Branch, ...], ...]:
    """The candidates of one source, in the order of their scores; those on the way to `best` are marked."""
    found: list[list[Branch]] = []
    places: np.ndarray = np.array([-1])  # the branch that holds each place after the step before
    for step in steps:
        alive = np.flatnonzero(step.log_probs[0] > -np.inf)
        number = {int(candidate): branch for branch, candidate in enumerate(alive)}
        kept = {int(candidate) for candidate in step.live[0]}
        names = named(tokenizer, step.tokens[0][alive].tolist())
        found.append(
            [
                Branch(
                    piece=name,
                    parent=int(places[step.parents[0][candidate]]),
                    log_prob=float(step.log_probs[0][candidate]),
                    fate="finished" if step.finished[0][candidate] else "kept" if candidate in kept else "pruned",
                )
                for name, candidate in zip(names, alive.tolist(), strict=True)
            ]
        )
        places = np.array([number.get(int(candidate), -1) for candidate in step.live[0]])
    return tuple(tuple(step) for step in _marked(found, best))


def _marked(found: list[list[Branch]], best: Hypothesis) -> list[list[Branch]]:
    """The tree with the way to `best` marked: back from its last choice, parent by parent."""
    last = len(best.token_log_probs) - 1
    if last < 0 or last >= len(found):
        return found
    fate = "finished" if best.finished else "kept"
    ends = [index for index, branch in enumerate(found[last]) if branch.fate == fate]
    place = min(ends, key=lambda index: abs(found[last][index].log_prob - best.log_prob), default=-1)
    for step in range(last, -1, -1):
        if place < 0:
            break
        branch = found[step][place]
        found[step][place] = Branch(
            piece=branch.piece, parent=branch.parent, log_prob=branch.log_prob, fate=branch.fate, best=True
        )
        place = branch.parent
    return found
