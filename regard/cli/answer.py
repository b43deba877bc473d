"""`regard answer`: the verb over a question and a text, or over a file of questions."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import (
    DEVICE,
    JSON,
    NO_VERIFY,
    PRECISION,
    RUN,
    checked,
    options_of,
    parameter,
    with_parameters,
)
from regard.cli.verbs import opened
from regard.errors import ConfigError, DataError
from regard.tasks.verbs import ask
from regard.tasks.verbs.encoders import ANSWER, AnswerRequest

ASKED = "The question; without one, --input is a file of them."
FROM = "A file with the text; or one of questions: TSV, CSV, JSONL, Parquet."


def _answer(
    run: Path,
    question: str | None,
    text: str | None,
    input: Path | None,
    as_json: bool,
    device: str,
    precision: str,
    no_verify: bool,
    **given: object,
) -> None:
    options = checked(AnswerRequest, given)
    asked = _asked(question, text, input)
    loaded = opened(ANSWER, run, device, precision, verify=not no_verify)
    if asked is None:
        from regard.data.labelled_texts import unanswered
        from regard.tasks.encoder_tasks import keys_of

        assert input is not None
        asked = unanswered(input, keys_of(loaded.config))
    unknown: dict[str, None] = {}
    for question_asked, context in asked:
        (found,) = ask(ANSWER, loaded, AnswerRequest(question=question_asked, text=context, **options))
        unknown.update(dict.fromkeys(ANSWER.unknown(found)))
        if as_json:
            # In answers to a file of questions each says which it answers.
            named = {} if question is not None else {"question": question_asked}
            print("\n".join(json.dumps({**named, **one}, ensure_ascii=False) for one in ANSWER.records(found)))
        else:
            print(ANSWER.show(found) + ("\n" if question is None and options.get("top", 1) > 1 else ""))
    if unknown:
        print(loaded.task.unknown_note(loaded, list(unknown)), file=sys.stderr)


def _asked(question: str | None, text: str | None, file: Path | None) -> Iterable[tuple[str, str]] | None:
    """The one question with its text; None where the file has all of them."""
    from regard.data.formats import format_of

    if question is None:
        if file is None:
            raise ConfigError("give a question and a text, or --input with a file of questions")
        if format_of(file) == "lines":
            raise ConfigError(f"give a question: {file} is a text, not a .tsv, .csv, .jsonl or .parquet of questions")
        return None
    if (text is None) == (file is None):
        raise ConfigError("give the text to look in, or --input with a file of it")
    if file is None:
        return [(question, text or "")]
    try:
        return [(question, file.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        raise DataError(f"no such file: {file}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 text: byte {error.start}") from None


answer = with_parameters(
    _answer,
    [
        parameter("run", RUN),
        parameter("question", Annotated[str | None, typer.Argument(help=ASKED, metavar="QUESTION")], None),
        parameter("text", Annotated[str | None, typer.Argument(help="The text to look in.", metavar="TEXT")], None),
        parameter("input", Annotated[Path | None, typer.Option("--input", "-i", help=FROM, metavar="FILE")], None),
        *options_of(AnswerRequest, "question", "text"),
        parameter("as_json", JSON, False),
        parameter("device", DEVICE, "auto"),
        parameter("precision", PRECISION, "auto"),
        parameter("no_verify", NO_VERIFY, False),
    ],
    ANSWER.help,
)
