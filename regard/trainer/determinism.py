"""The same numbers every time: kernels that always add up in one order."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from regard.errors import RunError


@contextmanager
def repeatable(wanted: bool) -> Iterator[None]:
    """Asks torch for kernels whose results do not vary from run to run, and puts its own choice back at the end.

    Says in a line where there are none.
    """
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
    except RuntimeError as error:
        if "does not have a deterministic implementation" in str(error):
            raise RunError(f"train.deterministic=true cannot be here: {str(error).partition(',')[0]}") from None
        if "CUBLAS_WORKSPACE_CONFIG" in str(error):
            raise RunError(
                "train.deterministic=true must be asked for before this process first uses the GPU: begin in a new one"
            ) from None
        raise
    finally:
        torch.use_deterministic_algorithms(before[0])
        memory.fill_uninitialized_memory = before[1]
