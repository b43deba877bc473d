import numpy as np
import pytest
import torch

from regard.errors import DataError
from regard.look.roles import (
    Quiz,
    RoleCounts,
    RoleQuestion,
    at_landmarks,
    at_rare,
    at_separators,
    by_alignment,
    by_position,
    by_relation,
    by_repetition,
    by_sentence,
    interval,
    largest_margins,
    roles_of_heads,
    thresholds,
)


def looking_at(places, size):
    """One head's weights: row i looks at places[i]."""
    return torch.nn.functional.one_hot(torch.tensor(places), size).float()


def asked(questions):
    return {(one.role, one.query): (sorted(one.answers), one.visible) for one in questions}


def test_questions_say_who_should_look_where():
    assert asked(by_position(3)) == {
        ("same", 0): ([0], 3),
        ("next", 0): ([1], 3),
        ("previous", 1): ([0], 3),
        ("same", 1): ([1], 3),
        ("previous", 2): ([1], 3),
        ("same", 2): ([2], 3),
    }
    assert asked(by_position(2, causal=True)) == {
        ("same", 0): ([0], 1),
        ("previous", 1): ([0], 2),
        ("same", 1): ([1], 2),
    }
    assert asked(at_landmarks(3, 4, apart=True)) == {
        ("separator", 0): ([3], 4),
        ("separator", 1): ([3], 4),
        ("first", 2): ([0], 4),
    }
    assert len(asked(at_landmarks(3, 4, apart=False))) == 6
    rare = asked(at_rare(["the", "owl", "the"], {"the": 9, "owl": 1}, 3, apart=True, places=4))
    assert rare == {("rare", 0): ([1], 4), ("rare", 2): ([1], 4)}
    # A full stop is no word, however seldom it was counted.
    assert asked(at_rare(["an", "owl", "."], {"an": 9, "owl": 1}, 1, apart=True, places=4)) == {("rare", 0): ([1], 4)}
    assert not asked(at_rare([".", "!"], {}, 2, apart=True, places=3))
    # "The owl saw it": two depend on `saw`, one on `owl`.
    relations = asked(by_relation([1, 2, -1, 2], ["determiner", "subject", "root", "object"], 5))
    assert relations[("subject to its head", 1)] == ([2], 5)
    assert relations[("head to its object", 2)] == ([3], 5)
    assert len(relations) == 6
    assert asked(by_alignment([(0, 1), (2, 1)], 4)) == {("alignment", 1): ([0, 2], 4)}


def test_accuracy_baseline_and_chance_are_counted():
    # Pronouns two places after their noun in three of four sentences; always at place 2 or 3 of five.
    sentences = [
        [RoleQuestion("pronoun", query, frozenset({noun}), 5)] for query, noun in ((2, 0), (3, 1), (3, 1), (3, 0))
    ]
    quiz = Quiz(sentences, [5] * 4)
    counts = RoleCounts(quiz)
    for index, (answer, wrong) in enumerate(((0, 1), (1, 0), (1, 0), (0, 4))):
        counts.add(index, torch.stack([looking_at([answer] * 5, 5), looking_at([wrong] * 5, 5)]))
    right, wrong = counts.evidence("pronoun")
    assert (right.accuracy, wrong.accuracy, right.questions) == (1.0, 0.0, 4)
    assert (right.baseline, right.rule) == (0.75, "offset -2")
    assert counts.roles == []  # four questions are too few
    with pytest.raises(DataError, match="nothing was asked about 'next'"):
        counts.evidence("next")


def test_the_interval_is_wilsons_and_wider_where_answers_go_together():
    low, high = interval(0.9, 100.0, 0.9 * 0.1 / 100)
    assert (low, high) == pytest.approx((0.8256, 0.9448), abs=1e-4)
    assert interval(0.9, 100.0, 10 * 0.9 * 0.1 / 100) == pytest.approx(interval(0.9, 10.0, 0.0), abs=1e-9)
    assert interval(1.0, 50.0, 0.0)[1] == 1.0


def test_heads_that_look_at_neighbours_are_told_apart_from_one_that_does_not():
    generator = np.random.default_rng(0)
    sizes = generator.integers(5, 12, 60).tolist()
    halves = []
    for half in (sizes[::2], sizes[1::2]):
        counts = RoleCounts(Quiz([list(by_position(size)) for size in half], half))
        for index, size in enumerate(half):
            places = np.arange(size)
            heads = [np.maximum(places - 1, 0), np.minimum(places + 1, size - 1), places]
            heads.append(generator.integers(0, size, size))
            counts.add(index, torch.stack([looking_at(one.tolist(), size) for one in heads]))
        halves.append(counts)
    found = roles_of_heads(*halves)
    assert [one.best.role for one in found[:3]] == ["previous", "next", "same"]
    assert all(one.best.margin > 0.7 for one in found[:3])
    assert found[3].best.margin < 0.1
    assert largest_margins(found)["same"] == max(one.margin for head in found for one in head.all if one.role == "same")


def test_thresholds_scale_with_what_untrained_models_reach():
    limits = thresholds([{"first": 0.3, "next": 0.01}, {"first": 0.2}], [{"first": 0.36, "next": 0.02}])
    # 0.36 is 1.2 times what scaling reached; the rest is at its floors.
    assert limits == pytest.approx({"first": 0.36, "next": 0.2})
    assert thresholds([{"next": 0.2}], [{"next": 0.1}]) == pytest.approx({"next": 0.2})


def test_too_few_sentences_are_refused():
    counts = RoleCounts(Quiz([list(by_position(4))], [4]))
    counts.add(0, looking_at([0] * 4, 4)[None])
    with pytest.raises(DataError, match="no role has 30 questions"):
        roles_of_heads(counts, counts)


def test_a_token_that_came_before_is_asked_for_itself_and_for_what_followed():
    questions = list(by_repetition("abcab"))
    assert [(one.role, one.query, sorted(one.answers), one.visible) for one in questions] == [
        ("duplicate", 3, [0], 4),
        ("induction", 3, [1], 4),
        ("duplicate", 4, [1], 5),
        ("induction", 4, [2], 5),
    ]
    # What follows the place before is the query itself: there is nothing to look at.
    assert [one.role for one in by_repetition("aa")] == ["duplicate"]
    assert [one.query for one in by_repetition("abab", start=3)] == [3, 3]


def test_no_offset_answers_what_is_asked_at_the_border_of_two_sentences():
    parts = [-1, 0, 0, 0, 0, 0, 0, -1, 1, 1, 1, 1, 1, 1, -1]
    questions = list(by_sentence(parts))
    assert [one.query for one in questions] == [5, 6, 8, 9]
    assert sorted(questions[1].answers) == [1, 2, 3]
    assert sorted(questions[2].answers) == [11, 12, 13]
    for offset in range(-9, 10):
        assert sum(one.query + offset in one.answers for one in questions) <= 2
    assert not list(by_sentence([0, 0, 0, 1, 1, 1]))
    assert [(one.query, sorted(one.answers)) for one in at_separators([3, 7], 8)] == [
        (0, [3, 7]),
        (1, [3, 7]),
        (5, [3, 7]),
    ]
