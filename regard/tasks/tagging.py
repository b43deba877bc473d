"""Tagging, also called token classification: a tag for each word of a sentence."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.config import JsonObject
from regard.data.formats import Columns, format_of
from regard.data.labelled_texts import Keys, tagged
from regard.errors import ConfigError, DataError
from regard.metrics.classification_metrics import marks_entities, tag_scores
from regard.tasks.corpora import TextData
from regard.tasks.encoder import Encoder, Told
from regard.tasks.encoder_tasks import LabelledTask, unknown_labels
from regard.tasks.run import Run
from regard.tasks.spec import Progress, Say, check_columns
from regard.tasks.verbs.encoders import Tag
from regard.training.objectives import Tagging

if TYPE_CHECKING:
    from regard.tasks.planning import Recognised

_WORDS = re.compile(r"\w+(?:['’.-]\w+)*|[^\w\s]")


def tag(encoder: Encoder, sentences: Sequence[str | Sequence[str]], progress: Told | None = None) -> list[list[Tag]]:
    """The tags of each sentence. A text is cut into words and marks; lists of words are taken as they are.

    A sentence longer than the model reads is read in parts.
    """
    model = encoder.model
    if model.config.head != "tags":
        raise ConfigError("this run has no head for tags: train one with task='tagging'")
    labels: tuple[str, ...] = model.config.labels
    cut = [split_words(one) if isinstance(one, str) else list(one) for one in sentences]
    rows = [(number, row, first) for number, words in enumerate(cut) for row, first in encoder.framer.words(words)]
    found = encoder.each([row for _, row, _ in rows], lambda texts: model.logits(texts).softmax(-1), progress)
    tags: list[list[Tag]] = [[Tag(word, labels[0], 0.0) for word in words] for words in cut]
    for (number, _, first), chances in zip(rows, found, strict=True):
        for word, place in first.items():
            best = int(chances[place].argmax())
            tags[number][word] = Tag(cut[number][word], labels[best], float(chances[place, best]))
    return tags


def split_words(text: str) -> list[str]:
    """Words, and every mark by itself."""
    return _WORDS.findall(text)


LONG_SENTENCE = 1000
"""Words of a sentence above which it is told: its file may lack the blank lines between sentences."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggingData(TextData):
    """Tagged sentences: a word and its tag per line with a blank line after each sentence, or rows with lists of both.

    `text` and `label` are the keys or columns of the words and of their tags.
    """

    label: str | int = "label"

    def __post_init__(self) -> None:
        TextData.__post_init__(self)
        check_columns(label=self.label)

    @property
    def pair(self) -> None:
        """A sentence stands alone."""
        return None

    @property
    def overlong(self) -> str:
        """A sentence longer than the model reads is read in parts."""
        return "skip"


def tag_sentences(run: Run, sentences: Sequence[str | Sequence[str]]) -> list[list[Tag]]:
    """A tag for each word of each sentence, given as text or as a list of words."""
    if isinstance(sentences, str):
        raise DataError("give a list of sentences, not one text: [text]")
    return tag(run.encoder, sentences)


class TaggingTask(LabelledTask):
    """A tag for each word of a sentence."""

    name = "tagging"
    about = "a tag for each word"
    data = TaggingData
    heads = ("tags",)
    objective = Tagging
    read = staticmethod(tagged)
    label_shape = staticmethod(lambda rows, length: (rows, length))
    methods: ClassVar = {**LabelledTask.methods, "tag": tag_sentences}

    def columns(self, path: Path, keys: Keys) -> Columns | None:
        return keys.labelled if format_of(path) in ("jsonl", "parquet") else None

    def warn(self, items: list[Any], say: Say) -> None:
        if (longest := max(len(item.words) for item in items)) > LONG_SENTENCE:
            say(f"one sentence has {longest:,} words: a blank line ends a sentence")

    def recognise(self, files: Sequence[Path]) -> "Recognised | None":
        from regard.tasks.plans.labelled import recognise_tags

        return recognise_tags(files)

    def validation_scores(self, encoder: Encoder, items: list[Any]) -> dict[str, float]:
        """Of tags that mark entities their F1, of 100."""
        if not marks_entities(tag for item in items for tag in item.tags):
            return {}
        found = [[one.tag for one in tags] for tags in tag(encoder, [item.words for item in items])]
        return {"f1": 100 * tag_scores(found, [item.tags for item in items])["entities"]["f1"]}

    def score_items(self, run: Run, items: list[Any], progress: Progress | None) -> JsonObject:
        found = [[one.tag for one in tags] for tags in tag(run.encoder, [item.words for item in items], progress)]
        gold = [item.tags for item in items]
        words = [one for tags in gold for one in tags]
        counts = {"sentences": len(items), "words": len(words)}
        return {**counts, **unknown_labels(run, words, "words"), **tag_scores(found, gold)}

    def reads_as_text(self, path: Path) -> bool:
        return False


TASK = TaggingTask()
