import pytest
import torch

from regard.errors import ConfigError
from regard.models.sequence_classifier import SequenceClassifier

WAYS = ["rnn", "gru", "lstm", "convolution", "attention"]


def reader(way, **settings):
    torch.manual_seed(0)
    return SequenceClassifier(way, 30, 5, width=16, **settings).eval()


@pytest.mark.parametrize("way", WAYS)
def test_no_position_knows_a_later_one(way):
    model, ids = reader(way), torch.randint(30, (2, 12), generator=torch.Generator().manual_seed(1))
    changed = ids.clone()
    changed[:, 8:] = (changed[:, 8:] + 1) % 30
    before, after = (model.read(model.embedding(one)) for one in (ids, changed))
    torch.testing.assert_close(before[:, :8], after[:, :8])
    assert not torch.allclose(before[:, 8:], after[:, 8:])


@pytest.mark.parametrize(
    ("layers", "kernel", "dilation", "expected"), [(1, 3, 1, 3), (2, 3, 1, 5), (3, 4, 1, 10), (3, 3, 2, 15)]
)
def test_a_convolution_sees_its_receptive_field_and_nothing_before(layers, kernel, dilation, expected):
    model = reader("convolution", layers=layers, kernel=kernel, dilation=dilation)
    field = model.receptive_field
    assert field == expected
    ids = torch.randint(30, (1, 20), generator=torch.Generator().manual_seed(1))
    answers = {}
    for back in (field - 1, field):
        changed = ids.clone()
        changed[0, -1 - back] = (changed[0, -1 - back] + 1) % 30
        answers[back] = torch.equal(model(changed), model(ids))
    assert answers == {field - 1: False, field: True}


@pytest.mark.parametrize("way", ["rnn", "gru", "lstm", "attention"])
def test_the_others_see_the_very_first_token(way):
    model = reader(way).double()
    ids = torch.randint(30, (1, 20), generator=torch.Generator().manual_seed(1))
    changed = ids.clone()
    changed[0, 0] = (changed[0, 0] + 1) % 30
    assert model.receptive_field is None
    assert not torch.equal(model(changed), model(ids))


@torch.no_grad()
def test_a_vanilla_rnn_that_starts_as_the_identity_keeps_what_it_read():
    ids = torch.randint(30, (8, 20), generator=torch.Generator().manual_seed(1))
    alike = {}
    for start in ("orthogonal", "identity"):
        model = reader("rnn", layers=1, start=start)
        states = model.read(model.embedding(ids))
        alike[start] = float(torch.cosine_similarity(states[:, :-1], states[:, 1:], dim=-1).mean())
    assert alike["identity"] > 0.9
    assert alike["orthogonal"] < 0.5


def test_only_a_vanilla_rnn_starts_as_the_identity():
    with pytest.raises(ConfigError, match="start='identity' is a vanilla RNN's"):
        reader("lstm", start="identity")
