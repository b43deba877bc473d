"""The runs that are served, by name, each with the thread that works for it."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from regard.config import JsonObject
from regard.errors import ConfigError, nearest
from regard.nn.quantized import parameter_count
from regard.serve.limits import PLACE, Limits
from regard.serve.metrics import Metrics
from regard.serve.queue import busy, stopping
from regard.serve.refusals import Refused
from regard.serve.routes import Endpoint
from regard.serve.worker import Worker
from regard.tasks.run import Run, load

Runs = Run | str | Path | Sequence[Run | str | Path] | Mapping[str, Run | str | Path]
"""A run or its directory, several, or by name."""


@dataclass(frozen=True)
class Served:
    name: str
    run: Run
    worker: Worker
    endpoints: Mapping[str, Endpoint]

    @cached_property
    def verbs(self) -> list[str]:
        return [name for name, one in self.endpoints.items() if one.able(self.run)]

    @cached_property
    def secrets(self) -> list[tuple[str, str]]:
        """Words of this machine, and what is said of them outside."""
        places = {str(self.run.directory.resolve()), str(self.run.directory)} - {"."}
        return [(place, f"model '{self.name}'") for place in sorted(places, key=len, reverse=True)]

    def record(self) -> JsonObject:
        about = {"task": self.run.config.task, "does": self.verbs, "parameters": parameter_count(self.run.model)}
        about["precision"] = self.run.precision
        return {"id": self.name, "object": "model", "owned_by": "regard", **about}


class Models:
    """All of them. A request need not name a model where only one can do what it asks for."""

    def __init__(
        self,
        runs: Runs,
        endpoints: Mapping[str, Endpoint],
        limits: Limits,
        metrics: Metrics,
        device: str = "auto",
        precision: str = "auto",
    ) -> None:
        self.limits, self.stopping = limits, False
        self._coming = 0
        self._served = {
            name: Served(name, run, Worker(name, limits, metrics), endpoints)
            for name, run in ((name, _loaded(run, device, precision)) for name, run in named(runs).items())
        }
        if limits.body is None:
            able = [one for served in self for one in endpoints.values() if one.able(served.run)]
            self.limits = replace(limits, body=max((one.verb.body for one in able), default=PLACE))

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    def find(self, name: str | None, verb: str) -> Served:
        """The model to do this."""
        if name is None:
            able = [one for one in self if verb in one.verbs]
            if len(able) == 1:
                return able[0]
            if able:
                raise Refused("bad_request", f"missing field 'model': one of {', '.join(one.name for one in able)}")
            raise Refused("wrong_model", f"no model here is for /v1/{verb}")
        if name not in self._served:
            raise Refused("unknown_model", f"unknown model '{name}'{nearest(name, self._served)}")
        served = self._served[name]
        if verb not in served.verbs:
            kind = served.run.config.task
            does = ", ".join(served.verbs) or "nothing that is served"
            raise Refused("wrong_model", f"model '{name}' is a run for {kind}, not for /v1/{verb}; it does: {does}")
        return served

    def refused(self, verb: str) -> Refused | None:
        """Why a request for this cannot be taken, if that is known before a word of it is read."""
        if self.stopping:
            return stopping()
        able = [one.worker.queue for one in self if verb in one.verbs]
        if able and sum(queue.room() for queue in able) <= self._coming:
            return busy(sum(map(len, able)))
        return None

    @contextmanager
    def coming(self, places: int) -> Iterator[None]:
        """While a request is read, whose places in a queue are not to be given to another."""
        self._coming += places
        try:
            yield
        finally:
            self._coming -= places

    def waiting(self) -> dict[str, int]:
        return {one.name: len(one.worker.queue) for one in self}

    def stop(self) -> None:
        """Take no more requests."""
        self.stopping = True
        for one in self:
            one.worker.queue.close()

    def close(self, grace: float) -> None:
        """Finish what waits, for at most `grace` seconds."""
        self.stop()
        until = time.monotonic() + grace
        for one in self:
            one.worker.close(max(0.0, until - time.monotonic()))


def named(runs: Runs) -> dict[str, Run | str | Path]:
    """Runs by name: the given one, or that of the directory."""
    if isinstance(runs, Mapping):
        found = dict(runs)
    else:
        found = {}
        several = [runs] if isinstance(runs, (Run, str, Path)) else runs
        if not isinstance(several, Iterable):
            raise ConfigError(f"only runs can be served, loaded or by directory, not {runs!r:.60}")
        for run in several:
            directory = run.directory if isinstance(run, Run) else Path(run)
            name = directory.resolve().name
            if name in found:
                raise ConfigError(f"two runs are called '{name}': name them, as in name=directory")
            found[name] = run
    if not found:
        raise ConfigError("there is no run to serve")
    for name in found:
        if not re.fullmatch(r"[A-Za-z0-9][\w.:@+-]{0,99}", name):
            raise ConfigError(
                f"'{name}' cannot be the name of a model: letters, digits and . _ - : @ + are; give another"
            )
    return found


def _loaded(run: Run | str | Path, device: str, precision: str) -> Run:
    return run if isinstance(run, Run) else load(run, device, precision)
