"""Copy mechanisms: pointer-generator (See et al. 2017) and pointer-sentinel (Merity et al. 2017) mixtures.

A prediction is a mixture of generating a word of the vocabulary and copying one that was read.

Words outside the vocabulary are numbered after it, V, V + 1 and so on, in each source by itself.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.nn.attention import WITHIN
from regard.nn.attention_scores import ScoredAttention
from regard.nn.embeddings import OutputProjection
from regard.nn.losses.cross_entropy import IGNORE
from regard.nn.masks import Visible


def mixture(
    vocabulary: Float[Tensor, "*rows V"],
    gate: Float[Tensor, "*rows"],
    weights: Float[Tensor, "*rows S"],
    ids: Int[Tensor, "*rows S"],
    extra: int = 0,
) -> Float[Tensor, "*rows C"]:
    """P(w) = g P_vocabulary(w) + (1 - g) times the weights of the positions of w; C is V and `extra` more words.

    `vocabulary` are logits, and g is the sigmoid of `gate`.
    """
    written = vocabulary.softmax(-1) * gate.sigmoid()[..., None]
    choices = F.pad(written, (0, extra))
    return choices.scatter_add(-1, ids, (weights * (-gate).sigmoid()[..., None]).to(choices.dtype))


def mixture_loss(
    log_written: Float[Tensor, " N"],
    gate: Float[Tensor, " N"],
    copied: Float[Tensor, " N"],
    known: Bool[Tensor, " N"],
) -> Float[Tensor, " N"]:
    """-log P of labels, from their log-probability among the vocabulary and the attention weight of their positions.

    A label that is not `known` to the vocabulary can only be copied.
    """
    tiny = torch.finfo(copied.dtype).tiny
    by_writing = (F.logsigmoid(gate) + log_written).masked_fill(~known, -torch.inf)
    by_copying = F.logsigmoid(-gate) + copied.clamp_min(tiny).log()
    return -torch.logaddexp(by_writing, by_copying)


class CopyProjection(OutputProjection):
    """An output projection whose predictions are the mixture. Its input is `packed`: all that makes a prediction."""

    def packed(
        self,
        vectors: Float[Tensor, "B T D"],
        gate: Float[Tensor, "B T 1"],
        weights: Float[Tensor, "B T S"],
        ids: Int[Tensor, "B S"],
    ) -> Float[Tensor, "B T P"]:
        """The vector of each prediction, its gate, its attention weights and the ids attended to, concatenated.

        One tensor, so that whoever passes it from model to head need not know what it holds.
        """
        places = ids[:, None].expand(-1, vectors.shape[1], -1).to(torch.promote_types(vectors.dtype, torch.float32))
        return torch.cat((vectors, gate, weights, places), dim=-1)

    def forward(self, x: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch C"]:
        """Log-probabilities over the vocabulary and the words outside it that stand in these sources."""
        vectors, gate, weights, ids = self._parts(x)
        extra = max(0, int(ids.max()) + 1 - self.weight.shape[0]) if ids.numel() else 0
        logits = F.linear(vectors, self.weight, self.bias)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # whatever the model runs in
        return mixture(logits, gate, weights, ids, extra).log()

    def loss(
        self, x: Float[Tensor, "B T P"], labels: Int[Tensor, "B T"], smoothing: float = 0.0
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """The summed loss of the mixture; with `smoothing`, the vocabulary's own part of it is smoothed."""
        real = labels != IGNORE
        vectors, gate, weights, ids = self._parts(x[real])
        labels = labels[real]
        known = labels < self.weight.shape[0]
        log_words = F.linear(vectors, self.weight, self.bias).log_softmax(-1)
        log_written = log_words.gather(1, torch.where(known, labels, 0)[:, None])[:, 0]
        copied = (weights * (ids == labels[:, None])).sum(-1)
        plain = mixture_loss(log_written, gate, copied, known).sum()
        if not smoothing:
            return plain, plain.detach()
        return (1 - smoothing) * plain - smoothing * log_words.mean(-1).sum(), plain.detach()

    def r_drop_loss(self, x: Tensor, labels: Tensor, smoothing: float, alpha: float):
        raise ConfigError("train.r_drop does not apply to models that copy")

    def vectors(self, x: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch D"]:
        """Of what was packed, the vectors of the predictions."""
        return x[..., : self.weight.shape[1]]

    def shares(
        self, x: Float[Tensor, "N P"], labels: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"], Float[Tensor, " N"]]:
        """How much of each prediction is generation, and its label's probability in two parts: generated and copied."""
        vectors, gate, weights, ids = self._parts(x)
        known = labels < self.weight.shape[0]
        words = F.linear(vectors, self.weight, self.bias).softmax(-1)
        word = words.gather(1, torch.where(known, labels, 0)[:, None])[:, 0].masked_fill(~known, 0.0)
        writing = gate.sigmoid()
        return writing, writing * word, (-gate).sigmoid() * (weights * (ids == labels[:, None])).sum(-1)

    def _parts(self, x: Float[Tensor, "*batch P"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        D = self.weight.shape[1]
        weights, ids = x[..., D + 1 :].chunk(2, dim=-1)
        return self._scaled(x[..., :D]).to(self.weight.dtype), x[..., D], weights, ids.long()


def known_only(ids: Int[Tensor, "*rows"], vocab_size: int, unknown: int) -> Int[Tensor, "*rows"]:
    """The ids that an embedding has: words outside the vocabulary are read as the unknown one."""
    return torch.where(ids < vocab_size, ids, unknown)


Memory = tuple[Float[Tensor, "B _ D"], Int[Tensor, "B _"], Bool[Tensor, "B _"]]
"""What can be pointed at, oldest first: the outputs after the last tokens read, those tokens, and which are real."""


class PointerSentinel(nn.Module):
    """Where a language model points among what it has read, and how much it generates instead.

    With q = tanh(W h_t + b), the softmax over (q h_1, ..., q h_t, q s) divides attention between the words read and the
    sentinel s. The sentinel's share is g, that of generating a word of the vocabulary.
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


def empty_memory(like: Float[Tensor, " B *rest"], window: int) -> Memory:
    """The memory before anything was read."""
    B, D = like.shape[0], like.shape[-1]
    ids = torch.zeros(B, window, dtype=torch.long, device=like.device)
    return like.new_zeros(B, window, D), ids, torch.zeros_like(ids, dtype=torch.bool)


def last_entries(
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


def appended(past: Memory | None, outputs: Float[Tensor, "B T D"], ids: Int[Tensor, "B T"]) -> Memory:
    """What was read before and these, which are all real."""
    real = torch.ones_like(ids, dtype=torch.bool)
    if past is None:
        return outputs, ids, real
    return torch.cat((past[0], outputs), dim=1), torch.cat((past[1], ids), dim=1), torch.cat((past[2], real), dim=1)


def window_mask(real: Bool[Tensor, "B S"], queries: int, window: int) -> Bool[Tensor, "B N S"]:
    """What each of the last `queries` places may point at: itself and those just before it, `window` in all."""
    S = real.shape[1]
    places = torch.arange(S, device=real.device)
    gap = places[S - queries :, None] - places
    return real[:, None] & (gap >= 0) & (gap < window)
