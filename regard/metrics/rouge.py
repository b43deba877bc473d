"""ROUGE of summaries, as the `rouge-score` package computes it with its stemmer: n-grams and common subsequences.

Words are runs of a-z and 0-9 in lower case; those of more than three letters are stemmed by Porter's algorithm of 1980,
with the irregular forms and the small repairs of NLTK's, which that package uses.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from regard.config import JsonObject
from regard.metrics.text import References, bootstrap_signature, check_same_length, mean_interval

NAMES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
SIGNATURE = "f1:mean|tokens:a-z0-9|case:lower|stemmer:porter-nltk|as:rouge-score-0.1.2"


class Overlap(NamedTuple):
    """How much of a summary is in its reference, how much of the reference is in it, and their harmonic mean."""

    precision: float
    recall: float
    f1: float


def rouge(summary: str, reference: str) -> dict[str, Overlap]:
    """ROUGE-1, -2, -L and -Lsum of one summary, from 0 to 1. Of the last, lines are sentences."""
    found, right = rouge_words(summary), rouge_words(reference)
    lines = [[rouge_words(line) for line in text.split("\n") if line] for text in (summary, reference)]
    common = len(common_places(right, found)) if found and right else 0
    return {
        "rouge1": _of_ngrams(found, right, 1),
        "rouge2": _of_ngrams(found, right, 2),
        "rougeL": _overlap(common, len(found), len(right)),
        "rougeLsum": _of_lines(*lines),
    }


def best_rouge(summary: str, references: Sequence[str]) -> dict[str, Overlap]:
    """The same against several references: of each score, that of the reference with the highest F1."""
    each = [rouge(summary, reference) for reference in references]
    return {name: max((one[name] for one in each), key=lambda one: one.f1) for name in NAMES}


def corpus_rouge(summaries: Sequence[str], references: References) -> JsonObject:
    """Mean scores over a corpus, from 0 to 100, each with the 95 % interval of its F1."""
    f1 = rouge_f1(summaries, references)
    return {name: {"f1": 100 * float(f1[name].mean()), "interval": _interval(f1[name])} for name in NAMES}


def rouge_f1(summaries: Sequence[str], references: References) -> dict[str, Float[np.ndarray, " B"]]:
    """The F1 of every summary, by the name of the score: from 0 to 1."""
    check_same_length(summaries, references)
    rows = zip(summaries, references, strict=True)
    each = [best_rouge(text, [right] if isinstance(right, str) else right) for text, right in rows]
    return {name: np.array([one[name].f1 for one in each]) for name in NAMES}


def rouge_signature() -> str:
    return f"{SIGNATURE}|{bootstrap_signature()}"


def _interval(values: Float[np.ndarray, " B"]) -> list[float]:
    return [100 * end for end in mean_interval(values)]


def repeated_trigrams(texts: Sequence[str]) -> float:
    """The share of a corpus's trigrams of words that stand in their text before, words being what spaces separate."""
    total = repeated = 0
    for text in texts:
        trigrams = _ngrams(text.split(), 3)
        total += sum(trigrams.values())
        repeated += sum(trigrams.values()) - len(trigrams)
    return repeated / total if total else 0.0


def rouge_words(text: str) -> list[str]:
    """The words that ROUGE compares."""
    words = re.sub(r"[^a-z0-9]+", " ", text.lower()).split()
    return [porter_stem(word) if len(word) > 3 else word for word in words]


def common_places(words: Sequence[str], others: Sequence[str]) -> list[int]:
    """Where in `words` a longest common subsequence with `others` stands."""
    table = np.zeros((len(words) + 1, len(others) + 1), dtype=np.int64)
    ids = {word: number for number, word in enumerate({*words, *others})}
    row = np.array([ids[word] for word in others])
    for place, word in enumerate(words, 1):
        # A cell is the greatest of: above; left; above left and one more where the words agree.
        longer = np.maximum(table[place - 1, 1:], (table[place - 1, :-1] + 1) * (row == ids[word]))
        table[place, 1:] = np.maximum.accumulate(longer)
    i, j, found = len(words), len(others), []
    while i and j:
        if words[i - 1] == others[j - 1]:
            i, j = i - 1, j - 1
            found.append(i)
        elif table[i, j - 1] > table[i - 1, j]:
            j -= 1
        else:
            i -= 1
    return found[::-1]


def _of_ngrams(found: Sequence[str], right: Sequence[str], size: int) -> Overlap:
    one, other = _ngrams(found, size), _ngrams(right, size)
    return _overlap((one & other).total(), one.total(), other.total())


def _ngrams(words: Sequence[str], size: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[start:] for start in range(size)), strict=False))


def _of_lines(found: list[list[str]], right: list[list[str]]) -> Overlap:
    """ROUGE-Lsum: of each line of the reference, what it has in common with any line of the summary, counted once."""
    left, wanted = Counter(word for line in found for word in line), Counter(word for line in right for word in line)
    sizes, hits = (left.total(), wanted.total()), 0
    for line in right:
        union = sorted({place for other in found if other for place in common_places(line, other)})
        for word in (line[place] for place in union):
            if left[word] > 0 and wanted[word] > 0:
                hits += 1
                left[word] -= 1
                wanted[word] -= 1
    return _overlap(hits, *sizes)


