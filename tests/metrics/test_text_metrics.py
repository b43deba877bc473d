import json
import math

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import ConfigError, DataError
from regard.metrics.text import (
    bits_per_character,
    bleu_statistics,
    by_length,
    corpus_bleu,
    corpus_scores,
    exact_match,
    paired_bootstrap,
    perplexity,
    token_error_rate,
    word_error_rate,
)
from regard.metrics.word_errors import edit_distance

RIGHT = [
    "The animal didn't cross the street because it was too tired.",
    "The agreement on the European Economic Area was signed in August 1992.",
    "I am a student, and she is a teacher.",
    "The two old cats sleep under the big table.",
]
GUESS = [
    "The animal did not cross the street because it was too tired.",
    "The agreement on the European Economic Area was signed in August 1992.",
    "i am a student, and she is a teacher.",
    "Two cats sleep beneath the table.",
]


def test_scores_and_signatures_are_those_of_sacrebleu():
    scores = corpus_scores(GUESS, RIGHT)
    bleu = sacrebleu.BLEU(tokenize="13a")
    assert scores.bleu == pytest.approx(bleu.corpus_score(GUESS, [RIGHT]).score)
    assert scores.bleu_signature == str(bleu.get_signature())
    assert scores.chrf == pytest.approx(sacrebleu.CHRF().corpus_score(GUESS, [RIGHT]).score)
    assert scores.ter == pytest.approx(sacrebleu.TER(case_sensitive=True).corpus_score(GUESS, [RIGHT]).score)
    assert "tok:none" in scores.tokenised_bleu_signature
    assert scores.tokenised_bleu != pytest.approx(scores.bleu)
    assert scores.exact_match == 0.25
    assert scores.bleu_interval[0] < scores.bleu < scores.bleu_interval[1]


def test_lowercase_reaches_every_score_and_its_signature():
    shouted = [text.upper() for text in RIGHT]
    scores = corpus_scores(shouted, RIGHT, lowercase=True)
    assert (scores.bleu, scores.chrf, scores.ter) == pytest.approx((100, 100, 0))
    assert scores.exact_match == 1
    signatures = (scores.bleu_signature, scores.tokenised_bleu_signature, scores.chrf_signature, scores.ter_signature)
    assert all("case:lc" in signature for signature in signatures)
    assert corpus_scores(shouted, RIGHT).bleu < 50


def test_scores_become_json():
    mapping = corpus_scores(GUESS, RIGHT).to_mapping()
    assert json.loads(json.dumps(mapping)) == mapping
    expected = {"bleu", "bleu_signature", "bleu_interval", "chrf", "chrf_signature", "ter", "ter_signature"}
    assert expected | {"exact_match"} <= mapping.keys()
    assert len(mapping["bleu_interval"]) == 2


def test_several_references_may_each_be_right():
    references = [["I am a student.", "I'm a student."], ["Thank you."]]
    assert corpus_scores(["I'm a student.", "Thank you."], references).exact_match == 1
    score, signature = corpus_bleu(["I'm a student.", "Thank you very much."], references)
    assert score < 100
    assert "nrefs:var" in signature


def test_sentence_statistics_sum_to_the_corpus_score():
    total = bleu_statistics(GUESS, RIGHT).sum(0).tolist()
    score = sacrebleu.BLEU().corpus_score(GUESS, [RIGHT])
    assert total == [*score.counts, *score.totals, score.sys_len, score.ref_len]


