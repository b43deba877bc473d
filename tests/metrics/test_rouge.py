"""ROUGE is that of the `rouge-score` package 0.1.2 with its stemmer, whose answers are recorded here."""

import numpy as np
import pytest

from regard.errors import DataError
from regard.metrics.rouge import NAMES, best_rouge, corpus_rouge, porter_stem, repeated_trigrams, rouge

# summary, reference, then precision, recall and F1 of ROUGE-1, -2, -L and -Lsum
RECORDED = [
    (
        "The old king of France died on Monday in his palace.",
        "French king dies at 82, palace says",
        [(0.272727, 0.428571, 0.333333), (0, 0, 0), (0.272727, 0.428571, 0.333333), (0.272727, 0.428571, 0.333333)],
    ),
    ("police kill the gunman", "police killed the gunman", [(1, 1, 1)] * 4),
    (
        "the gunman kill police",
        "police killed the gunman",
        [(1, 1, 1), (0.333333, 0.333333, 0.333333), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)],
    ),
    (
        "The cats were running happily\nTwo dogs barked at the cats",
        "Cats run happily.\nThe dog barks; a cat runs.\nNobody sleeps",
        [(0.636364,) * 3, (0.2,) * 3, (0.545455,) * 3, (0.636364,) * 3],
    ),
    (
        "a a a b a a",
        "a b a b a",
        [(0.666667, 0.8, 0.727273), (0.4, 0.5, 0.444444), (0.666667, 0.8, 0.727273), (0.666667, 0.8, 0.727273)],
    ),
    ("", "something", [(0, 0, 0)] * 4),
    ("!!!", "something", [(0, 0, 0)] * 4),
    ("Café naïve 3.5% #### co-operation", "cafe naive 35 cooperation", [(0, 0, 0)] * 4),
    (
        "relational conditional hopefully communism\n\nadjustable",
        "relate condition hopeful communist adjustment",
        [(0.8,) * 3, (0.5,) * 3, (0.8,) * 3, (0.8,) * 3],
    ),
]
STEMS = {
    **{"caresses": "caress", "ponies": "poni", "ties": "tie", "dies": "die", "flies": "fli", "dying": "die"},
    **{"skies": "sky", "news": "news", "innings": "inning", "proceed": "proceed", "agreed": "agre", "feed": "feed"},
    **{"plastered": "plaster", "bled": "bled", "motoring": "motor", "sing": "sing", "conflated": "conflat"},
    **{"troubled": "troubl", "sized": "size", "hopping": "hop", "tanned": "tan", "falling": "fall", "fizzed": "fizz"},
    **{"failing": "fail", "filing": "file", "happy": "happi", "enjoy": "enjoy", "saying": "say", "spied": "spi"},
    **{"tied": "tie", "relational": "relat", "conditional": "condit", "rational": "ration", "valenci": "valenc"},
    **{"digitizer": "digit", "conformabli": "conform", "radicalli": "radic", "differentli": "differ"},
    **{"vietnamization": "vietnam", "operator": "oper", "feudalism": "feudal", "hopefulness": "hope"},
    **{"sensitiviti": "sensit", "sensibiliti": "sensibl", "triplicate": "triplic", "formative": "form"},
    **{"electriciti": "electr", "goodness": "good", "revival": "reviv", "airliner": "airlin", "irritant": "irrit"},
    **{"replacement": "replac", "adoption": "adopt", "communism": "commun", "angulariti": "angular", "rate": "rate"},
    **{"cease": "ceas", "controll": "control", "roll": "roll", "geologi": "geolog", "nationalli": "nation"},
    **{"carefulli": "care", "yyyy": "yyyi", "owed": "owe", "axed": "axe"},
}


@pytest.mark.parametrize(("summary", "reference", "expected"), RECORDED)
def test_scores_are_those_of_rouge_score(summary, reference, expected):
    found = rouge(summary, reference)
    for name, right in zip(NAMES, expected, strict=True):
        assert found[name] == pytest.approx(right, abs=1e-6), name


def test_words_are_stemmed_as_by_nltk():
    assert {word: porter_stem(word) for word in STEMS} == STEMS


def test_of_several_references_each_score_takes_the_nearest():
    found = best_rouge("police killed the gunman", ["gunman dead", "the gunman police killed"])
    assert found["rouge1"].f1 == 1.0
    assert found["rougeL"].f1 == rouge("police killed the gunman", "the gunman police killed")["rougeL"].f1


def test_a_corpus_has_means_with_intervals_around_them():
    summaries = [summary for summary, _, _ in RECORDED]
    found = corpus_rouge(summaries, [reference for _, reference, _ in RECORDED])
    mean = 100 * np.mean([expected[2][2] for _, _, expected in RECORDED])
    assert found["rougeL"]["f1"] == pytest.approx(mean, abs=1e-3)
    low, high = found["rougeL"]["interval"]
    assert 0 <= low < mean < high <= 100
    with pytest.raises(DataError, match="1 hypotheses for 2 references"):
        corpus_rouge(["a"], ["a", "b"])


def test_repeated_trigrams_are_counted_within_their_text():
    assert repeated_trigrams(["a b c d", "a b c d"]) == 0.0
    assert repeated_trigrams(["a b c a b c"]) == pytest.approx(1 / 4)
    assert repeated_trigrams(["", "a b"]) == 0.0
