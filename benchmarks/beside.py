"""Two ways beside each other on a machine that does other work too.

Every batch is taken four times on end, by one, the other, the other and the one again, so that a machine that slows
down or a cache that gets warm favours neither. The four give a ratio of process times.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

Seconds = Callable[[Any], float]
"""Does the work of a batch, and says how long it took."""


def ratios(first: Seconds, second: Seconds, batches: Sequence[Any], rounds: int) -> list[float]:
    """How fast the first is as a share of how fast the second is, batch by batch, `rounds` times over."""
    found = []
    for turn in range(rounds + 1):
        for number, batch in enumerate(batches):
            seconds = [0.0, 0.0]
            for which in (0, 1, 1, 0) if (turn + number) % 2 else (1, 0, 0, 1):
                seconds[which] += (first, second)[which](batch)
            if turn:  # the first turn warms up
                found.append(seconds[1] / seconds[0])
    return found


def timed(work: Callable[[Any], Any], batch: Any) -> float:
    """The seconds of this process alone: what else the machine does is not counted."""
    began = time.process_time()
    work(batch)
    return time.process_time() - began


def said(found: list[float]) -> str:
    """The median with its 95 % interval, from 2,000 resamplings."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(found, k=len(found))) for _ in range(2000))
    return f"{statistics.median(found):.4f} [{medians[50]:.4f}, {medians[1949]:.4f}] of {len(found)}"
