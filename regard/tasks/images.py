"""Image classification: folders or arrays of images to a model that names the class of each."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import JsonObject, Setting
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
from regard.data.images.image_files import Part, class_names, copied, is_pillow, pillow_pixels
from regard.data.images.image_store import class_numbers, held_out
from regard.errors import ConfigError, DataError
from regard.look.document import Document
from regard.metrics.classification_metrics import matthews_correlation, wilson_interval
from regard.nn.batch import Images
from regard.tasks.classification import Choice, classify, ranked
from regard.tasks.config import RunConfig
from regard.tasks.corpora import PreparedData, cache_directory
from regard.tasks.fine_tuning import known_labels
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.probes import HeldOutData
from regard.tasks.run import Run, absolute
from regard.tasks.spec import MEASURING, Measuring, Report, Say, Task, warn
from regard.tasks.verbs.spec import RefusedInput, read_each
from regard.training.objectives import ImageClassification, Objective

if TYPE_CHECKING:
    from regard.tasks.planning import Choices, Machine, Recognised


def with_classes(config: RunConfig, images: ImageSource) -> RunConfig:
    """The configuration with the names of the classes: those of the run it starts from, where they hold all of them.

    Where the configuration names them itself, it is those, in that order.
    """
    classes = class_names(images.labels or ())
    classes = known_labels(config.model, config.train.start_from, set(classes)) or classes
    if len(classes) < 2:
        raise DataError(f"one class alone ({', '.join(classes)}) leaves nothing to tell apart")
    return replace(config, model={**config.model, "labels": list(classes)})


class ImagesRun(PreparedData):
    """Images to train on and, where there are any, to validate on."""

    def __init__(
        self, config: RunConfig, train: ImageSource, valid: ImageSource | None, directory: Path, report: Report
    ) -> None:
        self.config, self.report = config, report
        self.cache = cache_directory(config, directory)
        self.objective: Objective = ImageClassification(config.train.smoothing)
        self.patches: int = config.model_config().max_len
        report.say("reading the images")
        self.train = self._store(train, "reading the training images")
        self.valid = None if valid is None else self._store(valid, "reading the validation images")
        report.say(self._described())

    @property
    def rows(self) -> int:
        """Images of a batch."""
        return self.config.train.batch_tokens // self.patches

    def validation(self) -> Iterator[Images] | None:
        if self.valid is None:
            return None
        return image_batches(self.valid, self.config.images, rows=self.rows, patches=self.patches)

    def bounds(self) -> tuple[int, int]:
        return self.patches, self.patches * len(self.train)

    def layout(self, budget: int, *, pack: bool = False) -> ImageLayout:
        """Images are of one size, so there is nothing to pack."""
        config, rows = self.config, budget // self.patches
        return ImageLayout(self.train, config.images, rows=rows, seed=config.train.seed, patches=self.patches)

    def _store(self, images: ImageSource, what: str) -> ImageStore:
        config, model = self.config, self.config.model_config()
        return prepare_images(
            images,
            model.labels,
            config.images,
            self.cache,
            size=model.image_size,
            channels=model.channels,
            progress=lambda done: self.report.progress(what, done),
            say=self.report.say,
        )

    def _described(self) -> str:
        valid = f", {len(self.valid):,} to validate on" if self.valid is not None else ""
        rows = min(self.rows, len(self.train))
        return (
            f"{len(self.train):,} images of {len(self.config.model_config().labels):,} classes{valid}; "
            f"batches of {rows:,} images, {self.patches} tokens each"
        )


def images_of(config: RunConfig, part: Part) -> ImageSource | None:
    """The images to train on, to validate on or to test on, as they are named; None where none are.

    Where the training images' folder or file has such a part, that serves.
    """
    if names := getattr(config.data, part):
        return open_images(names, part) or open_images(names)
    return open_images(config.data.train, part) if config.data.train else None


def training_images(config: RunConfig, say: Say | None = None) -> tuple[ImageSource, ImageSource | None]:
    """The images to train on, and those to validate on: if none are named, a share of the former is set aside, less
    those of which there are copies to train on."""
    train = images_of(config, "train")
    if train is None:
        raise ConfigError("no training data: give --data with a folder or arrays (data.train in a configuration)")
    valid = images_of(config, "valid")
    if valid is not None or not config.images.held_out:
        return train, valid
    aside = np.array(held_out(train.labels or (), config.images.held_out, config.images.split_seed))
    if not aside.any():
        return train, None
    rest, held = train.select(np.flatnonzero(~aside).tolist()), train.select(np.flatnonzero(aside).tolist())
    known = np.array(copied(held, rest))
    if known.any() and say is not None:
        say(f"{known.sum():,} of {len(known):,} images set aside are not validated on: copies of them are trained on")
    return rest, held.select(np.flatnonzero(~known).tolist()) if not known.all() else None


def evaluation_images(config: RunConfig) -> ImageSource:
    """The images to measure on: the test part, else what was validated on."""
    images = images_of(config, "test") or training_images(config)[1]
    if images is None:
        raise ConfigError("nothing to evaluate on: the run names no test or validation images; give some")
    return images


def open_test_images(names: Sequence[str | Path]) -> ImageSource:
    """The images to measure on that these files or folders hold: their test part, where they have parts."""
    images = open_images(names, "test") or open_images(names)
    assert images is not None
    return images


BATCH = 32
ARRAYS = (".npy", ".npz")


@dataclass(frozen=True, slots=True)
class NamedImage:
    """One image: its name, and its pixels where they are not in the file of that name."""

    name: str
    pixels: np.ndarray | None = None


class ImageReader:
    """Images as a run's model reads them. An input is a path, an array, a Pillow image or a `NamedImage`."""

    def __init__(self, config: RunConfig) -> None:
        shape: Any = config.model_config()
        self.config, self.channels = config.images, shape.channels
        images = config.images
        self.fit = partial(resized, size=shape.image_size, resize=images.resize, filter=images.filter)

    def arguments(self, words: Sequence[str]) -> list[NamedImage]:
        """Image files, the images in folders, and those of arrays."""
        return [image for word in words for image in self._named(Path(word))]

    def file(self, path: Path) -> Iterator[NamedImage | RefusedInput]:
        """The images of an array, or those whose paths stand in a file, one per line; blank lines are none."""
        if path.suffix in ARRAYS:
            yield from self._named(path)
            return
        yield from read_each(filter(str.strip, lines(path)), lambda name: self._named(Path(name)))

    def shown(self, item: object) -> str:
        return item.name if isinstance(item, NamedImage) else str(item)

    def pixels(self, items: Sequence[Any], first: int = 1) -> list[np.ndarray]:
        """The images at the model's size, as bytes; those without a name are called by their number from `first` on."""
        return [image for images in _runs_of(items, first) for image in images.read(self.channels, self.fit)]

    def normalised(self, arrays: Sequence[np.ndarray]) -> Float[Tensor, "B C Y X"]:
        """Images of the model's size as numbers about 0."""
        return normalise(np.stack([image.transpose(2, 0, 1) for image in arrays]), self.config)

    def _named(self, path: Path) -> list[NamedImage]:
        images = open_images([path], labelled=False)
        assert images is not None
        pixels = images.pixels if isinstance(images, ImageArray) else [None] * len(images.names)
        return [NamedImage(name, values) for name, values in zip(images.names, pixels, strict=True)]


