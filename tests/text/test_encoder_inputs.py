"""What stands around a text, or around two: the tokenizer's own way, found by asking it."""

import pytest
from tokenizers import Tokenizer as Library
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing

from regard.errors import DataError
from regard.text import Tokenizer
from regard.text.encoder_inputs import InputTemplate

VOCAB = {"<pad>": 0, "<bos>": 1, "<eos>": 2, "<unk>": 3, "a": 4, "b": 5, "c": 6}

FORMS = {
    "bert": {"single": "<bos> $A <eos>", "pair": "<bos> $A <eos> $B:1 <eos>:1"},
    "roberta": {"single": "<bos> $A <eos>", "pair": "<bos> $A <eos> <eos> $B <eos>"},
    "each its own": {"single": "<bos>:1 $A <eos>:1", "pair": "<bos>:1 $A:0 <eos>:1 $B:2 <eos>:0"},
    "bare end": {"single": "$A <pad> <eos>", "pair": "<bos>:1 $A $B:1 <pad>:1 <eos>:1"},
}


def tokenizer(**form):
    inner = Library(WordLevel(VOCAB, "<unk>"))
    inner.pre_tokenizer = WhitespaceSplit()
    if form:
        inner.post_processor = TemplateProcessing(**form, special_tokens=list(VOCAB.items())[:4])
    return Tokenizer(inner)


@pytest.mark.parametrize("form", ["bert", "roberta", "each its own"])
def test_a_frame_is_what_the_tokenizer_itself_makes(form):
    made = tokenizer(**FORMS[form])
    framing = InputTemplate.of(made)
    for first, second in (("a b", None), ("a b", "c"), ("c", "a b a")):
        ids, sources, segments = made.with_special_tokens(first, second)
        found = framing.build(made.encode(first), None if second is None else made.encode(second))
        assert (found.ids, found.sources, found.segments) == (ids, sources, segments)
        texts = len(made.encode(first)) + (0 if second is None else len(made.encode(second)))
        assert framing.room(20, second is not None) == 20 - (len(ids) - texts)


def test_one_text_may_be_closed_in_another_way_than_two():
    framing = InputTemplate.of(tokenizer(**FORMS["bare end"]))
    assert framing == InputTemplate((1,), (), (0, 2), (0, 2), (1, 0, 0, 1, 1))
    found = framing.build([4, 5], [6])
    assert found.ids == [1, 4, 5, 6, 0, 2]
    assert found.sources == [-1, 0, 0, 1, -1, -1]
    assert found.segments == [1, 0, 0, 1, 1, 1]


def test_a_tokenizer_that_adds_nothing_is_given_a_beginning_and_ends():
    framing = InputTemplate.of(tokenizer())
    found = framing.build([4, 5], [6])
    assert (found.ids, found.segments) == ([1, 4, 5, 2, 6, 2], [0, 0, 0, 0, 1, 1])
    assert framing.build([4]).ids == [1, 4, 2]
    assert framing.build([4]).sources == [-1, 0, -1]


def test_texts_the_wrong_way_round_are_refused():
    with pytest.raises(DataError, match="does not put one text after another"):
        InputTemplate.of(tokenizer(single="<bos> $A", pair="<bos> $B $A"))
