"""Answers in a text: where they are learned in each stretch of it, and which stretch of it is said."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from regard import make_config
from regard.data.labelled_texts import Question
from regard.errors import DataError
from regard.nn.batch import Texts
from regard.tasks.answering import answer
from regard.tasks.encoder import Encoder
from regard.tasks.encoder_tasks import labelled_rows
from regard.text import TokenizerConfig, Vocabularies, train_tokenizer
from regard.text.encoder_inputs import InputBuilder

WORDS = [f"w{index}" for index in range(60)]
CONTEXT = " ".join(WORDS[:40])
TOKENIZER = train_tokenizer([" ".join(WORDS) + " who ?"] * 2, TokenizerConfig(kind="word", vocab_size=100), masks=True)
LENGTH = 15  # who ? and what frames the two leaves room for ten words of the text


class Planted(torch.nn.Module):
    """Scores by word alone: `begins` and `ends` say which words score how much; `nothing` is the first token's, and
    much more where nothing begins."""

    config = SimpleNamespace(head="spans", segments=2)

    def __init__(self, begins, ends, nothing=0.0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.scores = torch.zeros(TOKENIZER.vocab_size, 2)
        for column, planted in enumerate((begins, ends)):
            for word, score in planted.items():
                self.scores[TOKENIZER.encode(word), column] = score
        self.nothing = nothing

    def logits(self, texts: Texts):
        found = self.scores[texts.ids].clone()
        begins = (found[..., 0] > 0).any(1)
        found[:, 0] = torch.where(begins, self.nothing / 2, 50.0)[:, None]
        return found


def said(begins, ends, nothing=0.0, **options):
    return answer(Encoder(Planted(begins, ends, nothing), TOKENIZER, LENGTH), "who ?", CONTEXT, **options)


def spans(start, end):
    """The characters from one word of the text to another."""
    return CONTEXT.index(WORDS[start]), CONTEXT.index(WORDS[end]) + len(WORDS[end])


def test_an_answer_is_learned_only_where_a_stretch_has_all_of_it():
    config = make_config(None, "bert-answer", [f"data.max_len={LENGTH}"])
    config = config.with_vocabularies(Vocabularies(TOKENIZER, TOKENIZER))
    asked = " ".join(WORDS[8:12])  # the first stretch ends after w9, the second has w5 to w14
    items = [Question("who ?", CONTEXT, asked, CONTEXT.index(asked)), Question("who ?", CONTEXT, "", -1)]
    rows = labelled_rows(config, items, TOKENIZER)
    stretches = InputBuilder(TOKENIZER, LENGTH).question("who ?", CONTEXT)
    assert len(rows) == 2 * len(stretches)
    found = [labels.tolist() for labels in rows.labels]
    assert found[len(stretches) :] == [[0, 0]] * len(stretches)
    for stretch, (first, last) in zip(stretches, found[: len(stretches)], strict=True):
        words = TOKENIZER.decode(
            [token for token, source in zip(stretch.row.ids, stretch.row.sources, strict=True) if source == 1]
        ).split()
        if set(asked.split()) <= set(words):
            assert TOKENIZER.decode(stretch.row.ids[first : last + 1]) == asked
        else:
            assert [first, last] == [0, 0]
    assert [labels == [0, 0] for labels in found[:3]] == [True, False, True]


def test_stretches_overlap_and_leave_nothing_out():
    stretches = InputBuilder(TOKENIZER, LENGTH).question("who ?", CONTEXT)
    covered = [[span for span in stretch.spans if span is not None] for stretch in stretches]
    assert all(len(stretch.row.ids) <= LENGTH for stretch in stretches)
    assert {span for part in covered for span in part} == {spans(place, place) for place in range(40)}
    assert all(set(one) & set(other) for one, other in pairwise(covered))
    with pytest.raises(DataError, match="no room"):
        InputBuilder(TOKENIZER, 5).question("who who", CONTEXT)


def test_the_best_stretch_begins_before_it_ends():
    (best,) = said({"w20": 5.0, "w3": 3.0}, {"w22": 4.0, "w18": 8.0})
    assert (best.start, best.end) == spans(20, 22)
    assert best.text == "w20 w21 w22"
    assert best.score == 9.0


def test_an_answer_has_thirty_tokens_at_most():
    long, short = Encoder(Planted({"w0": 5.0}, {"w30": 5.0, "w29": 4.0}), TOKENIZER, 60), slice(*spans(0, 29))
    (best,) = answer(long, "who ?", CONTEXT)
    assert best.text == CONTEXT[short]
    assert len(best.text.split()) == 30


def test_there_is_none_only_where_no_stretch_has_one():
    (best,) = said({"w20": 2.0}, {"w21": 2.0}, nothing=3.0)
    assert best.text == "w20 w21"
    (none,) = said({"w20": 1.0}, {"w21": 1.0}, nothing=3.0)
    assert (none.text, none.score) == ("", 3.0)


def test_several_answers_are_of_other_characters_best_first():
    found = said({"w20": 5.0, "w7": 4.0}, {"w21": 3.0, "w8": 3.0}, top=4)
    assert [one.text for one in found[:2]] == ["w20 w21", "w7 w8"]
    assert len({(one.start, one.end) for one in found}) == 4
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
