"""Texts of one kind counted word by word: an even sample of them, and what it tells of their vocabulary and script."""

import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")

SAMPLE = 10_000
"""Rows that are counted word by word, at the least, where there are as many."""

CLOSED_WORDS = 2000
"""Distinct words above which a vocabulary is not taken for a closed one."""

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
)
"""A character of Thai, Lao, Burmese, Khmer, Japanese or Chinese, which are written without spaces between words."""

_SCRIPTS = (
    ("LATIN", "Latin"),
    ("CYRILLIC", "Cyrillic"),
    ("GREEK", "Greek"),
    ("ARABIC", "Arabic"),
    ("HEBREW", "Hebrew"),
    ("DEVANAGARI", "Devanagari"),
    ("HANGUL", "Hangul"),
    ("HIRAGANA", "Japanese"),
    ("KATAKANA", "Japanese"),
    ("CJK", "Han"),
    ("THAI", "Thai"),
)


class EvenSample(Generic[Item]):
    """Every k-th of as many items as come, k doubled whenever there are too many; each with its number, from 1."""

    def __init__(self, least: int = SAMPLE) -> None:
        self.items: list[tuple[int, Item]] = []
        self.count, self._least, self._every = 0, least, 1

    def add(self, item: Item) -> None:
        self.count += 1
        if (self.count - 1) % self._every == 0:
            self.items.append((self.count, item))
            if len(self.items) >= 2 * self._least:
                self.items = self.items[::2]
                self._every *= 2


@dataclass(frozen=True, kw_only=True, slots=True)
class SideStatistics:
    """The texts of one side of a sample."""

    texts: int
    words: int
    characters: int
    most_words: int
    most_characters: int
    distinct_words: int
    distinct_characters: int
    new_words: float
    """Of the words of one random half of the sample, the share that the other does not have."""
    single: float
    """The share of texts without a space."""
    upper: float
    """The share of texts with a capital letter."""
    unknown: int
    """How often the word `<unk>` occurs."""
    scripts: dict[str, float]
    vocabulary: Counter[str] = field(repr=False)
    unspaced: float = 0.0
    """The share of texts in a script without spaces between words, of which each character is counted as a word."""

    @property
    def mean_words(self) -> float:
        return self.words / max(1, self.texts)

    @property
    def mean_characters(self) -> float:
        return self.characters / max(1, self.texts)

    @property
    def closed(self) -> bool:
        """Whether the words are few and all known: a notation, not a language."""
        return self.distinct_words <= CLOSED_WORDS and self.new_words < 0.0005 and self.unspaced < 0.01

    @property
    def script(self) -> str:
        return max(self.scripts, key=lambda name: self.scripts[name]) if self.scripts else "none"


def words_of(text: str) -> list[str]:
    """What lies between spaces; of scripts that have none between words, each character."""
    if text.isascii() or not _UNSPACED.search(text):
        return text.split()
    return _UNSPACED.sub(r" \g<0> ", text).split()


SEGMENTED = 0.25
"""Spaces per character of a script without spaces from which on a text has been cut into its words."""


def without_spaces(texts: Iterable[str]) -> bool:
    """Whether these texts are mostly in a script without spaces between words, and have not been cut into words."""
    unspaced = others = spaces = 0
    for text in texts:
        here = 0 if text.isascii() else len(_UNSPACED.findall(text))
        unspaced += here
        others += sum(map(str.isalpha, _UNSPACED.sub("", text) if here else text))
        spaces += len(text.split()) - 1 if here else 0
    return unspaced > others and spaces < SEGMENTED * unspaced


def side_statistics(texts: Sequence[str]) -> SideStatistics:
    """Counts of these texts, which are in the order of the data or at random."""
    # Halves by lot: data is often sorted, or has lines of two kinds by turns.
    lot = random.Random(1)
    first: Counter[str] = Counter()
    second: Counter[str] = Counter()
    letters: set[str] = set()
    scripts: Counter[str] = Counter()
    most_words = most_characters = single = upper = unspaced = 0
    for text in texts:
        words = words_of(text)
        (second if lot.random() < 0.5 else first).update(words)
        letters.update(text)
        most_words, most_characters = max(most_words, len(words)), max(most_characters, len(text))
        single += len(words) == 1 or len(text.split()) == 1
        unspaced += not text.isascii() and _UNSPACED.search(text) is not None
        upper += text != text.lower()
        if name := _script(text):
            scripts[name] += 1
    if scripts["Japanese"]:  # which is written with both
        scripts["Japanese"] += scripts.pop("Han", 0)
    unseen = sum(count for word, count in second.items() if word not in first)
    vocabulary = first + second
    scripts = +scripts
    written = max(1, sum(scripts.values()))
    return SideStatistics(
        texts=len(texts),
        words=sum(vocabulary.values()),
        characters=sum(map(len, texts)),
        most_words=most_words,
        most_characters=most_characters,
        distinct_words=len(vocabulary),
        distinct_characters=len(letters),
        new_words=unseen / max(1, sum(second.values())),
        single=single / max(1, len(texts)),
        upper=upper / max(1, len(texts)),
        unknown=vocabulary["<unk>"],
        scripts={name: count / written for name, count in scripts.items()},
        vocabulary=vocabulary,
        unspaced=unspaced / max(1, len(texts)),
    )


def _script(text: str) -> str | None:
    """The script of a text's first letter that has one; texts of two scripts are rare enough."""
    for character in text[:80]:
        if character.isascii():
            if character.isalpha():
                return "Latin"
        elif character.isalpha():
            name = unicodedata.name(character, "")
            return next((script for start, script in _SCRIPTS if name.startswith(start)), "another")
    return None
