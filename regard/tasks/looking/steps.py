"""What every kind of run shows of its steps: pieces and candidates, the beam, vectors, copying, and edited heads."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from regard.decode.beam import Candidates
from regard.decode.stepper import Hypothesis
from regard.look.document import Branch, Candidate, Decoding, Document, Edited, Mixture, Sentence
from regard.look.edits import evened, masked, swapped
from regard.look.watch import Trace, attentions
from regard.nn.copy_mechanism import CopyProjection
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.run import Run
from regard.text import Tokenizer
from regard.text.tokenizer import JOINER

END = "⟨end⟩"
START = "⟨start⟩"
CANDIDATES = 8
MOST_VECTORS = 1_000_000
"""Numbers of hidden and context vectors of one text."""

Kind = Literal["masked", "even", "swapped"]
Judged = tuple[Tensor, str | None]
"""The log-probability of each old piece, and what the model says anew."""


def looked(run: Run, found: Sequence[tuple[Sentence, str]]) -> Document:
    """The document of some sentences, each with what did not fit; one note about that is enough."""
    return Document(
        title=f"Where {run.directory.name} looked",
        sentences=tuple(sentence for sentence, _ in found),
        note=next((note for _, note in found if note), ""),
    )


def readable(pieces: list[str]) -> list[str]:
    """The pieces as a reader wants them: the word tokenizer's marks say only where no space goes."""
    return [piece.replace(JOINER, "") for piece in pieces]


