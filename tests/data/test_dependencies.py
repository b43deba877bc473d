"""Trees to dependencies by head rules: against the grammar's own dependencies, and on what only treebanks have."""

from collections import Counter

import pytest

from regard.data.dependencies import dependencies, head_part
from regard.data.synthetic.world.corpus import sentences
from regard.data.trees import tree_of


def relations(text):
    """Each word with its head and relation."""
    found = dependencies(tree_of(text))
    return {
        word: (None if head < 0 else found.words[head], relation)
        for word, head, relation in zip(found.words, found.heads, found.relations, strict=True)
    }


def test_the_grammars_trees_give_the_grammars_dependencies():
    asked, headed, labelled = Counter(), Counter(), Counter()
    for sentence in sentences(200, seed=3, split="test"):
        found = dependencies(tree_of(sentence.tree))
        assert found.words == sentence.english_words
        for head, relation, own, name in zip(
            sentence.heads, sentence.relations, found.heads, found.relations, strict=True
        ):
            asked[relation] += 1
            headed[relation] += head == own
            labelled[relation] += (head, relation) == (own, name)
    assert sum(headed.values()) > 0.98 * sum(asked.values())
    for relation in ("subject", "object", "determiner", "modifier", "auxiliary", "marker", "relative"):
        assert headed[relation] == asked[relation] > 15
    assert labelled["determiner"] == asked["determiner"]
    # A pronoun that opens a relative clause is its relativizer here; names have modifiers that look like nouns.
    for relation in ("subject", "object", "modifier"):
        assert labelled[relation] > 0.8 * asked[relation]


def test_traces_go_and_function_tags_tell_objects_from_times():
    found = relations(
        "( (S (NP-SBJ-1 (NNP Mr.) (NNP Smith)) (VP (VBD was) (VP (VBN named) (NP (-NONE- *-1)) "
        "(S (NP-SBJ (-NONE- *-1)) (NP-PRD (DT a) (JJ new) (NN director))) (NP-TMP (NNP Tuesday)))) (. .)) )"
    )
    assert found == {
        "Mr.": ("Smith", "compound"),
        "Smith": ("named", "subject"),
        "was": ("named", "auxiliary"),
        "named": (None, "root"),
        "a": ("director", "determiner"),
        "new": ("director", "modifier"),
        "director": ("named", "clause"),
        "Tuesday": ("named", "adjunct"),
        ".": ("named", "punctuation"),
    }
    assert dependencies(tree_of("(S (NP (-NONE- *)))")) is None


def test_without_function_tags_the_last_noun_phrase_before_the_verb_is_the_subject():
    found = relations("(S (NP (NN today)) (NP (DT the) (NN dog)) (VP (VBZ chases) (NP (NNS cats))))")
    assert found["dog"] == ("chases", "subject")
    assert found["today"] == ("chases", "other")
    assert found["cats"] == ("chases", "object")


def test_copulas_possessors_and_conjuncts():
    found = relations(
        "(S (NP (NP (NNP Ann) (POS 's)) (NN brother) (CC and) (NN sister)) (VP (VBP are) (RB n't) (NP (NNS cooks))))"
    )
    assert found["brother"] == ("are", "subject")
    assert found["Ann"] == ("brother", "possessor")
    assert found["'s"] == ("Ann", "possessive")
    assert (found["and"], found["sister"]) == (("brother", "coordinator"), ("brother", "conjunct"))
    assert found["n't"] == ("are", "negation")
    assert found["cooks"] == ("are", "predicate")


@pytest.mark.parametrize(
    ("label", "parts", "head"),
    [
        ("NP", ["DT", "NN", "NN"], 2),
        ("NP", ["NP", ",", "NP"], 0),
        ("VP", ["MD", "VP"], 1),
        ("SBAR", ["IN", "S"], 1),
        ("PP", ["IN", "NP"], 0),
        ("ADJP", ["JJ", "CC", "JJ"], 0),
        ("X", ["SYM", "NN"], 0),
    ],
)
def test_head_rules(label, parts, head):
    assert head_part(label, parts) == head


def test_the_text_of_a_parsed_sentence_is_as_people_write_it():
    said = "(S (`` ``) (NP (PRP I)) (VP (VBP do) (RB n't)) (, ,) ('' ''))"
    price = "(PRN (-LRB- -LRB-) (NP ($ $) (CD 5)) (-RRB- -RRB-))"
    assert dependencies(tree_of(f"(S {said} {price} (. .))")).text == '"I don\'t," ($5).'
