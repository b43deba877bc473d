"""A run's attention on given inputs, as the viewer's document: what each task makes of its own is a file here."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from regard.errors import ConfigError
from regard.look.document import Document
from regard.look.page import render
from regard.look.position_tables import position_tables
from regard.tasks.looking.history import with_history
from regard.tasks.looking.pieces import END, START, readable
from regard.tasks.looking.wanted import Wanted
from regard.tasks.run import Run

__all__ = ["END", "START", "Wanted", "document", "page", "readable"]


def page(run: Run, texts: Sequence[Any], wanted: Wanted | None = None, **decode: Any) -> str:
    """A self-contained page with what the run makes of each text and every attention on the way.

    Of a pointing run, `texts` are problems, as `Run.point` takes them.
    """
    return render(document(run, texts, wanted, **decode))


def document(run: Run, texts: Sequence[Any], wanted: Wanted | None = None, **decode: Any) -> Document:
    """What the page shows; `wanted` says how much of it."""
    wanted, task = wanted or Wanted(), run.task
    searched = [f"{name}={value}" for name, value in decode.items() if (name, value) != ("beam", 1)]
    if searched and not task.searches:
        raise ConfigError(f"{searched[0]} is of a search; looking into a run for {task.name} searches for nothing")
    if wanted.targets and not (task.searches or task.takes_targets):
        raise ConfigError(f"targets are of translations; a run for {task.name} has none")

    def look(wanted: Wanted) -> Document:
        return task.look(run, texts, wanted, **decode)

    found = replace(look(wanted), positions=position_tables(run.model))
    return with_history(run, found, look, wanted, wanted.told) if wanted.history else found
