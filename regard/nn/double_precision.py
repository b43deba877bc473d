"""Numbers of twofold precision also where a device has none: Apple's GPUs (`mps`) know float32 at most."""

import torch
from jaxtyping import Float64, Shaped
from torch import Tensor

WITHOUT = frozenset({"mps"})
"""Kinds of devices without float64."""


def doubles(x: Shaped[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    """`x` as float64: where it is, or on the CPU where its device has no such numbers."""
    return (x.cpu() if x.device.type in WITHOUT else x).double()


def doubles_on(device: torch.device, x: Float64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    """`x` on the device, or on the CPU still where the device has no such numbers."""
    return x if device.type in WITHOUT else x.to(device)
