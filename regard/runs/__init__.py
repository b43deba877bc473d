"""Everything on disk, and what a run directory can do."""

from regard.runs.comparison import compare
from regard.runs.config import RunConfig, make_config, presets
from regard.runs.evaluation import evaluate
from regard.runs.run import Run, load
from regard.runs.training import resume, train

__all__ = ["Run", "RunConfig", "compare", "evaluate", "load", "make_config", "presets", "resume", "train"]
