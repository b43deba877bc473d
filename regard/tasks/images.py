"""Classifying pictures: folders or arrays of them to a model that names the class of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data import Loader, Position
from regard.data.formats import lines
from regard.data.images import (
    ImageArray,
    ImageFiles,
    ImageLayout,
    ImageSource,
    ImageStore,
    image_batches,
    open_images,
    prepare_images,
    resized,
)
from regard.data.images.augmentation import normalise
from regard.data.images.image_files import Part, class_names
from regard.data.images.image_store import class_numbers, held_out
from regard.errors import ConfigError, DataError
from regard.metrics.classification_metrics import matthews_correlation, wilson_interval
from regard.nn.batch import Images
from regard.tasks.classification import Choice, classify, ranked
from regard.tasks.config import RunConfig
from regard.tasks.evidence import Evidence
from regard.tasks.examples import with_labels
from regard.tasks.run import Run, absolute
from regard.tasks.spec import MEASURING, Measuring, Report, Say, Task
from regard.tasks.starting import base_labels, check_labels
from regard.training.objectives import ImageClassification, Objective


def with_classes(config: RunConfig, pictures: ImageSource) -> RunConfig:
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


class ImagesRun:
    """Pictures to train on and, where there are any, to validate on."""

    def __init__(
        self, config: RunConfig, train: ImageSource, valid: ImageSource | None, directory: Path, report: Report
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
        return image_batches(self.valid, self.config.images, rows=self.rows, patches=self.patches)

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

    def _store(self, pictures: ImageSource, what: str) -> ImageStore:
        config, model = self.config, self.config.model_config()
        return prepare_images(
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


def pictures_of(config: RunConfig, part: Part) -> ImageSource | None:
    """The pictures to train on, to validate on or to test on, as they are named; None where none are.

    Where the training pictures' folder or file has such a part, that serves.
    """
    if names := getattr(config.data, part):
        return open_images(names, part) or open_images(names)
    return open_images(config.data.train, part) if config.data.train else None


def training_pictures(config: RunConfig) -> tuple[ImageSource, ImageSource | None]:
    """The pictures to train on, and those to validate on: if none are named, a share of the former is set aside."""
    train = pictures_of(config, "train")
    if train is None:
        raise ConfigError("no training data: give --data with a folder or arrays (data.train in a configuration)")
    valid = pictures_of(config, "valid")
    if valid is not None or not config.images.held_out:
        return train, valid
    aside = np.array(held_out(train.labels or (), config.images.held_out, config.images.split_seed))
    if not aside.any():
        return train, None
    return train.select(np.flatnonzero(~aside).tolist()), train.select(np.flatnonzero(aside).tolist())


def evaluation_pictures(config: RunConfig) -> ImageSource:
    """The pictures to measure on: the test part, else what was validated on."""
    pictures = pictures_of(config, "test") or training_pictures(config)[1]
    if pictures is None:
        raise ConfigError("nothing to evaluate on: the run names no test or validation pictures; give some")
    return pictures


def check_pictures(config: RunConfig) -> None:
    """Refuse files that are not there before any of them is read."""
    for part in ("train", "valid", "test"):
        for name in getattr(config.data, part):
            if not Path(name).exists():
                raise ConfigError(f"no such file or folder: {name}")


def open_evaluation(names: Sequence[str | Path]) -> ImageSource:
    """The pictures to measure on that these files or folders hold: their test part, where they have parts."""
    pictures = open_images(names, "test") or open_images(names)
    assert pictures is not None
    return pictures


BATCH = 32
ARRAYS = (".npy", ".npz")


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture: its name, and its pixels where they are not in the file of that name."""

    name: str
    pixels: np.ndarray | None = None


class ImageClassifier:
    """A model of pictures, with the classes that it tells apart. An input is a path, an array or a `Picture`."""

    named = True

    def __init__(self, model: Any, config: RunConfig) -> None:
        self.model, self.config = model, config
        shape: Any = config.model_config()
        self.labels: tuple[str, ...] = shape.labels
        self.channels, self.patches = shape.channels, shape.max_len
        images = config.images
        self.fit = partial(resized, size=shape.image_size, resize=images.resize, filter=images.filter)

    def arguments(self, words: Sequence[str]) -> list[Picture]:
        """Picture files, the pictures in folders, and those of arrays."""
        return [picture for word in words for picture in self._named(Path(word))]

    def file(self, path: Path) -> Iterator[Picture]:
        """The pictures of an array, or those whose paths stand in a file, one a line."""
        if path.suffix in ARRAYS:
            yield from self._named(path)
            return
        for name in lines(path):
            yield from self._named(Path(name))

    def shown(self, item: Any) -> str:
        return item.name if isinstance(item, Picture) else str(item)

    def classify(self, items: Sequence[Any], progress: Callable[[int, int], None] | None = None) -> list[list[Choice]]:
        """For each picture every class, the likeliest first."""
        found: list[list[Choice]] = []
        for pictures in _runs_of(items):
            for images in self.batches(pictures):
                found += [ranked(self.labels, row) for row in self.probabilities(images).tolist()]
                if progress is not None:
                    progress(len(found), len(items))
        return found

    def pixels(self, items: Sequence[Any]) -> list[np.ndarray]:
        """The pictures at the model's size, as bytes."""
        return [picture for pictures in _runs_of(items) for picture in pictures.read(self.channels, self.fit)]

    @torch.inference_mode()
    def probabilities(self, images: Images) -> Float[Tensor, "B N"]:
        """Of every class, a row a picture."""
        device = next(self.model.parameters()).device
        return self.model.logits(images.to(device)).float().softmax(-1).cpu()

    def batches(self, pictures: ImageSource) -> Iterator[Images]:
        """The pictures as the model reads them, a few at a time."""
        read = pictures.read(self.channels, self.fit)
        while part := list(islice(read, BATCH)):
            yield self.images(part)

    def images(self, pictures: Sequence[np.ndarray]) -> Images:
        """Pictures of the model's size as a batch."""
        pixels = np.stack([picture.transpose(2, 0, 1) for picture in pictures])
        labels = torch.zeros(len(pixels), dtype=torch.long)
        return Images(normalise(pixels, self.config.images), labels, len(pixels), self.patches)

    def _named(self, path: Path) -> list[Picture]:
        pictures = open_images([path], labelled=False)
        assert pictures is not None
        pixels = pictures.pixels if isinstance(pictures, ImageArray) else [None] * len(pictures.names)
        return [Picture(name, values) for name, values in zip(pictures.names, pixels, strict=True)]


