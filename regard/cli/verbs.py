"""Commands of verbs: options, help and `--json` follow from what `regard.tasks.verbs` declares.

Those of other packages are named from their metadata, and loaded when they are called.
"""

import dataclasses
import json
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from regard.cli.options import (
    DEVICE,
    ENGINE,
    ENGINE_FILES,
    INPUT,
    JSON,
    NO_VERIFY,
    OUTPUT,
    PRECISION,
    PROCESSES,
    RUN,
    THREADS,
    WITH,
    checked,
    end_of_input,
    number_of_threads,
    options_of,
    parameter,
    precision_for,
    standard_input,
    typed,
    with_engine,
    with_parameters,
)
from regard.errors import ConfigError, RegardError
from regard.tasks.verbs import VERBS, Asked, Verb
from regard.tasks.verbs.spec import RefusedInput, answers, check_each, refused_record, some_refused

if TYPE_CHECKING:
    from regard import Run

WINDOW = 256
"""Inputs taken together at the most."""

AHEAD = 16 * WINDOW
"""Inputs that are under way or wait to be printed at the most, so that memory stays flat."""


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
        aligned, others = tuple(given.pop(name) for name in verb.files), given.pop("others", None) or []
        output, run, device = given.pop("output"), given.pop("run"), given.pop("device")
        verify = not given.pop("no_verify")
        engine, files = given.pop("engine", "torch"), given.pop("engine_files", None)
        precision = given.pop("precision")
        threads, processes = number_of_threads(given.pop("threads", "auto")), given.pop("processes")
        display = verb.display(**{field.name: given.pop(field.name) for field in shown}) if verb.display else None
        options = checked(verb.request, given)
        file = aligned_files(verb, aligned, words, file)
        check_inputs(verb, words, file)
        if output is not None:
            from regard.runs.files import check_output

            check_output(output)
        lines = words or (standard_input() if file is None else ())
        if not words and file is None and typed():
            print(f"Type {verb.unit}, one per line; {end_of_input()} ends.", file=sys.stderr)
        check_processes(processes, file, output)
        if others and engine != "torch":
            raise ConfigError(
                f"--with does not apply to --engine {engine}: several runs are searched together by torch"
            )
        if file is not None and output is not None:
            about: dict[str, Any] = {"display": {} if display is None else dataclasses.asdict(display)}
            about |= {"as_json": as_json, "others": tuple(map(str, others)), "device": device, "verify": verify}
            about |= {"engine": engine, "engine_files": None if files is None else str(files), "threads": threads}
            about["precision"] = precision_for(engine, precision)
            if answered_file(verb, run, file, output, processes, options, about):
                return
        loaded = with_engine(
            opened(verb, run, device, precision_for(engine, precision), others, verify=verify), engine, files
        )
        if words and verb.reads_texts(loaded) and (names := [word for word in words if is_file(word)]):
            several = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
            print(
                f"'{names[0]}'{several}: a name of a file is read as a text; --input FILE reads the lines of a file",
                file=sys.stderr,
            )
        if threads is not None:
            loaded.translator.threads = threads
        with ExitStack() as stack:
            write, tell = partial(print, flush=True), None
            if output is not None:
                from regard.cli.progress import counting

                write = partial(print, file=stack.enter_context(_written(output)), flush=True)
                tell = stack.enter_context(counting(verb.name, verb.unit))
            done, refused = print_answers(
                verb, loaded, verb.inputs(loaded, lines, file), options, write, display, as_json, tell
            )
        if done:
            print(done, file=sys.stderr)
        if refused is not None:
            raise refused

    items = next(field for field in dataclasses.fields(verb.request) if field.name == verb.items)
    said = items.metadata.get("help", "Inputs.") + (
        " Without any, --input or stdin." if verb.reads_standard_input else ""
    )
    given = Annotated[list[str] | None, typer.Argument(help=said, metavar=verb.items.upper())]
    engines = [parameter("engine", ENGINE, "torch"), parameter("engine_files", ENGINE_FILES, None)]
    parameters = [
        parameter("run", RUN),
        parameter("items", given, None),
        parameter("input", INPUT, None),
        parameter("output", OUTPUT, None),
        *(parameter(name, _aligned_option(verb, name), None) for name in verb.files),
        *options_of(verb.request, verb.items),
        *([parameter("others", WITH, None)] if verb.ensembles else ()),
        *(options_of(verb.display) if verb.display else ()),
        parameter("as_json", JSON, False),
        *(engines if verb.engines else ()),
        parameter("device", DEVICE, "auto"),
        parameter("precision", PRECISION, "auto"),
        *([parameter("threads", THREADS, "auto")] if verb.engines else ()),
        parameter("processes", PROCESSES, 1),
        parameter("no_verify", NO_VERIFY, False),
    ]
    return with_parameters(answer, parameters, verb.help)


