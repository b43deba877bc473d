"""The same numbers every time: kernels that always add up in one order."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def repeatable(wanted: bool) -> Iterator[None]:
    """Asks torch for kernels whose results do not vary from run to run, and puts its own choice back at the end."""
    if not wanted:
        yield
        return
    memory: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory
    # cuBLAS reads this when it is first used: one workspace for each stream, so that no two share one.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False  # nothing here reads memory before it is written
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        memory.fill_uninitialized_memory = before[1]
