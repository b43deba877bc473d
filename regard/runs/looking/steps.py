"""What every kind of run shows of its steps: vectors, and what becomes of them without each head."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from regard.look.decoding import Branch, Decoding, Without
from regard.look.edits import masked
from regard.look.watch import Trace, attentions
from regard.runs.looking.wanted import Wanted

MOST_VECTORS = 1_000_000
"""Numbers of hidden and context vectors of one text."""

Judged = tuple[Tensor, str | None]
"""The log-probability of each old piece, and what the model says anew."""


def decoding(hidden: Tensor, trace: Trace, names: Sequence[str], beam: tuple[tuple[Branch, ...], ...] = ()) -> Decoding:
    """The vectors that steps predict from, and what they gathered in the last of the named attentions."""
    if hidden.numel() > MOST_VECTORS:
        return Decoding(beam=beam)
    return Decoding(hidden=hidden.float().cpu(), context=_context(trace, names), beam=beam)


def _context(trace: Trace, names: Sequence[str]) -> Tensor | None:
    """What every head gathered, side by side."""
    seen = trace[names[-1]] if names else None
    if seen is None or seen.weights is None or seen.v is None:
        return None
    gathered = seen.weights[0] @ seen.v[0]
    return gathered.transpose(0, 1).flatten(1).float().cpu()


def without_each(
    model: nn.Module, wanted: Wanted, judge: Callable[[], Judged], told: Callable[[int, int], None] | None = None
) -> tuple[Without, ...]:
    """The text judged again without each head in turn, of the attentions that are wanted."""
    known = attentions(model)
    heads = [
        (name, head)
        for name in wanted.chosen(model)
        for head in (wanted.heads if wanted.heads is not None else range(int(getattr(known[name], "heads", 1))))
    ]
    found = []
    for done, (name, head) in enumerate(heads, 1):
        with torch.inference_mode(), masked(model, {name: [head]}):
            log_probs, text = judge()
        found.append(
            Without(
                attention=name,
                head=head,
                log_prob=float(log_probs.sum()),
                probabilities=tuple(log_probs.exp().tolist()),
                text=text,
            )
        )
        if told is not None:
            told(done, len(heads))
    return tuple(found)
