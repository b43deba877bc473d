"""Top-k with ties settled, fast over large vocabularies: what beam search and top-k sampling are built on."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = 64  # choices that are first looked at only through their maximum
LARGE = 1 << 12  # log-probabilities of one source fewer than these are looked through faster than chunks are made


def best_sums(
    scores: Float[Tensor, "B W"], log_probs: Float[Tensor, "R C"], count: int
) -> tuple[Float[Tensor, "B N"], Int[Tensor, "B N"]]:
    """The `count` best sums of a row's score and one of its C choices, best first, and where among W * C they lie.

    R is B * W, in order of B. Equal sums come lower place first, so what is chosen never depends on the device, the
    batch or the kernel. Fewer than `count` come back when there are fewer to choose from.
    """
    (B, W), C = scores.shape, log_probs.shape[1]
    if W * C >= LARGE and 8 * (W * C / CHUNK + count * CHUNK) < W * C:
        return (on_host if log_probs.device.type == "cpu" else by_chunks)(scores, log_probs, count)
    return stable_topk((scores[..., None] + log_probs.view(B, W, C)).flatten(1), count)


def by_chunks(
    scores: Float[Tensor, "B W"], log_probs: Float[Tensor, "R C"], count: int
) -> tuple[Float[Tensor, "B N"], Int[Tensor, "B N"]]:
    """What `best_sums` finds, by one fast pass over all choices and another look at a few.

    torch.topk over all of W * C can take several times as long as the rest of a search. But the best N choices lie
    within the N chunks of best maximum, and maxima are fast.
    """
    (B, W), C = scores.shape, log_probs.shape[1]
    chunks = -(-C // CHUNK)
    maxima = scores[..., None] + _chunk_maxima(log_probs).view(B, W, chunks)
    _, nearby = stable_topk(maxima.flatten(1), count)
    nearby = nearby.sort(-1).values  # so that places below keep the order of places among all
    rows = nearby // chunks
    columns = (nearby % chunks * CHUNK)[..., None] + torch.arange(CHUNK, device=nearby.device)
    places = (rows[..., None] * C + columns).flatten(1).clamp(max=W * C - 1)
    sums = log_probs.reshape(B, W * C).gather(1, places).view(columns.shape)
    sums = (sums + scores.gather(1, rows)[..., None]).masked_fill(columns >= C, -torch.inf)
    values, where = stable_topk(sums.flatten(1), min(count, W * C))
    return values, places.gather(1, where)


def on_host(
    scores: Float[Tensor, "B W"], log_probs: Float[Tensor, "R C"], count: int
) -> tuple[Float[Tensor, "B N"], Int[Tensor, "B N"]]:
    """What `best_sums` finds, by NumPy: on a CPU it takes half the time of torch.topk.

    A chunk's choices lie apart, one in every `chunks`, so that maxima are taken of whole vectors at once. As many
    chunks as sums are wanted have a maximum of `least` or more, so each sum wanted has that, too: all such are found,
    ties and all. Where there is NaN, or fewer chunks than that have more than -inf, torch looks through all.
    """
    (B, W), C = scores.shape, log_probs.shape[1]
    rows, start = log_probs.float().numpy(), scores.float().numpy()
    chunks, depth = C // CHUNK, -(-C // (C // CHUNK))
    whole = C - C % chunks
    maxima = rows[:, :whole].reshape(B * W, -1, chunks).max(1)
    np.maximum(maxima[:, : C - whole], rows[:, whole:], out=maxima[:, : C - whole])
    maxima = (maxima.reshape(B, W, chunks) + start[..., None]).reshape(B, -1)
    least = np.partition(maxima, -count, axis=1)[:, -count]
    if not (least > -np.inf).all() or np.isnan(maxima.max()):
        return stable_topk((scores[..., None] + log_probs.float().view(B, W, C)).flatten(1), count)
    sources, nearby = np.nonzero(maxima >= least[:, None])
    places, columns = np.divmod(nearby, chunks)
    columns = columns[:, None] + np.arange(0, depth * chunks, chunks)
    inside = np.minimum(columns, C - 1)
    sums = rows[(sources * W + places)[:, None], inside] + start[sources, places, None]
    near = (sums >= least[sources, None]) & (columns < C)
    values, where = sums[near], (places[:, None] * C + inside)[near]
    owners = np.repeat(sources, near.sum(1))
    order = np.lexsort((where, -values, owners))
    best = order[np.searchsorted(owners, np.arange(B))[:, None] + np.arange(count)]  # owners come in order
    return torch.from_numpy(values[best]), torch.from_numpy(where[best])


def stable_topk(values: Float[Tensor, "B M"], count: int) -> tuple[Float[Tensor, "B N"], Int[Tensor, "B N"]]:
    """The `count` greatest of each row, greatest first, and their places; ties lower place first, save for -inf."""
    if values.device.type != "cpu":  # looking for ties would wait for the device
        return _settled(values, count)
    found, places = values.topk(min(count + 1, values.shape[1]))
    # torch.topk leaves the order of ties open. They are rare, so they are looked for and only then settled.
    if ((found[:, 1:] == found[:, :-1]) & (found[:, 1:] > -torch.inf)).any():
        return _settled(values, count)
    return found[:, :count], places[:, :count]


def _settled(values: Float[Tensor, "B M"], count: int) -> tuple[Float[Tensor, "B N"], Int[Tensor, "B N"]]:
    """As `stable_topk`, in single precision, by whole numbers that hold the value above the place: no two are equal."""
    M = values.shape[1]
    values = values.float() + 0.0  # -0.0 is not below 0.0
    bits = values.view(torch.int32)
    # The bits of a float below zero grow as it falls, so all but its sign are turned over.
    order = (bits >> 31).bitwise_and_(0x7FFFFFFF).bitwise_xor_(bits)
    keys = torch.add(torch.arange(M - 1, -1, -1, device=values.device), order, alpha=1 << 32)
    places = M - 1 - (keys.topk(min(count, M)).values & 0xFFFFFFFF)
    return values.gather(1, places), places


def _chunk_maxima(log_probs: Float[Tensor, "R C"]) -> Float[Tensor, "R M"]:
    whole = log_probs.shape[1] // CHUNK
    maxima = log_probs[:, : whole * CHUNK].unflatten(1, (whole, CHUNK)).amax(-1)
    rest = log_probs[:, whole * CHUNK :]
    return torch.cat([maxima, rest.amax(-1, keepdim=True)], 1) if rest.shape[1] else maxima
