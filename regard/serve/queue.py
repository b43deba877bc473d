"""Requests that wait for one model: few enough, and taken together where that is possible."""

import threading
import time
from collections import deque
from collections.abc import Hashable

from regard.serve.jobs import Job
from regard.serve.limits import Limits
from regard.serve.refusals import Refused
from regard.tasks.verbs import Asked

SWEEP = 0.1
"""Seconds between two looks for those in a full queue who have gone: a thousand are refused in that time."""

PART = 1 << 14
"""Tokens to write, over all texts and hypotheses, of one request at a time: between its parts others get their turn."""


class Queue:
    """Many threads put, one pulls. The oldest request is always in the next batch."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._taken, self._swept = 2, float("-inf")

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, job: Job) -> None:
        """Let the job wait, or refuse it at once."""
        with self._changed:
            if self._closed:
                raise stopping()
            if self._room() <= 0:
                raise busy(len(self._jobs))
            self._jobs.append(job)
            self._changed.notify()

    def room(self) -> int:
        """How many more may wait; one that takes several places needs one that is free."""
        with self._changed:
            return self._room()

    def _room(self) -> int:
        if self._places() >= self.limits.queue and time.monotonic() > self._swept + SWEEP:
            self._jobs = deque(one for one in self._jobs if not one.gone)
            self._swept = time.monotonic()
        return self.limits.queue - self._places()

    def _places(self) -> int:
        return sum(job.places for job in self._jobs)

    def wait(self, *, idle: bool) -> bool:
        """Until something waits, where the model is `idle`; whether anything is to be done, now or later."""
        with self._changed:
            # Those just answered may well ask again, and then go with those who wait already.
            expected, free = self._taken + len(self._jobs), time.monotonic()
            while idle and not self._jobs and not self._closed:
                self._changed.wait()
            if idle and self._jobs:
                until = max(self._jobs[0].since, free) + self.limits.batch_wait
                while not self._closed and len(self._jobs) < expected and (left := until - time.monotonic()) > 0:
                    self._changed.wait(left)
            self._taken = 0
            return not (idle and self._closed and not self._jobs)

    def first_of_each_key(self) -> dict[Hashable, Job]:
        """The oldest job that waits, of each kind that can be answered together; the oldest first."""
        found: dict[Hashable, Job] = {}
        with self._changed:
            for job in self._jobs:
                found.setdefault(job.key, job)
        return found

    def pull(self, key: Hashable) -> tuple[list[tuple[Job, Asked]], int]:
        """Inputs of the jobs with this key, the oldest first, as many as make a batch; and the tokens to read of it.

        A batch has one part of a long request: others are not to wait for several. What is left of it waits behind all
        others.
        """
        with self._changed:
            waiting = [job for job in self._jobs if job.key == key]
        # Costs are worked out here, outside the lock: nobody who puts has to wait for a tokenizer.
        pulled: list[tuple[Job, Asked]] = []
        total, parted = 0, False
        for job in waiting:
            if job.gone or (parted and len(job.waiting) > 1):
                continue
            written, full = 0, False
            try:
                while job.waiting and not full:
                    cost = job.cost()
                    full = bool(pulled) and total + cost.read > self.limits.batch_tokens
                    if full or (written and written + cost.write > PART):
                        break
                    pulled.append((job, job.take()))
                    total, written = total + cost.read, written + cost.write
            except BaseException as error:
                job.fail(error)
            parted = parted or bool(job.waiting)
            if full:
                break
        self._put_behind({id(job) for job, _ in pulled})
        return [(job, asked) for job, asked in pulled if not job.gone], total

    def _put_behind(self, pulled: set[int]) -> None:
        with self._changed:
            left = [job for job in self._jobs if job.waiting and not job.gone]
            rest = [job for job in left if id(job) not in pulled]
            self._jobs = deque([*rest, *(job for job in left if id(job) in pulled)])
            self._taken += len(pulled)

    def close(self) -> None:
        """Take no more. What waits can still be pulled."""
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


def busy(waiting: int) -> Refused:
    return Refused("busy", f"{waiting} requests wait already; try again soon", {"Retry-After": "1"})


def stopping() -> Refused:
    return Refused("stopping", "the server is stopping", {"Retry-After": "5", "Connection": "close"})
