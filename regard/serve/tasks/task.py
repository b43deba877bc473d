"""A task: which runs do it, what a request for it says, and the work that this makes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard.runs import Run
from regard.serve.jobs import Work
from regard.serve.limits import Limits


@dataclass(frozen=True, slots=True)
class Task:
    """`work(run, body, limits)` is cheap and refuses what can be refused before the request waits."""

    name: str
    about: str
    body: type[Any]
    able: Callable[[Run], bool]
    work: Callable[[Run, Any, Limits], Work]
