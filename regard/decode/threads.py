"""How many CPU threads a search uses: few rows of small matrices are multiplied faster by one."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

FEW_ROWS = 8
"""Hypotheses under way, up to which a small product is over before a second thread has begun."""

WIDEST, WIDEST_INT8 = 256, 1024
"""The widest model whose products count as small, in float32 or bfloat16 and in int8."""


def threads_for(rows: int, width: int, *, int8: bool) -> int | None:
    """One for few rows of small matrices; None leaves torch's choice."""
    return 1 if rows <= FEW_ROWS and width <= (WIDEST_INT8 if int8 else WIDEST) else None


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
