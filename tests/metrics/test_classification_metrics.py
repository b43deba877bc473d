"""Scores of classes, tags and answers, against scikit-learn and by hand."""

import random
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.metrics.classification_metrics import (
    _normalised,
    class_scores,
    entity_spans,
    matthews_correlation,
    token_f1,
)


def test_scores_of_labels_are_the_usual_ones():
    assert entity_spans(["B-A", "I-A", "O", "I-B", "B-B", "I-A"]) == [
        (0, 0, 2, "A"), (0, 3, 4, "B"), (0, 4, 5, "B"), (0, 5, 6, "A"),
    ]  # fmt: skip
    assert token_f1(["red", "sea"], ["the", "sea"]) == 0.5
    assert token_f1([], []) == 1.0
    assert _normalised("The Sea, a twenty-one-year-old's: An ANT.") == [
        "sea",
        "twentyoneyearolds",
        "ant",
    ]  # as SQuAD's own
    scores = class_scores(["a", "a", "b", "b"], ["a", "b", "b", "b"])
    assert scores["accuracy"] == 0.75
    assert scores["classes"]["b"] == {"precision": 1.0, "recall": 2 / 3, "f1": 0.8, "count": 3}
    assert scores["macro_f1"] == pytest.approx((2 / 3 + 0.8) / 2)
    low, high = class_scores(["a"] * 90 + ["b"] * 10, ["a"] * 100)["accuracy_interval"]
    assert (round(low, 4), round(high, 4)) == (0.8256, 0.9448)


def test_scores_of_classes_are_scikit_learns():
    from sklearn.metrics import f1_score, matthews_corrcoef, precision_recall_fscore_support

    dice = random.Random(1)
    gold = [dice.choice("abc") for _ in range(60)]
    found = [one if dice.random() < 0.7 else dice.choice("abcd") for one in gold]
    scores = class_scores(found, gold)
    assert scores["matthews_correlation"] == pytest.approx(matthews_corrcoef(gold, found))
    assert scores["macro_f1"] == pytest.approx(f1_score(gold, found, average="macro", zero_division=0))
    theirs = precision_recall_fscore_support(gold, found, labels=[*"abcd"], zero_division=0)
    ours = [[scores["classes"][label][part] for label in "abcd"] for part in ("precision", "recall", "f1", "count")]
    assert ours == [pytest.approx(list(row)) for row in theirs]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abc")), min_size=1, max_size=40))
def test_matthews_correlation_is_scikit_learns(pairs):
    from sklearn.metrics import matthews_corrcoef

    found, gold = [one for one, _ in pairs], [other for _, other in pairs]
    scored = matthews_correlation(found, gold)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a single label
        assert scored.value == pytest.approx(matthews_corrcoef(gold, found), abs=1e-12)
    low, high = scored.interval
    assert -1 <= low <= high <= 1
    classes = len({*found, *gold})
    assert scored.signature == f"matthews|classes:{classes}|interval:95%|bootstrap:percentile|samples:1000|seed:12345"


def test_the_interval_of_matthews_correlation_is_that_of_sampling_texts_again():
    generator = np.random.default_rng(0)
    gold = generator.integers(2, size=400)
    found = np.where(generator.random(400) < 0.85, gold, 1 - gold)
    scored = matthews_correlation(found.tolist(), gold.tolist())
    draws = (generator.integers(400, size=400) for _ in range(300))
    again = [matthews_correlation(found[rows].tolist(), gold[rows].tolist()).value for rows in draws]
    assert scored.interval == pytest.approx(np.percentile(again, [2.5, 97.5]), abs=0.02)
    assert scored.interval[0] < scored.value < scored.interval[1]
    with pytest.raises(DataError, match="no hypotheses"):
        matthews_correlation([], [])
