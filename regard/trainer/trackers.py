"""Trackers: what training reports, also to TensorBoard, Weights & Biases, or another tool that a package adds.

A tracker is made with the run's directory and hears what a `Report` hears. A package adds one by an entry point:

    [project.entry-points."regard.trackers"]
    mine = "my_package:MyTracker"
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from regard.config import JsonObject
from regard.digests import ALGORITHM
from regard.errors import ConfigError
from regard.plugins import Registry
from regard.runs.files import CONFIG, read_json
from regard.runs.log import summary_writer
from regard.tasks.spec import FollowsCounts, FollowsUpdates, OnlyWarnings, Report, warn


@runtime_checkable
class Tracker(Protocol):
    """Is given the values of each logged step and of each validation, by name, and closed at the end.

    `open` comes before the first of them, with the run's settings.
    """

    def open(self, config: JsonObject) -> None: ...

    def log(self, kind: str, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoardTracker:
    """Scalars in `tensorboard/` in the run, as `train.tensorboard` writes them."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._kind, self._board = directory, summary_writer(), None

    def open(self, config: JsonObject) -> None:
        if config.get("train", {}).get("tensorboard"):
            raise ConfigError("train.tensorboard writes the same already")
        self._board: Any = self._kind(str(self._directory / "tensorboard"))

    def log(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()


class WandbTracker:
    """A run of Weights & Biases in the project `regard`; where it goes is for its own settings to say."""

    def __init__(self, directory: Path) -> None:
        try:
            wandb = import_module("wandb")
        except ImportError:
            raise ConfigError("--report wandb needs the wandb package: pip install 'regard[wandb]'") from None
        self._directory, self._library, self._run = directory, wandb, None

    def open(self, config: JsonObject) -> None:
        place = str(self._directory.resolve())
        # The same for a run that is resumed, which then goes on there too.
        number = hashlib.sha256(place.encode()).hexdigest()[:16]
        named = {"project": "regard", "name": self._directory.name, "id": number, "resume": "allow", "dir": place}
        self._run: Any = self._library.init(config=config, **named)

    def log(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        self._run.log({f"{kind}/{name}": value for name, value in values.items()}, step=step)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()


TRACKERS: Registry[Callable[[Path], Tracker]] = Registry(
    "regard.trackers",
    "tracker",
    {"tensorboard": TensorBoardTracker, "wandb": WandbTracker},
)


class Tracked:
    """A report that also tells trackers, and keeps warnings. A tracker that fails is told of once and left out;
    training goes on."""

    def __init__(self, report: Report, trackers: Mapping[str, Tracker], directory: Path) -> None:
        self.warnings = list[str]()
        self._report, self._directory = report, directory
        self._trackers, self._opened = dict(trackers), False

    def say(self, text: str) -> None:
        self._report.say(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        warn(self._report, text)

    def progress(self, what: str, pairs: int) -> None:
        self._report.progress(what, pairs)

    def updated(self, number: int, total: int) -> None:
        if isinstance(self._report, FollowsUpdates):
            self._report.updated(number, total)

    def counted(self, what: str, done: int, total: int) -> None:
        if isinstance(self._report, FollowsCounts):
            self._report.counted(what, done, total)

    def step(self, values: Mapping[str, Any], total: int) -> None:
        self._report.step(values, total)
        self._tell("train", values)

    def validation(self, values: Mapping[str, Any]) -> None:
        self._report.validation(values)
        self._tell("validation", values)

    def close(self) -> None:
        for name in [*self._trackers]:
            self._try(name, self._trackers[name].close)

    def _tell(self, kind: str, values: Mapping[str, Any]) -> None:
        if not self._opened:
            self._opened, config = True, read_json(self._directory / CONFIG)
            config.pop(ALGORITHM, None)
            for name in [*self._trackers]:
                self._try(name, lambda name=name: self._trackers[name].open(config))
        numbers = {
            name: float(value)
            for name, value in values.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and name != "step"
        }
        for name in [*self._trackers]:
            self._try(name, lambda name=name: self._trackers[name].log(kind, int(values["step"]), numbers))

    def _try(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # another tool's, of whatever kind: it must not end a training
            self._trackers.pop(name, None)
            self.warn(f"{name}: {error or type(error).__name__}; it gets nothing more of this training")


Reports = Report | str | Sequence[Report | str] | None
"""Who is told how a training goes: a report, the name of a tracker or several with commas, or a list of both."""


@contextmanager
def reporting(given: Reports, directory: Path) -> Iterator[Tracked]:
    """One report that tells all of them; trackers are closed at the end. Without a report, `OnlyWarnings` hears."""
    listed = [given] if isinstance(given, str) or not isinstance(given, Sequence) else [*given]
    plain: list[Report] = []
    names: list[str] = []
    for one in listed:
        if isinstance(one, str):
            names += [name.strip() for name in one.split(",") if name.strip()]
        elif isinstance(one, Report):
            plain.append(one)
        elif one is not None:
            raise ConfigError(f"report={one!r:.60} must be a Report, names of trackers, or a list of these")
    if len(plain) > 1:
        raise ConfigError(f"{len(plain)} reports are given; one, and any number of trackers by name, can be told")
    report = plain[0] if plain else OnlyWarnings()
    tracked = Tracked(report, {name: TRACKERS.named(name)(directory) for name in dict.fromkeys(names)}, directory)
    try:
        yield tracked
    finally:
        tracked.close()