def piece_names(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """The pieces with these ids; the one that ends a text has a name of its own."""
    return [END if token == tokenizer.eos else readable(tokenizer.pieces([token]))[0] for token in ids]


def spans_in_order(text: str, names: Iterable[Sequence[str]]) -> list[tuple[int, int]]:
    """The characters that each piece covers, the pieces found one after another, each by any of its `names`."""
    spans, end = [], 0
    for each in names:
        found = [(start, start + len(name)) for name in each if (start := text.find(name, end)) >= 0]
        spans.append(min(found, default=(end, end)))
        end = spans[-1][1]
    return spans


def candidates(
    tokenizer: Tokenizer, probabilities: Tensor, given: Sequence[int | None], count: int = CANDIDATES
) -> tuple[tuple[Candidate, ...], ...]:
    """For each row of probabilities the likeliest pieces, likeliest first, and the one given if it is not there."""
    values, ids = torch.topk(probabilities, min(count, probabilities.shape[-1]))
    found = []
    for row, chances, token, all_of_them in zip(ids.tolist(), values.tolist(), given, probabilities, strict=True):
        if token is not None and token not in row:
            row, chances = [*row, token], [*chances, float(all_of_them[token])]
        pairs = zip(piece_names(tokenizer, row), chances, strict=True)
        found.append(tuple(Candidate(piece=name, probability=p) for name, p in pairs))
    return tuple(found)


def same_length(rows: Sequence[Sequence[int]], number: int) -> int | None:
    """The first other row with as many tokens as this one: heads can be swapped between them."""
    return next((other for other, row in enumerate(rows) if other != number and len(row) == len(rows[number])), None)


def beam_tree(steps: Sequence[Candidates], best: Hypothesis, tokenizer: Tokenizer) -> tuple[tuple[Branch, ...], ...]:
    """Every candidate of every step of one source's beam search, by score, and what became of it.

    Those on the way to `best` are marked.
    """
    found: list[list[Branch]] = []
    places: np.ndarray = np.array([-1])  # the branch that holds each place after the step before
    for step in steps:
        alive = np.flatnonzero(step.log_probs[0] > -np.inf)
        number = {int(candidate): branch for branch, candidate in enumerate(alive)}
        kept = {int(candidate) for candidate in step.live[0]}
        names = piece_names(tokenizer, step.tokens[0][alive].tolist())
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
    _mark(found, best)
    return tuple(map(tuple, found))


def _mark(found: list[list[Branch]], best: Hypothesis) -> None:
    """Mark the way to `best`: back from its last choice, parent by parent."""
    last = len(best.token_log_probs) - 1
    if last < 0 or last >= len(found):
        return
    fate = "finished" if best.finished else "kept"
    ends = [index for index, branch in enumerate(found[last]) if branch.fate == fate]
    place = min(ends, key=lambda index: abs(found[last][index].log_prob - best.log_prob), default=-1)
    for step in range(last, -1, -1):
        if place < 0:
            break
        found[step][place] = replace(found[step][place], best=True)
        place = found[step][place].parent


def edited_classes(
    model: Any, labels: Sequence[str], batch: object, most: int, options: LookOptions, other: tuple[int, object] | None
) -> tuple[tuple[Candidate, ...], tuple[Edited, ...]]:
    """The likeliest classes of one input, and how likely they are with each head changed. `other` as in `edited`."""

    def log_probs() -> Tensor:
        return model.logits(batch)[0].float().log_softmax(-1).cpu()

    found = log_probs()
    best: list[int] = found.topk(min(most, len(labels))).indices.tolist()

    def judge() -> Judged:
        again = log_probs()
        return again[best], labels[int(again.argmax())]

    answers = tuple(Candidate(piece=labels[one], probability=float(found[one].exp())) for one in best)
    return answers, edited(model, options, judge, other=other, total=lambda log_probs: log_probs[0])


def decoding(
    hidden: Tensor,
    trace: Trace,
    names: Sequence[str],
    beam: tuple[tuple[Branch, ...], ...] = (),
    *,
    head: nn.Module | None = None,
    pieces: Sequence[int | None] = (),
) -> Decoding:
    """The vectors that steps predict from, and what they gathered in the last of the named attentions.

    If their `head` copies, also how each came to its piece of `pieces`, None where there is none.
    """
    mixture = ()
    if isinstance(head, CopyProjection):
        mixture, hidden = mixtures(head, hidden, pieces), head.vectors(hidden)
    if hidden.numel() > MOST_VECTORS:
        return Decoding(beam=beam, mixture=mixture)
    return Decoding(hidden=hidden.float().cpu(), context=_context(trace, names), beam=beam, mixture=mixture)


def mixtures(head: CopyProjection, packed: Tensor, pieces: Sequence[int | None]) -> tuple[Mixture, ...]:
    """How each step of a model that copies came to its piece."""
    labels = torch.tensor([-1 if piece is None else piece for piece in pieces], device=packed.device)
    shares = torch.stack(head.shares(packed, labels.clamp_min(0)), dim=-1).float().clamp(0, 1).tolist()
    return tuple(
        Mixture(writing=writing) if piece is None else Mixture(writing=writing, written=written, copied=copied)
        for piece, (writing, written, copied) in zip(pieces, shares, strict=True)
    )


def _context(trace: Trace, names: Sequence[str]) -> Tensor | None:
    """What every head gathered, side by side."""
    seen = trace[names[-1]] if names else None
    if seen is None or seen.weights is None or seen.v is None:
        return None
    gathered = seen.weights[0] @ seen.v[0].to(seen.weights.dtype)  # which is float32 or better
    return gathered.transpose(0, 1).flatten(1).float().cpu()


def edited(
    model: nn.Module,
    options: LookOptions,
    judge: Callable[[], Judged],
    *,
    other: tuple[int, object] | None = None,
    swaps: Callable[[str], bool] = lambda name: True,
    total: Callable[[Tensor], Tensor] = torch.sum,
) -> tuple[Edited, ...]:
    """The text scored again with each head in turn masked, made even, or swapped with another text of the same shape.

    `other` is that text's number and batch, and `swaps` says of which attentions heads can be swapped with it. `total`
    makes one log-probability of those that `judge` gives.
    """
    known = attentions(model)
    heads = [
        (name, head)
        for name in options.chosen(model)
        for head in (options.heads if options.heads is not None else range(known[name].heads))
    ]
    kinds: list[tuple[Kind, Any, int | None]] = [("masked", masked, None), ("even", evened, None)]
    if other is not None:
        number, batch = other
        kinds.append(("swapped", lambda model, heads: swapped(model, batch, heads), number))
    jobs: list[tuple[Kind, Any, int | None, str, int]] = [
        (kind, change, sentence, name, head)
        for kind, change, sentence in kinds
        for name, head in heads
        if kind != "swapped" or swaps(name)
    ]
    found = []
    for done, (kind, change, sentence, name, head) in enumerate(jobs, 1):
        with torch.inference_mode(), change(model, {name: [head]}):
            log_probs, text = judge()
        found.append(
            Edited(
                attention=name,
                head=head,
                log_prob=float(total(log_probs)),
                probabilities=tuple(log_probs.exp().tolist()),
                text=text,
                edit=kind,
                other=sentence,
            )
        )
        if options.told is not None:
            options.told(done, len(jobs))
    return tuple(found)
