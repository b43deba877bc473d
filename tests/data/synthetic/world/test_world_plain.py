"""The plain part of the grammar."""

from collections import Counter

import pytest

from regard.data.synthetic.world import sentences, split_of


@pytest.fixture(scope="module")
def plain():
    return list(sentences(400, seed=3, grammar="plain"))


def test_it_is_the_same_every_time_and_not_the_whole_grammars(plain):
    assert list(sentences(40, seed=3, grammar="plain")) == plain[:40]
    assert not {one.english for one in sentences(40, seed=3)} & {one.english for one in plain}


def test_it_has_no_pronouns_and_few_words(plain):
    assert not any(sentence.pronouns for sentence in plain)
    assert len({word.lower() for sentence in plain for word in sentence.english_words}) < 250
    assert {split_of(sentence.english) for sentence in plain} == {"train"}


def test_long_sentences_are_as_common_as_short_ones(plain):
    clauses = Counter(sentence.english_words.count(",") + 1 for sentence in plain)
    assert set(clauses) == {1, 2, 3, 4, 5, 6}
    assert all(40 < count < 95 for count in clauses.values())


def test_every_word_that_has_a_translation_is_aligned(plain):
    for sentence in plain:
        french = {target for _, target in sentence.alignment}
        unaligned = [word for index, word in enumerate(sentence.french_words) if index not in french]
        assert set(unaligned) <= {"n'", "ne", "pas", "des", "Des"}, sentence
