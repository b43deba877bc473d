"""What a user can cause and can fix. Everything else is a bug and keeps its traceback."""

import difflib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class RegardError(Exception):
    """A mistake in what was asked for, said in one line: the value, then the rule."""

    quiet = False
    """Whether it is another process's to say."""


class ConfigError(RegardError):
    """A setting that is not possible: unknown, of the wrong type, or at odds with another."""


class DataError(RegardError):
    """Input that cannot be used: unreadable, empty, misaligned, or too long."""


class TooLarge(DataError):
    """More than is taken at a time."""


class SomeRefused(DataError):
    """Of several inputs some could not be used, each told of by itself; the others were answered."""

    exit_code = 1


class RunError(RegardError):
    """A run directory that cannot be used: missing, incomplete, or cut short."""


class Damaged(RunError):
    """A file that is not what was written: missing, cut short, or changed since."""


class NotWritten(RunError):
    """What could not be written, as where the disk is full. What was there before is there still."""


class Diverged(RegardError):
    """Training left the finite numbers; the last good checkpoint was kept."""


class ProcessLost(RegardError):
    """One of several processes has died, failed or does not answer, and with it all end."""

    exit_code = 75  # as in sysexits.h: try again


class RegardWarning(UserWarning):
    """What is not as it was asked for or as it should be, where the work goes on: rows that are left out, outputs that
    are cut, a training that goes badly."""


BETWEEN = ("contextlib", "torch.utils._contextlib")
"""Modules whose decorators stand between a caller and what is called."""


def warn(text: str) -> None:
    """Warn whoever called regard, at the line of theirs that did."""
    place, frame = str(Path(__file__).parent), sys._getframe(1)
    where = frame
    while frame is not None:
        where = frame if frame.f_code.co_filename.startswith(place) else where
        frame = frame.f_back
    where = where.f_back or where
    while where.f_back is not None and where.f_globals.get("__name__") in BETWEEN:
        where = where.f_back
    names = where.f_globals
    seen = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        text, RegardWarning, where.f_code.co_filename, where.f_lineno, names.get("__name__"), registry=seen
    )


@contextmanager
def memory_errors(remedy: Callable[[], str]) -> Iterator[None]:
    """Raise what runs out of memory inside as a RunError of one line, which ends in what can be done."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not ran_out_of_memory(error):
            raise
        where = "the GPU" if any(word in str(error) for word in ("CUDA", "CUBLAS", "HIP")) else "this machine"
        raise RunError(f"{where} ran out of memory {remedy()}") from None


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether there was no memory left: numpy's kind of error, or torch's, which has none for a CPU's but its words."""
    words = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


def nearest(word: str, known: Iterable[str], where: str = "") -> str:
    """`"; did you mean 'x'?"` for the known names nearest to `word`, or the whole list when none is near.

    After a name that is nearly spelt so come up to three of which `word` is a part, or the initials of the parts: of
    `layers` that is `encoder_layers`, of `lr` it is `learning_rate`. `where` is what stands before a name, so that the
    one proposed can be given as it is.
    """
    known = sorted(known)
    close = (
        difflib.get_close_matches(word, known, n=1, cutoff=0.85)
        or _by_parts(word, known)
        or difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    )
    if not close:
        return f"; known: {', '.join(known)}"
    *more, last = [f"'{where}{name}'" for name in close]
    return f"; did you mean {', '.join(more)}{' or ' * bool(more)}{last}?"


def _by_parts(word: str, known: Iterable[str]) -> list[str]:
    """The names of which `word` is a part or the initials of the parts; none where they are too many to tell."""
    parts = {name: name.replace(".", "_").split("_") for name in known}
    found = [name for name, own in parts.items() if word in own or word == "".join(part[:1] for part in own)]
    return found if len(word) > 1 and len(found) <= 3 else []


def check_at_least(settings: object, least: int, *names: str, where: str = "") -> None:
    """Refuse settings below `least`, which is 1 or 0, by name; one that is None is not set."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value >= least:  # nor what is not a number
            rule = f"be at least {least}" if least else "not be negative"
            raise ConfigError(f"{where}{name}={value} must {rule}")


def check_fractions(settings: object, *names: str, where: str = "") -> None:
    """Refuse settings that are not at least 0 and below 1, by name; one that is None is not set."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not 0 <= value < 1:
            raise ConfigError(f"{where}{name}={value} must be at least 0 and below 1")
