"""Cross-entropy that never holds the logits of a whole batch."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

IGNORE = -100

_CHUNK_BYTES = 8 << 20  # of logits at a time: what stays in a CPU's cache, and is enough work for a GPU's kernel


def linear_cross_entropy(
    x: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"] | None,
    labels: Int[Tensor, " N"],
    smoothing: float = 0.0,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The loss of predicting `labels` from `x W' + b`, and its plain negative log-likelihood, both summed.

    Equal to `F.cross_entropy(..., label_smoothing=smoothing, reduction="sum")`. Rows labelled IGNORE count for
    nothing. The second result carries no gradient. Gradients are found chunk by chunk together with the loss, so
    logits are formed once and never all at once.
    """
    if x.device.type == "cpu":
        # Leaving out the padding is cheaper than computing it; on a GPU the count would have to be waited for.
        real = (labels != IGNORE).nonzero().squeeze(1)
        if real.shape[0] < labels.shape[0]:
            x, labels = x[real], labels[real]
    return _LinearCrossEntropy.apply(x, weight, bias, labels, smoothing)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float):  # type: ignore[override]
        train = any(ctx.needs_input_grad)
        loss, plain = x.new_zeros((), dtype=torch.float32), x.new_zeros((), dtype=torch.float32)
        grad_x = torch.empty_like(x) if train else None
        grad_weight = torch.zeros_like(weight) if train else None
        grad_bias = torch.zeros_like(bias) if train and bias is not None else None
        rows = _chunk_rows(weight.shape[0])
        for start in range(0, x.shape[0], rows):
            part = slice(start, start + rows)
            logits = F.linear(x[part], weight, bias)
            chunk_loss, chunk_plain, grad = _loss_and_gradient(logits, labels[part], smoothing, train)
            loss += chunk_loss
            plain += chunk_plain
            if grad is not None and grad_x is not None and grad_weight is not None:
                torch.mm(grad, weight, out=grad_x[part])
                grad_weight.addmm_(grad.mT, x[part])
                if grad_bias is not None:
                    grad_bias += grad.sum(0)
        ctx.save_for_backward(grad_x, grad_weight, grad_bias)
        ctx.mark_non_differentiable(plain)
        return loss, plain

    @staticmethod
    def backward(ctx, grad_loss: Tensor, _grad_plain: Tensor):  # type: ignore[override]
        grads = [None if grad is None else grad * grad_loss.to(grad.dtype) for grad in ctx.saved_tensors]
        return *grads, None, None


def _loss_and_gradient(
    logits: Tensor, labels: Tensor, smoothing: float, train: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Summed loss, summed plain loss, and d loss / d logits, of one chunk."""
    log_probs = logits.log_softmax(-1, dtype=torch.float32)
    visible = labels != IGNORE
    targets = labels.clamp_min(0)[:, None]
    plain = -(log_probs.gather(1, targets).squeeze(1) * visible).sum()
    loss = plain
    if smoothing:
        uniform = -(log_probs.mean(-1) * visible).sum()
        loss = (1 - smoothing) * plain + smoothing * uniform
    if not train:
        return loss, plain, None
    # The gradient of the loss at the logits is p - y, y being the (smoothed) target distribution.
    grad = log_probs.exp_()
    if smoothing:
        grad -= smoothing / logits.shape[-1]
    grad.scatter_add_(1, targets, grad.new_full(targets.shape, smoothing - 1))
    if logits.device.type != "cpu":  # where rows to ignore have not been left out beforehand
        grad *= visible[:, None]
    return loss, plain, grad.to(logits.dtype)


def _chunk_rows(vocab_size: int) -> int:
    return max(64, _CHUNK_BYTES // (4 * vocab_size))
