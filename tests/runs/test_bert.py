"""The life of an encoder: pre-train on plain text, tune, and use: fill, classify, tag, answer, embed."""

import pytest
import torch

from regard.errors import ConfigError
from regard.models.bert import Bert, BertConfig
from regard.runs.encoder import fit_pair


def test_bert_base_has_its_published_number_of_parameters():
    with torch.device("meta"):
        model = Bert(BertConfig(vocab_size=30522, head="none"))
    assert sum(parameter.numel() for parameter in model.parameters()) == 109_482_240


@pytest.mark.parametrize(("first", "second", "room"), [(10, 2, 8), (10, 9, 9), (3, 3, 9), (0, 7, 4), (5, 5, 0)])
def test_of_two_texts_the_longer_loses_first(first, second, room):
    one, other = fit_pair(first, second, room)
    a, b = list(range(first)), list(range(second))
    while len(a) + len(b) > room:  # as BERT does it, a token at a time
        (a if len(a) > len(b) else b).pop()
    assert (one, other) == (len(a), len(b))
    assert fit_pair(first, None, room) == (min(first, room), 0)


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigError, match="pooler"):
        BertConfig(vocab_size=9, head="classes", pooler="none")
    with pytest.raises(ConfigError, match="must differ"):
        BertConfig(vocab_size=9, head="tags", labels=("a", "a"))
    with pytest.raises(ConfigError, match="needs labels"):
        Bert(BertConfig(vocab_size=9, width=12, head="tags"))
    with pytest.raises(ConfigError, match="labels are for"):
        BertConfig(vocab_size=9, labels=("a", "b"))
