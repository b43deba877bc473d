"""`regard classify`: what class each input is of. What an input is, the run knows."""

import json
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.tasks.classification import Choice

WINDOW = 1024
"""Inputs classified at a time."""


def classify(
    run: Annotated[Path, typer.Argument(help="A run directory of a classifier.", metavar="RUN")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(help="Texts, two at a time for a run on pairs; or images, folders, arrays.", metavar="INPUT"),
    ] = None,
    input: Annotated[
        Path | None,
        typer.Option(
            "--input", "-i", help="A file of inputs instead: one a line, or TSV, CSV, JSONL, Parquet.", metavar="FILE"
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="How many classes to show of each input.", min=1)] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object an input.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Tell the class of texts, of pairs of texts, or of images, as the run was trained to.

    Prints the likeliest class and its probability, a line an input; with --top, so many classes on the line. Before
    those of an image stands its name. A labelled file, as `regard evaluate` takes it, is read without its labels.

    \b
    Examples:
      regard classify runs/films "a moving , beautiful film ."
      regard classify runs/films --input reviews.txt --json
      regard classify runs/films --input test.tsv
      regard classify runs/digits seven.png --top 3
    """
    from regard import load
    from regard.errors import ConfigError

    if bool(inputs) == bool(input):
        raise ConfigError("give inputs, or --input with a file of them")
    classifier = load(run, device).classifier()
    items = classifier.file(input) if input else iter(classifier.arguments(inputs or []))
    while chunk := list(islice(items, WINDOW)):
        for item, choices in zip(chunk, classifier.classify(chunk), strict=True):
            # A text is known from its place; a picture, of a folder perhaps, by its name.
            name = f"{classifier.shown(item)}\t" if classifier.named and not as_json else ""
            print(name + shown(classifier.shown(item), choices[:top], as_json))
        sys.stdout.flush()


def shown(text: str, choices: "list[Choice]", as_json: bool) -> str:
    """One line about one input."""
    if as_json:
        from regard.tasks.records import classified

        return json.dumps(classified(text, choices), ensure_ascii=False)
    return "\t".join(f"{choice.label}\t{choice.probability:.4f}" for choice in choices)
