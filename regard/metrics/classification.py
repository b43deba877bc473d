"""How often classes, tags and answers are right, each share with its 95 % interval."""

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

from regard.metrics.text import matthews_correlation


def wilson_interval(right: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """Where a share lies, at 95 %, of which `right` of `count` were seen."""
    share = right / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def class_scores(found: Sequence[str], gold: Sequence[str]) -> dict[str, Any]:
    """Accuracy and Matthews correlation with their 95 % intervals, the mean F1 of the classes, and the precision,
    recall and F1 of each."""
    correlation = matthews_correlation(found, gold)
    right = sum(one == other for one, other in zip(found, gold, strict=True))
    classes = {}
    for label in sorted(set(gold) | set(found)):
        both = sum(one == other == label for one, other in zip(found, gold, strict=True))
        classes[label] = prf(both, sum(one == label for one in found), sum(one == label for one in gold))
    return {
        "accuracy": right / len(gold),
        "accuracy_interval": wilson_interval(right, len(gold)),
        "matthews_correlation": correlation.value,
        "matthews_correlation_interval": correlation.interval,
        "matthews_correlation_signature": correlation.signature,
        "macro_f1": sum(scores["f1"] for scores in classes.values()) / len(classes),
        "classes": classes,
    }


def tag_scores(found: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The same of the tags of sentences; where all are B-, I- or O, also of the stretches that they mark."""
    ours, right = [one for tags in found for one in tags], [one for tags in gold for one in tags]
    scores = class_scores(ours, right)
    if all(re.fullmatch(r"O|[BI]-.+", tag) for tag in right):
        marked, wanted = (
            {stretch for number, tags in enumerate(side) for stretch in stretches(tags, number)}
            for side in (found, gold)
        )
        scores["entities"] = prf(len(marked & wanted), len(marked), len(wanted))
    return scores


def stretches(tags: Sequence[str], number: int = 0) -> list[tuple[int, int, int, str]]:
    """What B- and I- tags mark: the sentence's number, first word, word after the last, and kind."""
    found, start = [], None
    for place, mark in enumerate([*tags, "O"]):
        kind = mark[2:] if mark != "O" else None
        if start is not None and (mark.startswith(("O", "B-")) or kind != tags[start][2:]):
            found.append((number, start, place, tags[start][2:]))
            start = None
        if start is None and kind is not None:
            start = place
    return found


def answer_scores(found: Sequence[str], gold: Sequence[Sequence[str]]) -> dict[str, float]:
    """How many answers are right word for word, and how far they share words with a right one: of several, the best."""
    exact = overlap = 0.0
    for text, answers in zip(found, gold, strict=True):
        words, right = _plain(text), [_plain(answer) for answer in answers]
        exact += words in right
        overlap += max(token_f1(words, answer) for answer in right)
    return {"exact_match": exact / len(gold), "f1": overlap / len(gold)}


def token_f1(found: list[str], gold: list[str]) -> float:
    """How far two answers share words."""
    if not found or not gold:
        return float(found == gold)
    shared = sum((Counter(found) & Counter(gold)).values())
    return 2 * shared / (len(found) + len(gold))


def _plain(text: str) -> list[str]:
    """Words without articles, marks and capitals, as SQuAD compares them."""
    bare = "".join(character for character in text.lower() if character not in string.punctuation)
    return [word for word in bare.split() if word not in ("a", "an", "the")]


def prf(both: int, found: int, gold: int) -> dict[str, float]:
    precision, recall = both / max(1, found), both / max(1, gold)
    return {"precision": precision, "recall": recall, "f1": 2 * both / max(1, found + gold), "count": gold}