class ImageClassifier:
    """A model of images, with the classes that it tells apart. An input is as for `ImageReader`."""

    named, pairs = True, False

    def __init__(self, model: Any, config: RunConfig) -> None:
        self.model, self.config = model, config
        shape: Any = config.model_config()
        self.labels: tuple[str, ...] = shape.labels
        self.patches = shape.max_len
        self.reader = ImageReader(config)
        self.arguments, self.file, self.shown = self.reader.arguments, self.reader.file, self.reader.shown
        self.pixels = self.reader.pixels

    def classify(self, items: Sequence[Any], progress: Callable[[int, int], None] | None = None) -> list[list[Choice]]:
        """For each image every class, the likeliest first."""
        found: list[list[Choice]] = []
        for images in _runs_of(items):
            for batch in self.batches(images):
                found += [ranked(self.labels, row) for row in self.probabilities(batch).tolist()]
                if progress is not None:
                    progress(len(found), len(items))
        return found

    @torch.inference_mode()
    def probabilities(self, images: Images) -> Float[Tensor, "B N"]:
        """Of every class, a row per image."""
        device = next(self.model.parameters()).device
        return self.model.logits(images.to(device)).float().softmax(-1).cpu()

    def batches(self, images: ImageSource) -> Iterator[Images]:
        """The images as the model reads them, a few at a time."""
        read = images.read(self.reader.channels, self.reader.fit)
        while part := list(islice(read, BATCH)):
            yield self.images(part)

    def images(self, arrays: Sequence[np.ndarray]) -> Images:
        """Images of the model's size as a batch."""
        labels = torch.zeros(len(arrays), dtype=torch.long)
        return Images(self.reader.normalised(arrays), labels, len(arrays), self.patches)


