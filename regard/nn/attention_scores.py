"""Attention score functions (dot, additive, general, ...), and single-head attention over any of them.

Every score is a function of queries and memory, in two parts: `keys`, which depends on the memory alone and is computed
once for all steps of a decoder, and `compare`, of queries with those keys.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, DataError
from regard.nn.attention import ACROSS, Arithmetic, Sides, Watcher, softmax_visible
from regard.nn.masks import EVERYTHING, Visible
from regard.plugins import Registry

Scores = Float[Tensor, "B T S"]


class Score(nn.Module):
    """What the six have in common."""

    def forward(self, query: Float[Tensor, "B T Q"], memory: Float[Tensor, "B S M"]) -> Scores:
        return self.compare(query, self.keys(memory))

    def keys(self, memory: Float[Tensor, "B S M"]) -> Float[Tensor, "B S M"]:
        """What queries are compared with: the memory itself, unless a score overrides it."""
        return memory

    def compare(self, query: Float[Tensor, "B T Q"], keys: Float[Tensor, "B S M"]) -> Scores:
        raise NotImplementedError

    def arithmetic(self, q: Float[Tensor, "H T Q"], k: Float[Tensor, "H S M"]) -> Arithmetic | None:
        """The same comparison as a viewer can show it, number by number; None where a score does not say."""
        return None


class Cosine(Score):
    """g cos(s, h). A cosine is bounded and its softmax cannot be sharp, so the sharpness g is learned."""

    def __init__(self, query_width: int, memory_width: int, max_len: int | None = None) -> None:
        super().__init__()
        _same(query_width, memory_width, "cosine")
        self.sharpness = nn.Parameter(torch.tensor(5.0))

    def keys(self, memory: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        return F.normalize(memory, dim=-1)

    def compare(self, query: Float[Tensor, "B T D"], keys: Float[Tensor, "B S D"]) -> Scores:
        return self.sharpness * F.normalize(query, dim=-1) @ keys.mT

    def arithmetic(self, q: Float[Tensor, "H T D"], k: Float[Tensor, "H S D"]) -> Arithmetic:
        return Arithmetic(F.normalize(q, dim=-1), k, float(self.sharpness.detach()))


class Additive(Score):
    """v' tanh(W [s; h]), with W in two halves so that the memory's half is computed once."""

    def __init__(self, query_width: int, memory_width: int, max_len: int | None = None) -> None:
        super().__init__()
        self.query = nn.Linear(query_width, memory_width, bias=False)
        self.memory = nn.Linear(memory_width, memory_width, bias=False)
        self.vector = nn.Linear(memory_width, 1, bias=False)

    def keys(self, memory: Float[Tensor, "B S M"]) -> Float[Tensor, "B S M"]:
        return self.memory(memory)

    def compare(self, query: Float[Tensor, "B T Q"], keys: Float[Tensor, "B S M"]) -> Scores:
        return self.vector(torch.tanh(self.query(query)[:, :, None] + keys[:, None])).squeeze(-1)

    def arithmetic(self, q: Float[Tensor, "H T Q"], k: Float[Tensor, "H S M"]) -> Arithmetic:
        query, vector = self.query.weight.detach().float().cpu(), self.vector.weight[0].detach().float().cpu()
        return Arithmetic(q @ query.mT, k, vector=vector)


class Location(Score):
    """W s: where to look depends on the decoder alone, so W has a row per position of the longest source."""

    def __init__(self, query_width: int, memory_width: int, max_len: int | None = None) -> None:
        super().__init__()
        if max_len is None:
            raise ConfigError("the location score needs max_len, the longest source it can point into")
        self.places = nn.Linear(query_width, max_len, bias=False)

    def compare(self, query: Float[Tensor, "B T Q"], keys: Float[Tensor, "B S M"]) -> Scores:
        S, longest = keys.shape[1], self.places.out_features
        if longest < S:
            raise DataError(f"a source of {S} tokens is longer than the location score's max_len={longest}")
        return self.places(query)[..., :S]


class General(Score):
    """s' W h."""

    def __init__(self, query_width: int, memory_width: int, max_len: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Linear(query_width, memory_width, bias=False)

    def compare(self, query: Float[Tensor, "B T Q"], keys: Float[Tensor, "B S M"]) -> Scores:
        return self.weight(query) @ keys.mT

    def arithmetic(self, q: Float[Tensor, "H T Q"], k: Float[Tensor, "H S M"]) -> Arithmetic:
        return Arithmetic(q @ self.weight.weight.detach().float().cpu().mT, k)


class Dot(Score):
    """s' h."""

    def __init__(self, query_width: int, memory_width: int, max_len: int | None = None) -> None:
        super().__init__()
        _same(query_width, memory_width, "dot")

    def compare(self, query: Float[Tensor, "B T D"], keys: Float[Tensor, "B S D"]) -> Scores:
        return query @ keys.mT

    def arithmetic(self, q: Float[Tensor, "H T D"], k: Float[Tensor, "H S D"]) -> Arithmetic:
        return Arithmetic(q, k)


class ScaledDot(Score):
    """s' h / sqrt(D), so that the scores of unit normal vectors have variance one."""

    def __init__(self, query_width: int, memory_width: int, max_len: int | None = None) -> None:
        super().__init__()
        _same(query_width, memory_width, "scaled dot")

    def compare(self, query: Float[Tensor, "B T D"], keys: Float[Tensor, "B S D"]) -> Scores:
        return query @ keys.mT * query.shape[-1] ** -0.5

    def arithmetic(self, q: Float[Tensor, "H T D"], k: Float[Tensor, "H S D"]) -> Arithmetic:
        return Arithmetic(q, k, q.shape[-1] ** -0.5)


SCORES: Registry[type[Score]] = Registry(
    "regard.scores",
    "score",
    {
        "cosine": Cosine,
        "additive": Additive,
        "location": Location,
        "general": General,
        "dot": Dot,
        "scaled-dot": ScaledDot,
    },
)
"""Score functions by name; those of other packages by the entry points `regard.scores`."""


def make_score(name: str, query_width: int, memory_width: int, max_len: int | None = None) -> Score:
    """The named score function for these widths."""
    return SCORES.named(name)(query_width, memory_width, max_len)


class ScoredAttention(nn.Module):
    """Single-head attention, whose weights are the softmax of one of the scores. `watcher` as in `Attention`."""

    heads = 1

    def __init__(
        self,
        score: str,
        query_width: int,
        memory_width: int,
        max_len: int | None = None,
        *,
        sides: Sides = ACROSS,
    ) -> None:
        super().__init__()
        self.score = make_score(score, query_width, memory_width, max_len)
        self.head_width, self.sides = memory_width, sides
        self.watcher: Watcher | None = None

    def keys(self, memory: Float[Tensor, "B S M"]) -> Float[Tensor, "B S M"]:
        return self.score.keys(memory)

    def arithmetic(
        self, q: Float[Tensor, "H T Q"], k: Float[Tensor, "H S M"], heads: Sequence[int] | None = None
    ) -> Arithmetic | None:
        return self.score.arithmetic(q, k)

    def forward(
        self,
        query: Float[Tensor, "B T Q"],
        keys: Float[Tensor, "B S M"],
        values: Float[Tensor, "B S V"],
        visible: Visible = EVERYTHING,
    ) -> Float[Tensor, "B T V"]:
        """What each query gathers from the values."""
        weights = self.weights(query, keys, visible)
        return self.watched(query, keys, values, weights) @ values

    def weights(
        self,
        query: Float[Tensor, "B T Q"],
        keys: Float[Tensor, "B S M"],
        visible: Visible = EVERYTHING,
        offset: Float[Tensor, "B T S"] | None = None,
    ) -> Float[Tensor, "B T S"]:
        """The attention weights of each query, before a watcher has seen them; `offset` is added to the scores."""
        mask = visible.mask(query.shape[1], keys.shape[1], query.device)
        scores = self.score.compare(query, keys)
        scores = scores if offset is None else scores + offset
        return softmax_visible(scores, None if mask is None else mask.squeeze(1))

    def watched(
        self,
        query: Float[Tensor, "B T Q"],
        keys: Float[Tensor, "B S M"],
        values: Float[Tensor, "B S V"],
        weights: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T S"]:
        """The weights that the watcher gives back for these; without one, these."""
        if self.watcher is None:
            return weights
        return self.watcher(query[:, None], keys[:, None], values[:, None], weights[:, None]).squeeze(1)


class LocationAwareAttention(nn.Module):
    """Additive attention that also knows where it has looked so far (Chorowski et al. 2015): v' tanh(W s + V h + U f).

    The features f of a place are a convolution of the sum of all weights before, so that a decoder can tell what it has
    read from what it has not, and a repeated word from the same word.
    """

    heads = 1

    def __init__(
        self, query_width: int, memory_width: int, *, filters: int = 16, kernel: int = 31, sides: Sides = ACROSS
    ) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ConfigError(f"kernel={kernel} must be odd, so that it has a middle")
        self.query = nn.Linear(query_width, memory_width)
        self.memory = nn.Linear(memory_width, memory_width, bias=False)
        self.before = nn.Conv1d(1, filters, kernel, padding=kernel // 2, bias=False)
        self.place = nn.Linear(filters, memory_width, bias=False)
        self.vector = nn.Linear(memory_width, 1, bias=False)
        self.head_width, self.sides = memory_width, sides
        self.watcher: Watcher | None = None

    def keys(self, memory: Float[Tensor, "B S M"]) -> Float[Tensor, "B S M"]:
        return self.memory(memory)

    def arithmetic(
        self, q: Float[Tensor, "H T Q"], k: Float[Tensor, "H S M"], heads: Sequence[int] | None = None
    ) -> Arithmetic | None:
        """Not that of queries and keys alone: what was looked at before counts too."""
        return None

    def weights(
        self,
        query: Float[Tensor, "B T Q"],
        keys: Float[Tensor, "B S M"],
        visible: Visible,
        before: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T S"]:
        """The attention weights of each query, `before` being the sum of the weights of the steps before it."""
        B, T, S = before.shape
        features = self.before(before.reshape(B * T, 1, S)).mT.unflatten(0, (B, T))
        scores = self.vector(torch.tanh(self.query(query)[:, :, None] + keys[:, None] + self.place(features)))
        mask = visible.mask(T, S, query.device)
        return softmax_visible(scores.squeeze(-1), None if mask is None else mask.squeeze(1))

    def watched(
        self,
        query: Float[Tensor, "B T Q"],
        keys: Float[Tensor, "B S M"],
        values: Float[Tensor, "B S V"],
        weights: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T S"]:
        """The weights that the watcher gives back for these; without one, these."""
        if self.watcher is None:
            return weights
        return self.watcher(query[:, None], keys[:, None], values[:, None], weights[:, None]).squeeze(1)


def _same(query_width: int, memory_width: int, name: str) -> None:
    if query_width != memory_width:
        raise ConfigError(f"the {name} score needs equal widths, not {query_width} and {memory_width}")
