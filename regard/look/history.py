"""What heads did over training: each measure of each head at each checkpoint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from regard.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadHistory:
    """One head, by its number in the model: the name of a measure to its value at each step."""

    attention: str
    head: int
    measures: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All heads at the same steps."""

    steps: tuple[int, ...]
    heads: tuple[HeadHistory, ...]

    def __post_init__(self) -> None:
        for head in self.heads:
            for name, values in head.measures.items():
                if len(values) != len(self.steps):
                    of = f"{name} of {head.attention} head {head.head}"
                    raise DataError(f"{len(values)} values of {of}, but {len(self.steps)} steps")


def measures_of(
    weights: Float[np.ndarray, "H T S"], *, within: bool, aligned: Sequence[tuple[int, int]] = ()
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
