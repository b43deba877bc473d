"""Labelled brackets of trees against the right ones, counted as evalb counts them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.config import JsonObject
from regard.data.trees import EMPTY, ROOTS, Tree, bare_label
from regard.errors import DataError
from regard.metrics.classification_metrics import wilson_interval
from regard.metrics.text import bootstrap_rows, bootstrap_signature, check_same_length, percentile_interval

DELETED = frozenset((",", ":", "``", "''", ".", EMPTY))
"""Tags of words that do not count: evalb's punctuation, and traces."""
EQUAL = {"PRT": "ADVP"}
"""Labels that count as another: in evalb's usual settings particles are adverbs."""
SIGNATURE = "evalb|labelled|punctuation:deleted|TOP:ignored|functions:stripped|PRT:ADVP"

Bracket = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class BracketCounts:
    """Of one sentence: brackets that are right, those found, those there are, and words with the right tag of all."""

    right: int
    found: int
    gold: int
    tags: int
    words: int

    @property
    def exact(self) -> bool:
        return self.right == self.found == self.gold


def brackets(tree: Tree, counted: Sequence[bool]) -> list[Bracket]:
    """The constituents of a tree with the words that they span, counting only the words that are `counted`.

    TOP is none, and neither is what spans no counted word; a chain of constituents over the same words is as many.
    """
    found: list[Bracket] = []
    places = np.cumsum([0, *counted]).tolist()

    def visit(tree: Tree, start: int) -> int:
        if tree.word is not None:
            return start + 1
        end = start
        for child in tree.children:
            end = visit(child, end)
        label = bare_label(tree.label)
        if label not in ROOTS and places[end] > places[start]:
            found.append((EQUAL.get(label, label), places[start], places[end]))
        return end

    visit(tree, 0)
    return found


def bracket_counts(found: Tree, gold: Tree) -> BracketCounts:
    """How far a tree agrees with the right one. Which words are punctuation, the right one's tags say."""
    leaves, right = list(found.leaves()), list(gold.leaves())
    if [leaf.word for leaf in leaves] != [leaf.word for leaf in right]:
        raise DataError(f"two trees over different words cannot be compared: {' '.join(gold.words)[:60]}")
    counted = [bare_label(leaf.label) not in DELETED for leaf in right]
    ours, theirs = Counter(brackets(found, counted)), Counter(brackets(gold, counted))
    tags = sum(one.label == other.label for one, other, real in zip(leaves, right, counted, strict=True) if real)
    return BracketCounts((ours & theirs).total(), ours.total(), theirs.total(), tags, sum(counted))


def bracket_scores(found: Sequence[Tree], gold: Sequence[Tree], *, tagged: bool = True) -> JsonObject:
    """Precision, recall and F1 of all brackets in hundredths, the last with its bootstrap interval, and exact match.

    `tagged` trees have parts of speech, whose accuracy is shown too.
    """
    check_same_length(found, gold)
    counts = [bracket_counts(one, other) for one, other in zip(found, gold, strict=True)]
    table = np.array([(one.right, one.found, one.gold) for one in counts], dtype=np.float64)
    right, ours, theirs = table.sum(0).tolist()
    exact = sum(one.exact for one in counts)
    resampled = np.array([_f1(*table[rows].sum(0)) for rows in bootstrap_rows(len(table))])
    result: JsonObject = {
        "sentences": len(counts),
        "brackets": int(theirs),
        "precision": 100 * right / max(1.0, ours),
        "recall": 100 * right / max(1.0, theirs),
        "f1": _f1(right, ours, theirs),
        "f1_interval": list(percentile_interval(resampled)),
        "f1_signature": f"{SIGNATURE}|{bootstrap_signature()}",
        "exact_match": exact / len(counts),
        "exact_match_interval": list(wilson_interval(exact, len(counts))),
    }
    if tagged:
        result["tag_accuracy"] = sum(one.tags for one in counts) / max(1, sum(one.words for one in counts))
    return result


def _f1(right: float, found: float, gold: float) -> float:
    return 200 * right / max(1.0, found + gold)
