"""What every kind of run shows of its steps: vectors, copying, and what becomes of them when heads are changed."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.look.decoding import Branch, Decoding, Edited, Mixture
from regard.look.document import Candidate
from regard.look.edits import evened, masked, swapped
from regard.look.watch import Trace, attentions
from regard.nn.copy_mechanism import CopyProjection
from regard.tasks.looking.wanted import Wanted

MOST_VECTORS = 1_000_000
"""Numbers of hidden and context vectors of one text."""

Kind = Literal["masked", "even", "swapped"]
Judged = tuple[Tensor, str | None]
"""The log-probability of each old piece, and what the model says anew."""


def answered(labels: Sequence[str], log_probs: Callable[[], Tensor], most: int) -> tuple[tuple[Candidate, ...], Any]:
    """The likeliest of some classes, and a judge of how likely they are found once a head has been changed."""
    found = log_probs()
    best: list[int] = found.topk(min(most, len(labels))).indices.tolist()

    def judge() -> Judged:
        again = log_probs()
        return again[best], labels[int(again.argmax())]

    return tuple(Candidate(piece=labels[one], probability=float(found[one].exp())) for one in best), judge


def first_answer(log_probs: Tensor) -> Tensor:
    """How likely the answer is that the whole model gave."""
    return log_probs[0]


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
    gathered = seen.weights[0] @ seen.v[0]
    return gathered.transpose(0, 1).flatten(1).float().cpu()


def edited(
    model: nn.Module,
    wanted: Wanted,
    judge: Callable[[], Judged],
    *,
    other: tuple[int, Any] | None = None,
    swaps: Callable[[str], bool] = lambda name: True,
    total: Callable[[Tensor], Tensor] = torch.sum,
) -> tuple[Edited, ...]:
    """The text judged again with each head in turn masked, made even, or swapped with another text of the same shape.

    `other` is that text's number and batch, and `swaps` says of which attentions heads can be swapped with it. `total`
    makes one log-probability of the judge's.
    """
    known = attentions(model)
    heads = [
        (name, head)
        for name in wanted.chosen(model)
        for head in (wanted.heads if wanted.heads is not None else range(known[name].heads))
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
        if wanted.told is not None:
            wanted.told(done, len(jobs))
    return tuple(found)
