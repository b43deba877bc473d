"""A small world with known answers: English and French sentence pairs from a synchronous grammar.

Every English sentence has exactly one French one, decided by rules and by what the sentence itself says. With each pair
come the gold word alignment, what each pronoun means, and the English parse.
"""

from collections.abc import Iterator
from typing import Literal, get_args

from regard.data.world import english
from regard.data.world.dice import Dice
from regard.data.world.draw import statement
from regard.data.world.draw_plain import plain_statement
from regard.data.world.lecture import LECTURE
from regard.data.world.score import pronoun_accuracy
from regard.data.world.sentence import Pronoun, Sentence, complete, spans, text_of, words_of
from regard.data.world.split import Split, split_of
from regard.errors import DataError, nearest

__all__ = [
    "LECTURE",
    "Grammar",
    "Pronoun",
    "Sentence",
    "Split",
    "pronoun_accuracy",
    "sentences",
    "spans",
    "split_of",
    "words_of",
]

Grammar = Literal["whole", "plain"]
_DRAW = {"whole": statement, "plain": plain_statement}

# A draw that fails this often in a row asks for what the grammar does not say, or has said already.
_PATIENCE = 200_000


def sentences(
    count: int,
    *,
    seed: int = 0,
    split: Split = "train",
    lengths: tuple[int, int] = (4, 60),
    grammar: Grammar = "whole",
) -> Iterator[Sentence]:
    """`count` sentences of the split, no English text twice, always the same for the same seed and split.

    `grammar` is the whole one, or the `plain` part of it: a few hundred words, no pronouns, and long sentences as
    common as short ones.

    `lengths` bounds the number of English words, both ends included; punctuation does not count.
    """
    if split not in get_args(Split):
        raise DataError(f"unknown split '{split}'{nearest(split, get_args(Split))}")
    dice = Dice(f"{seed} {split}")
    seen: set[str] = set()
    failures = 0
    while len(seen) < count:
        drawn = _DRAW[grammar](dice)
        draft = english.write(drawn)
        text = text_of(draft.words)
        length = len(draft.words) - draft.words.count(",") - draft.words.count(".")
        if not lengths[0] <= length <= lengths[1] or text in seen or split_of(text) != split:
            failures += 1
            if failures > _PATIENCE:
                raise DataError(f"only {len(seen)} sentences of {count} found with lengths={lengths}, split={split!r}")
            continue
        failures = 0
        seen.add(text)
        yield complete(drawn, draft, text)
