"""`regard answer`: where in a text the answer to a question stands."""

import json
from pathlib import Path
from typing import Annotated

import typer


def answer(
    run: Annotated[Path, typer.Argument(help="A run directory of a model of answers.", metavar="RUN")],
    question: Annotated[
        str | None, typer.Argument(help="The question; without one, --input is a file of them.", metavar="QUESTION")
    ] = None,
    text: Annotated[str | None, typer.Argument(help="The text to look in.", metavar="TEXT")] = None,
    input: Annotated[
        Path | None,
        typer.Option(
            "--input", "-i", help="A file with the text; or one of questions: TSV, CSV, JSONL, Parquet.", metavar="FILE"
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="How many answers to show.", min=1)] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object an answer.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Find the answer to a question in a text of any length; an empty line says that the text has none.

    A labelled file, as `regard evaluate` takes it, is read without its answers where no question is given; with --top,
    a blank line follows the answers to each of its questions.

    \b
    Examples:
      regard answer runs/answers "Who wrote it?" "The book was written by Ada."
      regard answer runs/answers "Who wrote it?" --input book.txt --top 3 --json
      regard answer runs/answers --input questions.jsonl
    """
    from regard import load
    from regard.data.formats import format_of
    from regard.data.labelled_texts import unanswered
    from regard.errors import ConfigError, DataError
    from regard.tasks.labelled import keys_of
    from regard.tasks.records import answered

    if question is None:
        if input is None:
            raise ConfigError("give a question and a text, or --input with a file of questions")
        if format_of(input) == "lines":
            raise ConfigError(f"give a question: {input} is a text, not a .tsv, .csv, .jsonl or .parquet of questions")
        loaded = load(run, device)
        for asked, context in unanswered(input, keys_of(loaded.config)):
            for one in loaded.answer(asked, context, top=top):
                record = {"question": asked, **answered(one)}
                print(json.dumps(record, ensure_ascii=False) if as_json else " ".join(one.text.split()))
            if top > 1 and not as_json:
                print()
        return
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
