"""Cross-entropy over a vocabulary that never holds the logits of a whole batch, and R-Drop on top of it."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.torch_version import TorchVersion

IGNORE = -100

Kernel = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]]
"""Logits, labels and smoothing to the summed loss, what else is summed up, and d loss / d logits."""

_ALIGN = {"cuda": 8}  # rows of logits of a multiple of so many numbers are what matrix units take

_MIXED = TorchVersion(torch.__version__) >= "2.8"  # products of one precision summed up in another

_CPU_CHUNK = 8 << 20  # bytes of logits at a time: what stays in its cache
LOGITS_SHARE = 1 / 64  # of a GPU's memory: rows enough for its matrix units, and few sums of the weights' gradient


def linear_cross_entropy(
    x: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"] | None,
    labels: Int[Tensor, " N"],
    smoothing: float = 0.0,
    kernel: Kernel | None = None,
    together: int = 1,
) -> tuple[Float[Tensor, ""], Float[Tensor, "*sums"]]:
    """The loss of predicting `labels` from `x W' + b`, and its plain negative log-likelihood, both summed.

    Equal to `F.cross_entropy(..., label_smoothing=smoothing, reduction="sum")`. Rows labelled IGNORE count for
    nothing. The second result carries no gradient. Gradients are found chunk by chunk together with the loss, so
    logits are formed once and never all at once. `kernel` is `loss_and_gradient`, or that compiled, or another that
    needs so many rows `together`.
    """
    device = x.device.type
    if not torch.is_grad_enabled():  # inside the function below, weights that could learn would ask for their gradient
        x, weight, bias = x.detach(), weight.detach(), None if bias is None else bias.detach()
    if device == "cpu" and type(labels) is Tensor and not torch.compiler.is_compiling():
        # Leaving out the padding is cheaper than computing it; on a GPU the count would have to be waited for. What is
        # only traced, as to plan its memory, has no values to count.
        real = (labels != IGNORE).nonzero().squeeze(1)
        if real.shape[0] < labels.shape[0]:
            x, labels = x[real], labels[real]
    if torch.is_autocast_enabled(device):
        # Inside the function below nothing is cast by itself. It casts the weights, whose gradient then stays as exact
        # as it was summed up, and is not copied to the lower precision and back.
        x = x.to(torch.get_autocast_dtype(device))
    with torch.autocast(device, enabled=False):
        return _LinearCrossEntropy.apply(x, weight, bias, labels, smoothing, kernel or loss_and_gradient, together)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, labels, smoothing: float, kernel: Kernel, together: int):
        train = any(ctx.needs_input_grad)
        ctx.dtype, V = weight.dtype, weight.shape[0]
        weight = _aligned(weight, x)
        grad_x = torch.empty_like(x) if train else None
        grad_weight = None
        grad_bias = torch.zeros_like(bias) if train and bias is not None else None
        rows = together * max(1, _chunk_rows(weight.shape[0], x.device.type) // together)
        if getattr(kernel, "in_place", False):  # it needs no room beside the logits
            rows *= 2
        losses, plains = [], []
        for start in range(0, max(1, x.shape[0]), rows):
            part = slice(start, start + rows)
            logits = F.linear(x[part], weight)
            if bias is not None:
                logits[:, :V] += bias
            chunk_loss, chunk_plain, grad = _chunk(kernel, logits, V, labels[part], smoothing, plain=together == 1)
            losses.append(chunk_loss)
            plains.append(chunk_plain)
            if grad_x is not None:
                torch.mm(grad, weight, out=grad_x[part])
                grad_weight = _add_product(grad_weight, grad.mT, x[part])
                if grad_bias is not None:
                    grad_bias += grad[:, :V].sum(0)
        if grad_weight is not None:
            grad_weight = grad_weight[:V]
        loss, plain = _total(losses), _total(plains)
        ctx.save_for_backward(grad_x, grad_weight, grad_bias)
        ctx.mark_non_differentiable(plain)
        return loss, plain

    @staticmethod
    def backward(ctx, grad_loss: Tensor, _grad_plain: Tensor):  # type: ignore[override]
        grad_x, grad_weight, grad_bias = (
            None if grad is None else grad.mul_(grad_loss.to(grad.dtype)) for grad in ctx.saved_tensors
        )
        return grad_x, None if grad_weight is None else grad_weight.to(ctx.dtype), grad_bias, None, None, None, None


def _aligned(weight: Tensor, x: Tensor) -> Tensor:
    """The weights in the precision of `x`; on a GPU with rows of zeros after them to a number that suits its kernels.

    A product with as many columns as GPT-2 has tokens, an odd number, takes several times as long.
    """
    V, more = weight.shape[0], -weight.shape[0] % _ALIGN.get(x.device.type, 1)
    if not more:
        return weight.to(x.dtype)
    wider = x.new_zeros(V + more, weight.shape[1])
    wider[:V] = weight
    return wider


def _chunk(
    kernel: Kernel, logits: Tensor, V: int, labels: Tensor, smoothing: float, *, plain: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The kernel's results where only the first `V` columns are real; the gradient of the others is zero."""
    if logits.shape[1] == V:
        return kernel(logits, labels, smoothing)
    if plain and smoothing == 0:  # what has no chance changes nothing
        logits[:, V:] = -torch.inf
        return kernel(logits, labels, smoothing)
    loss, sums, grad = kernel(logits[:, :V], labels, smoothing)
    if getattr(kernel, "in_place", False):  # the others are products with rows of zeros
        return loss, sums, logits
    return loss, sums, F.pad(grad, (0, logits.shape[1] - V))


