"""Runs that tell classes apart: what `regard classify` asks of them, whatever it is that they classify."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from regard.data.formats import format_of, rows
from regard.errors import DataError
from regard.runs.encoder import Encoder, Told

if TYPE_CHECKING:
    from regard.runs.run import Run


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

    def __init__(self, encoder: Encoder, labels: Sequence[str], pairs: bool, keys: tuple[str, str]) -> None:
        self.encoder, self.labels, self.pairs, self.keys = encoder, tuple(labels), pairs, keys

    def arguments(self, words: Sequence[str]) -> list[Any]:
        if not self.pairs:
            return list(words)
        if len(words) % 2:
            raise DataError(f"this run classifies pairs: {len(words)} texts cannot be taken two at a time")
        return list(zip(words[::2], words[1::2], strict=True))

    def file(self, path: Path) -> Iterator[Any]:
        """Lines of text; of pairs, the two columns of a TSV; JSONL and Parquet by the keys of the run."""
        format = format_of(path)
        if self.pairs:
            yield from rows(path, "tsv" if format == "lines" else format, list(self.keys))
        else:
            yield from (row[0] for row in rows(path, format, [self.keys[0]]))

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
    data = run.config.data
    keys = (data.text, data.pair or "pair")
    return TextClassifier(run.encoder, run.model.config.labels, data.pair is not None, keys)  # type: ignore[union-attr, arg-type]


def image_classifier(run: "Run") -> Classifier:
    from regard.runs.image_classifier import ImageClassifier

    return ImageClassifier(run.model, run.config)


CLASSIFIERS: dict[str, Callable[["Run"], Classifier]] = {
    "classification": text_classifier,
    "images": image_classifier,
}
"""By a run's task, what makes its classifier. Another kind of input is an entry here."""
