"""Text as tokens come: the same in the end as all at once, never half a character or part of a stop string."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text import TokenizerConfig, train_tokenizer
from regard.text.streaming import TextStream

TEXTS = ["the cat sees l'animal, d'accord", "naïve café 🙂 € 漢字", "I didn't go (again).", "a\nb  c"] * 3
KINDS = ("word", "character", "bpe", "wordpiece", "unigram")
TOKENIZERS = {kind: train_tokenizer(TEXTS, TokenizerConfig(kind=kind, vocab_size=330)) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=40)
def test_the_parts_make_the_whole(kind, data):
    tokenizer = TOKENIZERS[kind]
    pieces = st.lists(st.integers(4, tokenizer.vocab_size - 1), max_size=90)
    prompt, tokens = data.draw(pieces), data.draw(pieces)
    stream = TextStream(tokenizer, prompt)
    parts = [stream.push(token) for token in tokens]
    parts.append(stream.close())
    start = tokenizer.decode(prompt[-8:])
    assert "".join(parts) == stream.text
    if not start.endswith("\ufffd"):  # a prompt that ends within a character has no text of its own to go on from
        assert start + stream.text == tokenizer.decode([*prompt[-8:], *tokens])


def test_a_character_of_many_bytes_comes_whole():
    tokenizer = train_tokenizer(["plain"], TokenizerConfig(kind="bpe", vocab_size=262))
    stream = TextStream(tokenizer)
    parts = [stream.push(token) for token in tokenizer.encode("a🙂é")]
    assert parts == ["a", "", "", "", "🙂", "", "é"]
    assert stream.close() == ""
    cut = TextStream(tokenizer)
    assert [cut.push(token) for token in tokenizer.encode("🙂")[:2]] == ["", ""]
    assert cut.close() == "\ufffd"


@given(text=st.text("abc", max_size=30), stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_a_text_ends_before_the_first_stop_string(text, stops):
    tokenizer = train_tokenizer(["abc"], TokenizerConfig(kind="character", vocab_size=10))
    stream = TextStream(tokenizer, stop=stops)
    shown = ""
    for token in tokenizer.encode(text):
        shown += stream.push(token)
    shown += stream.close()
    # The first to be complete ends the text; of those complete at one character, the one that began first.
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    expected = text[: min(place for end, place in ends if end == min(ends)[0])] if ends else text
    assert shown == stream.text == expected
    assert stream.stopped == bool(ends)
