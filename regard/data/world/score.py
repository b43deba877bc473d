"""How many pronouns a translation got right."""

import re
from collections.abc import Sequence

from regard.data.world.sentence import Sentence

_PRONOUN = re.compile(r"\b(?:il|elle)s?\b", re.IGNORECASE)


def pronoun_accuracy(gold: Sequence[Sentence], translations: Sequence[str]) -> tuple[int, int]:
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
