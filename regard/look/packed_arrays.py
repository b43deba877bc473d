"""Arrays as text that a page can read fast: base64 of the numbers themselves, compressed where there are many."""

import base64
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8

from regard.config import JsonObject

# Weights travel as whole numbers of this grid in 16 bits. Rounding to three decimals changes value at odd multiples
# of 1/2000, which are points of the grid; cutting down to the grid therefore never changes a number on screen.
GRID = 50_000

# So many weights per head are compressed: reading is then a little slower and the page three times smaller.
COMPRESSED_FROM = 40_000


def pack_weights(weights: Float[np.ndarray, "H T S"]) -> JsonObject:
    """Weights between 0 and 1, one text per head, so that a page reads only the heads that it shows."""
    squeezed = weights.shape[1] * weights.shape[2] >= COMPRESSED_FROM
    heads = (np.floor(head.astype(np.float64) * GRID).astype("<u2") for head in weights)
    data = [_text(_compress(head) if squeezed else head.tobytes()) for head in heads]
    return {"shape": list(weights.shape), "grid": GRID, "squeezed": squeezed, "data": data}


def unpack_weights(packed: Mapping[str, Any]) -> Float[np.ndarray, "H T S"]:
    """What `pack_weights` packed, to within a cell of the grid."""
    H, T, S = packed["shape"]
    grid, squeezed = int(packed["grid"]), bool(packed.get("squeezed"))
    raw = [base64.b64decode(head) for head in packed["data"]]
    whole = np.stack([_decompress(one, T * S) if squeezed else np.frombuffer(one, dtype="<u2") for one in raw])
    # The middle of a grid cell stays in that cell when packed again; 0 and 1 are exact.
    return (np.where((whole == 0) | (whole == grid), whole, whole + 0.5) / grid).reshape(H, T, S)


def pack_floats(values: object) -> JsonObject:
    """Any numbers, as they are in 32 bits."""
    array = as_array(values).astype("<f4")
    if not np.isfinite(array).all():
        raise ValueError("numbers that are not finite")
    return {"shape": list(array.shape), "data": _text(array.tobytes())}


def pack_range(values: object) -> JsonObject:
    """Numbers within bounds, such as gates and states, in 16 bits each: to within a 65,535th of their range."""
    array = as_array(values).astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError("numbers that are not finite")
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    whole = np.round((array - low) * (65_535 / ((high - low) or 1.0))).astype("<u2")
    return {"shape": list(array.shape), "low": low, "high": high, "data": _text(whole.tobytes())}


def unpack_range(packed: object) -> np.ndarray:
    """What `pack_range` packed, or plain numbers as they are."""
    if not isinstance(packed, Mapping):
        return as_array(packed)
    whole = np.frombuffer(base64.b64decode(packed["data"]), dtype="<u2").reshape(packed["shape"])
    return packed["low"] + whole * ((packed["high"] - packed["low"]) / 65_535)


def unpack_floats(packed: object) -> np.ndarray:
    """What `pack_floats` packed, or plain numbers as they are."""
    if not isinstance(packed, Mapping):
        return as_array(packed)
    return np.frombuffer(base64.b64decode(packed["data"]), dtype="<f4").reshape(packed["shape"])


def as_array(values: object) -> np.ndarray:
    """A tensor, an array or nested lists as an array of 32 or 64 bits."""
    if isinstance(values, torch.Tensor):
        wide = torch.promote_types(values.dtype, torch.float32)
        values = values.detach().to("cpu", wide).numpy()
    array = np.asarray(values)
    return array if array.dtype == np.float32 else array.astype(np.float64)


def png_address(pixels: UInt8[np.ndarray, "Y X C"]) -> str:
    """An image of one channel or three as a PNG in a data: address."""
    return "data:image/png;base64," + _text(png_bytes(pixels))


def png_bytes(pixels: UInt8[np.ndarray, "Y X C"]) -> bytes:
    """An image of one channel or three as a PNG file. Written here, so that nobody needs Pillow."""
    Y, X, C = pixels.shape
    lines = np.concatenate((np.zeros((Y, 1), np.uint8), pixels.reshape(Y, X * C)), axis=1)  # 0: no filter

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", X, Y, 8, 0 if C == 1 else 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines.tobytes())) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def png_pixels(address: str) -> UInt8[np.ndarray, "Y X C"]:
    """The pixels of what `png_address` wrote."""
    data = base64.b64decode(address.partition(",")[2])
    X, Y, _, kind = struct.unpack(">IIBB", data[16:26])
    channels, packed, place = 1 if kind == 0 else 3, b"", 8
    while place < len(data):
        length, name = struct.unpack(">I4s", data[place : place + 8])
        packed += data[place + 8 : place + 8 + length] if name == b"IDAT" else b""
        place += length + 12
    lines = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(Y, 1 + X * channels)
    assert not lines[:, 0].any(), "filtered lines are not written here"
    return lines[:, 1:].reshape(Y, X, channels)


def _compress(head: np.ndarray) -> bytes:
    # All low bytes, then all high ones, which are nearly all zero: that is what deflate finds.
    return zlib.compress(head.reshape(-1, 1).view(np.uint8).T.tobytes(), 1)


def _decompress(compressed: bytes, count: int) -> np.ndarray:
    inflater = zlib.decompressobj()
    planes = np.frombuffer(inflater.decompress(compressed, 2 * count), dtype=np.uint8).reshape(2, count)
    return np.ascontiguousarray(planes.T).view("<u2")[:, 0]


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