def test_the_interval_scores_each_sentence_once_is_repeatable_and_narrows_with_data(monkeypatch):
    few = corpus_scores(GUESS * 10, RIGHT * 10).bleu_interval
    scored, real = [], sacrebleu.BLEU.sentence_score

    def counted(metric, *arguments):
        scored.append(arguments)
        return real(metric, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(sacrebleu.BLEU, "sentence_score", counted)
        many = corpus_scores(GUESS * 250, RIGHT * 250).bleu_interval
    assert len(scored) == 250 * len(GUESS)  # a thousand resamples are sums of these, not new scores
    assert many == corpus_scores(GUESS * 250, RIGHT * 250).bleu_interval
    assert many[1] - many[0] < (few[1] - few[0]) / 3


def test_paired_bootstrap_tells_a_better_system_from_an_equal_one():
    better = paired_bootstrap(RIGHT * 5, GUESS * 5, RIGHT * 5)
    assert better.interval[0] > 0
    assert better.p_value < 0.01
    assert better.bleu == pytest.approx(100 - corpus_bleu(GUESS * 5, RIGHT * 5)[0])
    assert "seed:" in better.signature
    same = paired_bootstrap(GUESS, GUESS, RIGHT)
    assert (same.bleu, same.interval, same.p_value) == (0, (0, 0), 1)


def test_bands_count_every_sentence_once_even_outside_the_edges():
    lengths = [3, 12, 0, 80]
    bands = by_length(GUESS, RIGHT, lengths, edges=(1, 6, 12, 18))
    assert [(band.low, band.high, band.count) for band in bands] == [
        (0, 1, 1),
        (1, 6, 1),
        (6, 12, 0),
        (12, 18, 1),
        (18, None, 1),
    ]
    assert (bands[2].bleu, bands[2].exact_match) == (None, None)
    assert bands[3].exact_match == 1
    assert bands[3].bleu == pytest.approx(100)
    assert json.loads(json.dumps([band.to_mapping() for band in bands]))[4]["high"] is None


def test_bands_have_their_own_bleu():
    (band,) = [band for band in by_length(GUESS, RIGHT, [10, 11, 30, 31]) if band.low == 30]
    assert band.bleu == pytest.approx(corpus_bleu(GUESS[2:], RIGHT[2:])[0])
    assert band.bleu_signature is not None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: corpus_scores(["a"], ["a", "b"]), "1 hypotheses for 2 references"),
        (lambda: corpus_scores([], []), "no hypotheses"),
        (lambda: exact_match(["a"], [[]]), "hypothesis 0 has no reference"),
        (lambda: token_error_rate([["a"]], [[]]), "no reference"),
        (lambda: by_length(["a"], ["a"], [1, 2]), "2 source lengths for 1 hypotheses"),
        (lambda: perplexity(1.0, 0), "count=0"),
    ],
)
def test_what_cannot_be_scored_is_refused(call, message):
    with pytest.raises(DataError, match=message):
        call()


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="tokenize='14a'"):
        corpus_scores(["a"], ["a"], tokenize="14a")
    with pytest.raises(ConfigError, match="each above the one before"):
        by_length(["a"], ["a"], [1], edges=(1, 1))


def test_perplexity_of_a_uniform_guess_is_the_number_of_choices():
    assert perplexity(7 * math.log(50), 7) == pytest.approx(50)
    assert bits_per_character(24 * math.log(256), 24) == pytest.approx(8)
    assert perplexity(1e6, 1) == math.inf


def test_error_rates_take_the_nearest_reference():
    said = [list("kitten"), list("abc")]
    right = [[list("sitting"), list("smitten")], [list("abc"), list("abcd")]]
    assert token_error_rate(said, right) == pytest.approx(2 / 10)
    assert word_error_rate(["the cat sat", "yes"], ["the cat sat down", "no"]) == pytest.approx(2 / 5)


words = st.lists(st.sampled_from("abc"), max_size=6)


@settings(deadline=None, derandomize=True)
@given(words, words, words)
def test_edit_distance_is_a_distance(a, b, c):
    assert edit_distance(a, b) == edit_distance(b, a)
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)
    assert abs(len(a) - len(b)) <= edit_distance(a, b) <= max(len(a), len(b))


def test_edit_distance_of_known_words():
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance("intention", "execution") == 5
    assert edit_distance(np.array([1, 2, 3]).tolist(), [1, 3]) == 1
