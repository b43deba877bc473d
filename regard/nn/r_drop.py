"""R-Drop: two predictions of the same token under different dropout, held to the labels and to each other."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from regard.nn.loss import IGNORE, Kernel


def interleaved(x: Shaped[Tensor, "B T D"]) -> Shaped[Tensor, "N D"]:
    """The vectors (or labels) of a doubled batch, the two of each prediction side by side."""
    first, second = x.chunk(2)
    return torch.stack((first, second), 2).flatten(0, 2)


def r_drop_loss_and_gradient(
    logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"], smoothing: float, alpha: float
) -> tuple[Float[Tensor, ""], Float[Tensor, "2"], Float[Tensor, "N V"]]:
    """Both cross-entropies plus `alpha` times the mean of the two divergences, of one chunk whose rows come in twos.

    Summed over the chunk; then the sums of the plain loss (the mean of the two) and of the divergence, and the gradient
    of the loss at the logits.
    """
    V = logits.shape[-1]
    wide = torch.promote_types(logits.dtype, torch.float32)
    log_probs = logits.view(-1, 2, V).log_softmax(-1, dtype=wide)
    labels = labels.view(-1, 2)[:, :1, None]
    visible, targets = labels != IGNORE, labels.clamp_min(0).expand(-1, 2, 1)
    plain = -(log_probs.gather(2, targets) * visible).sum()
    uniform = -(log_probs.mean(-1, keepdim=True) * visible).sum() if smoothing else plain
    probs = log_probs.exp()
    # With d = log p - log q, KL(p|q) is the sum of p d and KL(q|p) that of -q d; d turns its sign for the second row.
    gap = log_probs - log_probs.flip(1)
    one_way = (probs * gap).sum(-1, keepdim=True)
    divergence = 0.5 * (one_way * visible).sum()
    loss = (1 - smoothing) * plain + smoothing * uniform + alpha * divergence
    # Half of each divergence moves p: p (d - KL) through its own, p - q through the other.
    pull = probs * (gap - one_way) + probs - probs.flip(1)
    right = torch.arange(V, device=logits.device) == targets
    grad = probs - smoothing / V - (1 - smoothing) * right + (0.5 * alpha) * pull
    return loss, torch.stack((0.5 * plain, divergence)), (grad * visible).to(logits.dtype).view(-1, V)


def r_drop_kernel(alpha: float, found: Callable[..., Any] = r_drop_loss_and_gradient) -> Kernel:
    """That as a kernel of `linear_cross_entropy`; `found` may be it compiled."""

    def kernel(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
        return found(logits, labels, smoothing, alpha)

    return kernel
