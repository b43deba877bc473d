"""The vectors behind an attention's weights, in a form from which anyone can work the weights out again."""

from collections.abc import Sequence

from regard.look.document import Neurons
from regard.look.watch import Seen
from regard.nn.attention import Watchable


def neurons_of(attention: Watchable, seen: Seen, item: int = 0, heads: Sequence[int] | None = None) -> Neurons | None:
    """The queries, keys and values of one sequence of a batch; None where an attention does not say how they score.

    `heads` are those that were kept, where not all were.
    """
    if seen.q is None or seen.k is None or seen.v is None:
        return None
    q, k, v = (part[item].float().cpu() for part in (seen.q, seen.k, seen.v))
    how = attention.arithmetic(q, k, heads)
    if how is None:
        return None
    combine = "product" if how.vector is None else "additive"
    return Neurons(q=how.q, k=how.k, v=v, scale=how.scale, combine=combine, vector=how.vector, offsets=how.offsets)
