"""Classifying pictures: folders or arrays of them to a model that names the class of each."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from torch import nn

from regard.data import Loader, Position
from regard.data.images import ImageLayout, ImageStore, Pictures, picture_batches, prepare_pictures
from regard.data.images.sources import class_names
from regard.errors import DataError
from regard.nn.batch import Images
from regard.tasks.config import RunConfig
from regard.tasks.pictures import training_pictures
from regard.tasks.report import Report
from regard.tasks.run import absolute
from regard.tasks.starting import base_labels, check_labels
from regard.training.images import ImageClassification
from regard.training.objectives import Objective


def prepare_job(config: RunConfig, directory: Path, report: Report, new: bool) -> tuple[RunConfig, "ImagesJob"]:
    """The pictures at one size; for a new run, with the classes and the mean colour that they have."""
    train, valid = training_pictures(config)
    if new:
        config = absolute(with_classes(config, train))
    job = ImagesJob(config, train, valid, directory, report)
    if not config.images.mean:
        mean, std = job.train.mean_and_std()
        job.config = replace(config, images=replace(config.images, mean=mean, std=std))
    return job.config, job


def with_classes(config: RunConfig, pictures: Pictures) -> RunConfig:
    """The configuration with the names of the classes: those of the run it starts from, where they hold all of them.

    Where the configuration names them itself, it is those, in that order.
    """
    classes = class_names(pictures.labels or ())
    if given := config.model.get("labels"):
        check_labels(set(classes), given)
        return config
    start = config.train.start_from
    if start and set(classes) <= set(known := base_labels(Path(start))):
        classes = known  # with the head that knows them
    if len(classes) < 2:
        raise DataError(f"one class alone ({', '.join(classes)}) leaves nothing to tell apart")
    return replace(config, model={**config.model, "labels": list(classes)})


class ImagesJob:
    """Pictures to train on and, where there are any, to validate on."""

    def __init__(
        self, config: RunConfig, train: Pictures, valid: Pictures | None, directory: Path, report: Report
    ) -> None:
        self.config, self.report = config, report
        self.cache = Path(config.data.cache) if config.data.cache else directory / "cache"
        self.objective: Objective = ImageClassification(config.train.smoothing)
        self.patches: int = config.model_config().max_len
        report.say("reading the pictures")
        self.train = self._store(train, "reading the training pictures")
        self.valid = None if valid is None else self._store(valid, "reading the validation pictures")
        report.say(self._described())

    @property
    def rows(self) -> int:
        """Pictures of a batch."""
        return self.config.train.batch_tokens // self.patches

    def stream(self, position: Position, *, pin: bool, pack: bool) -> Loader:
        """Pictures are of one size, so there is nothing to pack."""
        return Loader(self._layout(self.rows), seed=self.config.train.seed, position=position, pin=pin)

    def validation(self) -> Iterator[Images] | None:
        if self.valid is None:
            return None
        return picture_batches(self.valid, self.config.images, rows=self.rows, patches=self.patches)

    def scores(self, model: nn.Module) -> dict[str, float]:
        return {}

    def bounds(self) -> tuple[int, int]:
        return self.patches, self.patches * len(self.train)

    def trials(self, budget: int, *, pack: bool) -> list[Images]:
        layout = self._layout(budget // self.patches)
        return [layout.batch(layout.order(self.config.train.seed, 0)[0])]

    def _layout(self, rows: int) -> ImageLayout:
        config = self.config
        return ImageLayout(self.train, config.images, rows=rows, seed=config.train.seed, patches=self.patches)

    def _store(self, pictures: Pictures, what: str) -> ImageStore:
        config, model = self.config, self.config.model_config()
        return prepare_pictures(
            pictures,
            model.labels,
            config.images,
            self.cache,
            size=model.image_size,
            channels=model.channels,
            progress=lambda done: self.report.progress(what, done),
        )

    def _described(self) -> str:
        valid = f", {len(self.valid):,} to validate on" if self.valid is not None else ""
        rows = min(self.rows, len(self.train))
        return (
            f"{len(self.train):,} pictures of {len(self.config.model_config().labels):,} classes{valid}; "
            f"batches of {rows:,} pictures, {self.patches} tokens each"
        )
