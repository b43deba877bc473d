"""One thread a model: it takes what waits, does it together, and outlives whatever goes wrong."""

import logging
import os
import sys
import threading
import time
from contextlib import suppress

from regard.errors import RegardError
from regard.serve.jobs import Job
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.queue import Queue
from regard.serve.refusals import Refused, refusal
from regard.serve.verbs.generate import Drawn
from regard.serve.writers import Writers

NICE = 5
"""How much less urgent a model's thread is than that of connections."""

log = logging.getLogger("regard.serve")


class Worker:
    """Does jobs for the model called `name`. Its thread starts with the first job."""

    def __init__(self, name: str, limits: Limits, metrics: Metrics) -> None:
        self.name, self.queue, self.metrics = name, Queue(limits), metrics
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._doing: list[Job] = []
        self._writers = Writers()

    def put(self, job: Job) -> None:
        self.queue.put(job)
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name=f"regard-{self.name}", daemon=True)
                self._thread.start()

    def close(self, grace: float) -> None:
        """Take no more; finish what waits within `grace` seconds, and refuse the rest."""
        self.queue.close()
        if self._thread is None:
            return
        self._thread.join(grace)
        stopped = Refused("stopping", "the server stopped before this request was done")
        self.queue.empty_out(stopped)
        for job in list(self._doing):
            job.fail(stopped)  # nobody waits for it now, so it ends at its next step
        self._thread.join(1.0)

    def _work(self) -> None:
        _give_way()
        while True:
            # While texts are being written, others may join them, but nothing waits for that.
            batch = self.queue.take(wait=not self._writers) if self._writers.room else []
            if not batch and not self._writers and self.queue.closed and not len(self.queue):
                return
            self._doing = [*batch, *self._writers.jobs]
            try:
                self._do(batch)
                self._write()
            except BaseException as error:  # a mistake of ours, not of a model; the thread goes on all the same
                for job in self._doing:
                    self._fail(job, error)
                self._writers = Writers()
            self._doing = list(self._writers.jobs)

    def _write(self) -> None:
        """One more token of every text under way."""
        if not self._writers:
            return
        began = time.monotonic()
        ended = self._writers.step()
        self.metrics.worked(self.name, time.monotonic() - began, 0)
        for job, error in ended:
            if error is not None:
                self._fail(job, error)
            elif not job.gone:
                done = job.work.done()  # type: ignore[attr-defined]
                self.metrics.worked(self.name, 0.0, done.tokens)
                job.finish(done)

    def _do(self, batch: list[Job]) -> None:
        if not batch:
            return
        if isinstance(batch[0].work, Drawn):
            self._writers.add(batch)
            self.metrics.batch(self.name, len(self._writers.jobs), sum(job.cost() for job in batch))
            return
        self.metrics.batch(self.name, len(batch), sum(job.cost() for job in batch))
        failed = self._try(batch)
        if failed is None:
            return
        if len(batch) == 1:
            self._fail(batch[0], failed)
            return
        # One of them is the cause. Each alone, so that it alone fails.
        for job in batch:
            if not job.gone and (error := self._try([job])) is not None:
                self._fail(job, error)

    def _try(self, batch: list[Job]) -> BaseException | None:
        """Do the batch; what went wrong, if anything."""
        began = time.monotonic()
        try:
            done = batch[0].work.together([job.work for job in batch], lambda place: batch[place].gone)
            assert len(done) == len(batch), f"{len(done)} answers to {len(batch)} requests"
        except BaseException as error:  # also a panic, which is no Exception: whoever waits for it is told at once
            failed = error
        else:
            self.metrics.worked(self.name, time.monotonic() - began, sum(one.tokens for one in done))
            for job, one in zip(batch, done, strict=True):
                if not job.finish(one):
                    self.queue.put_back(job)
            return None
        _free_memory()
        return failed

    def _fail(self, job: Job, error: BaseException) -> None:
        if not isinstance(error, (RegardError, Refused)):
            log.error("%s failed on a request", self.name, exc_info=error)
            # What is said outside has no traceback, whose frames would keep tensors alive.
            error = refusal(error)
        job.fail(error)


def _give_way() -> None:
    """Let connections go before this thread where all cores are busy: a few words to a thousand clients come first."""
    if sys.platform == "linux":  # where a thread has a priority of its own
        me = threading.get_native_id()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, me, os.getpriority(os.PRIO_PROCESS, me) + NICE)


def _free_memory() -> None:
    """Let go of what a failed batch held on a GPU."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
