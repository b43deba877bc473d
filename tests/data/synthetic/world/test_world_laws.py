"""What holds for every sentence of the world, and for all of them together."""

import re
from collections import Counter

import pytest

from regard.data.synthetic.world import LECTURE, pronoun_accuracy, sentences, spans, split_of
from regard.data.synthetic.world.lexicon import LIVING, NOUNS, STATES
from regard.errors import DataError


def length(sentence):
    return sum(word not in (",", ".") for word in sentence.english_words)


def meant(sentence):
    """The pronouns that English leaves open."""
    return [p for p in sentence.pronouns if sentence.english_words[p.english] in ("it", "they")]


def test_the_same_seed_says_the_same_in_any_process(drawn):
    assert list(sentences(150, seed=5)) == drawn[:150]
    assert list(sentences(20, seed=4)) != drawn[:20]


def test_no_sentence_is_said_twice(drawn):
    assert len({sentence.english for sentence in drawn}) == len(drawn)


def test_one_english_sentence_has_one_french(corpus):
    french = {}
    met = 0
    for sentence in (*corpus["drawn"], *corpus["short"][0], *corpus["short"][1]):
        met += sentence.english in french
        assert french.setdefault(sentence.english, sentence.french) == sentence.french
    assert met > 50


def test_splits_share_nothing(corpus):
    train = {sentence.english.rstrip(".") for part in corpus["short"] for sentence in part}
    for split in ("valid", "test"):
        assert {split_of(sentence.english) for sentence in corpus[split]} == {split}
        assert not train & {sentence.english.rstrip(".") for sentence in corpus[split]}


def test_the_split_depends_on_the_text_alone_and_not_on_its_period():
    shares = Counter(split_of(f"Dog {number} sleeps.") for number in range(10_000))
    assert 0.95 < shares["train"] / 10_000 < 0.97
    assert 0.015 < shares["valid"] / 10_000 < 0.025
    assert split_of("The dog sleeps.") == split_of("The dog sleeps")


def test_the_lectures_sentences_are_never_trained_on():
    for sentence in LECTURE:
        assert split_of(sentence.english) != "train"
        assert split_of(sentence.english.removesuffix(".")) != "train"


def test_lengths_are_kept_and_an_impossible_wish_is_refused(corpus, monkeypatch):
    assert all(4 <= length(sentence) <= 7 for part in corpus["short"] for sentence in part)
    monkeypatch.setattr("regard.data.synthetic.world.corpus._PATIENCE", 20)
    with pytest.raises(DataError, match=r"lengths=\(0, 0\)"):
        list(sentences(1, lengths=(0, 0)))


def test_every_word_is_aligned(drawn):
    for sentence in drawn:
        assert list(sentence.alignment) == sorted(set(sentence.alignment))
        assert {source for source, _ in sentence.alignment} == set(range(len(sentence.english_words)))
        assert {target for _, target in sentence.alignment} == set(range(len(sentence.french_words)))


def test_heads_form_one_tree(drawn):
    for sentence in drawn:
        heads = sentence.heads
        assert len(heads) == len(sentence.relations) == len(sentence.english_words)
        assert [relation for relation, head in zip(sentence.relations, heads, strict=True) if head < 0] == ["root"]
        assert sentence.relations.count("root") == 1
        for word in range(len(heads)):
            steps = 0
            while heads[word] >= 0:
                word, steps = heads[word], steps + 1
                assert steps <= len(heads), sentence


def test_dependencies_do_not_cross(drawn):
    for sentence in drawn[:2000]:
        arcs = [(min(i, head), max(i, head)) for i, head in enumerate(sentence.heads) if head >= 0]
        assert not any(a < c < b < d for a, b in arcs for c, d in arcs), sentence.english


def test_the_leaves_of_the_brackets_are_the_words(drawn):
    for sentence in drawn:
        assert tuple(re.findall(r"\(\S+ ([^\s()]+)\)", sentence.tree)) == sentence.english_words
        assert sentence.tree.count("(") == sentence.tree.count(")")
        assert not re.search(r"\(\S+\)", sentence.tree)


def test_spans_find_every_word(drawn):
    for sentence in (*drawn, *LECTURE):
        for text, words in ((sentence.english, sentence.english_words), (sentence.french, sentence.french_words)):
            assert [text[start:end] for start, end in spans(text, words)] == list(words)
            assert re.sub(r"\s", "", text) == "".join(words)


def test_pronouns_stand_where_they_say(drawn):
    for sentence in drawn:
        for pronoun in sentence.pronouns:
            assert sentence.english_words[pronoun.english] in ("he", "she", "it", "they")
            assert sentence.french_words[pronoun.french] in ("il", "elle", "ils", "elles")
            assert pronoun.antecedent < pronoun.english


VOWEL = "aeiouâàéèêîôûœAEIOUÂÉÈÊÎÔÛŒ"


