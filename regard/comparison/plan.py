"""Which configurations a comparison trains, each under a name of its own."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import ConfigError, nearest
from regard.tasks.config import RunConfig, make_config, presets

TRICKS = {"residual": "model.residual=false", "norm": "model.norm=none", "scale": "model.scaled=false"}
"""The three things that make deep stacks of attention trainable, and the setting that leaves each out."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A configuration to train, and its name. An ablation says how deep it is and what it goes `without`."""

    name: str
    config: RunConfig
    depth: int | None = None
    without: str | None = None


def entry(text: str, overrides: Sequence[str] = (), last: Sequence[str] = ()) -> Entry:
    """What `[NAME=]CONFIG[:SETTING,SETTING...]` asks for; CONFIG is a preset or a TOML or JSON file.

    `overrides` come before its own settings, `last` after them.
    """
    head, _, tail = text.partition(":")
    name, equals, what = head.rpartition("=")
    own = re.split(r",(?=\w+\.\w+=)", tail) if tail else []
    path = Path(what)
    if path.suffix in (".toml", ".json"):
        config, usual = make_config(path, None, [*overrides, *own, *last]), path.stem
    elif what in presets():
        config, usual = make_config(None, what, [*overrides, *own, *last]), what
    else:
        raise ConfigError(f"'{what}' is neither a preset nor a .toml or .json file{nearest(what, presets())}")
    changes = " ".join(setting.partition(".")[2] for setting in own)
    return Entry(name if equals else " ".join(filter(None, (usual, changes))), config)


def entries(texts: Sequence[str], overrides: Sequence[str] = ()) -> list[Entry]:
    """All of them, no name twice."""
    found = [entry(text, overrides) for text in texts]
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two configurations are called '{name}': name them, as in first={name} second={name}")
        folder_name(name)
    return found


def ablation(text: str, tricks: Sequence[str], depths: Sequence[int], overrides: Sequence[str] = ()) -> list[Entry]:
    """The configuration at each depth, whole and without each of the tricks."""
    for trick in tricks:
        if trick not in TRICKS:
            raise ConfigError(f"cannot go without '{trick}'{nearest(trick, TRICKS)}")
    if not tricks or any(depth < 1 for depth in depths) or not depths:
        raise ConfigError("an ablation needs at least one trick to go without and depths of at least 1")
    name = entry(text, overrides).config.model["name"]
    if name != "transformer":
        raise ConfigError(f"--ablate is for model 'transformer', whose tricks are settings, not for '{name}'")
    found = []
    for depth in depths:
        deep = [f"model.encoder_layers={depth}", f"model.decoder_layers={depth}"]
        for trick in (None, *tricks):
            last = [*deep, *([TRICKS[trick]] if trick else [])]
            label = f"{depth} layers" + (f" without {trick}" if trick else "")
            found.append(Entry(label, entry(text, overrides, last).config, depth, trick))
    return found


def folder_name(name: str) -> str:
    """A name fit for a directory."""
    plain = re.sub(r"[^\w.=+-]+", "-", name).strip("-.")
    if not plain:
        raise ConfigError(f"'{name}' has no letter or digit to name a directory by")
    return plain
