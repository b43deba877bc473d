"""`regard answer`: where in a text the answer to a question stands."""

import json
from pathlib import Path
from typing import Annotated

import typer


def answer(
    run: Annotated[Path, typer.Argument(help="A run directory of a model of answers.", metavar="RUN")],
    question: Annotated[str, typer.Argument(help="The question.", metavar="QUESTION")],
    text: Annotated[str | None, typer.Argument(help="The text to look in.", metavar="TEXT")] = None,
    input: Annotated[
        Path | None, typer.Option("--input", "-i", help="A file with the text instead.", metavar="FILE")
    ] = None,
    top: Annotated[int, typer.Option(help="How many answers to show.", min=1)] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object an answer.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Find the answer to a question in a text of any length; an empty line says that the text has none.

    \b
    Examples:
      regard answer runs/answers "Who wrote it?" "The book was written by Ada."
      regard answer runs/answers "Who wrote it?" --input book.txt --top 3 --json
    """
    from regard.errors import ConfigError, DataError
    from regard.runs import load
    from regard.runs.records import answered

    if (text is None) == (input is None):
        raise ConfigError("give the text to look in, or --input with a file of it")
    if input is not None:
        try:
            text = input.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise DataError(f"no such file: {input}") from None
        except UnicodeDecodeError as error:
            raise DataError(f"{input} is not UTF-8 text: byte {error.start}") from None
    for one in load(run, device).answer(question, text or "", top=top):
        print(json.dumps(answered(one), ensure_ascii=False) if as_json else " ".join(one.text.split()))
