"""The pointer-sentinel mixture (Merity et al. 2017): a language model that may point at a word it has just read."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn.attention import WITHIN
from regard.nn.attention_scores import ScoredAttention
from regard.nn.masks import Visible

Memory = tuple[Float[Tensor, "B _ D"], Int[Tensor, "B _"], Bool[Tensor, "B _"]]
"""What can be pointed at, oldest first: the outputs after the last tokens read, those tokens, and which are real."""


class Sentinel(nn.Module):
    """Where a language model points among what it has read, and how much it would rather write.

    With q = tanh(W h_t + b), the softmax over (q h_1, ..., q h_t, q s) divides attention between the words read and the
    sentinel s. The sentinel's share is g, that of writing a word of the vocabulary.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.vector = nn.Parameter(torch.randn(width) * width**-0.5)
        self.pointing = ScoredAttention("dot", width, width, sides=WITHIN)

    def forward(
        self, outputs: Float[Tensor, "B N D"], memory: Float[Tensor, "B S D"], visible: Bool[Tensor, "#B N S"]
    ) -> tuple[Float[Tensor, "B N 1"], Float[Tensor, "B N S"]]:
        """g as the logit of a sigmoid, and the weights of the words read, which share the rest: they sum to one.

        `visible` says which of the memory each of the N positions may point at, at least one.
        """
        q = torch.tanh(self.query(outputs))
        scores = self.pointing.score.compare(q, memory).masked_fill(~visible, -torch.inf)
        # sigmoid(a - log sum exp(b)) = exp(a) / (exp(a) + sum exp(b)): the softmax over both in two parts.
        gate = (q @ self.vector)[..., None] - scores.logsumexp(-1, keepdim=True)
        weights = self.pointing.weights(q, memory, Visible(built=visible[:, None]))
        return gate, self.pointing.watched(q, memory, memory, weights)


def nothing_read(like: Float[Tensor, "B *rest"], window: int) -> Memory:
    """The memory before anything was read."""
    B, D = like.shape[0], like.shape[-1]
    ids = torch.zeros(B, window, dtype=torch.long, device=like.device)
    return like.new_zeros(B, window, D), ids, torch.zeros_like(ids, dtype=torch.bool)


def last_read(
    outputs: Float[Tensor, "B S D"],
    ids: Int[Tensor, "B S"],
    lengths: Int[Tensor, " B"],
    window: int,
    real: Bool[Tensor, "B S"] | None = None,
) -> Memory:
    """The last `window` places of each row's first `lengths`; where a row has fewer, what comes before is not real."""
    places = lengths[:, None] - window + torch.arange(window, device=ids.device)
    inside, places = places >= 0, places.clamp_min(0)
    real = inside if real is None else inside & real.gather(1, places)
    return outputs.take_along_dim(places[..., None], dim=1), ids.gather(1, places), real


def joined(past: Memory | None, outputs: Float[Tensor, "B T D"], ids: Int[Tensor, "B T"]) -> Memory:
    """What was read before and these, which are all real."""
    real = torch.ones_like(ids, dtype=torch.bool)
    if past is None:
        return outputs, ids, real
    return torch.cat((past[0], outputs), dim=1), torch.cat((past[1], ids), dim=1), torch.cat((past[2], real), dim=1)


def within(real: Bool[Tensor, "B S"], queries: int, window: int) -> Bool[Tensor, "B N S"]:
    """What each of the last `queries` places may point at: itself and those just before it, `window` in all."""
    S = real.shape[1]
    places = torch.arange(S, device=real.device)
    gap = places[S - queries :, None] - places
    return real[:, None] & (gap >= 0) & (gap < window)
