"""Commands of verbs that other packages add: named from their metadata, and loaded when they are called."""

import dataclasses
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from regard.tasks.verbs import VERBS, Verb

WINDOW = 256
"""Inputs done at a time."""


def add_verbs(app: typer.Typer) -> None:
    """A command for each verb that an installed package adds."""
    for name in VERBS:
        passed = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
        summary = f"Added by {VERBS.origin(name)}; see `regard {name} --help`."
        app.command(name, short_help=summary, context_settings=passed)(_forwarding(name))


def _forwarding(name: str) -> Callable[[typer.Context], None]:
    def forward(ctx: typer.Context) -> None:
        from regard.cli import Command

        own = typer.Typer(rich_markup_mode=None, add_completion=False)
        helped = {"help_option_names": ["-h", "--help"]}
        own.command(name, cls=Command, context_settings=helped)(command(VERBS[name]))
        own(args=ctx.args, prog_name=f"regard {name}", standalone_mode=False)

    return forward


def command(verb: Verb) -> Callable[..., None]:
    """The function behind a verb's command: its parameters are the run, the inputs, and the request's fields."""

    def ask(**given: Any) -> None:
        from regard import load
        from regard.errors import ConfigError, RunError

        words, file, as_json = given.pop("items"), given.pop("input"), given.pop("as_json")
        if words and file:
            raise ConfigError("give inputs or --input, not both")
        run = load(given.pop("run"), given.pop("device"))
        if not verb.offered(run):
            raise RunError(f"{run.directory} is a run for {run.task.name}, which does not {verb.name}")
        inputs = _inputs(verb, words, file)
        while chunk := list(islice(inputs, WINDOW)):
            for item, result in zip(chunk, verb.answer(run, chunk, **given), strict=True):
                said = json.dumps(verb.record(item, result), ensure_ascii=False) if as_json else verb.show(item, result)
                print(said)
            sys.stdout.flush()

    ask.__doc__ = verb.help
    ask.__signature__ = inspect.Signature(_parameters(verb))
    ask.__annotations__ = {one.name: one.annotation for one in _parameters(verb)}
    return ask


def _parameters(verb: Verb) -> list[inspect.Parameter]:
    def parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)

    found = [
        parameter(
            "run", Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")], inspect.Parameter.empty
        ),
        parameter(
            "items",
            Annotated[
                list[str] | None,
                typer.Argument(help="Inputs; without any, lines of --input or stdin.", metavar=verb.items.upper()),
            ],
            None,
        ),
        parameter(
            "input",
            Annotated[
                Path | None, typer.Option("--input", "-i", help="A file of inputs, one per line.", metavar="FILE")
            ],
            None,
        ),
    ]
    hints = get_type_hints(verb.request)
    for field in dataclasses.fields(verb.request):
        if field.name != verb.items:
            option = typer.Option(help=field.metadata.get("help", ""))
            found.append(parameter(field.name, Annotated[hints[field.name], option], field.default))
    return [
        *found,
        parameter("as_json", Annotated[bool, typer.Option("--json", help="Print one JSON object per input.")], False),
        parameter("device", Annotated[str, typer.Option(help="auto, cpu or cuda.")], "auto"),
    ]


def _inputs(verb: Verb, words: list[str] | None, file: Path | None) -> Iterator[Any]:
    from regard.cli.options import standard_input
    from regard.data import TextFiles
    from regard.errors import DataError

    if file is not None and not file.exists():
        raise DataError(f"no such file: {file}")
    lines = words or (TextFiles((file,), format="lines") if file else standard_input())
    return (verb.read(line) for line in lines if line.strip())
