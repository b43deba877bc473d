"""`regard doctor`: what can be said of a run's training afterwards."""

from pathlib import Path
from typing import Annotated

import typer


def doctor(directory: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")]) -> None:
    """Say how a run's training went: how far it came, and what should be done about what went wrong.

    \b
    Examples:
      regard doctor runs/mine
    """
    from regard.trainer.doctor import diagnose

    found = diagnose(directory)
    for line in found.facts:
        print(line)
    for caution in found.cautions:
        print(f"{caution.kind}: {caution.line}")
    if not found.cautions:
        print("nothing looks wrong")
