"""Statistics of heads (entropy, distance, where they look), attention rollout and flow over layers, value norms."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.config import JsonObject
from regard.errors import DataError
from regard.nn.double_precision import doubles


@dataclass(frozen=True, slots=True)
class HeadMeasures:
    """Means over all queries of a corpus, one number per head.

    `entropy` is in nats: 0 for a head that looks at one place. `maximum` is the largest weight of a query. `distance`
    is how many places away a head looks, weighed by its weights. `first`, `last` and `separator` are the weights on
    the first key, the last, and on those marked as separators.
    """

    queries: int
    entropy: Float[Tensor, " H"]
    maximum: Float[Tensor, " H"]
    distance: Float[Tensor, " H"]
    first: Float[Tensor, " H"]
    last: Float[Tensor, " H"]
    separator: Float[Tensor, " H"]

    def to_mapping(self) -> JsonObject:
        """Plain values, ready for JSON."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value.tolist() if isinstance(value, Tensor) else value for name, value in values.items()}


class Measures:
    """The measures of one attention's heads, added up batch by batch."""

    def __init__(self) -> None:
        self.queries = 0
        self._sums: Tensor | None = None

    def add(
        self,
        weights: Float[Tensor, "B H T S"],
        *,
        queries: Int[Tensor, " B"] | None = None,
        keys: Int[Tensor, " B"] | None = None,
        separators: Bool[Tensor, "B S"] | None = None,
    ) -> None:
        """Count one batch. `queries` and `keys` are how many of each row are real; all are unless given."""
        B, H, T, S = weights.shape
        if self._sums is not None and self._sums.shape[1] != H:
            raise DataError(f"weights of {H} heads after {self._sums.shape[1]}: must stay the same")
        weights = doubles(weights.detach())
        device = weights.device
        queries, keys, separators = (
            given if given is None else given.to(device) for given in (queries, keys, separators)
        )
        queries = torch.full((B,), T, device=device) if queries is None else queries
        last = torch.full((B,), S, device=device) if keys is None else keys
        real = (torch.arange(T, device=device) < queries[:, None]).double()
        gap = (torch.arange(T, device=device)[:, None] - torch.arange(S, device=device)).abs().double()
        marked = torch.zeros(B, S, dtype=torch.bool, device=device) if separators is None else separators
        at_last = torch.arange(S, device=device) == (last - 1)[:, None]
        each = (
            torch.special.entr(weights).sum(-1),
            weights.amax(-1),
            (weights * gap).sum(-1),
            weights[..., 0],
            (weights * at_last[:, None, None]).sum(-1),
            (weights * marked[:, None, None]).sum(-1),
        )
        sums = torch.stack([(value * real[:, None]).sum((0, 2)) for value in each]).cpu()
        self.queries += int(real.sum())
        self._sums = sums if self._sums is None else self._sums + sums

    def means(self) -> HeadMeasures:
        """The means so far."""
        if self._sums is None or not self.queries:
            raise DataError("no queries: a measure needs at least one")
        return HeadMeasures(self.queries, *(self._sums / self.queries))


def measures_of(
    weights: Float[np.ndarray, "H T S"], *, within: bool, aligned: Collection[tuple[int, int]] = ()
) -> dict[str, Float[np.ndarray, " H"]]:
    """How each head looks on one text. `within` is for attention of a text to itself, where places can be compared.

    `aligned` are (row, column) of pieces that translate each other: how much of its weight a row gives to them.
    """
    _, T, S = weights.shape
    wide = weights.astype(np.float64)
    logs = np.log(np.where(wide > 0, wide, 1))
    found = {"entropy": -(wide * logs).sum(-1).mean(-1), "largest weight": wide.max(-1).mean(-1)}
    if within:
        rows, columns = np.arange(T)[:, None], np.arange(S)
        found["distance"] = (wide * np.abs(rows - columns)).sum(-1).mean(-1)
        for name, offset in (("weight on the one before", -1), ("weight on itself", 0), ("weight on the next", 1)):
            at = (columns == rows + offset) & np.ones((T, S), dtype=bool)
            found[name] = np.where(at, wide, 0).sum((-2, -1)) / max(int(at.any(-1).sum()), 1)
    found["weight on the first"] = wide[..., 0].mean(-1)
    if aligned:
        gold = np.zeros((T, S), dtype=bool)
        for row, column in aligned:
            gold[row, column] = True
        found["weight on the aligned"] = np.where(gold, wide, 0).sum((-2, -1)) / gold.any(-1).sum()
    return found


