"""Train, run and look inside attention models.

import regard
run = regard.train("tiny", data=[("I am a student.", "Je suis étudiant."), ...], out="runs/first")
run = regard.load("runs/first")
run.translate(["I am a student."], beam=5)
run.look(["I am a student."]).save("attention.html")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.errors import ConfigError, DataError, Diverged, RegardError, RegardWarning, RunError
from regard.moved import keep_old_names

if TYPE_CHECKING:  # what `__getattr__` finds, for checkers of types and editors
    from regard import analysis as analysis
    from regard import bench as bench
    from regard import comparison as comparison
    from regard import config as config
    from regard import data as data
    from regard import decode as decode
    from regard import errors as errors
    from regard import interop as interop
    from regard import look as look
    from regard import metrics as metrics
    from regard import models as models
    from regard import nn as nn
    from regard import plugins as plugins
    from regard import runs as runs
    from regard import serve as serve
    from regard import tasks as tasks
    from regard import text as text
    from regard import trainer as trainer
    from regard import training as training
    from regard.analysis.decoding_files import answer_file
    from regard.analysis.training_curves import LiveCurves
    from regard.comparison import compare
    from regard.interop.hub import load
    from regard.look.watch import watch  # of `regard.look` mypy would take the module of that name
    from regard.tasks.config import RunConfig, make_config, presets
    from regard.tasks.ensemble import ensemble
    from regard.tasks.planning import plan
    from regard.tasks.run import Run, evaluate
    from regard.trainer.distillation import distill
    from regard.trainer.trainer import resume, train

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "DataError",
    "Diverged",
    "LiveCurves",
    "RegardError",
    "RegardWarning",
    "Run",
    "RunConfig",
    "RunError",
    "answer_file",
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
    "LiveCurves": "regard.analysis.training_curves",
    "Run": "regard.tasks.run",
    "RunConfig": "regard.tasks.config",
    "answer_file": "regard.analysis.decoding_files",
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

_ROOMS = (
    *("analysis", "bench", "comparison", "config", "data", "decode", "errors", "interop", "look", "metrics", "models"),
    *("nn", "plugins", "runs", "serve", "tasks", "text", "trainer", "training"),
)
"""Modules and packages that can be reached as attributes, imported when they are asked for."""


keep_old_names()


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__, *_ROOMS})


if not TYPE_CHECKING:  # a checker that sees it would take any name for one of ours

    def __getattr__(name: str) -> Any:
        # Importing does no work: torch and the rest come with the first name that needs them.
        if name in _WHERE:
            return getattr(import_module(_WHERE[name]), name)
        if name in _ROOMS:
            return import_module(f"regard.{name}")
        raise AttributeError(f"module 'regard' has no attribute '{name}'")