def _rows_of_pixels(image: Any, name: str) -> np.ndarray:
    """An image that is in memory already, as rows, columns and perhaps channels."""
    if isinstance(image, Tensor):
        image = image.detach().cpu().numpy()
    elif is_pillow(image):
        image = pillow_pixels(image, name)
    if not isinstance(image, np.ndarray):
        raise DataError(
            f"{name} is of the type {type(image).__name__}; must be a path, a Pillow image, or an array of rows, "
            "columns and perhaps channels"
        )
    coloured = image.ndim == 3 and bool({1, 3} & {image.shape[0], image.shape[-1]})
    if not image.size or not (coloured or image.ndim == 2):
        raise DataError(f"{name} has shape {image.shape}; must be rows, columns and 1 or 3 channels, or none")
    return image


def is_one(images: Any) -> bool:
    """Whether this is one image by its type, and no array."""
    return isinstance(images, str | Path | bytes | NamedImage) or is_pillow(images)


def several_images(images: Any) -> list[Any]:
    """A list of images: an array of rows and columns, and perhaps of channels after them, is one; one of four
    dimensions holds several. What else one of three dimensions might be is not guessed."""
    if is_one(images) or not isinstance(images, Iterable):
        return [images]
    if not isinstance(images, np.ndarray | Tensor) or images.ndim in (1, 4):
        return list(images)
    if images.ndim == 2 or (images.ndim == 3 and images.shape[-1] in (1, 3)):
        return [images]
    raise DataError(
        f"an array of shape {tuple(images.shape)} may be one image or several: give [image], a list of images, or an "
        "array of images, rows, columns and channels"
    )


def classify_images(run: Run, inputs: Sequence[Any] | np.ndarray | Tensor) -> list[list[Choice]]:
    """For each image every class with its probability, the likeliest first; an array of one image is one image."""
    return classify(run, inputs if isinstance(inputs, str) else several_images(inputs))


def _runs_of(items: Sequence[Any], first: int = 1) -> Iterator[ImageSource]:
    """The items in order, files that follow one another together."""
    files: list[Path] = []
    for number, item in enumerate(items, first):
        pixels, named = (item.pixels, item.name) if isinstance(item, NamedImage) else (item, item)
        if isinstance(named, str | Path) and (pixels is None or pixels is named):
            files.append(Path(named))
            continue
        if files:
            yield ImageFiles(tuple(files))
            files = []
        yield ImageArray.of(_rows_of_pixels(pixels, f"image {number}")[None], where=f"image {number}")
    if files:
        yield ImageFiles(tuple(files))


CONFUSED = 5
"""How many of the most frequent mistakes are told."""


def _f1(gold: torch.Tensor, found: torch.Tensor) -> float:
    return 2 * int((gold & found).sum()) / int(gold.sum() + found.sum())


