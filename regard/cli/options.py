"""What several commands check alike."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

from regard.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    pass


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


def typed() -> bool:
    """Whether someone types at a terminal."""
    return os.isatty(0)


def standard_input(ask: str = "") -> Iterator[str]:
    """The lines of standard input; who types them is shown `ask` before each.

    Only a newline ends a line, as in a file, and the text is UTF-8 in any locale.
    """
    # Not through sys.stdin: Python would close that while a thread still waits for a line, and abort.
    try:
        lines = open(0, "rb", closefd=False)  # noqa: SIM115
    except OSError as error:
        raise DataError(f"cannot read standard input: {error.strerror}") from None
    number, asked = 0, ask if typed() else ""
    while True:
        print(asked, end="", file=sys.stderr, flush=True)
        if not (raw := lines.readline()):
            return
        number += 1
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"standard input is not UTF-8 text: byte {error.start} of line {number}") from None
        yield (line.removeprefix("\ufeff") if number == 1 else line).removesuffix("\n").removesuffix("\r")
