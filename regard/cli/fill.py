"""`regard fill`: what might stand where a word is hidden."""

import json
from pathlib import Path
from typing import Annotated

import typer


def fill(
    run: Annotated[Path, typer.Argument(help="A run directory of a model of hidden words.", metavar="RUN")],
    text: Annotated[list[str], typer.Argument(help="Texts with [MASK] where a word is hidden.", metavar="TEXT")],
    top: Annotated[int, typer.Option(help="How many candidates to show for each hidden word.", min=1)] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a text.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Show what might stand in the place of hidden words, with probabilities.

    \b
    Examples:
      regard fill runs/bert "The capital of France is [MASK]."
      regard fill runs/bert "The [MASK] sat on the [MASK]." --top 3 --json
    """
    from regard import load
    from regard.tasks.records import filled

    loaded = load(run, device)
    for one in text:
        found = loaded.fill(one, top=top)
        if as_json:
            print(json.dumps(filled(one, found), ensure_ascii=False))
            continue
        for number, mask in enumerate(found, 1):
            if len(found) > 1:
                print(f"[MASK] {number}")
            for candidate in mask:
                print(f"{candidate.probability:.4f}\t{candidate.token}\t{candidate.text}")
