"""Cross-entropy and its gradient in one kernel for a GPU: a row of logits is read twice and becomes its gradient."""

# pyright: reportMissingImports=false, reportIndexIssue=false
import torch
import triton  # comes with torch for a GPU, and not with torch for a CPU
import triton.language as tl
from torch import Tensor

from regard.nn.losses.cross_entropy import IGNORE

_WIDEST = 16384  # columns at a time


def fused_loss_and_gradient(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """`loss_and_gradient` with the gradient in the place of the logits, which are gone."""
    N, V = logits.shape
    assert logits.stride(1) == 1
    sums = torch.empty(2, N, dtype=torch.float32, device=logits.device)
    block = min(_WIDEST, triton.next_power_of_2(V))
    warps = 16 if block >= 8192 else 8 if block >= 2048 else 4
    with torch.cuda.device_of(logits):
        _row[(N,)](
            logits,
            labels,
            sums,
            logits.stride(0),
            N,
            V,
            float(smoothing),
            SMOOTHED=smoothing > 0,
            IGNORE=IGNORE,
            BLOCK=block,
            num_warps=warps,
        )
    loss, plain = sums.sum(1).unbind()
    return loss, plain, logits


fused_loss_and_gradient.in_place = True  # type: ignore[attr-defined]


@triton.jit
def _row(
    logits,
    labels,
    sums,
    stride,
    N,
    V,
    smoothing,
    SMOOTHED: tl.constexpr,
    IGNORE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row: log sum exp of it as it is read, then p - y, y being the (smoothed) target distribution."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    start = logits + row * stride
    ignored = label == IGNORE
    highest = -float("inf")
    total = 0.0  # of exp(x - highest)
    flat = 0.0  # of x
    for first in range(0, V, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        inside = columns < V
        x = tl.load(start + columns, mask=inside, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(highest, tl.max(x, 0))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(x - higher), 0)
        highest = higher
        if SMOOTHED:
            flat += tl.sum(tl.where(inside, x, 0.0), 0)
    log_sum = highest + tl.log(total)
    right = tl.load(start + tl.where(ignored, 0, label)).to(tl.float32)
    plain = tl.where(ignored, 0.0, log_sum - right)
    uniform = tl.where(ignored, 0.0, log_sum - flat / V)
    tl.store(sums + row, (1.0 - smoothing) * plain + smoothing * uniform)
    tl.store(sums + N + row, plain)
    tl.debug_barrier()  # all have read the label's logit before it is written over
    for first in range(0, V, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        inside = columns < V
        x = tl.load(start + columns, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.where(columns == label, 1.0 - smoothing, 0.0) + smoothing / V
        gradient = tl.where(ignored, 0.0, tl.exp(x - log_sum) - y)
        tl.store(start + columns, gradient.to(logits.dtype.element_ty), mask=inside)
