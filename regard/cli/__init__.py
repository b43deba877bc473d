"""The `regard` command. One short file a subcommand: parse, call, print."""

import os
import sys
from collections.abc import Sequence

import click
import typer

from regard.cli import data, describe, evaluate, look, presets, train, translate
from regard.errors import RegardError

app = typer.Typer(
    help="Train, run and look inside attention models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train.train)
app.command("translate")(translate.translate)
app.command("evaluate")(evaluate.evaluate)
app.command("look")(look.look)
app.command("describe")(describe.describe)
app.command("presets")(presets.presets)
app.add_typer(data.app, name="data")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. A user's mistake is one line and exit code 2; a bug keeps its traceback."""
    try:
        code = app(args=None if arguments is None else list(arguments), standalone_mode=False)
        return code if isinstance(code, int) else 0
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        return 130 if type(error).__name__ == "Stopped" else 2
    except click.ClickException as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        print("regard: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more while closing it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def script() -> None:
    sys.exit(main())
