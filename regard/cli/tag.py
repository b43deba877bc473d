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
        Path | None,
        typer.Option(
            "--input", "-i", help="A file instead: one sentence a line, or TSV, CSV, JSONL, Parquet.", metavar="FILE"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a sentence.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Tag the words of sentences: a line a word with its tag and probability, a blank line after each sentence.

    A labelled file, as `regard evaluate` takes it, is read without its tags, its words as they are.

    \b
    Examples:
      regard tag runs/names "Ada Lovelace lived in London."
      regard tag runs/names --input sentences.txt --json
      regard tag runs/names --input test.tsv
    """
    from regard import load
    from regard.data.labelled_texts import untagged
    from regard.errors import ConfigError
    from regard.tasks.labelled import keys_of
    from regard.tasks.records import tagged

    if bool(text) == bool(input):
        raise ConfigError("give sentences, or --input with a file of them")
    loaded = load(run, device)
    given: Iterable[str | tuple[str, ...]] = untagged(input, keys_of(loaded.config)) if input else text or ()
    sentences = iter(given)
    while chunk := list(islice(sentences, WINDOW)):
        for sentence, tags in zip(chunk, loaded.tag(chunk), strict=True):
            if as_json:
                whole = sentence if isinstance(sentence, str) else " ".join(sentence)
                print(json.dumps(tagged(whole, tags), ensure_ascii=False))
            else:
                print("".join(f"{one.word}\t{one.tag}\t{one.probability:.4f}\n" for one in tags))
        sys.stdout.flush()
