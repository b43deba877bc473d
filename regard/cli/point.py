"""`regard point`: numbers or points in, positions out."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def point(
    run: Annotated[Path, typer.Argument(help="A run directory of a pointing model.", metavar="RUN")],
    problems: Annotated[
        list[str] | None,
        typer.Argument(help='Problems as JSON lists: "[3, 1, 2]" or "[[0.1, 0.2], [0.5, 0.9], [0.7, 0.3]]".'),
    ] = None,
    input: Annotated[
        Path | None,
        typer.Option("--input", "-i", help="A .jsonl file of problems, or a .csv file with one item a row instead."),
    ] = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept at each step; 1 is greedy.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a problem, with its score.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Answer problems with a pointing model: print the positions that it points at, in order, counted from 0.

    Numbers of any size may be given: what lies outside 0 to 1 is moved and scaled, its shape kept.

    \b
    Examples:
      regard point runs/sort "[31, 4, 15, 9, 26, 5]"
      regard point runs/tsp --input cities.csv
      regard point runs/hull --input problems.jsonl --beam 4 --json
    """
    from regard import load
    from regard.tasks.records import pointed

    loaded = load(run, device)
    pointer = loaded.pointer
    made = loaded.task.inputs(loaded, problems or [], input)
    config = loaded.decode_config(**({} if beam is None else {"beam": beam}))
    for best in pointer.answers(made, config):
        answer = best[0]
        sys.stdout.write((json.dumps(pointed(answer)) if as_json else " ".join(map(str, answer.order))) + "\n")
