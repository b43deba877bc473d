"""A run directory on disk, and nothing else: its files, checkpoints and log; mappings and tensors in and out."""

import warnings
from importlib import import_module
from typing import Any

_MOVED = ("Run", "RunConfig", "compare", "evaluate", "load", "make_config", "presets", "resume", "train")


def __getattr__(name: str) -> Any:
    # Names that were here in 0.1.0.
    if name in _MOVED:
        warnings.warn(f"regard.runs.{name} is now regard.{name}", FutureWarning, stacklevel=2)
        return getattr(import_module("regard"), name)
    raise AttributeError(f"module 'regard.runs' has no attribute '{name}'")
