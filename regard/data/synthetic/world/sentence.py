"""One sentence in both languages with everything that is known about it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from regard.data.synthetic.world import english, french
from regard.data.synthetic.world.english import EnglishText
from regard.data.synthetic.world.syntax import Statement

_PRONOUN = re.compile(r"\b(?:il|elle)s?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pronoun:
    """A pronoun that stands for a noun."""

    english: int
    """Its index in `english_words`."""
    french: int
    """The index of its translation in `french_words`."""
    antecedent: int
    """The index in `english_words` of the noun it means; of the first one where it means a pair."""


@dataclass(frozen=True, slots=True)
class ParallelSentence:
    """A sentence pair with its gold word alignment, pronouns and English parse.

    Words are as they stand in the text: punctuation is a word, "didn't" is one, and so are "l'" and "du".
    `alignment` holds sorted pairs (English index, French index). `heads` and `relations` are the dependencies of
    the English words, with head -1 and relation `root` at the root; `english.py` names the relations.
    `tree` is the same sentence in brackets: "(S (NP (DT The) (NN animal)) ...)".
    """

    english: str
    french: str
    english_words: tuple[str, ...]
    french_words: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]
    pronouns: tuple[Pronoun, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    tree: str


def text_of(words: Iterable[str]) -> str:
    """The words as a line of text: no space before punctuation, none after an elided word."""
    parts: list[str] = []
    glued = True
    for word in words:
        if not glued and word not in (",", "."):
            parts.append(" ")
        parts.append(word)
        glued = word.endswith("'")
    return "".join(parts)


def words_of(text: str, language: Literal["en", "fr"]) -> list[str]:
    """The words of a line of text, cut as the grammar's own are: "l'animal." is three in French, "didn't" one."""
    return re.findall(r"[,.]|[^\s,.']+'?|'" if language == "fr" else r"[,.]|[^\s,.]+", text)


def complete(statement: Statement, written: EnglishText, text: str) -> ParallelSentence:
    """The whole sentence, from its statement and its English."""
    places = written.places
    pieces = french.write(statement, written.words, places)
    french_words = tuple(word for word, _ in pieces)
    alignment = sorted({(source, index) for index, (_, sources) in enumerate(pieces) for source in sources})
    french_of = dict(alignment)
    pronouns = []
    for pronoun in written.pronouns:
        if pronoun.antecedent is not None:
            (index,) = places[id(pronoun), "noun"]
            pronouns.append(Pronoun(index, french_of[index], places[id(pronoun.antecedent), "noun"][0]))
    return ParallelSentence(
        english=text,
        french=text_of(french_words),
        english_words=tuple(written.words),
        french_words=french_words,
        alignment=tuple(alignment),
        pronouns=tuple(pronouns),
        heads=tuple(written.heads),
        relations=tuple(written.relations),
        tree=written.tree,
    )


def realise(statement: Statement) -> ParallelSentence:
    """The statement as a sentence in both languages."""
    written = english.write(statement)
    return complete(statement, written, text_of(written.words))


def spans(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """The character span of each word in `text`, left to right."""
    found = []
    end = 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        found.append((start, end))
    return found


def pronoun_accuracy(gold: Sequence[ParallelSentence], translations: Sequence[str]) -> tuple[int, int]:
    """(right, total) over the gold French pronouns that stand for a noun of their sentence.

    The pronouns of a translation are compared in order with those of the gold French; a missing one is wrong.
    """
    right = total = 0
    for sentence, translation in zip(gold, translations, strict=True):
        found = [word.lower() for word in _PRONOUN.findall(translation)]
        indices = [index for index, word in enumerate(sentence.french_words) if _PRONOUN.fullmatch(word)]
        standing = {pronoun.french for pronoun in sentence.pronouns}
        for order, index in enumerate(indices):
            if index in standing:
                total += 1
                right += order < len(found) and found[order] == sentence.french_words[index].lower()
    return right, total
