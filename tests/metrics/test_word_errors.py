import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.metrics.word_errors import WordErrors, differences, edit_distance, said_twice

WORDS = st.lists(st.sampled_from("abcd"), max_size=7)


def counted(hypothesis, reference, alignment=None):
    counts = WordErrors()
    reference = reference.split()
    alignment = [(index, index) for index in range(len(reference))] if alignment is None else alignment
    counts.add(hypothesis.split(), reference, alignment, len(reference))
    return counts


@given(WORDS, WORDS)
def test_the_differences_are_those_of_the_fewest_edits(reference, hypothesis):
    missing, new = differences(reference, hypothesis)
    assert len(reference) - len(missing) == len(hypothesis) - len(new)
    kept = zip(
        [word for index, word in enumerate(reference) if index not in missing],
        [word for index, word in enumerate(hypothesis) if index not in new],
        strict=True,
    )
    replaced = sum(one != other for one, other in kept)
    assert len(missing) + len(new) + replaced == edit_distance(reference, hypothesis)


def test_a_right_translation_has_no_errors():
    counts = counted("le chat dort", "le chat dort")
    assert (counts.repeated, counts.omitted, counts.over_translated) == (0, 0, 0)


def test_a_word_said_twice_in_a_row_is_repeated_and_over_translated():
    counts = counted("le chat chat dort", "le chat dort")
    assert (counts.repeated, counts.omitted, counts.over_translated) == (1, 0, 1)


def test_a_phrase_said_twice_counts_each_of_its_words():
    counts = counted("le chat dort et le chat dort et il mange", "le chat dort et il mange")
    assert counts.repeated == 4
    assert counts.over_translated == 4


def test_a_word_said_again_later_is_over_translated_but_not_repeated():
    counts = counted("le chat dort ici chat", "le chat dort ici")
    assert (counts.repeated, counts.over_translated) == (0, 1)


def test_a_repetition_that_the_reference_has_too_is_none():
    assert counted("si si oui", "si si oui").repeated == 0


def test_a_word_left_out_is_omitted_and_one_replaced_is_not():
    assert counted("le dort", "le chat dort").omitted == 1
    assert counted("le chien dort", "le chat dort").omitted == 0


def test_a_source_word_of_several_is_omitted_only_where_all_are_missing():
    alignment = [(0, 0), (1, 1), (1, 2)]
    assert counted("il ne", "il ne dort", alignment).omitted == 0
    assert counted("il", "il ne dort", alignment).omitted == 1


def test_rates_are_by_words():
    counts = counted("le chat chat dort", "le chat dort")
    found = counts.to_mapping()
    assert found["repeated"] == pytest.approx(1 / 4)
    assert found["over_translated"] == pytest.approx(1 / 3)
    assert found["counts"]["sentences"] == 1


def test_phrases_said_twice_are_found_at_any_size():
    assert said_twice(["a", "b", "c", "a", "b", "c", "d"]) == {0, 1, 2, 3, 4, 5}
    assert said_twice(["a", "b", "a", "c"]) == set()
