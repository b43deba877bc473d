"""How many CPU threads a search uses: few rows of small int8 matrices are multiplied as fast by one."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

FEW_ROWS = 8
"""Hypotheses under way, up to which a small product is over before a second thread has begun."""

WIDEST = 512
"""The widest model in int8 whose products count as small. In float32 a second thread paid at every width measured."""


def threads_for(rows: int, width: int, *, int8: bool) -> int | None:
    """One for few rows of small int8 matrices; None leaves torch's choice. See `benchmarks/decoding_threads.py`."""
    return 1 if int8 and rows <= FEW_ROWS and width <= WIDEST else None


@contextmanager
def limited_threads(count: int | None) -> Iterator[None]:
    """At most so many threads inside."""
    before = torch.get_num_threads()
    if count is None or count >= before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
