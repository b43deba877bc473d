"""Who of several processes has what of an update: whole batches, or some rows of each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from regard.nn.batch import StreamedWindows, row_count, rows_between


@dataclass(frozen=True, slots=True)
class Idle:
    """What a process has of a batch with fewer rows than there are processes: a row to read along, which counts for
    nothing. So all do the same work, and whoever waits for another in the midst of it does not wait for ever."""

    batch: Any


@dataclass(frozen=True, slots=True)
class Share:
    """Process `rank` of `world`, where an update has so many `batches`."""

    rank: int
    world: int
    batches: int

    def parts(self, together: bool = False) -> list[tuple[int, int, int]]:
        """For each of its parts the batch that it is of, which part, and of how many: equally many for all processes.

        Whole batches where they can be dealt out evenly, else some rows of each; `together` some rows of each in any
        case, as where each batch continues the one before. All parts of all processes together are the update.
        """
        teams = 1 if together else math.gcd(self.batches, self.world)
        members, batches = self.world // teams, self.batches // teams
        team, member = divmod(self.rank, members)
        return [(batch, member, members) for batch in range(team * batches, (team + 1) * batches)]


@runtime_checkable
class SharesRows(Protocol):
    """A layout that gathers some rows of a batch without the others."""

    def share(self, rows: np.ndarray, member: int, members: int, /) -> Any | None:
        """These of the batch's rows, as `bounds` has them; None where there are none."""
        ...


def bounds(rows: int, member: int, members: int) -> tuple[int, int]:
    """The first row of a part, and the one after its last."""
    return rows * member // members, rows * (member + 1) // members


def share(batches: Sequence[Any], rank: int, world: int) -> list[Any]:
    """What a process has of the batches of an update."""
    if world == 1:
        return [*batches]
    together = any(isinstance(batch, StreamedWindows) for batch in batches)
    parts = Share(rank, world, len(batches)).parts(together)
    return [share_rows(batches[index], member, members) for index, member, members in parts]


def share_rows(batch: Any, member: int, members: int) -> Any:
    """A part of a batch's rows."""
    if members == 1:
        return batch
    first, last = bounds(row_count(batch), member, members)
    return rows_between(batch, first, last) if first < last else Idle(rows_between(batch, 0, 1))
