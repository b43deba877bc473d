"""Classification: texts or pairs of texts to one of several classes; and what any classifier offers."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

from regard.config import JsonObject
from regard.data.labelled_texts import (
    Example,
    Keys,
    class_folders,
    class_part,
    examples,
    examples_in,
    has_class_parts,
    unlabelled,
)
from regard.errors import DataError
from regard.metrics.classification_metrics import class_scores
from regard.tasks.config import RunConfig
from regard.tasks.corpora import Part
from regard.tasks.encoder import Encoder, Told
from regard.tasks.encoder_tasks import LabelledTask, keys_of, labelled_files, unknown_labels
from regard.tasks.run import Run
from regard.tasks.spec import Progress, Say
from regard.tasks.verbs.encoders import Choice
from regard.training.objectives import Classification

if TYPE_CHECKING:
    from regard.tasks.planning import Recognised

Item = TypeVar("Item")

TextOrPair = str | Sequence[str]
"""A text or, for a run on pairs, two of them."""


@runtime_checkable
class Classifier(Protocol[Item]):
    """Inputs of one kind in, classes out. What an input is, is the classifier's own business."""

    labels: tuple[str, ...]
    named: bool
    """Whether a line about an input should say which it is."""
    pairs: bool
    """Whether an input is two texts."""

    def arguments(self, words: Sequence[str]) -> list[Item]:
        """The inputs that the words of a command line give or name."""
        ...

    def file(self, path: Path) -> Iterator[Item]:
        """The inputs that a file gives or names, one at a time."""
        ...

    def shown(self, item: Item) -> str:
        """An input as one line of text."""
        ...

    def classify(self, items: Sequence[Item], progress: Told | None = None) -> list[list[Choice]]:
        """For each input every class, the likeliest first."""
        ...


class TextClassifier:
    """Classes of texts, or of pairs of texts where the run was trained on pairs."""

    named = False

    def __init__(self, encoder: Encoder, labels: Sequence[str], keys: Keys) -> None:
        self.encoder, self.labels, self.keys, self.pairs = encoder, tuple(labels), keys, keys.pair is not None

    def arguments(self, words: Sequence[str]) -> Sequence[TextOrPair]:
        if not self.pairs:
            return list(words)
        if len(words) % 2:
            texts = f"{len(words)} text" + "s" * (len(words) != 1)
            raise DataError(f"this run classifies pairs: {texts} cannot be taken two at a time")
        return list(zip(words[::2], words[1::2], strict=True))

    def file(self, path: Path) -> Iterator[TextOrPair]:
        """Lines of text, of pairs with a tab between the two; or TSV, CSV, JSONL and Parquet as the run was trained on,
        with or without labels."""
        found = unlabelled(path, self.keys)
        return iter(found) if self.pairs else (texts[0] for texts in found)

    def shown(self, item: TextOrPair) -> str:
        return item if isinstance(item, str) else " ||| ".join(item)

    def classify(self, items: Sequence[Any], progress: Told | None = None) -> list[list[Choice]]:
        encoder = self.encoder
        framed: list[Any] = [
            encoder.framer.texts(item) if isinstance(item, str) else encoder.framer.texts(*item) for item in items
        ]
        found = encoder.each(framed, lambda texts: encoder.model.logits(texts).softmax(-1), progress)
        return [ranked(self.labels, row.tolist()) for row in found]


def ranked(labels: Sequence[str], probabilities: Sequence[float]) -> list[Choice]:
    """The classes, likeliest first; of equals the earlier."""
    choices = [Choice(label, value) for label, value in zip(labels, probabilities, strict=True)]
    return sorted(choices, key=lambda choice: -choice.probability)


def classifier_of(run: Run) -> TextClassifier:
    return TextClassifier(run.encoder, run.model.config.labels, keys_of(run.config))


def classify(run: Run, inputs: Sequence[Any]) -> list[list[Choice]]:
    """For each input every class with its probability, the likeliest first: texts, pairs of texts, or images."""
    if isinstance(inputs, str):
        raise DataError("give a list of inputs, not one: [input]")
    return run.classifier().classify(list(inputs))


class ClassificationTask(LabelledTask):
    """Texts, or pairs of texts, to one of several classes."""

    name = "classification"
    about = "a class of each text, or of each pair of texts"
    heads = ("classes",)
    objective = Classification
    read = staticmethod(examples)
    label_shape = staticmethod(lambda rows, length: (rows,))
    methods: ClassVar = {**LabelledTask.methods, "classifier": classifier_of, "classify": classify}

    def in_folder(self, path: Path) -> Iterator[Example] | None:
        if has_class_parts(path):
            raise DataError(f"{path} has no folder of classes for this part; name a folder of classes, or {path}/train")
        folders = class_folders(path)
        return examples_in(folders) if folders else None

    def part_of(self, name: str | Path, part: Part) -> str | None:
        if not has_class_parts(folder := Path(name)):
            return str(name)
        found = class_part(folder, part)
        return None if found is None else str(found)

    def check_labelled(self, config: RunConfig, files: Iterable[str | Path], say: Say) -> None:
        super().check_labelled(config, files := list(files), say)
        for name in files:
            if folders := class_folders(Path(name)):
                read = {file for inside in folders.values() for file in inside}
                if beside := [file.name for file in labelled_files([name]) if file not in read]:
                    count = "1 file" if len(beside) == 1 else f"{len(beside):,} files"
                    verb = "is" if len(beside) == 1 else "are"
                    listed = ", ".join(beside[:3]) + ", ..." * (len(beside) > 3)
                    say(f"{name}: {count} not in a folder of a class {verb} not read ({listed})")

    def recognise(self, files: Sequence[Path]) -> "Recognised | None":
        from regard.tasks.plans.labelled import recognise_classes

        return recognise_classes(files)

    def score_items(self, run: Run, items: list[Any], progress: Progress | None) -> JsonObject:
        texts = [item.texts[0] if len(item.texts) == 1 else item.texts for item in items]
        found = [choices[0].label for choices in run.classifier().classify(texts, progress)]
        gold = [item.label for item in items]
        return {"texts": len(items), **unknown_labels(run, gold, "texts"), **class_scores(found, gold)}


TASK = ClassificationTask()
