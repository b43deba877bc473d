"""One sentence in both languages with everything that is known about it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from regard.data.world import english, french
from regard.data.world.draft import Draft
from regard.data.world.phrases import Statement


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
class Sentence:
    """A sentence pair with its gold word alignment, pronouns and English parse.

    Words are as they stand in the text: punctuation is a word, "didn't" is one, and so are "l'" and "du".
    `alignment` holds sorted pairs (English index, French index). `heads` and `relations` are the dependencies of
    the English words, with head -1 and relation `root` at the root; `regard.data.world.english` names the relations.
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


def complete(statement: Statement, draft: Draft, text: str) -> Sentence:
    """The whole sentence, from its statement and its English."""
    pieces = french.write(statement, draft.words, draft.places)
    places = draft.places
    french_words = tuple(word for word, _ in pieces)
    alignment = sorted({(source, index) for index, (_, sources) in enumerate(pieces) for source in sources})
    french_of = dict(alignment)
    pronouns = []
    for stand in draft.pronouns:
        if stand.antecedent is not None:
            (index,) = places[id(stand), "noun"]
            pronouns.append(Pronoun(index, french_of[index], places[id(stand.antecedent), "noun"][0]))
    return Sentence(
        english=text,
        french=text_of(french_words),
        english_words=tuple(draft.words),
        french_words=french_words,
        alignment=tuple(alignment),
        pronouns=tuple(pronouns),
        heads=tuple(draft.heads),
        relations=tuple(draft.relations),
        tree=draft.tree,
    )


def say(statement: Statement) -> Sentence:
    """The statement as a sentence in both languages."""
    draft = english.write(statement)
    return complete(statement, draft, text_of(draft.words))


def spans(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """The character span of each word in `text`, left to right."""
    found = []
    end = 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        found.append((start, end))
    return found
