"""Runs that tell classes apart: what `regard classify` asks of them, whatever it is that they classify."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from regard.data.labelled import Keys, unlabelled
from regard.errors import DataError
from regard.tasks.corpora import keys_of
from regard.tasks.encoder import Encoder, Told

if TYPE_CHECKING:
    from regard.tasks.run import Run


@dataclass(frozen=True, slots=True)
class Choice:
    """A class, and how likely the model thinks it."""

    label: str
    probability: float


@runtime_checkable
class Classifier(Protocol):
    """Inputs of one kind in, classes out. What an input is, is the classifier's own business."""

    labels: tuple[str, ...]
    named: bool
    """Whether a line about an input should say which it is."""

    def arguments(self, words: Sequence[str]) -> list[Any]:
        """The inputs that the words of a command line give or name."""
        ...

    def file(self, path: Path) -> Iterator[Any]:
        """The inputs that a file gives or names, one at a time."""
        ...

    def shown(self, item: Any) -> str:
        """An input as one line of text."""
        ...

    def classify(self, items: Sequence[Any], progress: Told | None = None) -> list[list[Choice]]:
        """For each input every class, the likeliest first."""
        ...


class TextClassifier:
    """Classes of texts, or of pairs of texts where the run was trained on pairs."""

    named = False

    def __init__(self, encoder: Encoder, labels: Sequence[str], keys: Keys) -> None:
        self.encoder, self.labels, self.keys, self.pairs = encoder, tuple(labels), keys, keys.pair is not None

    def arguments(self, words: Sequence[str]) -> list[Any]:
        if not self.pairs:
            return list(words)
        if len(words) % 2:
            raise DataError(f"this run classifies pairs: {len(words)} texts cannot be taken two at a time")
        return list(zip(words[::2], words[1::2], strict=True))

    def file(self, path: Path) -> Iterator[Any]:
        """Lines of text, of pairs with a tab between the two; or TSV, CSV, JSONL and Parquet as the run was trained on,
        with or without labels."""
        found = unlabelled(path, self.keys)
        return iter(found) if self.pairs else (texts[0] for texts in found)

    def shown(self, item: Any) -> str:
        return item if isinstance(item, str) else " ||| ".join(item)

    def classify(self, items: Sequence[Any], progress: Told | None = None) -> list[list[Choice]]:
        encoder = self.encoder
        framed: list[Any] = [
            encoder.framer.texts(item) if isinstance(item, str) else encoder.framer.texts(*item) for item in items
        ]
        found = encoder.each(framed, lambda texts: encoder.model.logits(texts).softmax(-1), progress)  # type: ignore[operator]
        return [ranked(self.labels, row.tolist()) for row in found]


def ranked(labels: Sequence[str], probabilities: Sequence[float]) -> list[Choice]:
    """The classes, likeliest first; of equals the earlier."""
    choices = [Choice(label, value) for label, value in zip(labels, probabilities, strict=True)]
    return sorted(choices, key=lambda choice: -choice.probability)


def text_classifier(run: "Run") -> Classifier:
    return TextClassifier(run.encoder, run.model.config.labels, keys_of(run.config))  # type: ignore[union-attr, arg-type]


def image_classifier(run: "Run") -> Classifier:
    from regard.tasks.image_classifier import ImageClassifier

    return ImageClassifier(run.model, run.config)


CLASSIFIERS: dict[str, Callable[["Run"], Classifier]] = {
    "classification": text_classifier,
    "images": image_classifier,
}
"""By a run's task, what makes its classifier. Another kind of input is an entry here."""