def _confused(labels: torch.Tensor, found: torch.Tensor, classes: tuple[str, ...]) -> list[JsonObject]:
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
    methods: ClassVar = {"classifier": classifier_of, "classify": classify_images}
    has_tokenizer = False
    reads_text = False
    one_shape = True
    takes_targets = True
    unit = "images"

    def several(self, inputs: Any) -> list[Any]:
        return several_images(inputs)

    def recognise(self, files: Sequence[Path]) -> "Recognised | None":
        from regard.tasks.plans.pictures import recognise_images

        return recognise_images(files)

    def statistics(self, data: Any) -> Any:
        from regard.tasks.plans.pictures import image_statistics

        train = open_images(data.train, "train")
        assert train is not None
        named = [open_images(data.valid, "valid") or open_images(data.valid)] if data.valid else []
        return image_statistics(train, [*named, open_images(data.train, "valid")])

    def plan(self, statistics: Any, machine: "Machine", base: JsonObject | None) -> "Choices":
        from regard.tasks.plans.pictures import plan_images

        return plan_images(statistics, machine, base)

    def check(self, config: RunConfig) -> None:
        model, budget = config.model_config(), config.train.batch_tokens
        if budget < model.max_len:
            raise ConfigError(
                f"train.batch_tokens={budget} must be at least {model.max_len}, the patches of one image and [CLS]"
            )
        if config.images.mean and len(config.images.mean) != model.channels:
            raise ConfigError(f"images.mean has {len(config.images.mean)} numbers for model.channels={model.channels}")

    def prepare(self, config: RunConfig, directory: Path, report: Report, *, new: bool) -> tuple[RunConfig, ImagesRun]:
        """The images at one size; for a new run, with the classes and the mean colour that they have."""
        train, valid = training_images(config, partial(warn, report))
        if new:
            config = absolute(with_classes(config, train))
        prepared = ImagesRun(config, train, valid, directory, report)
        if not config.images.mean:
            mean, std = prepared.train.mean_and_std()
            prepared.config = replace(config, images=replace(config.images, mean=mean, std=std))
        return prepared.config, prepared

    def evaluate(
        self, run: Run, data: ImageSource | Sequence[str | Path] | None = None, how: Measuring = MEASURING
    ) -> JsonObject:
        """Scores on the images given, by default the run's test or validation part.

        The intervals are Wilson's, at 95 %: what the share would be on other images of the same kind, given how few
        these are.
        """
        config = run.config
        if data is not None and not isinstance(data, ImageSource):
            data = open_test_images(data)
        images = data or evaluation_images(config)
        classes = config.model_config().labels
        labels = torch.from_numpy(class_numbers(images, classes))
        classifier, rows = ImageClassifier(run.model, config), []
        for batch in classifier.batches(images):
            rows.append(classifier.probabilities(batch))
            if how.progress is not None:
                how.progress(sum(map(len, rows)), len(labels))
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

    def show(self, scores: Mapping[str, Any]) -> str:
        """The scores of a model of images for a person."""
        low, high = scores["accuracy_interval"]
        lines = [
            f"images             {scores['pictures']:,}  of {scores['classes']:,} classes",
            f"accuracy           {100 * scores['accuracy']:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]  (95 %, Wilson)",
        ]
        low, high = scores["matthews_correlation_interval"]
        correlation = f"{scores['matthews_correlation']:.4f}  [{low:.4f}, {high:.4f}]"
        lines.append(f"Matthews corr.     {correlation}  {scores['matthews_correlation_signature']}")
        lines.append(f"macro f1           {100 * scores['macro_f1']:.2f} %")
        if scores["top"] < scores["classes"]:
            low, high = scores["top_accuracy_interval"]
            best = f"{100 * scores['top_accuracy']:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]"
            lines.append(f"among the best {scores['top']}   {best}")
        lines.append(f"loss               {scores['nll']:.4f}  nats per image")
        if scores["classes"] <= 20:
            lines.append("by class             images   accuracy         f1")
            for one in scores["by_class"]:
                shares = f"{100 * one['accuracy']:>6.2f} %   {100 * one['f1']:>6.2f} %"
                lines.append(f"  {one['label']:<16} {one['pictures']:>8,}   {shares}")
        for one in scores["confused"]:
            lines.append(f"{one['label']} taken for {one['taken_for']}: {one['times']} times")
        return "\n".join(lines)

    def look(self, run: Run, inputs: Sequence[Any], wanted: LookOptions, **decode: Setting) -> Document:
        from regard.tasks.looking.encoder_runs import image_document

        return image_document(run, inputs, wanted, **decode)

    def held_out_data(self, run: Run, files: Sequence[str] | None, limit: int) -> HeldOutData:
        images = open_test_images(files) if files else evaluation_images(run.config)
        labels = torch.from_numpy(class_numbers(images, run.config.model_config().labels))
        # Images often come sorted by class: some from everywhere.
        chosen = torch.linspace(0, len(labels) - 1, min(limit, len(labels))).round().long()
        batches, start = [], 0
        for batch in run.classifier().batches(images.select(chosen.tolist())):
            batches.append(replace(batch, labels=labels[chosen[start : start + batch.count]]))
            start += batch.count
        return HeldOutData(run, ImageClassification(), batches, start)

    def length(self, config: RunConfig, length: int | None) -> int:
        return config.model_config().max_len

    def example(self, config: RunConfig, length: int, rows: int = 1) -> Images:
        model = config.model_config()
        pixels = torch.zeros(rows, model.channels, model.image_size, model.image_size)
        return Images(pixels, torch.zeros(rows, dtype=torch.long), rows, model.max_len)

    def random_batches(self, config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[Images]]:
        generator, config = torch.Generator().manual_seed(0), config.with_stand_in_labels()
        model = config.model_config()
        rows = max(1, config.train.batch_tokens // model.max_len)

        def batch() -> Images:
            pixels = torch.randn(rows, model.channels, model.image_size, model.image_size, generator=generator)
            return Images(pixels, torch.randint(len(model.labels), (rows,), generator=generator), rows, model.max_len)

        return config, ImageClassification(config.train.smoothing), [batch() for _ in range(count)]


TASK = ImagesTask()
