"""How a model knows where a token stands, as a picture: the table of any kind of positions that it has."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from regard.errors import DataError
from regard.look.packing import pack_floats, unpack_floats
from regard.nn.attention import by_offset
from regard.nn.embeddings import PatchEmbedding
from regard.nn.positions import Alibi, Positions, RelativeBias, Rotary, sinusoidal

MOST_PLACES, MOST_NUMBERS, FAR = 128, 65_536, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The encoding of the first positions: a row a position, a column a feature.

    Columns of `pairs` are a sine and a cosine of one angle, which a step of one position turns by the same amount
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

    def to_mapping(self, *, packed: bool = True) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        table = self.array()
        return {
            "name": self.name,
            "kind": self.kind,
            "table": pack_floats(table) if packed else table.tolist(),
            "pairs": [list(pair) for pair in self.pairs],
            "angles": list(self.angles),
        }


def places_of_model(model: nn.Module) -> tuple[Places, ...]:
    """Every kind of positions in a model, each once however many modules share it."""
    found: dict[tuple[str, bytes], Places] = {}
    for name, module in model.named_modules():
        places = _places(name, module)
        if places is not None:
            found.setdefault((places.kind, places.array().tobytes()), places)
    return tuple(found.values())


def _places(name: str, module: nn.Module) -> Places | None:
    if isinstance(module, Alibi):
        return Places(name=name, kind="alibi", table=module.slopes[:, None].float().cpu())
    if isinstance(module, RelativeBias):
        return Places(name=name, kind="relative", table=by_offset(module, FAR + 1, FAR + 1))
    if isinstance(module, Rotary):
        table = torch.stack((module.sines, module.cosines), -1).flatten(1)
        return _turning(name, "rotary", _some(table), "interleaved")
    if isinstance(module, PatchEmbedding):
        return Places(name=f"{name}.positions", kind="learned", table=_some(module.positions[0]))
    if not isinstance(module, Positions):
        return None
    table = _some(module.table)
    if isinstance(module.table, nn.Parameter):
        return Places(name=name, kind="learned", table=table)
    for layout in ("interleaved", "halves"):
        if table.shape[1] % 2 == 0 and torch.equal(table, sinusoidal(*table.shape, layout=layout)):
            return _turning(name, "sinusoidal", table, layout)
    return Places(name=name, kind="linear", table=table)


def _some(table: Tensor) -> Tensor:
    """As many rows as a picture has room for."""
    return table[: max(2, min(MOST_PLACES, MOST_NUMBERS // table.shape[1]))].detach().float().cpu()


def _turning(name: str, kind: Literal["sinusoidal", "rotary"], table: Tensor, layout: str) -> Places:
    D = table.shape[1]
    pairs = [(2 * j, 2 * j + 1) if layout == "interleaved" else (j, j + D // 2) for j in range(D // 2)]
    # Position 1 has been turned once from position 0.
    angles = [float(torch.atan2(table[1, sine], table[1, cosine])) for sine, cosine in pairs] if len(table) > 1 else []
    return Places(name=name, kind=kind, table=table, pairs=tuple(pairs) if angles else (), angles=tuple(angles))
