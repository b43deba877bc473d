"""A calculator of attention as a page: type vectors or raw scores, then step through score, scale, softmax and sum.

It opens with the worked examples of lectures on attention, their numbers as `regard.nn` computes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import DataError, RegardError
from regard.look.document import AttentionMap, Document, Neurons, Sentence, Side, Worked
from regard.nn.attention import softmax_visible
from regard.nn.masks import CAUSAL

Rows = Sequence[Sequence[float | int]]
MOST_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkedExample:
    """Queries, keys and values, or in the place of queries and keys the raw `scores` that they gave at width `d_k`.

    Rows are vectors; of scores, a row is a query and a column a key. Without values each key has its own one-hot value,
    so that the sum shows the weights. `causal` hides keys after the query's place.
    """

    title: str
    tokens: tuple[str, ...]
    q: Rows | None = None
    k: Rows | None = None
    v: Rows | None = None
    scores: Rows | None = None
    d_k: float | int | None = None
    causal: bool = False

    def sentence(self) -> Sentence:
        """What the page steps through, with the weights worked out."""
        q, k, raw = self._queries_and_keys()
        v = torch.eye(len(k)) if self.v is None else _matrix("v", self.v)
        if q.shape[1] != k.shape[1]:
            raise DataError(f"queries of {q.shape[1]} numbers and keys of {k.shape[1]}: a dot product needs as many")
        if len(v) != len(k):
            raise DataError(f"{len(k)} keys and {len(v)} values: each key has one")
        d_k = float(k.shape[1]) if self.d_k is None else float(self.d_k)
        if not d_k > 0:
            raise DataError(f"d_k={self.d_k} must be above 0")
        scaled = q.double() @ k.double().mT * d_k**-0.5
        mask = CAUSAL.mask(len(q), len(k), torch.device("cpu")) if self.causal else None
        seen = torch.ones_like(scaled, dtype=torch.bool) if mask is None else mask[0, 0].expand(len(q), len(k))
        weights = softmax_visible(scaled[None], seen[None])[0]
        rows, columns = _labels(self.tokens, len(q)), _labels(self.tokens, len(k))
        across = len(q) != len(k)
        return Sentence(
            source=Side(text=self.title, pieces=columns, names=True),
            target=Side(text="", pieces=rows, names=True) if across else None,
            attentions=(
                AttentionMap(
                    name="attention",
                    kind="cross" if across else "self",
                    rows="target" if across else "source",
                    columns="source",
                    weights=weights[None],
                    neurons=Neurons(q=q[None], k=k[None], v=v[None], scale=d_k**-0.5),
                ),
            ),
            worked=Worked(d_k=d_k, causal=self.causal, raw=raw),
        )

    def _queries_and_keys(self) -> tuple[Tensor, Tensor, bool]:
        if self.scores is not None:
            if self.q is not None or self.k is not None:
                raise DataError("give q and k, or the scores that they make, not both")
            if self.d_k is None:
                raise DataError("scores alone do not say what they are scaled by: give d_k")
            scores = _matrix("scores", self.scores)
            # One-hot queries and the columns of the table give these scores back.
            return torch.eye(len(scores)), scores.mT.contiguous(), True
        if self.q is None or self.k is None:
            raise DataError("give q and k, or scores and d_k")
        return _matrix("q", self.q), _matrix("k", self.k), False


def _labels(tokens: Sequence[str], count: int) -> tuple[str, ...]:
    return tuple(tokens[:count]) if len(tokens) >= count else tuple(str(place + 1) for place in range(count))


def _matrix(name: str, rows: Rows) -> Tensor:
    if not 1 <= len(rows) <= MOST_ROWS or len({len(row) for row in rows}) != 1 or not 1 <= len(rows[0]) <= 512:
        raise DataError(f"{name} must be 1 to {MOST_ROWS} rows of equally many numbers, 512 at most")
    found = torch.tensor([[float(one) for one in row] for row in rows])
    if not torch.isfinite(found).all():
        raise DataError(f"{name} has numbers that are not finite")
    return found


def matrix_of(name: str, text: str) -> list[list[float]]:
    """Rows with ; or line breaks between them, numbers with spaces or commas: `6 4; 3 8`."""
    lines = [line for line in text.replace("\n", ";").split(";") if line.strip()]
    try:
        return [[float(word) for word in line.replace(",", " ").split()] for line in lines]
    except ValueError as error:
        raise DataError(f"{name}={text!r} must be numbers, with ; between rows: {error}") from None


LOOK_AHEAD = (
    (16.2, 7.7, 2.0, 4.6, 3.1, 8.9),
    (3.2, 21.5, 6.1, 8.4, 8.1, 5.2),
    (1.9, 4.3, 18.7, 6.5, 7.2, 3.3),
    (2.7, 4.1, 7.6, 22.3, 9.0, 3.8),
    (4.4, 5.8, 6.9, 5.6, 24.5, 4.7),
    (4.0, 3.9, 6.7, 7.3, 6.1, 16.8),
)
SIX = tuple(str(place) for place in range(1, 7))

EXAMPLES: tuple[WorkedExample, ...] = (
    WorkedExample(
        title="Two words: scores 112 and 96, d_k 64", tokens=("first", "second"), scores=((112, 96),), d_k=64
    ),
    WorkedExample(
        title="Four words: scores 112, 96, 16 and 8, d_k 64",
        tokens=("first", "second", "third", "fourth"),
        scores=((112, 96, 16, 8),),
        d_k=64,
    ),
    WorkedExample(
        title="Two queries: scores 6, 4 and 3, 8, d_k 16", tokens=("first", "second"), scores=((6, 4), (3, 8)), d_k=16
    ),
    WorkedExample(
        title="One head over six features: two as query, two as key, two as value",
        tokens=("first", "second"),
        q=((0, 1), (1, 1)),
        k=((1, 1), (0, -1)),
        v=((1, 0), (-1, 1)),
    ),
    WorkedExample(title="Look-ahead mask: six words, d_k 64", tokens=SIX, scores=LOOK_AHEAD, d_k=64, causal=True),
    WorkedExample(
        title="A database: the query is one of the keys, many times as long, and gets that key's value",
        tokens=("a", "b", "c"),
        q=((0, 20, 0),),
        k=((20, 0, 0), (0, 20, 0), (0, 0, 20)),
        v=((1, 2), (3, 4), (5, 6)),
    ),
)
"""Every worked example of attention in the lectures."""


def calculator(own: WorkedExample | None = None) -> Document:
    """The page: your own numbers first where given, then every worked example."""
    try:
        sentences = tuple(one.sentence() for one in ((own, *EXAMPLES) if own else EXAMPLES))
    except RegardError as error:
        raise DataError(f"nothing to calculate: {error}") from None
    return Document(
        title="Attention by hand",
        note="Choose an example or type your own numbers, and step through them in Neurons.",
        sentences=sentences,
    )
