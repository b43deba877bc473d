"""The positional encodings of a model as tables to show: sinusoidal, learned, rotary, ALiBi or relative."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from regard.errors import DataError
from regard.look.packed_arrays import unpack_floats
from regard.nn.attention import by_offset
from regard.nn.embeddings import PatchEmbedding
from regard.nn.positions import Alibi, Positions, RelativeBias, Rotary, sinusoidal

MOST_POSITIONS, MOST_NUMBERS, FAR = 128, 65_536, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionTable:
    """The encoding of the first positions: a row per position, a column per feature.

    Columns of `pairs` are a sine and a cosine of one angle, which a step of one position rotates by the same amount
    everywhere; `angles` are these amounts. For `alibi` the rows are heads, and there is one column, the slope; for
    `relative` they are heads as well, and the columns what each adds for distances from -FAR to FAR.
    """

    name: str
    kind: Literal["sinusoidal", "learned", "linear", "rotary", "alibi", "relative"]
    table: Any
    pairs: tuple[tuple[int, int], ...] = ()
    angles: tuple[float, ...] = ()

    def array(self) -> np.ndarray:
        """The table, checked."""
        table = unpack_floats(self.table)
        if table.ndim != 2 or not table.size:
            raise DataError(f"the positions of '{self.name}' have shape {table.shape}; must be positions, features")
        if len(self.angles) != len(self.pairs) or any(
            not 0 <= one < table.shape[1] for two in self.pairs for one in two
        ):
            raise DataError(
                f"the pairs of '{self.name}' must each have an angle and be of its {table.shape[1]} features"
            )
        return table


def position_tables(model: nn.Module) -> tuple[PositionTable, ...]:
    """Every positional encoding of a model, each once however many modules share it."""
    found: dict[tuple[str, bytes], PositionTable] = {}
    for name, module in model.named_modules():
        table = _table(name, module)
        if table is not None:
            found.setdefault((table.kind, table.array().tobytes()), table)
    return tuple(found.values())


def _table(name: str, module: nn.Module) -> PositionTable | None:
    if isinstance(module, Alibi):
        return PositionTable(name=name, kind="alibi", table=module.slopes[:, None].float().cpu())
    if isinstance(module, RelativeBias):
        return PositionTable(name=name, kind="relative", table=by_offset(module, FAR + 1, FAR + 1))
    if isinstance(module, Rotary):
        table = torch.stack((module.sines, module.cosines), -1).flatten(1)
        return _rotating(name, "rotary", _first_rows(table), "interleaved")
    if isinstance(module, PatchEmbedding):
        return PositionTable(name=f"{name}.positions", kind="learned", table=_first_rows(module.positions[0]))
    if not isinstance(module, Positions):
        return None
    table = _first_rows(module.table)
    if isinstance(module.table, nn.Parameter):
        return PositionTable(name=name, kind="learned", table=table)
    for layout in ("interleaved", "halves"):
        if table.shape[1] % 2 == 0 and torch.equal(table, sinusoidal(*table.shape, layout=layout)):
            return _rotating(name, "sinusoidal", table, layout)
    return PositionTable(name=name, kind="linear", table=table)


def _first_rows(table: Tensor) -> Tensor:
    """As many rows as a view has room for."""
    return table[: max(2, min(MOST_POSITIONS, MOST_NUMBERS // table.shape[1]))].detach().float().cpu()


def _rotating(name: str, kind: Literal["sinusoidal", "rotary"], table: Tensor, layout: str) -> PositionTable:
    D = table.shape[1]
    pairs = [(2 * j, 2 * j + 1) if layout == "interleaved" else (j, j + D // 2) for j in range(D // 2)]
    # Position 1 has been rotated once from position 0.
    angles = [float(torch.atan2(table[1, sine], table[1, cosine])) for sine, cosine in pairs] if len(table) > 1 else []
    return PositionTable(name=name, kind=kind, table=table, pairs=tuple(pairs) if angles else (), angles=tuple(angles))
