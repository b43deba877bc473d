"""Requests that wait for one model: few enough, and taken together where that is possible."""

import threading
import time
from collections import deque

from regard.serve.jobs import Job
from regard.serve.limits import Limits
from regard.serve.refusals import Refused

SWEEP = 0.1
"""Seconds between two looks for those in a full queue who have gone: a thousand are refused in that time."""


class Queue:
    """Many threads put, one takes. The oldest request is always in the next batch."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._expected, self._taken, self._free = 2, 2, 0.0
        self._swept = float("-inf")

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, job: Job) -> None:
        """Let the job wait, or refuse it at once."""
        with self._changed:
            if self._closed:
                raise stopping()
            if not self._room():
                raise busy(len(self._jobs))
            self._jobs.append(job)
            self._changed.notify()

    def put_back(self, job: Job) -> None:
        """Let a job that has more to do wait again, behind all others."""
        with self._changed:
            self._jobs.append(job)

    def room(self) -> int:
        """How many more may wait."""
        with self._changed:
            return self._room()

    def _room(self) -> int:
        if len(self._jobs) >= self.limits.queue and time.monotonic() > self._swept + SWEEP:
            self._jobs = deque(one for one in self._jobs if not one.gone)
            self._swept = time.monotonic()
        return self.limits.queue - len(self._jobs)

    def take(self, wait: bool = True) -> list[Job]:
        """The oldest job with all that may go with it, within the budget; none if closed, or empty without `wait`."""
        with self._changed:
            # Those just answered may well ask again, and then go with those who wait already.
            self._expected, self._free = self._taken + len(self._jobs), time.monotonic()
            while wait and not self._jobs and not self._closed:
                self._changed.wait()
            self._company(wait)
            waiting = list(self._jobs)
        # Costs are worked out here, outside the lock: nobody who puts has to wait for a tokenizer.
        batch = self._batch([job for job in waiting if not job.gone])
        chosen = set(map(id, batch))
        with self._changed:
            self._jobs = deque(job for job in self._jobs if id(job) not in chosen and not job.gone)
            self._taken = len(batch)
        return batch

    def close(self) -> None:
        """Take no more. What waits can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    @property
    def closed(self) -> bool:
        return self._closed

    def empty_out(self, error: BaseException) -> None:
        """Refuse all that still waits."""
        with self._changed:
            waiting, self._jobs = list(self._jobs), deque()
        for job in waiting:
            job.fail(error)

    def _company(self, wait: bool) -> None:
        """Wait a little for others to go with the first, unless it goes alone, or as many are here as were before."""
        if not (wait and self._jobs and self.limits.batch_wait) or self._jobs[0].work.alone:
            return
        until = max(self._jobs[0].since, self._free) + self.limits.batch_wait
        while not self._closed and len(self._jobs) < self._expected and (left := until - time.monotonic()) > 0:
            self._changed.wait(left)

    def _batch(self, waiting: list[Job]) -> list[Job]:
        batch: list[Job] = []
        total, in_parts = 0, False
        for job in waiting:
            if batch and (batch[0].work.alone or job.work.key != batch[0].work.key):
                continue
            try:
                split = job.split(self.limits.batch_tokens)
                if split and in_parts:
                    continue  # one part of a long request in a batch: others are not to wait for several
                cost = job.cost()
            except BaseException as error:
                job.fail(error)
                continue
            if batch and total + cost > self.limits.batch_tokens:
                break
            batch.append(job)
            total, in_parts = total + cost, in_parts or split
        return batch


def busy(waiting: int) -> Refused:
    return Refused("busy", f"{waiting} requests wait already; try again soon", {"Retry-After": "1"})


def stopping() -> Refused:
    return Refused("stopping", "the server is stopping", {"Retry-After": "5", "Connection": "close"})
