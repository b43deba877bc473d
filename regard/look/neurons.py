"""The vectors behind an attention's weights, in a form from which anyone can work the weights out again."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from regard.look.document import Neurons
from regard.look.places import by_offset
from regard.look.watch import Seen
from regard.nn.scores import Additive, Cosine, General, Location, ScaledDot, ScoredAttention


def neurons_of(attention: nn.Module, seen: Seen, item: int = 0, heads: Sequence[int] | None = None) -> Neurons | None:
    """The queries, keys and values of one sequence of a batch; None where a score has no use for keys.

    `heads` are those that were kept, where not all were.
    """
    if seen.q is None or seen.k is None or seen.v is None:
        return None
    q, k, v = (part[item].float().cpu() for part in (seen.q, seen.k, seen.v))
    if isinstance(attention, ScoredAttention):
        return _scored(attention.score, q, k, v)
    scale = float(getattr(attention, "scale", q.shape[-1] ** -0.5))
    distances = getattr(attention, "distances", None)
    if distances is None:
        return Neurons(q=q, k=k, v=v, scale=scale)
    kept = slice(None) if heads is None else list(heads)
    return Neurons(q=q, k=k, v=v, scale=scale, offsets=by_offset(distances, q.shape[1], k.shape[1])[kept])


def _scored(score: nn.Module, q: Tensor, k: Tensor, v: Tensor) -> Neurons | None:
    """The six scores of `regard.nn.scores`: what is done to a query before it meets the keys is done to it here."""
    if isinstance(score, Location):
        return None
    if isinstance(score, Additive):
        query, vector = score.query.weight.float().cpu(), score.vector.weight[0].float().cpu()
        return Neurons(q=q @ query.mT, k=k, v=v, combine="additive", vector=vector)
    if isinstance(score, General):
        return Neurons(q=q @ score.weight.weight.float().cpu().mT, k=k, v=v)
    if isinstance(score, Cosine):
        return Neurons(q=F.normalize(q, dim=-1), k=k, v=v, scale=float(score.sharpness.detach()))
    return Neurons(q=q, k=k, v=v, scale=q.shape[-1] ** -0.5 if isinstance(score, ScaledDot) else 1.0)