def _runs_of(items: Sequence[Any]) -> Iterator[ImageSource]:
    """The items in order, files that follow one another together."""
    files: list[Path] = []
    for item in items:
        pixels = item.pixels if isinstance(item, Picture) else item
        if pixels is None or isinstance(item, (str, Path)):
            files.append(Path(item.name if isinstance(item, Picture) else item))
            continue
        if files:
            yield ImageFiles(tuple(files))
            files = []
        if not isinstance(pixels, np.ndarray) or pixels.ndim not in (2, 3):
            raise DataError("a picture is a path, or an array of rows, columns and perhaps channels")
        yield ImageArray.of(pixels[None])
    if files:
        yield ImageFiles(tuple(files))


CONFUSED = 5
"""How many of the most frequent mistakes are told."""


def picture_accuracy(
    run: Run, pictures: ImageSource | None = None, *, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Scores of the run on `pictures`, by default its test or validation part, as one JSON-ready object.

    The intervals are Wilson's, at 95 %: what the share would be on other pictures of the same kind, given how few
    these are.
    """
    config = run.config
    pictures = pictures or evaluation_pictures(config)
    classes = config.model_config().labels
    labels = torch.from_numpy(class_numbers(pictures, classes))
    classifier, rows = ImageClassifier(run.model, config), []
    for images in classifier.batches(pictures):
        rows.append(classifier.probabilities(images))
        if progress is not None:
            progress(sum(map(len, rows)), len(labels))
    probabilities = torch.cat(rows)
    found = probabilities.argmax(-1)
    right = found == labels
    top = min(5, len(classes))
    among = (probabilities.topk(top).indices == labels[:, None]).any(-1)
    own = probabilities.gather(1, labels[:, None]).clamp_min(1e-45)
    correlation = matthews_correlation(found.tolist(), labels.tolist())
    kinds = [(name, labels == number, found == number) for number, name in enumerate(classes)]
    seen = [(name, mine, ours, _f1(mine, ours)) for name, mine, ours in kinds if mine.any() or ours.any()]
    return {
        "pictures": len(labels),
        "classes": len(classes),
        "accuracy": float(right.double().mean()),
        "accuracy_interval": wilson_interval(int(right.sum()), len(labels)),
        "top": top,
        "top_accuracy": float(among.double().mean()),
        "top_accuracy_interval": wilson_interval(int(among.sum()), len(labels)),
        "matthews_correlation": correlation.value,
        "matthews_correlation_interval": correlation.interval,
        "matthews_correlation_signature": correlation.signature,
        "macro_f1": sum(f1 for *_, f1 in seen) / len(seen),
        "nll": float(-own.double().log().mean()),
        "by_class": [
            {"label": name, "pictures": int(mine.sum()), "accuracy": float(right[mine].double().mean()), "f1": f1}
            for name, mine, _, f1 in seen
            if mine.any()
        ],
        "confused": _confused(labels, found, classes),
    }


def _f1(gold: torch.Tensor, found: torch.Tensor) -> float:
    return 2 * int((gold & found).sum()) / int(gold.sum() + found.sum())


def _confused(labels: torch.Tensor, found: torch.Tensor, classes: tuple[str, ...]) -> list[dict[str, Any]]:
    counts: dict[tuple[int, int], int] = {}
    for label, guess in zip(labels.tolist(), found.tolist(), strict=True):
        if label != guess:
            counts[label, guess] = counts.get((label, guess), 0) + 1
    worst = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:CONFUSED]
    return [{"label": classes[label], "taken_for": classes[guess], "times": times} for (label, guess), times in worst]


def classifier_of(run: Run) -> ImageClassifier:
    return ImageClassifier(run.model, run.config)


class ImagesTask(Task):
    """Images, in folders with one for each class or in arrays, to a model that names the class of each."""

    name = "images"
    about = "a class of each image"
    unused: ClassVar = ("tokenizer", "decode", "train.vectors", "train.compile_loss", "train.r_drop", "train.pack")
    methods: ClassVar = {"classifier": classifier_of, "classify": classify}
    has_tokenizer = False
    one_shape = True
    takes_targets = True
    unit = "pictures"

    def check(self, config: RunConfig) -> None:
        model, budget = config.model_config(), config.train.batch_tokens
        if budget < model.max_len:
            raise ConfigError(
                f"train.batch_tokens={budget} must be at least {model.max_len}, the patches of one picture and [CLS]"
            )
        if config.images.mean and len(config.images.mean) != model.channels:
            raise ConfigError(f"images.mean has {len(config.images.mean)} numbers for model.channels={model.channels}")

    def check_files(self, config: RunConfig, say: Say) -> None:
        check_pictures(config)

    def prepare(self, config: RunConfig, directory: Path, report: Report, *, new: bool) -> tuple[RunConfig, ImagesRun]:
        """The pictures at one size; for a new run, with the classes and the mean colour that they have."""
        train, valid = training_pictures(config)
        if new:
            config = absolute(with_classes(config, train))
        prepared = ImagesRun(config, train, valid, directory, report)
        if not config.images.mean:
            mean, std = prepared.train.mean_and_std()
            prepared.config = replace(config, images=replace(config.images, mean=mean, std=std))
        return prepared.config, prepared

    def evaluate(self, run: Run, data: Any = None, how: Measuring = MEASURING) -> dict[str, Any]:
        if data is not None and not isinstance(data, ImageSource):
            data = open_evaluation(data)
        return picture_accuracy(run, data, progress=how.progress)

    def show(self, scores: Mapping[str, Any]) -> str:
        return shown_pictures(scores)

    def look(self, run: Run, inputs: Sequence[Any], wanted: Any, **decode: Any) -> Any:
        from regard.tasks.looking.pictures import pictures

        return pictures(run, inputs, wanted, **decode)

    def evidence(self, run: Run, files: Sequence[str] | None, limit: int) -> Evidence:
        pictures = open_evaluation(files) if files else evaluation_pictures(run.config)
        labels = torch.from_numpy(class_numbers(pictures, run.config.model_config().labels))
        # Pictures often come sorted by class: some from everywhere.
        chosen = torch.linspace(0, len(labels) - 1, min(limit, len(labels))).round().long()
        batches, start = [], 0
        for images in run.classifier().batches(pictures.select(chosen.tolist())):
            batches.append(replace(images, labels=labels[chosen[start : start + images.count]]))
            start += images.count
        return Evidence(run, ImageClassification(), batches, start)

    def length(self, config: RunConfig, length: int | None) -> int:
        return config.model_config().max_len

    def example(self, config: RunConfig, length: int, rows: int = 1) -> Images:
        model = config.model_config()
        pixels = torch.zeros(rows, model.channels, model.image_size, model.image_size)
        return Images(pixels, torch.zeros(rows, dtype=torch.long), rows, model.max_len)

    def random_batches(self, config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[Images]]:
        draw, config = torch.Generator().manual_seed(0), with_labels(config)
        model = config.model_config()
        rows = max(1, config.train.batch_tokens // model.max_len)

        def batch() -> Images:
            pixels = torch.randn(rows, model.channels, model.image_size, model.image_size, generator=draw)
            return Images(pixels, torch.randint(len(model.labels), (rows,), generator=draw), rows, model.max_len)

        return config, ImageClassification(config.train.smoothing), [batch() for _ in range(count)]


def shown_pictures(result: Mapping[str, Any]) -> str:
    """The scores of a model of pictures for a person."""
    low, high = result["accuracy_interval"]
    lines = [
        f"pictures           {result['pictures']:,}  of {result['classes']:,} classes",
        f"accuracy           {100 * result['accuracy']:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]  (95 %, Wilson)",
    ]
    low, high = result["matthews_correlation_interval"]
    correlation = f"{result['matthews_correlation']:.4f}  [{low:.4f}, {high:.4f}]"
    lines.append(f"Matthews corr.     {correlation}  {result['matthews_correlation_signature']}")
    lines.append(f"macro f1           {100 * result['macro_f1']:.2f} %")
    if result["top"] < result["classes"]:
        low, high = result["top_accuracy_interval"]
        best = f"{100 * result['top_accuracy']:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]"
        lines.append(f"among the best {result['top']}   {best}")
    lines.append(f"loss               {result['nll']:.4f}  nats per picture")
    if result["classes"] <= 20:
        lines.append("by class           pictures   accuracy         f1")
        for one in result["by_class"]:
            shares = f"{100 * one['accuracy']:>6.2f} %   {100 * one['f1']:>6.2f} %"
            lines.append(f"  {one['label']:<16} {one['pictures']:>8,}   {shares}")
    for one in result["confused"]:
        lines.append(f"{one['label']} taken for {one['taken_for']}: {one['times']} times")
    return "\n".join(lines)


TASK = ImagesTask()
