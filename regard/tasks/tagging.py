"""A tag for each word of a sentence."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import ConfigError
from regard.tasks.encoder import Encoder, Told

_WORDS = re.compile(r"\w+(?:['’.-]\w+)*|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Tag:
    """A word, its likeliest tag, and how likely the model thinks that."""

    word: str
    tag: str
    probability: float


def tag(encoder: Encoder, sentences: Sequence[str | Sequence[str]], progress: Told | None = None) -> list[list[Tag]]:
    """The tags of each sentence. A text is cut into words and marks; lists of words are taken as they are.

    A sentence longer than the model reads is read in parts.
    """
    model = encoder.model
    if model.config.head != "tags":  # type: ignore[union-attr]
        raise ConfigError("this run has no head for tags: train one with task='tagging'")
    labels: tuple[str, ...] = model.config.labels  # type: ignore[union-attr, assignment]
    cut = [split_words(one) if isinstance(one, str) else list(one) for one in sentences]
    rows = [(number, row, first) for number, words in enumerate(cut) for row, first in encoder.framer.words(words)]
    found = encoder.each([row for _, row, _ in rows], lambda texts: model.logits(texts).softmax(-1), progress)  # type: ignore[operator]
    tags: list[list[Tag]] = [[Tag(word, labels[0], 0.0) for word in words] for words in cut]
    for (number, _, first), chances in zip(rows, found, strict=True):
        for word, place in first.items():
            best = int(chances[place].argmax())
            tags[number][word] = Tag(cut[number][word], labels[best], float(chances[place, best]))
    return tags


def split_words(text: str) -> list[str]:
    """Words, and every mark by itself."""
    return _WORDS.findall(text)
