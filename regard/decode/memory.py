"""How many sources can be searched for at a time: as many as part of the free memory has room for."""

import os
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from regard.nn.lean_decoder import RESERVED

SHARE = 1 / 8
"""Of the memory that is free, what one batch of a search on a CPU may take."""

ENOUGH = 512 << 20
"""Bytes that it takes at the most: larger batches only leave a CPU's caches, and are no faster."""

UNKNOWN = 4 << 30
"""Bytes taken to be free where the system does not say."""


@runtime_checkable
class Configured(Protocol):
    """A model that has its settings."""

    config: Any


def free_memory(proc: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can be had without swapping: of the machine, or of this process's group where that allows less."""
    free = _available(proc)
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such group, or one without a limit
        return free
    return min(free, max(0, limit - used))


def batch_bytes() -> int:
    """What one batch may take: an eighth of the free memory, and no more than is of use."""
    return min(ENOUGH, int(SHARE * free_memory()))


def _available(proc: Path) -> int:
    try:
        lines = proc.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):
        return UNKNOWN


def width_of(config: Any) -> int:
    """The width of a model of such a config; one that says none is taken to be of 1,024."""
    return getattr(config, "width", 1024)


def source_bytes(config: Any, *, length: int, steps: int, rows: int, choices: int) -> int:
    """What the search for one source of `length` tokens takes, with `rows` hypotheses of at most `steps` choices.

    The keys and values of each layer, twice, since reordering copies them; the scores of all choices, three times; and
    the source's own keys, values and widest layer. `config` is the model's; one without layers is taken to be
    recurrent, with a single one.
    """
    width = width_of(config)
    layers = getattr(config, "decoder_layers", None) or getattr(config, "layers", 1)
    hidden = max(getattr(config, "feed_forward", width), 3 * width)
    positions = -(-steps // RESERVED) * RESERVED
    cache, scores = 2 * layers * 2 * width * positions, 3 * choices
    source = length * (2 * layers * width + 2 * hidden + getattr(config, "heads", 1) * length)
    return 4 * (rows * (cache + scores + 2 * hidden) + source)
