"""How often classes, tags and answers are right, each share with its 95 % interval."""

import math
import re
import string
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from regard.config import JsonObject
from regard.metrics.text import SAMPLES, SEED, bootstrap_signature, check_same_length, percentile_interval


def wilson_interval(right: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """Where a share lies, at 95 %, of which `right` of `count` were seen."""
    share = right / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """Matthews correlation of classes found and classes given, its 95 % interval, and how both were computed.

    1 where all are right, 0 where they are unrelated. Of more than two classes it is Gorodkin's, as in
    scikit-learn; where only one class is found or given it is 0.
    """

    value: float
    interval: tuple[float, float]
    signature: str


def matthews_correlation(found: Sequence[Hashable], gold: Sequence[Hashable]) -> Correlation:
    """How far the classes found go with those given, however unlike in size the classes are."""
    check_same_length(found, gold)
    numbers = {label: number for number, label in enumerate(dict.fromkeys((*gold, *found)))}
    pairs = np.array([(numbers[one], numbers[right]) for one, right in zip(found, gold, strict=True)])
    # A bootstrap sample of texts is a sample of the kinds of answer there are, each as often as it occurs.
    kinds, counts = np.unique(pairs, axis=0, return_counts=True)
    of_found, of_gold = (np.eye(len(numbers), dtype=np.float64)[kinds[:, side]] for side in (0, 1))

    def of(samples: Int[np.ndarray, "samples kinds"]) -> Float[np.ndarray, " samples"]:
        weights = samples.astype(np.float64)
        right, total = weights[:, kinds[:, 0] == kinds[:, 1]].sum(1), weights.sum(1)
        predicted, actual = weights @ of_found, weights @ of_gold
        spread = (total**2 - (predicted**2).sum(1)) * (total**2 - (actual**2).sum(1))
        together = right * total - (predicted * actual).sum(1)
        return np.divide(together, np.sqrt(spread), out=np.zeros_like(together), where=spread > 0)

    samples = np.random.default_rng(SEED).multinomial(len(gold), counts / len(gold), size=SAMPLES)
    return Correlation(
        value=float(of(counts[None])[0]),
        interval=percentile_interval(of(samples)),
        signature=f"matthews|classes:{len(numbers)}|{bootstrap_signature()}",
    )


def class_scores(found: Sequence[str], gold: Sequence[str]) -> JsonObject:
    """Accuracy and Matthews correlation with their 95 % intervals, the mean F1 of the classes, and the precision,
    recall and F1 of each."""
    correlation = matthews_correlation(found, gold)
    right = sum(one == other for one, other in zip(found, gold, strict=True))
    classes = {}
    for label in sorted(set(gold) | set(found)):
        both = sum(one == other == label for one, other in zip(found, gold, strict=True))
        classes[label] = precision_recall_f1(
            both, sum(one == label for one in found), sum(one == label for one in gold)
        )
    return {
        "accuracy": right / len(gold),
        "accuracy_interval": wilson_interval(right, len(gold)),
        "matthews_correlation": correlation.value,
        "matthews_correlation_interval": correlation.interval,
        "matthews_correlation_signature": correlation.signature,
        "macro_f1": sum(scores["f1"] for scores in classes.values()) / len(classes),
        "classes": classes,
    }


def marks_entities(tags: Iterable[str]) -> bool:
    """Whether tags mark entities: all are B-, I- or O."""
    return all(re.fullmatch(r"O|[BI]-.+", tag) for tag in tags)


def tag_scores(found: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> JsonObject:
    """The same of the tags of sentences; where all are B-, I- or O, also of the entities that they mark."""
    ours, right = [one for tags in found for one in tags], [one for tags in gold for one in tags]
    scores = class_scores(ours, right)
    if marks_entities(right):
        marked, wanted = (
            {span for number, tags in enumerate(side) for span in entity_spans(tags, number)} for side in (found, gold)
        )
        scores["entities"] = precision_recall_f1(len(marked & wanted), len(marked), len(wanted))
    return scores


def entity_spans(tags: Sequence[str], number: int = 0) -> list[tuple[int, int, int, str]]:
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
        words, right = _normalised(text), [_normalised(answer) for answer in answers]
        exact += words in right
        overlap += max(token_f1(words, answer) for answer in right)
    return {"exact_match": exact / len(gold), "f1": overlap / len(gold)}


def token_f1(found: list[str], gold: list[str]) -> float:
    """How far two answers share words."""
    if not found or not gold:
        return float(found == gold)
    shared = sum((Counter(found) & Counter(gold)).values())
    return 2 * shared / (len(found) + len(gold))


def _normalised(text: str) -> list[str]:
    """Words without articles, marks and capitals, as SQuAD compares them."""
    bare = "".join(character for character in text.lower() if character not in string.punctuation)
    return [word for word in bare.split() if word not in ("a", "an", "the")]


def precision_recall_f1(both: int, found: int, gold: int) -> dict[str, float]:
    precision, recall = both / max(1, found), both / max(1, gold)
    return {"precision": precision, "recall": recall, "f1": 2 * both / max(1, found + gold), "count": gold}
