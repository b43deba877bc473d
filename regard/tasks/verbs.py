"""Verbs that other packages add: one thing that can be asked of a trained run, declared once.

From a declaration follow the command with its options, help and `--json`, and the HTTP route with its schema. A package
names its verbs as entry points `regard.verbs`; how one is carried out is the method of the same name that its task has.
Nothing here imports torch, so that help is instant. The verbs of regard itself are commands of `regard.cli` and routes
of `regard.serve`.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.plugins import Registry

if TYPE_CHECKING:
    from regard.tasks.run import Run


def option(default: Any, help: str) -> Any:
    """A field of a request: its default, and what the command's help says of it."""
    return dataclasses.field(default=default, metadata={"help": help})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verb:
    """One thing to ask of a run.

    `request` is a dataclass: its field named `items` holds the inputs, as many as wanted, the others are options. The
    task's method `name` is given the inputs and the options by name, and returns one result per input. `help` is the
    command's; its first line is the summary.
    """

    name: str
    help: str
    request: type[Any]
    items: str

    def offered(self, run: "Run") -> bool:
        """Whether this run does it."""
        return self.name in run.task.methods

    def options(self, request: Any) -> dict[str, Any]:
        """What the request says beside its inputs."""
        names = (field.name for field in dataclasses.fields(request) if field.name != self.items)
        return {name: getattr(request, name) for name in names}

    def answer(self, run: "Run", items: Sequence[Any], **options: Any) -> Sequence[Any]:
        """One result per input."""
        return run.task.methods[self.name](run, list(items), **options)

    def checked(self, run: "Run", item: Any) -> tuple[Any, int]:
        """An input of a request as the method takes it, and what it costs, in tokens. One that cannot be done is
        refused here, before it joins those of other requests."""
        return item, 1

    def read(self, line: str) -> Any:
        """An input from a line of text, on the command line or in a file: JSON where that is what it holds."""
        import json

        try:
            return json.loads(line)
        except ValueError:
            return line

    def record(self, item: Any, result: Any) -> dict[str, Any]:
        """What is said of a result as JSON, by the command and the server alike."""
        return dataclasses.asdict(result) if dataclasses.is_dataclass(result) else {"result": result}  # type: ignore[arg-type]

    def show(self, item: Any, result: Any) -> str:
        """A result for a person."""
        return str(result)


VERBS: Registry[Verb] = Registry("regard.verbs", "verb", {})
