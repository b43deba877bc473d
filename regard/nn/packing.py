"""Attention over packed sequences by torch's variable-length kernel, where there is one."""

import inspect

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.masks import Visible

try:
    from torch.nn.attention.varlen import varlen_attn

    # The first release of the kernel could not be told the scale or the window.
    _KERNEL = varlen_attn if "window_size" in inspect.signature(varlen_attn).parameters else None
except ImportError:
    _KERNEL = None


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether packed sequences have a kernel here; elsewhere they are masked, which is right but wasteful."""
    return _KERNEL is not None and device.type == "cuda" and dtype in (torch.bfloat16, torch.float16)


def attend_packed(
    q: Float[Tensor, "1 H T K"],
    k: Float[Tensor, "1 G S K"],
    v: Float[Tensor, "1 G S K"],
    visible: Visible,
    scale: float,
) -> Float[Tensor, "1 H T K"]:
    """What `attend` gives for sequences that do not see each other, without forming what they do not see."""
    bounds, window = visible.packed, visible.window
    assert bounds is not None
    assert _KERNEL is not None
    left = -1 if window is None else window - 1
    repeats = q.shape[1] // k.shape[1]
    if repeats > 1:
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    queries, keys, values = (part[0].transpose(0, 1) for part in (q, k, v))
    mixed = _KERNEL(
        queries,
        keys,
        values,
        bounds.queries,
        bounds.keys,
        bounds.longest_query,
        bounds.longest_key,
        scale=scale,
        window_size=(left, 0) if visible.causal else (left, left),
    )
    assert isinstance(mixed, Tensor)
    return mixed.transpose(0, 1)[None]
