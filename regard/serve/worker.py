"""One thread per model: it pulls what waits, answers it together, and outlives whatever goes wrong."""

import logging
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from regard.errors import RegardError
from regard.serve.jobs import Job
from regard.serve.limits import Limits
from regard.serve.metrics import Metrics
from regard.serve.queue import Queue
from regard.serve.refusals import Refused, refusal
from regard.tasks.verbs import Asked

NICE = 5
"""How much less urgent a model's thread is than that of connections."""

log = logging.getLogger("regard.serve")


class Worker:
    """Answers jobs for the model called `name`. Its thread starts with the first job.

    Requests of one key are answered together, by one iterator of their verb. Those of several keys take turns, a step
    of the model each, so that whoever asks for little gets through between the steps of much.
    """

    def __init__(self, name: str, limits: Limits, metrics: Metrics) -> None:
        self.name, self.queue, self.metrics = name, Queue(limits), metrics
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._active: dict[Hashable, InProgress] = {}

    @property
    def under_way(self) -> list[Job]:
        """Jobs that the model is at work on."""
        return [job for one in list(self._active.values()) for job in list(one.under_way.values())]

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
        for job in self.under_way:
            job.fail(stopped)  # nobody waits for it now, so it ends at its next step
        self._thread.join(1.0)

    def _work(self) -> None:
        _give_way()
        while self.queue.wait(idle=not self.under_way):
            for key, job in self.queue.first_of_each_key().items():
                if key not in self._active:
                    self._active[key] = InProgress(self, key, job)
            for key, one in list(self._active.items()):
                if not self._step(one):
                    del self._active[key]

    def _step(self, one: "InProgress") -> bool:
        """A step of the model for these; whether they go on."""
        began, going = time.monotonic(), True
        try:
            told = next(one.steps, None)
        except BaseException as error:  # also a panic, which is no Exception: whoever waits for it is told at once
            told, going = None, False
            self._failed(one, error)
        self.metrics.worked(self.name, time.monotonic() - began, 0)
        if told is not None:
            self.deliver(one, told)
        elif going:
            for job in {job for job in one.under_way.values() if not job.gone}:
                self._fail(job, AssertionError(f"{job.verb.name} ended without an answer"))
        return told is not None

    def deliver(self, one: "InProgress", told: Sequence[tuple[Asked, Any]]) -> None:
        """Hand on what a step has brought: pieces, results, and what failed alone."""
        pieces: dict[Job, list[Any]] = defaultdict(list)
        piece = one.verb.piece or ()
        for asked, news in told:
            job = one.under_way[asked]
            if isinstance(news, piece):
                pieces[job].append(news)
                continue
            del one.under_way[asked]
            if pieces[job]:
                job.tell(pieces.pop(job))
            if isinstance(news, BaseException):
                self._fail(job, news)
            elif not job.gone:
                self.metrics.worked(self.name, 0.0, one.verb.written(news))
                job.finish(asked, news)
        for job, some in pieces.items():
            if some:
                job.tell(some)

    def _failed(self, one: "InProgress", error: BaseException) -> None:
        _free_memory()
        jobs = list(dict.fromkeys(job for job in one.under_way.values() if not job.gone))
        if len(jobs) == 1:
            self._fail(jobs[0], error)
            return
        # One of them is the cause. Each alone, so that it alone fails.
        for job in jobs:
            alone = InProgress(self, one.key, job, [asked for asked, its in one.under_way.items() if its is job])
            try:
                for told in alone.steps:
                    self.deliver(alone, told)
            except BaseException as cause:
                _free_memory()
                self._fail(job, cause)

    def _fail(self, job: Job, error: BaseException) -> None:
        if not isinstance(error, (RegardError, Refused)):
            log.error("%s failed on a request", self.name, exc_info=error)
            # What is said outside has no traceback, whose frames would keep tensors alive.
            error = refusal(error)
        job.fail(error)


class InProgress:
    """Requests of one key being answered: those that it pulls from the queue, or only the `given` ones of one job."""

    def __init__(self, worker: Worker, key: Hashable, job: Job, given: Sequence[Asked] | None = None) -> None:
        self.worker, self.key, self.verb = worker, key, job.verb
        self.under_way: dict[Asked, Job] = {} if given is None else dict.fromkeys(given, job)
        self._given = None if given is None else list(given)
        self.steps: Iterator[Any] = job.verb.answer(job.run, self._pull, gone=self._gone)

    def _pull(self) -> list[Asked]:
        if self._given is not None:
            given, self._given = self._given, []
            return given
        pulled, tokens = self.worker.queue.pull(self.key)
        self.under_way |= {asked: job for job, asked in pulled}
        if pulled:
            self.worker.metrics.batch(self.worker.name, len(set(self.under_way.values())), tokens)
        return [asked for _, asked in pulled]

    def _gone(self, asked: Asked) -> bool:
        return asked not in self.under_way or self.under_way[asked].gone


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