def _aligned_option(verb: Verb, name: str) -> Any:
    rest = " and ".join(f"--{one}" for one in verb.files if one != name)
    return Annotated[Path | None, typer.Option(help=f"A file, line by line beside {rest}.", metavar="FILE")]


def aligned_files(verb: Verb, aligned: Sequence[Path | None], words: Sequence[str] | None, file: Path | None) -> Any:
    """What to read: the line-aligned files if they were given, all of them and nothing else, or the one file."""
    if not any(aligned):
        return file
    names = " and ".join(f"--{name}" for name in verb.files)
    if not all(aligned) or words or file:
        raise ConfigError(f"give {names} together, without {verb.unit} or --input")
    return tuple(aligned)


def is_file(word: str) -> bool:
    """Whether a word of a command line names a file that is there."""
    try:
        return Path(word).is_file()
    except (OSError, ValueError):  # no name that a file could have
        return False


def check_inputs(verb: Verb, words: Sequence[str] | None, file: object) -> None:
    if words and file:
        raise ConfigError(f"give {verb.unit} or --input, not both")
    if not words and not file and not verb.reads_standard_input:
        raise ConfigError(f"give {verb.unit}, or --input with a file of them")


def check_processes(processes: int, file: object, output: Path | None) -> None:
    if processes > 1 and (file is None or output is None):
        raise ConfigError(f"--processes={processes} is for files: give --input and --output")


def answered_file(
    verb: Verb,
    run: Path,
    file: Path | tuple[Path, ...],
    output: Path,
    processes: int,
    options: Mapping[str, Any],
    about: Mapping[str, Any],
) -> bool:
    """Answer a file into a file, by so many processes, going on where an earlier command ended.

    False where that cannot be, since it is a pipe or a device that is read or written.
    """
    from regard.analysis.decoding_files import answer_job, restartable
    from regard.analysis.file_jobs import FileJob
    from regard.cli.progress import counting

    files = file if isinstance(file, tuple) else (file,)
    if not restartable(files, output):
        if processes > 1:
            raise ConfigError(f"--processes={processes} is for files that can be read again, not for a pipe or device")
        return False
    job = FileJob(
        verb=verb.name,
        run=str(run),
        files=tuple(map(str, files)),
        aligned=isinstance(file, tuple),
        options=dict(options),
        **about,
    )

    with counting(verb.name, verb.unit) as progress:
        answer_job(job, output, processes, say, progress)
    return True


def say(note: object) -> None:
    """One line, whatever names and values are quoted in it: nothing that would move a terminal's cursor."""
    line = " ".join(str(note).splitlines())
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)
    with suppress(OSError, ValueError):  # as where its disk is full, or its terminal was closed
        print(f"regard: {shown}", file=sys.stderr)


def opened(
    verb: Verb,
    directory: Path,
    device: str,
    precision: str = "auto",
    others: Sequence[Path] = (),
    *,
    verify: bool = True,
) -> "Run":
    """The run, which must be one that does this, averaged with the others."""
    from regard.errors import RunError

    run = loaded_run(directory, device, precision, verify=verify)
    if not verb.offered(run):
        getattr(run, verb.name)  # says which tasks have it, where this one has not
        raise RunError(f"{directory} is a run for {run.task.name}, which does not {verb.name}")
    if others:
        from regard.tasks.ensemble import ensemble

        return ensemble([run, *(loaded_run(other, device, precision, verify=verify) for other in others)])
    return run


def loaded_run(directory: Path, device: str, precision: str, *, verify: bool = True) -> "Run":
    """The run; what is to be said of its loading goes to stderr."""
    from regard import load

    return load(directory, device, precision, say, verify=verify)