def loss_and_gradient(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """Summed loss, summed plain loss, and d loss / d logits, of one chunk."""
    log_probs = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    visible = (labels != IGNORE)[:, None]
    targets = labels.clamp_min(0)[:, None]
    plain = -(log_probs.gather(1, targets) * visible).sum()
    uniform = -(log_probs.mean(-1, keepdim=True) * visible).sum() if smoothing else plain
    loss = (1 - smoothing) * plain + smoothing * uniform
    # The gradient of the loss at the logits is p - y, y being the (smoothed) target distribution.
    if logits.device.type == "cpu" and not torch.compiler.is_compiling():
        # In place, and rows to ignore were left out beforehand.
        grad = log_probs.exp_()
        if smoothing:
            grad -= smoothing / logits.shape[-1]
        grad.scatter_add_(1, targets, grad.new_full(targets.shape, smoothing - 1))
        return loss, plain, grad.to(logits.dtype)
    right = torch.arange(logits.shape[-1], device=logits.device) == targets
    grad = log_probs.exp() - smoothing / logits.shape[-1] - (1 - smoothing) * right
    return loss, plain, (grad * visible).to(logits.dtype)


def _add_product(total: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """total + a b, without rounding the sum to the factors' precision; a b where there is no total yet."""
    wide = torch.promote_types(a.dtype, torch.float32)
    if a.dtype == wide:
        return a @ b if total is None else total.addmm_(a, b)
    product = torch.mm(a, b, out_dtype=wide) if _MIXED and a.device.type == "cuda" else (a @ b).to(wide)
    return product if total is None else total.add_(product)


def _total(parts: list[Tensor]) -> Tensor:
    """The sum of the chunks' sums, in one launch; the sum of one is itself."""
    return widened(parts[0] if len(parts) == 1 else torch.stack(parts).sum(0))


def widened(values: Tensor) -> Tensor:
    """In single precision, or in double where they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _chunk_rows(vocab_size: int, device: str = "cpu") -> int:
    return max(64, _chunk_bytes(device) // (4 * vocab_size))


def _chunk_bytes(device: str) -> int:
    if device != "cuda":
        return _CPU_CHUNK
    return int(LOGITS_SHARE * torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)


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
