"""Sorting: the positions of numbers from the smallest to the largest."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int


def sorted_orders(numbers: Float[np.ndarray, "B S 1"]) -> Sequence[Int[np.ndarray, " S"]]:
    """Where each row's numbers lie, smallest first; of equal ones the earlier comes first."""
    return list(np.argsort(numbers[..., 0], axis=1, kind="stable"))
