"""How long an output may grow, and how its length weighs in its score."""

from typing import Literal

import numpy as np
from jaxtyping import Int
from torch import Tensor

from regard.errors import ConfigError

LengthForm = Literal["gnmt", "power"]


def divisor(length: int | np.ndarray, penalty: float, form: LengthForm) -> float | np.ndarray:
    """What a log-probability is divided by at `length` choices, `eos` counted; it never falls as length grows.

    "gnmt" is ((5 + length) / 6) ** penalty, as in Wu et al. 2016 and Vaswani et al. 2017; "power" is
    length ** penalty, as in Hugging Face.
    """
    return ((5 + length) / 6) ** penalty if form == "gnmt" else (length + 0.0) ** penalty


def limits(max_len: int | Int[Tensor, " B"], count: int) -> Int[np.ndarray, " B"]:
    """The most choices each of `count` rows may make, `eos` counted."""
    lengths = np.full(count, max_len) if isinstance(max_len, int) else max_len.cpu().numpy()
    if len(lengths) != count:
        raise ConfigError(f"max_len has {len(lengths)} lengths; it must have one for each of {count} rows")
    if count and lengths.min() < 1:
        raise ConfigError(f"max_len={lengths.min()} must be at least 1")
    return lengths
