"""Triton kernels of decoding on a GPU: attention of a few queries to many cells, and the best candidates of a beam.

Each stands for several kernels of torch's that would read the same memory again; the numbers are theirs but for
rounding. `regard/nn/fixed_cache.py` and `regard/decode/slots.py` have the same in torch alone.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false
from typing import Any

import torch
import triton  # comes with torch for a GPU, and not with torch for a CPU
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = 64  # choices that are first looked at only through their maximum
SPLITS = 8  # programs that share the scan of one row
BLOCK = 2048  # choices that a program scans at a time
REGISTERS = 8192  # numbers that the selection of one source can hold at once
MOST = 32  # candidates that are selected one after the other; for more, sorting is faster


@triton.jit
def _attend(
    q, k, v, store, bias, cells, out,
    q_b, q_h, q_w, k_b, k_h, k_w, v_b, v_h, v_w, s_b, s_g, b_b, b_h, b_w,
    N, scale,
    GROUPS: tl.constexpr, SHARED: tl.constexpr, W: tl.constexpr, K: tl.constexpr, M: tl.constexpr,
    SIZE: tl.constexpr, WRITES: tl.constexpr,
):  # fmt: skip
    source, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    rows, features = tl.arange(0, M), tl.arange(0, K)
    real = rows < SHARED * W
    row, head = rows % W, group * SHARED + rows // W
    keys = store + source * s_b + group * s_g
    values = store + source * s_b + (GROUPS + group) * s_g
    if WRITES:
        mine = rows < W
        cell = tl.load(cells + source * W + row, mask=mine, other=0)
        into = cell[:, None] * K + features
        new = tl.load(k + source * k_b + group * k_h + row[:, None] * k_w + features, mask=mine[:, None], other=0.0)
        tl.store(keys + into, new, mask=mine[:, None])
        new = tl.load(v + source * v_b + group * v_h + row[:, None] * v_w + features, mask=mine[:, None], other=0.0)
        tl.store(values + into, new, mask=mine[:, None])
        tl.debug_barrier()  # what was written is read below
    query = tl.load(
        q + source * q_b + head[:, None] * q_h + row[:, None] * q_w + features, mask=real[:, None], other=0.0
    )
    greatest = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    mixed = tl.zeros((M, K), tl.float32)
    for start in range(0, N, SIZE):
        columns = start + tl.arange(0, SIZE)
        there = columns < N
        key = tl.load(keys + columns[:, None] * K + features, mask=there[:, None], other=0.0)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        added = bias + source * b_b + head[:, None] * b_h + row[:, None] * b_w + columns
        scores += tl.load(added, mask=real[:, None] & there, other=-float("inf")).to(tl.float32)
        now = tl.maximum(greatest, tl.max(scores, 1))
        base = tl.where(now == -float("inf"), 0.0, now)
        weights = tl.exp(scores - base[:, None])
        before = tl.exp(greatest - base)
        total = total * before + tl.sum(weights, 1)
        value = tl.load(values + columns[:, None] * K + features, mask=there[:, None], other=0.0)
        mixed = mixed * before[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        greatest = now
    mixed = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    into = out + (source * W + row[:, None]) * (GROUPS * SHARED * K) + head[:, None] * K + features
    tl.store(into, mixed.to(out.dtype.element_ty), mask=real[:, None])


def serves_attention(head_width: int, rows: int) -> bool:
    """Whether `attend` can be used: heads as wide as a power of 2, and not too many queries side by side."""
    return 16 <= head_width <= 128 and head_width & (head_width - 1) == 0 and rows <= 64


def attend(
    q: Float[Tensor, "B H W K"],
    store: Float[Tensor, "B G N K"],
    bias: Float[Tensor, "#B #H W M"],
    scale: float,
    new: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Float[Tensor, "B W D"]:
    """What each row gathers from the first M cells of `store`, which holds keys and then values, all heads joined.

    `new` are keys and values to be written first, and the cells that they go into.
    """
    (B, H, W, K), groups = q.shape, store.shape[1] // 2
    shared = H // groups
    out = q.new_empty(B, W, H * K)
    bias = bias if bias.stride(-1) == 1 else bias.contiguous()
    k, v, cells = new or (q, q, q)
    head_stride = bias.stride(1) if bias.shape[1] > 1 else 0
    _attend[(B, groups)](
        q, k, v, store, bias, cells, out,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *store.stride()[:2],
        bias.stride(0), head_stride, bias.stride(2),
        bias.shape[-1], scale,
        GROUPS=groups, SHARED=shared, W=W, K=K, M=max(16, triton.next_power_of_2(shared * W)),
        SIZE=64, WRITES=new is not None, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def _scan(
    logits, maxima, tops, sums, position, stride, V, chunks, least, eos,
    W: tl.constexpr, SPLIT: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    early = tl.load(position + row // W) < least
    top = tl.full((), -float("inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for start in range(part * SPLIT, min(part * SPLIT + SPLIT, V), SIZE):
        columns = start + tl.arange(0, SIZE)
        x = tl.load(logits + row * stride + columns, mask=columns < V, other=-float("inf"))
        now = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - now) + tl.sum(tl.exp(x - now), 0)
        top = now
        x = tl.where((columns == eos) & early, -float("inf"), x)
        greatest = tl.max(tl.reshape(x, (SIZE // WIDTH, WIDTH)), 1)
        places = start // WIDTH + tl.arange(0, SIZE // WIDTH)
        tl.store(maxima + row * chunks + places, greatest, mask=places < chunks)
    tl.store(tops + row * PARTS + part, top)
    tl.store(sums + row * PARTS + part, total)


@triton.jit
def _beam(
    logits, maxima, tops, totals,
    tokens, sums, running, failed, position, limits, divisors, parents,
    trace_tokens, trace_parents, trace_sums, pool_scores, pool_sums, pool_steps, pool_parents, pool_order,
    stride, V, chunks, least, eos, T, exact,
    W: tl.constexpr, ROWS: tl.constexpr, CHUNKS: tl.constexpr, PARTS: tl.constexpr,
    COUNT: tl.constexpr, SLOTS: tl.constexpr, WIDTH: tl.constexpr, P: tl.constexpr, POOL: tl.constexpr,
):  # fmt: skip
    source = tl.program_id(0).to(tl.int64)
    step = tl.load(position + source)
    early = step < least
    goes_on = tl.load(running + source).to(tl.int32) != 0
    rows, parts = tl.arange(0, ROWS), tl.arange(0, PARTS)
    real = rows < W
    top = tl.load(tops + (source * W + rows[:, None]) * PARTS + parts, mask=real[:, None], other=0.0)
    total = tl.load(totals + (source * W + rows[:, None]) * PARTS + parts, mask=real[:, None], other=1.0)
    greatest = tl.max(top, 1)
    # A split without a choice has top -inf and nothing to add.
    normaliser = greatest + tl.log(tl.sum(total * tl.exp(top - greatest[:, None]), 1))
    score = tl.load(sums + source * W + rows, mask=real, other=-float("inf"))
    wrong = tl.sum(((normaliser != normaliser) & (score > -float("inf"))).to(tl.int32), 0) > 0

    # The chunks that hold the best candidates: of equal maxima the first.
    columns = tl.arange(0, CHUNKS)
    there = real[:, None] & (columns < chunks)
    best = tl.load(maxima + (source * W + rows[:, None]) * chunks + columns, mask=there, other=-float("inf"))
    best = tl.where(there, score[:, None] + (best - normaliser[:, None]), -float("inf"))
    number = rows[:, None] * CHUNKS + columns
    slots = tl.arange(0, SLOTS)
    chosen = tl.full((SLOTS,), ROWS * CHUNKS, tl.int32)
    for index in range(COUNT):
        highest = tl.max(tl.max(best, 1), 0)
        where = tl.where((best == highest) & there, number, ROWS * CHUNKS)
        first = tl.min(tl.min(where, 1), 0)
        chosen = tl.where(slots == index, first, chosen)
        there = there & (number != first)
        best = tl.where(there, best, -float("inf"))

    row, chunk = chosen // CHUNKS, chosen % CHUNKS
    offsets = chunk[:, None] * WIDTH + tl.arange(0, WIDTH)
    left = (row < W)[:, None] & (offsets < V)
    x = tl.load(logits + (source * W + row[:, None]) * stride + offsets, mask=left, other=-float("inf"))
    x = tl.where((offsets == eos) & early, -float("inf"), x)
    mine = row[:, None] == rows
    slot_score = tl.sum(tl.where(mine, tl.where(real, score, 0.0), 0.0), 1)
    slot_normaliser = tl.sum(tl.where(mine, tl.where(real, normaliser, 0.0), 0.0), 1)
    x = tl.where(left, slot_score[:, None] + (x - slot_normaliser[:, None]), -float("inf"))
    place = row[:, None] * V + offsets

    # The finished hypotheses; of the worst, the one found last makes room for a better one.
    pool = tl.arange(0, POOL)
    held = pool < P
    scores = tl.load(pool_scores + source * P + pool, mask=held, other=float("inf"))
    order = tl.load(pool_order + source * P + pool, mask=held, other=-1)
    divided = tl.load(divisors + step)
    trace = (source * T + step) * W
    live = tl.zeros((), tl.int32)
    front = tl.full((), -float("inf"), tl.float32)
    for index in range(COUNT):
        highest = tl.max(tl.max(x, 1), 0)
        where = tl.where((x == highest) & left, place, W * V)
        first = tl.min(tl.min(where, 1), 0)
        found = first < W * V
        value = tl.where(found, highest, -float("inf"))
        token, parent = tl.where(found, first % V, eos), tl.where(found, first // V, 0)
        left = left & (place != first)
        x = tl.where(left, x, -float("inf"))
        ended = token == eos
        of_length, worst = value.to(tl.float64) / divided, tl.min(scores, 0)
        if ended & (index < W) & (value > -float("inf")) & goes_on & (of_length > worst):
            latest = tl.max(tl.where(scores == worst, order, -(2**30)), 0)
            spot = tl.max(tl.where((scores == worst) & (order == latest) & held, pool, -1), 0)
            now = step.to(tl.int32) * W + index
            scores = tl.where(pool == spot, of_length, scores)
            order = tl.where(pool == spot, now, order)
            tl.store(pool_sums + source * P + spot, value)
            tl.store(pool_steps + source * P + spot, step)
            tl.store(pool_parents + source * P + spot, parent.to(tl.int64))
        if (live < W) & ((ended == 0) | (COUNT - index <= W - live)):
            kept = tl.where(ended, -float("inf"), value)
            tl.store(tokens + source * W + live, token.to(tl.int64))
            tl.store(sums + source * W + live, kept)
            tl.store(parents + source * W + live, parent.to(tl.int64))
            tl.store(trace_tokens + trace + live, token.to(tl.int32))
            tl.store(trace_parents + trace + live, parent.to(tl.int32))
            tl.store(trace_sums + trace + live, kept)
            front = tl.where(live == 0, kept, front)
            live += 1
    tl.store(pool_scores + source * P + pool, scores, mask=held)
    tl.store(pool_order + source * P + pool, order, mask=held)
    limit = tl.load(limits + source)
    horizon = tl.where(exact, limit - 1, step)
    bound = front.to(tl.float64) / tl.load(divisors + horizon)
    stopped = (bound <= tl.min(scores, 0)) | (step + 1 >= limit) | wrong
    tl.store(running + source, goes_on & (stopped == 0))
    tl.store(failed + source, (tl.load(failed + source).to(tl.int32) != 0) | (wrong & goes_on))
    tl.store(position + source, step + goes_on.to(tl.int64))


def serves_beam(width: int, choices: int, count: int) -> bool:
    """Whether `beam_step` can be used: a source's chunks fit into registers, and choices are many."""
    chunks = triton.next_power_of_2(-(-choices // CHUNK))
    rows = triton.next_power_of_2(width)
    return rows * chunks <= REGISTERS and count <= MOST and choices >= 4 * count and width * choices < 2**31


def beam_step(logits: Float[Tensor, "R V"], search: Any, *, least: int, eos: int) -> Int[Tensor, "B W"]:
    """One step of beam search in the buffers of `search`, a `BeamSlots` of `decode/slots.py`; where rows come from.

    The softmax is never formed: each row is read once, for its normaliser and the maximum of each chunk of choices, and
    then only the few chunks that can hold the best. No hypothesis ends by `eos` before it has `least` tokens.
    """
    (R, V), (B, W) = logits.shape, search.sums.shape
    chunks, count = -(-V // CHUNK), 2 * W
    split = -(-V // (SPLITS * BLOCK)) * BLOCK
    maxima = logits.new_empty(R, chunks)
    tops, totals = logits.new_full((R, SPLITS), -torch.inf), logits.new_zeros(R, SPLITS)
    position, P = search.state.position, search.pool_scores.shape[1]
    _scan[(R, -(-V // split))](
        logits, maxima, tops, totals, position, logits.stride(0), V, chunks, least, eos,
        W=W, SPLIT=split, SIZE=BLOCK, WIDTH=CHUNK, PARTS=SPLITS, num_warps=4,
    )  # fmt: skip
    parents = torch.empty(B, W, dtype=torch.long, device=logits.device)
    _beam[(B,)](
        logits, maxima, tops, totals,
        search.tokens, search.sums, search.running, search.failed, position, search.limits, search.divisors, parents,
        search.trace_tokens, search.trace_parents, search.trace_sums,
        search.pool_scores, search.pool_sums, search.pool_steps, search.pool_parents, search.pool_order,
        logits.stride(0), V, chunks, least, eos, search.trace_tokens.shape[1], search.config.exact,
        W=W, ROWS=triton.next_power_of_2(W), CHUNKS=triton.next_power_of_2(chunks), PARTS=SPLITS,
        COUNT=count, SLOTS=triton.next_power_of_2(count), WIDTH=CHUNK, P=P, POOL=triton.next_power_of_2(P),
        num_warps=8,
    )  # fmt: skip
    return parents
