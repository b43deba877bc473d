"""A run's attention on given texts, as the viewer's document. Another kind of run is a file here and an entry below."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from regard.errors import ConfigError, RunError
from regard.look.document import Document
from regard.look.page import render
from regard.look.places import places_of_model
from regard.tasks.looking.encoder import encoder
from regard.tasks.looking.history import with_history
from regard.tasks.looking.language import language
from regard.tasks.looking.pictures import pictures
from regard.tasks.looking.pieces import END, START, readable
from regard.tasks.looking.pointing import pointing
from regard.tasks.looking.translation import translation
from regard.tasks.looking.wanted import Wanted
from regard.tasks.run import Run

__all__ = ["END", "LOOKERS", "START", "Wanted", "document", "page", "readable"]

LOOKERS: dict[str, Callable[..., Document]] = {
    "translation": translation,
    "language": language,
    "images": pictures,
    "pointing": pointing,
    **dict.fromkeys(("masking", "classification", "tagging", "answering", "embedding"), encoder),
}
"""By kind of run: (run, texts, wanted, **decode) to a document."""

SEARCHING = ("translation", "pointing")
"""Kinds of run whose output is searched for."""


def page(run: Run, texts: Sequence[Any], wanted: Wanted | None = None, **decode: Any) -> str:
    """A self-contained page with what the run makes of each text and every attention on the way.

    Of a pointing run, `texts` are problems, as `Run.point` takes them.
    """
    return render(document(run, texts, wanted, **decode))


def document(run: Run, texts: Sequence[Any], wanted: Wanted | None = None, **decode: Any) -> Document:
    """What the page shows; `wanted` says how much of it."""
    if run.config.task not in LOOKERS:
        raise RunError(f"{run.directory} is a run for {run.config.task}, which cannot be looked into")
    wanted, task = wanted or Wanted(), run.config.task
    searched = [f"{name}={value}" for name, value in decode.items() if (name, value) != ("beam", 1)]
    if searched and task not in SEARCHING:
        raise ConfigError(f"{searched[0]} is of a search; looking into a run for {task} searches for nothing")
    if wanted.targets and task not in (*SEARCHING, "images"):
        raise ConfigError(f"targets are of translations; a run for {task} has none")

    def look(wanted: Wanted) -> Document:
        return LOOKERS[run.config.task](run, texts, wanted, **decode)

    found = replace(look(wanted), positions=places_of_model(run.model))
    return with_history(run, found, look, wanted, wanted.told) if wanted.history else found
