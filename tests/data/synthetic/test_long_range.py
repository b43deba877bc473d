import pytest
import torch

from regard.data.synthetic.long_range import ANSWERS, ASK, MARK, VALUES, VOCAB, long_range
from regard.errors import ConfigError


@pytest.mark.parametrize("question", ["recall", "count"])
def test_the_same_seed_asks_the_same(question):
    first, again, other = (long_range(question, 20, 100, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])
    assert first[0].shape == (20, 100)
    assert (first[0][:, -1] == ASK).all()
    assert int(first[0].max()) < VOCAB


def test_the_value_to_recall_stands_once_in_the_first_tenth():
    tokens, answers = long_range("recall", 200, 150, seed=1)
    values = (tokens >= VALUES) & (tokens < VALUES + ANSWERS)
    assert (values.sum(1) == 1).all()
    assert not values[:, 15:].any()
    assert torch.equal(tokens[values] - VALUES, answers)
    assert set(answers.tolist()) == set(range(ANSWERS))


def test_the_marks_to_count_are_as_many_as_the_answer_says_and_lie_anywhere():
    tokens, answers = long_range("count", 300, 64, seed=2)
    marks = tokens == MARK
    assert torch.equal(marks.sum(1), answers)
    assert marks[:, :-1].any(0).all()


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(ConfigError, match="length=5 must be at least 10"):
        long_range("recall", 1, 5, seed=0)
