"""`regard tag`: a tag for each word."""

import json
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

WINDOW = 1024
"""Sentences tagged at a time."""


def tag(
    run: Annotated[Path, typer.Argument(help="A run directory of a tagger.", metavar="RUN")],
    text: Annotated[list[str] | None, typer.Argument(help="Sentences.", metavar="TEXT")] = None,
    input: Annotated[
        Path | None, typer.Option("--input", "-i", help="A file with one sentence a line instead.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a sentence.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Tag the words of sentences: a line a word with its tag and probability, a blank line after each sentence.

    \b
    Examples:
      regard tag runs/names "Ada Lovelace lived in London."
      regard tag runs/names --input sentences.txt --json
    """
    from regard.data import TextFiles
    from regard.errors import ConfigError
    from regard.runs import load
    from regard.runs.records import tagged

    if bool(text) == bool(input):
        raise ConfigError("give sentences, or --input with a file of them")
    loaded = load(run, device)
    given: Iterable[str] = text or TextFiles((input,), format="lines")  # type: ignore[arg-type]
    sentences = iter(given)
    while chunk := list(islice(sentences, WINDOW)):
        for sentence, tags in zip(chunk, loaded.tag(chunk), strict=True):
            if as_json:
                print(json.dumps(tagged(sentence, tags), ensure_ascii=False))
            else:
                print("".join(f"{one.word}\t{one.tag}\t{one.probability:.4f}\n" for one in tags))
        sys.stdout.flush()
