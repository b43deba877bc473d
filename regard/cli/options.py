"""What several commands check alike."""

from typing import TYPE_CHECKING, Any, get_args

from regard.errors import ConfigError, nearest

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
