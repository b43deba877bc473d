"""Phrases as text to tokens: however a tokenizer cuts a text, a phrase of it is found among its tokens."""

import pytest
from test_tokenizers import CORPUS, KINDS, TOKENIZERS

from regard.errors import ConfigError
from regard.text.phrases import phrase_settings, phrase_ways


def has(tokens, way):
    return any(tokens[start : start + len(way)] == way for start in range(len(tokens) - len(way) + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_phrase_of_a_text_is_among_its_tokens(kind):
    tokenizer = TOKENIZERS[kind]
    for text in CORPUS[:5]:
        words, tokens = text.split(" "), tokenizer.encode(text)
        for start in range(len(words)):
            for stop in range(start + 1, min(start + 4, len(words) + 1)):
                ways = phrase_ways(tokenizer, " ".join(words[start:stop]), "require")
                assert any(has(tokens, way) for way in ways), (kind, words[start:stop])


def test_only_where_a_space_is_part_of_a_token_there_are_two_ways():
    ways = {kind: phrase_ways(TOKENIZERS[kind], "animal", "require") for kind in ("word", "bpe", "wordpiece")}
    assert {kind: len(found) for kind, found in ways.items()} == {"word": 1, "bpe": 2, "wordpiece": 1}
    assert [TOKENIZERS["bpe"].decode(way) for way in ways["bpe"]] == ["animal", " animal"]


def test_texts_among_the_settings_become_tokens_and_the_rest_stays():
    tokenizer = TOKENIZERS["word"]
    animal, street = tokenizer.encode("animal"), tokenizer.encode("the street")
    found = phrase_settings(
        tokenizer, {"beam": 3, "prefix": "the street", "require": ["animal", [[1, 2]]], "forbid": ["animal", 7]}
    )
    assert found == {
        **{"beam": 3, "prefix": street, "require": [[animal], [[1, 2]]], "forbid": [7], "forbid_phrases": [animal]}
    }
    assert phrase_settings(tokenizer, {"forbid": "animal"}) == {"forbid_phrases": [animal]}
    assert phrase_settings(tokenizer, {"forbid": [3, 4], "prefix": [1]}) == {"forbid": [3, 4], "prefix": [1]}
    assert phrase_settings(tokenizer, {"prefix": ""}) == {"prefix": []}


@pytest.mark.parametrize("name", ["prefix", "require", "forbid"])
def test_what_is_no_phrase_is_refused_by_name(name):
    with pytest.raises(ConfigError, match=f"{name}=' ' has no tokens"):
        phrase_settings(TOKENIZERS["word"], {name: " "})
    with pytest.raises(ConfigError, match=f"{name}='zebra' has a word that is not in the vocabulary"):
        phrase_settings(TOKENIZERS["word"], {name: "zebra"})