def print_answers(
    verb: Verb,
    run: "Run",
    inputs: Iterable[Any],
    options: Mapping[str, Any],
    write: Callable[..., None],
    display: object,
    as_json: bool,
    tell: Callable[[int, int | None], None] | None = None,
) -> tuple[str, RegardError | None]:
    """Print the results in the order of the inputs, as they come.

    Returns what is to be said of what was cut, if anything was, and the error to end with where inputs were refused:
    each of them is told of when its turn comes. A single input that is refused raises its error, and has no result.
    """
    ready, number, held = Available(inputs), 0, {}
    request, cut, total, printed, shortened = None, 0, 0, 0, 0
    strange: dict[str, None] = {}
    first, refused = None, 0
    waiting: list[str] = []  # what stands in the place of a first input that was refused, until there is a second

    def pull() -> list[Asked]:
        nonlocal number, request
        while number - printed < AHEAD:
            chunk = ready.take(wait=number == printed + len(held))  # while nothing is under way
            if not chunk:
                break
            request = verb.without_inputs(**options)
            found = check_each(verb, run, request, chunk)
            made = [Asked(request, item, number + place) for place, item in enumerate(found)]
            number += len(made)
            held.update((one.number, one.item) for one in made if isinstance(one.item, RefusedInput))
            print_held()
            if asked := [one for one in made if not isinstance(one.item, RefusedInput)]:
                return asked
        return []

    def print_held() -> None:
        nonlocal cut, total, printed, shortened, first, refused
        while printed in held:
            result = held.pop(printed)
            printed += 1
            if isinstance(result, RefusedInput):
                first, refused = first or result.error, refused + 1
                say(result.error)
                waiting.append(refused_record(verb, result, as_json=as_json))
            else:
                said = [json.dumps(record, ensure_ascii=False) for record in verb.records(result)]
                waiting.append("\n".join(said) if as_json else verb.show(result, display))
                strange.update(dict.fromkeys(verb.unknown(result)))
                cut, total = cut + verb.cut(result)[0], total + verb.cut(result)[1]
                shortened += verb.shortened(result)
            if number > 1 or not refused:
                for text in waiting:
                    write(text)
                waiting.clear()
        if tell is not None:
            tell(printed, None)

    for asked, one in answers(verb, run, pull, refuse=True):
        if verb.piece is not None and isinstance(one, verb.piece):
            continue
        held[asked.number] = one
        print_held()
    if waiting and first is not None:
        first.quiet = True  # it has been told of
        raise first
    notes = [verb.note(run, request, cut, total)] if request is not None else []
    notes += [verb.shortened_note(run, shortened, printed)] if shortened else []
    notes += [run.task.unknown_note(run, list(strange))] if strange else []
    return "\n".join(filter(None, notes)), some_refused(verb, refused, printed) if refused else None


class Available:
    """Inputs, read by a thread of their own: whatever is there by now is quick for a typist, and full for a file."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._ready: queue.Queue[Any] = queue.Queue(4 * WINDOW)
        self._over: BaseException | bool = False
        threading.Thread(target=self._read, args=(items,), daemon=True).start()

    def _read(self, items: Iterable[Any]) -> None:
        try:
            for item in items:
                self._ready.put((item,))
            self._ready.put(True)
        except BaseException as error:
            self._ready.put(error)

    def take(self, *, wait: bool = True) -> list[Any]:
        """At most WINDOW inputs, and at least one if it may `wait` for it; none at the end."""
        chunk: list[Any] = []
        while self._over is False and len(chunk) < WINDOW and (not self._ready.empty() or (wait and not chunk)):
            try:
                # Python hears of a signal that came just before it waits only after the wait.
                found = self._ready.get(timeout=1)
            except queue.Empty:
                continue
            if isinstance(found, tuple):
                chunk += found
            else:
                self._over = found
        if not chunk and isinstance(self._over, BaseException):
            raise self._over
        return chunk


@contextmanager
def _written(path: Path) -> Iterator[TextIO]:
    """The file to write to, which is there whole in the end or not at all."""
    from regard.runs.files import whole_file

    with whole_file(path) as aside, aside.open("w", encoding="utf-8", newline="\n") as file:
        yield file