def rollout(layers: Sequence[Float[Tensor, "B H T T"]], *, residual: float = 0.5) -> Float[Tensor, "B T T"]:
    """Attention rollout: how much of each input is in each position after all `layers`, were attention all that mixes.

    A layer is the mean of its heads, beside which `residual` of each position stays as it was (Abnar and Zuidema 2020,
    who take a half). Rows sum to one where the weights' rows do.
    """
    if not layers:
        raise DataError("no layers: a rollout needs at least one")
    if not 0.0 <= residual <= 1.0:
        raise DataError(f"residual={residual} must be between 0 and 1")
    B, _, T, _ = layers[0].shape
    mixed = torch.eye(T, dtype=layers[0].dtype, device=layers[0].device).expand(B, T, T)
    for weights in layers:
        if weights.shape[0] != B or weights.shape[-2:] != (T, T):
            raise DataError(f"weights of {tuple(weights.shape)} after {(B, T, T)}: a rollout keeps its places")
        mixed = residual * mixed + (1 - residual) * weights.mean(1) @ mixed
    return mixed


def flow(
    layers: Sequence[Float[Tensor, "B H T T"]], *, residual: float = 0.5, queries: Sequence[int] | None = None
) -> Float[Tensor, "B N T"]:
    """Attention flow: how much could come from each input to each of `queries` (all unless given) after all `layers`.

    Where `rollout` multiplies along every path, flow takes weights as the widths of pipes: it is the most that can run
    from the query at the top to an input at the bottom at once (Abnar and Zuidema 2020). A layer is as in `rollout`. It
    is worked out pair by pair, so it is for sentences, not for long texts.
    """
    from networkx import DiGraph, maximum_flow_value
    from networkx.algorithms.flow import dinitz

    rollout(layers, residual=residual)  # the same checks
    B, _, T, _ = layers[0].shape
    rows = list(range(T)) if queries is None else list(queries)
    found = torch.zeros(B, len(rows), T, dtype=torch.float64)
    for item in range(B):
        pipes = DiGraph()
        for depth, weights in enumerate(layers):
            mixed = residual * torch.eye(T) + (1 - residual) * weights[item].mean(0).cpu().float()
            for query, key in mixed.nonzero().tolist():
                pipes.add_edge((depth + 1, query), (depth, key), capacity=float(mixed[query, key]))
        for index, query in enumerate(rows):
            top = (len(layers), query)
            for key in range(T):
                if top in pipes and (0, key) in pipes:
                    found[item, index, key] = maximum_flow_value(pipes, top, (0, key), flow_func=dinitz)
    return found.to(layers[0].dtype)


def value_norms(
    weights: Float[Tensor, "B H T S"], v: Float[Tensor, "B H S K"], output: Float[Tensor, "D N"]
) -> Float[Tensor, "B H T S"]:
    """The length of what each key adds to each query's output: weight times the value through the output's matrix.

    A large weight on a small value adds little (Kobayashi et al. 2020). `output` is the matrix of the attention's
    output, heads side by side: N is H times K.
    """
    H, K = v.shape[1], v.shape[3]
    if output.shape[1] != H * K:
        raise DataError(f"the output's matrix takes {output.shape[1]} features; {H} heads of {K} give {H * K}")
    through = torch.einsum("bhsk,dhk->bhsd", v, output.unflatten(1, (H, K)))
    return weights * through.norm(dim=-1)[:, :, None]
