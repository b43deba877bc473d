"""Requests whose texts a worker writes together, token by token."""

from regard.serve.jobs import Job
from regard.serve.verbs.generate import Drawn
from regard.tasks.writing import Writing

ROWS = 128
"""Texts under way at the most; more requests wait."""


class Writers:
    """Jobs under way. One whose client has gone is dropped before the next token."""

    def __init__(self) -> None:
        self._writing = Writing()
        self.jobs: list[Job] = []

    def __bool__(self) -> bool:
        return bool(self.jobs)

    @property
    def room(self) -> bool:
        return self._writing.rows < ROWS

    def add(self, jobs: list[Job]) -> None:
        self.jobs += jobs
        self._writing.add([_drawn(job).generation for job in jobs])

    def step(self) -> list[tuple[Job, Exception | None]]:
        """One more token of each; the jobs that are done with, and what failed them."""
        for job in self.jobs:
            if job.gone:
                _drawn(job).generation.cancel()
        self._writing.step()
        ended = []
        for job in self.jobs:
            generation = _drawn(job).generation
            if fresh := generation.fresh():
                job.tell(fresh)
            if generation.done:
                ended.append((job, generation.failure))
        self.jobs = [job for job in self.jobs if not _drawn(job).generation.done]
        return ended


def _drawn(job: Job) -> Drawn:
    assert isinstance(job.work, Drawn)
    return job.work
