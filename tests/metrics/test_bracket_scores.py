"""Labelled brackets: against evalb's own counts, against cases scored by hand, and by their laws."""

import pytest

from regard.data.trees import tree_of
from regard.errors import DataError
from regard.metrics.bracket_scores import bracket_counts, bracket_scores

# Trees found, right trees, and what evalb with COLLINS.prm counted: brackets that match, found, and right.
RECORDED = [
    (
        "(S (NP-SBJ (DT The) (JJ shy) (NN father)) (VP (VBD was) (ADJP (ADVP (RB really) (JJ sad)))) (. .))",
        "(S (NP (DT The) (JJ shy) (NN father)) (VP (VBD was) (ADJP (RB really) (JJ sad))) (. .))",
        (4, 5, 4),
    ),
    (
        "(S (NP (DT A) (NN friend)) (VBZ is) (ADJP (JJ cautious) (CC and) (JJ proud)) (. .))",
        "(S (NP (DT A) (NN friend)) (VP (VBZ is) (ADJP (JJ cautious) (CC and) (JJ proud))) (. .))",
        (3, 3, 4),
    ),
    (
        "(S (ADVP (NP (DT The) (NN castle)) (VP (VBD was) (ADJP (ADVP (RB too) (JJ empty)))) (. .)))",
        "(S (NP (DT The) (NN castle)) (VP (VBD was) (ADJP (RB too) (JJ empty))) (. .))",
        (4, 6, 4),
    ),
    (
        "(S (DT Our) (JJ old) (NNS boxes) (VP (VP (VBD weren't) (VBN bought))) (. .))",
        "(S (NP (DT Our) (JJ old) (NNS boxes)) (VP (VBD weren't) (VP (VBN bought))) (. .))",
        (2, 3, 4),
    ),
    (
        "(S-SBJ (NP (NP (NNP Marie)) (CC and) (NNP Luc)) (VP (VBD were) (ADJP (ADVP (RB really) (JJ happy)))) (. .))",
        "(S (NP (NP (NNP Marie)) (CC and) (NP (NNP Luc))) (VP (VBD were) (ADJP (RB really) (JJ happy))) (. .))",
        (5, 6, 6),
    ),
    (
        "(S (NP (PRP He)) (VP (VBD gave) (ADVP (RP up)) (. .)))",
        "(S (NP (PRP He)) (VP (VBD gave) (PRT (RP up))) (. .))",
        (4, 4, 4),
    ),
    (
        "(S (NP (NP (NNP Ada) (, ,)) (NP (DT a) (NN nurse))) (X (, ,)) (VP (VBD slept) (. .)))",
        "(S (NP (NP (NNP Ada)) (, ,) (NP (DT a) (NN nurse)) (, ,)) (VP (VBD slept)) (. .))",
        (5, 5, 5),
    ),
    (
        "(S (NP (NN x)) (VP (VP (VP (VBZ y)))))",
        "(S (NP (NP (NN x))) (VP (VP (VBZ y))))",
        (4, 5, 5),
    ),
]


@pytest.mark.parametrize(("found", "gold", "counted"), RECORDED)
def test_counts_are_those_that_evalb_gives(found, gold, counted):
    counts = bracket_counts(tree_of(found), tree_of(gold))
    assert (counts.right, counts.found, counts.gold) == counted


def test_a_case_scored_by_hand():
    gold = tree_of("(S (NP (DT a) (NN b)) (VP (VBZ c) (NP (NN d))) (. .))")
    found = tree_of("(S (NP (DT a)) (VP (NN b) (VBZ c) (NP (NN d)) (. .)))")
    # S and the second NP are right; (NP 0 1) and (VP 1 4) are not, and the full stop does not count.
    counts = bracket_counts(found, gold)
    assert (counts.right, counts.found, counts.gold) == (2, 4, 4)
    scores = bracket_scores([found, gold], [gold, gold])
    assert scores["f1"] == pytest.approx(100 * 2 * 6 / 16)
    assert scores["precision"] == scores["recall"] == 75.0
    assert scores["exact_match"] == 0.5
    low, high = scores["f1_interval"]
    assert low == 50.0
    assert high == 100.0
    assert "TOP:ignored" in scores["f1_signature"]


def test_what_stands_above_function_tags_and_what_spans_punctuation_alone_change_nothing():
    gold = tree_of("(S (NP-SBJ (DT a) (NN b)) (VP (VBZ c)) (. .))")
    found = tree_of("(TOP (S (NP=2 (DT a) (NN b)) (VP (VBZ c)) (FRAG (. .))))")
    assert bracket_counts(found, gold).exact


def test_particles_count_as_adverbs_and_a_chain_counts_link_by_link():
    assert bracket_counts(tree_of("(S (PRT (RP a)))"), tree_of("(S (ADVP (RP a)))")).exact
    counts = bracket_counts(tree_of("(NP (NP (NP (NN a))))"), tree_of("(NP (NP (NN a)))"))
    assert (counts.right, counts.found, counts.gold) == (2, 3, 2)
    assert not counts.exact


def test_trees_over_other_words_are_not_compared():
    with pytest.raises(DataError, match="over different words"):
        bracket_counts(tree_of("(S (NN a))"), tree_of("(S (NN b))"))