def test_elision_and_contraction_are_complete(drawn):
    for sentence in drawn:
        text = sentence.french
        assert not re.search(rf"\b(?:[Ll]e|[Ll]a|[JjNn]e|[Qq]ue|[Dd]e|[Cc]e|[Mm]a) [{VOWEL}]", text), text
        assert not re.search(r"\b(?:[Ll]e|[Ll]a|[Dd]e|[Cc]e) (?:homme|huître|horloge|histoire|hôpital|hôtel)", text), (
            text
        )
        assert not re.search(r"'(?:hibou|héros|hérisson|hache|huit)", text), text
        assert not re.search(rf"'(?![{VOWEL}h])", text), text
        assert not re.search(r"\b(?:de|à) les?\b|\b(?:de des|à des les|d'des)\b", text), text
        assert not re.search(rf"\b(?:beau|nouveau) (?:[{VOWEL}]|hom|hô)(?!t\b)", text), text
        assert not re.search(rf"\b(?:[Uu]n|[Ll]e|[Cc]e|[Mm]on|[Nn]otre) vieux (?:[{VOWEL}]|hom|hô)", text), text


def test_english_says_a_and_an_rightly(drawn):
    for sentence in drawn:
        assert not re.search(r"\b[Aa] [aeiouAEIO]", sentence.english.replace("a European", "")), sentence.english
        assert not re.search(r"\b[Aa]n [^aeiouAEIO]", sentence.english), sentence.english


def test_text_opens_with_a_capital_and_ends_alike(drawn):
    for sentence in drawn:
        assert sentence.english[0].isupper()
        assert sentence.french[0].isupper()
        assert sentence.english.endswith(".") == sentence.french.endswith(".")
    assert 0.09 < sum(not sentence.english.endswith(".") for sentence in drawn) / len(drawn) < 0.15


def test_each_state_is_of_the_living_or_of_the_lifeless():
    living = {word.english for kind in LIVING for word in STATES[kind]}
    lifeless = {word.english for kind in STATES if kind not in LIVING for word in STATES[kind]}
    assert not living & lifeless


def test_pronouns_are_common_and_open(drawn):
    with_pronoun = [sentence for sentence in drawn if meant(sentence)]
    assert 0.15 < len(with_pronoun) / len(drawn) < 0.21
    of_subject = differing = total = 0
    for sentence in with_pronoun:
        if len(sentence.pronouns) == 1 and length(sentence) < 13:
            pronoun = sentence.pronouns[0]
            total += 1
            of_subject += sentence.relations[pronoun.antecedent] == "subject"
    assert 0.4 < of_subject / total < 0.6
    genders = {word: noun.feminine for nouns in NOUNS.values() for noun in nouns for word in forms(noun)}
    total = 0
    for sentence in with_pronoun:
        nouns = [genders[word] for word in sentence.english_words if word in genders]
        if len(nouns) == 2 and len(sentence.pronouns) == 1:
            total += 1
            differing += nouns[0] != nouns[1]
    assert total > 500
    assert differing / total > 0.7


def forms(noun):
    return noun.english, noun.english_plural


def test_lengths_have_a_long_tail(drawn):
    lengths = [length(sentence) for sentence in drawn]
    assert min(lengths) == 4
    assert max(lengths) > 55
    assert 11.5 < sum(lengths) / len(lengths) < 14
    assert 0.05 < sum(size > 30 for size in lengths) / len(lengths) < 0.1


def test_the_vocabulary_is_wide_and_has_no_rare_tail(drawn):
    english = Counter(word.lower() for sentence in drawn for word in sentence.english_words)
    french = Counter(word.lower() for sentence in drawn for word in sentence.french_words)
    assert len(english) > 600
    assert len(french) > 800
    assert sum(count < 5 for count in english.values()) < 10
    assert sum(count < 3 for count in french.values()) < 30


def test_pronoun_accuracy_counts_what_stands_for_a_noun():
    tired, wide, *_ = LECTURE
    assert pronoun_accuracy([tired, wide], [tired.french, wide.french]) == (2, 2)
    assert pronoun_accuracy([tired, wide], [wide.french, wide.french]) == (1, 2)
    assert pronoun_accuracy([tired], ["L'animal n'a pas traversé la rue"]) == (0, 1)
    assert pronoun_accuracy([tired], ["L'ANIMAL PARCE QU'IL ÉTAIT"]) == (1, 1)
    assert pronoun_accuracy(LECTURE[2:], [""] * 3) == (0, 0)


def test_a_pronoun_without_antecedent_keeps_its_place_but_is_not_counted(drawn):
    both = [s for s in drawn if s.french_words[0] in ("Il", "Elle") and len(s.pronouns) == 1]
    assert both
    for sentence in both:
        assert pronoun_accuracy([sentence], [sentence.french]) == (1, 1)
