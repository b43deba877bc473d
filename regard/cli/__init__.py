"""The `regard` command. One short file per subcommand: parse, call, print."""

import io
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Annotated, Any

import typer
import typer.core

import regard
from regard.cli import (
    answer,
    bench,
    check,
    compare,
    data,
    describe,
    distill,
    draw,
    embed_text,
    evaluate,
    generate,
    heads,
    import_export,
    look,
    plan,
    plot,
    presets,
    prune,
    serve,
    shortlist,
    train,
    vectors,
    verbs,
)
from regard.cli.help import styled
from regard.errors import RegardError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # regard.cli.help styles what this leaves plain
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train", short_help="Train a model on your own data, or go on with a run.")(train.train)
verbs.add_verbs(app, {"generate": generate.generate, "answer": answer.answer, "embed": embed_text.embed_text})
app.command("evaluate", short_help="Score a run on held-out data.")(evaluate.evaluate)
app.command("serve", short_help="Serve runs over HTTP.")(serve.serve)
app.command("look", short_help="Show where a model looked, on a page.")(look.look)
app.command("compare", short_help="Train several configurations under one budget and report.")(compare.compare)
app.command("heads", short_help="Find what each attention head does, with the evidence.")(heads.heads)
app.command("prune", short_help="Remove attention heads for good.")(prune.prune)
app.command("distill", short_help="Train a faster model on what another one writes.")(distill.distill)
app.command("doctor", short_help="Say how a run's training went, and what to do.")(describe.doctor)
app.command("shortlist", short_help="Learn which output words suit which source words.")(shortlist.shortlist)
app.command("describe")(describe.describe)
app.command(
    "check",
    short_help="Check an answer to an exercise of the companion.",
    context_settings={"ignore_unknown_options": True},  # -0.91 is a number
)(check.check)
app.command("plan", short_help="Estimate memory and time of a training on GPUs.")(plan.plan)
app.command("plot")(plot.plot)
app.add_typer(draw.draw_app, name="draw")
app.command("presets")(presets.presets)
app.add_typer(data.app, name="data")
app.add_typer(import_export.import_app, name="import")
app.add_typer(import_export.export_app, name="export")
app.add_typer(bench.app, name="bench")
app.add_typer(vectors.app, name="vectors")

# typer's own class, or click's: which of the two depends on typer's version.
Misuse: Any = typer.BadParameter.__bases__[0]


class Command(typer.core.TyperCommand):
    """A command whose options never take the next option for their value, as `--json --svg map.svg` would.

    Its usage names what must be given plainly, as RUN: some versions of typer write {RUN}.
    """

    def get_help(self, ctx: Any) -> str:
        return styled(super().get_help(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"^\{(.+)\}", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = [one for one in self.get_params(ctx) if one.param_type_name == "option"]
        names = {name for one in options for name in (*one.opts, *one.secondary_opts)}
        valued = {name for one in options if not getattr(one, "is_flag", False) for name in one.opts}
        for name, value in pairwise(args):
            if name == "--":
                break
            if name in valued and value in names:
                raise Misuse(f"{name} needs a value, but '{value}' is an option", ctx=ctx)
        return super().parse_args(ctx, args)


class Group(typer.core.TyperGroup):
    """A command that has commands."""

    def get_help(self, ctx: Any) -> str:
        return styled(super().get_help(ctx))


def _use_own_classes(one: typer.Typer) -> None:
    one.info.cls = Group
    for command in one.registered_commands:
        command.cls = Command
    for group in one.registered_groups:
        if group.typer_instance is not None:
            _use_own_classes(group.typer_instance)


_use_own_classes(app)


def _show_version(asked: bool) -> bool:
    if asked:
        print(f"regard {regard.__version__}")
        raise typer.Exit
    return asked


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Train, run and look inside attention models.

    \b
    A first model, from a corpus that comes with it:
      regard train --preset demo --out runs/demo
      regard translate runs/demo "I am a student."
      regard look runs/demo "I am a student." --out attention.html
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. A user's mistake is one line and exit code 2; a bug keeps its traceback."""
    try:
        with _termination():
            code = app(args=None if arguments is None else list(arguments), prog_name="regard", standalone_mode=False)
            # Here, not when Python ends, so that a full disk or a reader that has gone is told of like any other.
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except RegardError as error:
        code = getattr(error, "exit_code", 2)
        return code if error.quiet else _fail(str(error), code)
    except Misuse as error:
        text = error.format_message().rstrip(".")
        if "\n" in text:  # the help, for someone who gave no command
            typer.echo(text)
            return 2
        return _fail(text if error.ctx is None else f"{text} (see `{error.ctx.command_path} --help`)")
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # it came while a lock was let go, which failed by it
            return 130
        raise
    except BrokenPipeError:  # whoever read our output has gone
        _forget_output()
        return 1
    except OSError as error:
        _forget_output()
        return _fail(f"{error.filename or 'standard output'}: {error.strerror or error}")


def script() -> None:
    _open_standard_streams()
    _write_utf8()
    _wait_briefly()
    code = main()
    _forget_full_errors()
    with suppress(ValueError):  # signals belong to the main thread
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # one more Ctrl-C ends what still ends, without a traceback
    sys.exit(code)


def _open_standard_streams() -> None:
    """Have nowhere in the place of a standard stream that was closed, as by `2>&-`.

    Its number would be that of the next file to be opened, and a library's message would go into a checkpoint.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8", newline="\n"))  # noqa: SIM115


def _forget_full_errors() -> None:
    """What standard error did not take is not tried once more while Python ends, which would change the exit code."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _wait_briefly() -> None:
    """Threads that wait for one another on a CPU do so for some microseconds, then sleep; what the user has set stays.

    By default GNU's OpenMP, which torch brings on Linux, spins for milliseconds. Where other programs use the cores,
    each then waits for one that the spinning keeps from its core, and an update takes 4 to 60 times as long. On idle
    cores a model 128 wide is 8 % slower so. It is read when torch is loaded, which no command has done by then.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def _write_utf8() -> None:
    """What goes into a pipe or a file is UTF-8 with plain newlines on every system, as it is read from one.

    A terminal has its own encoding: what it cannot show is shown by its number.
    """
    if not isinstance(sys.stdout, io.TextIOWrapper):  # someone else's
        return
    if sys.stdout.isatty():
        sys.stdout.reconfigure(errors="backslashreplace")
    else:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")


def _fail(text: str, code: int = 2) -> int:
    verbs.say(text)
    return code


def _forget_output() -> None:
    """Nothing more can be written; Python would complain once more while closing standard output."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _termination() -> Iterator[None]:
    """SIGTERM, on Windows Ctrl-Break, unwinds like Ctrl-C, so that what is half-written goes.

    So does SIGHUP, which comes where a terminal is closed, unless it is ignored from the start, as by nohup.
    """

    hang_up = getattr(signal, "SIGHUP", None)

    def interrupt(number: int, frame: object) -> None:
        if number == hang_up:  # the terminal's shell sends one, and the system another
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGBREAK") if hasattr(signal, name)]
    if hang_up is not None and signal.getsignal(hang_up) != signal.SIG_IGN:
        numbers.append(hang_up)
    try:
        before = {number: signal.signal(number, interrupt) for number in numbers}
    except ValueError:  # signals belong to the main thread
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
