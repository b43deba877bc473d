"""How well a decoder state matches an encoder state: the six alignment scores, each with the same call."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import ConfigError, DataError, nearest

Scores = Float[Tensor, "B T S"]


class Cosine(nn.Module):
    """g cos(s, h). A cosine is bounded and its softmax cannot be sharp, so the sharpness g is learned."""

    def __init__(self, query_width: int, memory_width: int, max_len: int | None = None) -> None:
        super().__init__()
        _same(query_width, memory_width, "cosine")
        self.sharpness = nn.Parameter(torch.tensor(5.0))

    def forward(self, query: Float[Tensor, "B T D"], memory: Float[Tensor, "B S D"]) -> Scores:
        return self.sharpness * F.normalize(query, dim=-1) @ F.normalize(memory, dim=-1).mT


class Additive(nn.Module):
    """v' tanh(W [s; h]), with W in two halves so that the memory's half is computed once."""

    def __init__(self, query_width: int, memory_width: int, max_len: int | None = None) -> None:
        super().__init__()
        self.query = nn.Linear(query_width, memory_width, bias=False)
        self.memory = nn.Linear(memory_width, memory_width, bias=False)
        self.vector = nn.Linear(memory_width, 1, bias=False)

    def forward(self, query: Float[Tensor, "B T Q"], memory: Float[Tensor, "B S M"]) -> Scores:
        return self.vector(torch.tanh(self.query(query)[:, :, None] + self.memory(memory)[:, None])).squeeze(-1)


class Location(nn.Module):
    """W s: the place to look at depends on the decoder alone, so W must state the longest source it knows."""

    def __init__(self, query_width: int, memory_width: int, max_len: int | None = None) -> None:
        super().__init__()
        if max_len is None:
            raise ConfigError("the location score needs max_len, the longest source it can point into")
        self.places = nn.Linear(query_width, max_len, bias=False)

    def forward(self, query: Float[Tensor, "B T Q"], memory: Float[Tensor, "B S M"]) -> Scores:
        S, longest = memory.shape[1], self.places.out_features
        if longest < S:
            raise DataError(f"a source of {S} tokens is longer than the location score's max_len={longest}")
        return self.places(query)[..., :S]


class General(nn.Module):
    """s' W h."""

    def __init__(self, query_width: int, memory_width: int, max_len: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Linear(query_width, memory_width, bias=False)

    def forward(self, query: Float[Tensor, "B T Q"], memory: Float[Tensor, "B S M"]) -> Scores:
        return self.weight(query) @ memory.mT


class Dot(nn.Module):
    """s' h."""

    def __init__(self, query_width: int, memory_width: int, max_len: int | None = None) -> None:
        super().__init__()
        _same(query_width, memory_width, "dot")

    def forward(self, query: Float[Tensor, "B T D"], memory: Float[Tensor, "B S D"]) -> Scores:
        return query @ memory.mT


class ScaledDot(nn.Module):
    """s' h / sqrt(D), so that the scores of unit normal vectors have variance one."""

    def __init__(self, query_width: int, memory_width: int, max_len: int | None = None) -> None:
        super().__init__()
        _same(query_width, memory_width, "scaled dot")

    def forward(self, query: Float[Tensor, "B T D"], memory: Float[Tensor, "B S D"]) -> Scores:
        return query @ memory.mT * query.shape[-1] ** -0.5


SCORES = {
    "cosine": Cosine,
    "additive": Additive,
    "location": Location,
    "general": General,
    "dot": Dot,
    "scaled-dot": ScaledDot,
}


def make_score(name: str, query_width: int, memory_width: int, max_len: int | None = None) -> nn.Module:
    """The named score function for these widths."""
    if name not in SCORES:
        raise ConfigError(f"unknown score '{name}'{nearest(name, SCORES)}")
    return SCORES[name](query_width, memory_width, max_len)


def _same(query_width: int, memory_width: int, name: str) -> None:
    if query_width != memory_width:
        raise ConfigError(f"the {name} score needs equal widths, not {query_width} and {memory_width}")
