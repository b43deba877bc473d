"""The pictures that a run's configuration names."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from regard.data.images import Pictures, open_pictures
from regard.data.images.sources import Part
from regard.data.images.store import held_out
from regard.errors import ConfigError
from regard.tasks.config import RunConfig


def pictures_of(config: RunConfig, part: Part) -> Pictures | None:
    """The pictures to train on, to validate on or to test on, as they are named; None where none are.

    Where the training pictures' folder or file has such a part, that serves.
    """
    if names := getattr(config.data, part):
        return open_pictures(names, part) or open_pictures(names)
    return open_pictures(config.data.train, part) if config.data.train else None


def training_pictures(config: RunConfig) -> tuple[Pictures, Pictures | None]:
    """The pictures to train on, and those to validate on: if none are named, a share of the former is set aside."""
    train = pictures_of(config, "train")
    if train is None:
        raise ConfigError("no training data: give --data with a folder or arrays (data.train in a configuration)")
    valid = pictures_of(config, "valid")
    if valid is not None or not config.images.held_out:
        return train, valid
    aside = np.array(held_out(train.labels or (), config.images.held_out, config.images.split_seed))
    if not aside.any():
        return train, None
    return train.select(np.flatnonzero(~aside).tolist()), train.select(np.flatnonzero(aside).tolist())


def evaluation_pictures(config: RunConfig) -> Pictures:
    """The pictures to measure on: the test part, else what was validated on."""
    pictures = pictures_of(config, "test") or training_pictures(config)[1]
    if pictures is None:
        raise ConfigError("nothing to evaluate on: the run names no test or validation pictures; give some")
    return pictures


def check_pictures(config: RunConfig) -> None:
    """Refuse files that are not there before any of them is read."""
    for part in ("train", "valid", "test"):
        for name in getattr(config.data, part):
            if not Path(name).exists():
                raise ConfigError(f"no such file or folder: {name}")


def open_evaluation(names: Sequence[str | Path]) -> Pictures:
    """The pictures to measure on that these files or folders hold: their test part, where they have parts."""
    pictures = open_pictures(names, "test") or open_pictures(names)
    assert pictures is not None
    return pictures