def _overlap(hits: int, found: int, wanted: int) -> Overlap:
    precision, recall = hits / max(found, 1), hits / max(wanted, 1)
    return Overlap(precision, recall, 2 * precision * recall / (precision + recall) if hits else 0.0)


# ---- Porter's stemmer ----

IRREGULAR = {
    **{"skies": "sky", "sky": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news"},
    **{"innings": "inning", "inning": "inning", "outings": "outing", "outing": "outing"},
    **{"cannings": "canning", "canning": "canning", "howe": "howe"},
    **{"proceed": "proceed", "exceed": "exceed", "succeed": "succeed"},
}

Rule = tuple[str, str, Callable[[str], bool]]
"""An ending, what takes its place, and what must be true of the stem before it."""


@lru_cache(maxsize=1 << 16)
def porter_stem(word: str) -> str:
    """The stem of a word in lower case."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) <= 2:
        return word
    word = _plural(word)
    word = _past_or_gerund(word)
    if word.endswith("y") and len(word) > 2 and _consonant(word, len(word) - 2):
        word = word[:-1] + "i"
    word = _derived(word)
    word = _first_rule(word, DERIVED_AGAIN)
    word = _first_rule(word, SUFFIXES)
    return _without_last(word)


def _consonant(word: str, place: int) -> bool:
    """A letter other than a, e, i, o, u, and other than a y after a consonant."""
    if word[place] in "aeiou":
        return False
    return word[place] != "y" or place == 0 or not _consonant(word, place - 1)


def _measure(stem: str) -> int:
    """How often a run of vowels is followed by a run of consonants."""
    kinds = "".join("c" if _consonant(stem, place) else "v" for place in range(len(stem)))
    return kinds.count("vc")


def _some(stem: str) -> bool:
    return _measure(stem) > 0


def _more(stem: str) -> bool:
    return _measure(stem) > 1


def _has_vowel(stem: str) -> bool:
    return any(not _consonant(stem, place) for place in range(len(stem)))


def _short_end(word: str) -> bool:
    """Whether it ends in consonant, vowel, consonant, the last not w, x or y; or is a vowel and a consonant."""
    if len(word) == 2:
        return not _consonant(word, 0) and _consonant(word, 1)
    if len(word) < 3 or word[-1] in "wxy":
        return False
    last = len(word) - 1
    return _consonant(word, last) and not _consonant(word, last - 1) and _consonant(word, last - 2)


def _first_rule(word: str, rules: Sequence[Rule]) -> str:
    """The word changed by the first rule whose ending it has, if its stem allows that."""
    for ending, instead, allowed in rules:
        if word.endswith(ending):
            stem = word[: len(word) - len(ending)]
            return stem + instead if allowed(stem) else word
    return word


def _plural(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    for ending, instead in (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")):
        if word.endswith(ending):
            return word[: len(word) - len(ending)] + instead
    return word


def _past_or_gerund(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _some(word[:-3]) else word
    ending = next((one for one in ("ed", "ing") if word.endswith(one)), "")
    stem = word[: len(word) - len(ending)]
    if not ending or not _has_vowel(stem):
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if len(stem) >= 2 and stem[-1] == stem[-2] and _consonant(stem, len(stem) - 1):
        return stem if stem[-1] in "lsz" else stem[:-1]
    return stem + "e" if _measure(stem) == 1 and _short_end(stem) else stem


def _derived(word: str) -> str:
    if word.endswith("alli") and _some(word[:-4]):
        return _derived(word[:-2])
    if word.endswith("logi"):  # the l belongs to the stem that is measured
        return word[:-1] if _some(word[:-3]) else word
    return _first_rule(word, DERIVED)


def _without_last(word: str) -> str:
    if word.endswith("e"):
        stem = word[:-1]
        if _more(stem) or (_measure(stem) == 1 and not _short_end(stem)):
            word = stem
    return word[:-1] if word.endswith("ll") and _more(word[:-1]) else word


def _rules(allowed: Callable[[str], bool], **endings: str) -> list[Rule]:
    return [(ending, instead, allowed) for ending, instead in endings.items()]


DERIVED = _rules(
    _some,
    **{"ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al"},
    **{"entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al"},
    **{"iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble"},
    fulli="ful",
)
DERIVED_AGAIN = _rules(_some, icate="ic", ative="", alize="al", iciti="ic", ical="ic", ful="", ness="")
SUFFIXES: list[Rule] = [
    *_rules(_more, al="", ance="", ence="", er="", ic="", able="", ible="", ant="", ement="", ment="", ent=""),
    ("ion", "", lambda stem: _more(stem) and stem[-1] in "st"),
    *_rules(_more, ou="", ism="", ate="", iti="", ous="", ive="", ize=""),
]
