"""Modules that the documents named before and that have moved: importing one still works, and says where it is now.

It holds for one version. The whole table of what moved is in CHANGELOG.md.
"""

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

MOVED: Mapping[str, tuple[str, ...]] = {
    "regard.analysis.heads": ("regard.analysis.head_roles",),
    "regard.bench.training": ("regard.bench.training_speed",),
    "regard.comparison.growth": ("regard.comparison.sequence_length",),
    "regard.data.long_range": ("regard.data.synthetic.long_range",),
    "regard.data.masking": ("regard.data.masked_language_model",),
    "regard.data.puzzles": ("regard.data.synthetic.puzzles",),
    "regard.data.world": ("regard.data.synthetic.world",),
    "regard.decode.lengths": ("regard.decode.config",),
    "regard.look.draw": ("regard.look.attention_svg",),
    "regard.look.gradients": ("regard.analysis.gradients",),
    "regard.look.report": ("regard.analysis.heads_page",),
    "regard.nn.basic_cells": ("regard.nn.recurrent.cells",),
    "regard.nn.cache": ("regard.nn.kv_cache",),
    "regard.nn.embedding": ("regard.nn.embeddings",),
    "regard.nn.loss": ("regard.nn.losses.cross_entropy",),
    "regard.nn.patches": ("regard.nn.embeddings",),
    "regard.nn.scores": ("regard.nn.attention_scores",),
    "regard.runs.answering": ("regard.tasks.answering",),
    "regard.runs.bench": ("regard.bench.training_speed",),
    "regard.runs.comparison": ("regard.comparison", "regard.comparison.sequence_length"),
    "regard.runs.config": ("regard.tasks.config",),
    "regard.runs.corpora": ("regard.tasks.corpora",),
    "regard.runs.embedding": ("regard.tasks.encoder",),
    "regard.runs.evaluation": ("regard.tasks.run", "regard.tasks.translator"),
    "regard.runs.evidence": ("regard.tasks.probes",),
    "regard.runs.filling": ("regard.tasks.encoder",),
    "regard.runs.generator": ("regard.tasks.generator",),
    "regard.runs.gradients": ("regard.analysis.gradients",),
    "regard.runs.heads": ("regard.analysis.head_roles",),
    "regard.runs.interop": ("regard.interop",),
    "regard.runs.interop.huggingface": ("regard.interop.huggingface",),
    "regard.runs.looking": ("regard.tasks.looking",),
    "regard.runs.pruning": ("regard.analysis.pruning",),
    "regard.runs.run": ("regard.tasks.run",),
    "regard.runs.training": ("regard.trainer.trainer",),
    "regard.runs.translator": ("regard.tasks.translator",),
    "regard.tasks.evidence": ("regard.tasks.probes",),
    "regard.tasks.gold": ("regard.tasks.translation_metrics",),
    "regard.text.vectors": ("regard.text.word_vectors",),
    "regard.trainer.training": ("regard.trainer.trainer",),
    "regard.training.metrics": ("regard.metrics.text",),
    "regard.training.replay": ("regard.training.cuda_graphs",),
    "regard.training.tasks": ("regard.training.objectives",),
    "regard.training.text_tasks": ("regard.training.objectives",),
    "regard.training.word_errors": ("regard.metrics.word_errors",),
}
"""Modules before, and where what was in them is now."""

RENAMED: Mapping[str, str] = {
    "Head": "OutputProjection",
    "KeyValues": "KVCache",
    "MaskedWords": "MaskedLanguageModelling",
    "Replay": "GraphReplay",
    "Sentence": "ParallelSentence",
    "Translation": "SequenceToSequence",
    "Wanted": "LookOptions",
    "evidence": "held_out_data",
}
"""Names in those modules that are others now."""


class Moved(MetaPathFinder, Loader):
    """Finds a module under the name that it had."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in MOVED:
            return None
        return spec_from_loader(name, self, is_package=any(one.startswith(f"{name}.") for one in MOVED))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        places = MOVED[spec.name]
        warnings.warn(f"{spec.name} is now {' and '.join(places)}", FutureWarning, stacklevel=2)
        homes = [import_module(place) for place in places]
        module = ModuleType(spec.name, f"What is now in {' and '.join(places)}.")

        def found(name: str) -> object:
            for home in homes:
                for known in (name, RENAMED.get(name, name)):
                    if not name.startswith("__") and hasattr(home, known):
                        return getattr(home, known)
            raise AttributeError(f"module '{spec.name}' has no attribute '{name}': it is now {' and '.join(places)}")

        module.__getattr__ = found  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Everything is in its new place."""


def keep_old_names() -> None:
    """Let imports of the old names work."""
    if not any(isinstance(one, Moved) for one in sys.meta_path):
        sys.meta_path.append(Moved())
