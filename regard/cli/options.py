"""What several commands check alike."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from regard.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    from regard import Run
    from regard.data.puzzles.problems import Problem


def check_overlong(value: str) -> None:
    from regard.tasks.translator import Overlong

    known = get_args(Overlong)
    if value not in known:
        raise ConfigError(f"--overlong={value} must be one of {', '.join(known)}{nearest(value, known)}")


def number_or_none(option: str, text: str | None, kind: type[int] | type[float]) -> Any:
    """What an option that may be `none` says: a number, or the word itself; None where it was not given."""
    if text is None or text == "none":
        return text
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{option}={text} must be {what}, or none") from None


def given_problems(run: "Run", texts: Sequence[str] | None, file: Path | None) -> "list[Problem]":
    """The problems on the command line or in the file, of the puzzle that the run has learnt."""
    from regard.data.puzzles.problems import problem_of, read_problems

    if bool(texts) == bool(file):
        raise ConfigError("give problems as JSON lists, or --input with a file of them")
    puzzle = run.pointer.puzzle
    if file:
        return read_problems(file, puzzle)
    problems = []
    for number, text in enumerate(texts or (), 1):
        try:
            given = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"problem {number} is not JSON: {error}") from None
        problems.append(problem_of(given, puzzle, f"problem {number}"))
    return problems
