"""Train, run and look inside attention models.

import regard
run = regard.load("runs/demo")
run.translate(["I am a student."], beam=5)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.look import watch
    from regard.runs import Run, compare, evaluate, load, make_config, resume, train

__version__ = "0.1.0"

__all__ = ["Run", "compare", "evaluate", "load", "make_config", "resume", "train", "watch"]


def __getattr__(name: str) -> Any:
    # Importing does no work: torch and the rest come with the first name that needs them.
    if name == "watch":
        from regard.look import watch

        return watch
    if name == "serve":
        import importlib

        return importlib.import_module("regard.serve")
    if name in __all__:
        from regard import runs

        return getattr(runs, name)
    raise AttributeError(f"module 'regard' has no attribute '{name}'")
