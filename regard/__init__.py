"""Train, run and look inside attention models.

import regard
run = regard.load("runs/demo")
run.translate(["I am a student."], beam=5)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.moved import keep_old_names

if TYPE_CHECKING:
    from regard.comparison import compare
    from regard.interop.hub import load
    from regard.look import watch
    from regard.tasks.config import RunConfig, make_config, presets
    from regard.tasks.ensemble import ensemble
    from regard.tasks.planning import plan
    from regard.tasks.run import Run, evaluate
    from regard.trainer.distillation import distill
    from regard.trainer.trainer import resume, train

__version__ = "0.1.0"

__all__ = [
    "Run",
    "RunConfig",
    "compare",
    "distill",
    "ensemble",
    "evaluate",
    "load",
    "make_config",
    "plan",
    "presets",
    "resume",
    "train",
    "watch",
]

_WHERE = {
    "Run": "regard.tasks.run",
    "RunConfig": "regard.tasks.config",
    "compare": "regard.comparison",
    "distill": "regard.trainer.distillation",
    "ensemble": "regard.tasks.ensemble",
    "evaluate": "regard.tasks.run",
    "load": "regard.interop.hub",
    "make_config": "regard.tasks.config",
    "plan": "regard.tasks.planning",
    "presets": "regard.tasks.config",
    "resume": "regard.trainer.trainer",
    "train": "regard.trainer.trainer",
    "watch": "regard.look",
}


keep_old_names()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "serve"})


def __getattr__(name: str) -> Any:
    # Importing does no work: torch and the rest come with the first name that needs them.
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    if name == "serve":
        return import_module("regard.serve")
    raise AttributeError(f"module 'regard' has no attribute '{name}'")
