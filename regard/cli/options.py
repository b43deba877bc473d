"""What several commands check alike."""

from typing import get_args

from regard.errors import ConfigError, nearest


def check_overlong(value: str) -> None:
    from regard.runs.translator import Overlong

    known = get_args(Overlong)
    if value not in known:
        raise ConfigError(f"--overlong={value} must be one of {', '.join(known)}{nearest(value, known)}")
