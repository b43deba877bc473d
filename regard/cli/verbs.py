"""Commands of verbs: options, help and `--json` follow from what `regard.tasks.verbs` declares.

Those of other packages are named from their metadata, and loaded when they are called.
"""

import dataclasses
import json
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from regard.cli.options import (
    DEVICE,
    INPUT,
    JSON,
    OUTPUT,
    PRECISION,
    RUN,
    checked,
    options_of,
    parameter,
    standard_input,
    typed,
    with_parameters,
)
from regard.errors import ConfigError
from regard.tasks.verbs import VERBS, Asked, Verb
from regard.tasks.verbs.spec import answers

if TYPE_CHECKING:
    from regard import Run

WINDOW = 256
"""Inputs answered together at the most."""


def add_verbs(app: typer.Typer, own: Mapping[str, Callable[..., None]]) -> None:
    """A command for each verb: by the declaration alone, or the one of its `own` that it has."""
    for name in VERBS:
        if VERBS.origin(name) == "regard":
            verb = VERBS[name]
            app.command(verb.command or name, short_help=_summary(verb))(own.get(name) or command(verb))
            continue
        passed = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
        summary = f"Added by {VERBS.origin(name)}; see `regard {name} --help`."
        app.command(name, short_help=summary, context_settings=passed)(_forwarding(name))


def _summary(verb: Verb) -> str:
    return verb.help.partition("\n")[0].partition(":")[0].partition(";")[0].removesuffix(".") + "."


def _forwarding(name: str) -> Callable[[typer.Context], None]:
    def forward(ctx: typer.Context) -> None:
        from regard.cli import Command

        own = typer.Typer(rich_markup_mode=None, add_completion=False)
        helped = {"help_option_names": ["-h", "--help"]}
        own.command(name, cls=Command, context_settings=helped)(command(VERBS[name]))
        own(args=ctx.args, prog_name=f"regard {name}", standalone_mode=False)

    return forward


def command(verb: Verb) -> Callable[..., None]:
    """The function behind a verb's command: its parameters are the run, the inputs, and the request's options."""
    shown = dataclasses.fields(verb.display) if verb.display else ()

    def answer(**given: Any) -> None:
        words, file, as_json = given.pop("items"), given.pop("input"), given.pop("as_json")
        output, run, device = given.pop("output"), given.pop("run"), given.pop("device")
        precision = given.pop("precision")
        display = verb.display(**{field.name: given.pop(field.name) for field in shown}) if verb.display else None
        options = checked(verb.request, given)
        check_inputs(verb, words, file)
        if output is not None:
            from regard.runs.files import check_output

            check_output(output)
        lines = words or (standard_input() if file is None else ())
        if not words and file is None and typed():
            print(f"Type {verb.unit}, one per line; Ctrl-D ends.", file=sys.stderr)
        loaded = opened(verb, run, device, precision)
        with ExitStack() as stack:
            write, tell = partial(print, flush=True), None
            if output is not None:
                from regard.cli.progress import counting

                write = partial(print, file=stack.enter_context(_written(output)), flush=True)
                tell = stack.enter_context(counting(verb.name, verb.unit))
            done = print_answers(verb, loaded, verb.inputs(loaded, lines, file), options, write, display, as_json, tell)
        if done:
            print(done, file=sys.stderr)

    items = next(field for field in dataclasses.fields(verb.request) if field.name == verb.items)
    said = items.metadata.get("help", "Inputs.") + (
        " Without any, --input or stdin." if verb.reads_standard_input else ""
    )
    given = Annotated[list[str] | None, typer.Argument(help=said, metavar=verb.items.upper())]
    parameters = [
        parameter("run", RUN),
        parameter("items", given, None),
        parameter("input", INPUT, None),
        parameter("output", OUTPUT, None),
        *options_of(verb.request, verb.items),
        *(options_of(verb.display) if verb.display else ()),
        parameter("as_json", JSON, False),
        parameter("device", DEVICE, "auto"),
        parameter("precision", PRECISION, "auto"),
    ]
    return with_parameters(answer, parameters, verb.help)


def check_inputs(verb: Verb, words: Sequence[str] | None, file: Path | None) -> None:
    if words and file:
        raise ConfigError(f"give {verb.unit} or --input, not both")
    if not words and not file and not verb.reads_standard_input:
        raise ConfigError(f"give {verb.unit}, or --input with a file of them")


def opened(verb: Verb, directory: Path, device: str, precision: str = "auto") -> "Run":
    """The run, which must be one that does this."""
    from regard.errors import RunError

    run = loaded_run(directory, device, precision)
    if not verb.offered(run):
        getattr(run, verb.name)  # says which tasks have it, where this one has not
        raise RunError(f"{directory} is a run for {run.task.name}, which does not {verb.name}")
    return run


def loaded_run(directory: Path, device: str, precision: str) -> "Run":
    """The run; what is to be said of its loading goes to stderr."""
    from regard import load

    return load(directory, device, precision, lambda note: print(f"regard: {note}", file=sys.stderr))


def print_answers(
    verb: Verb,
    run: "Run",
    inputs: Iterable[Any],
    options: Mapping[str, Any],
    write: Callable[..., None],
    display: object,
    as_json: bool,
    tell: Callable[[int, int | None], None] | None = None,
) -> str:
    """Print the results in the order of the inputs, as they come; and say what was cut, if anything was."""
    chunks, number, held = available(inputs), 0, {}
    request, cut, total, printed = None, 0, 0, 0

    def pull() -> list[Asked]:
        nonlocal number, request
        chunk = next(chunks, [])
        if not chunk:
            return []
        request = verb.without_inputs(**options)
        made = [Asked(request, item, number + place) for place, item in enumerate(verb.check(run, request, chunk))]
        number += len(made)
        return made

    for asked, one in answers(verb, run, pull):
        if verb.piece is not None and isinstance(one, verb.piece):
            continue
        held[asked.number] = one
        while printed in held:
            result = held.pop(printed)
            said = [json.dumps(record, ensure_ascii=False) for record in verb.records(result)]
            write("\n".join(said) if as_json else verb.show(result, display))
            cut, total, printed = cut + verb.cut(result)[0], total + verb.cut(result)[1], printed + 1
        if tell is not None:
            tell(printed, None)
    return verb.note(run, request, cut, total) if request is not None else ""


def available(items: Iterable[Any]) -> Iterator[list[Any]]:
    """Whatever inputs are there by now, at least one and at most WINDOW: quick for a typist, full for a file."""
    ready: queue.Queue[Any] = queue.Queue(4 * WINDOW)
    end = object()

    def read() -> None:
        try:
            for item in items:
                ready.put((item,))
            ready.put(end)
        except BaseException as error:
            ready.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        chunk, last = [ready.get()], None
        while len(chunk) < WINDOW and not ready.empty() and isinstance(chunk[-1], tuple):
            chunk.append(ready.get())
        if not isinstance(chunk[-1], tuple):
            last = chunk.pop()
        if chunk:
            yield [item for (item,) in chunk]
        if isinstance(last, BaseException):
            raise last
        if last is end:
            return


@contextmanager
def _written(path: Path) -> Iterator[TextIO]:
    """The file to write to, which is there whole in the end or not at all."""
    from regard.runs.files import whole_file

    with whole_file(path) as aside, aside.open("w", encoding="utf-8") as file:
        yield file
