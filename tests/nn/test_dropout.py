import pytest
import torch
from torch.testing import assert_close

from regard.nn.dropout import Dropout, HardConcrete, SharedDropout


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_the_share_dropped_and_the_mean_kept(rate):
    torch.manual_seed(0)
    x = torch.ones(1000, 1000)
    out = Dropout(rate)(x)
    share = (out == 0).float().mean().item()
    assert share == pytest.approx(round(rate * 256) / 256, abs=0.002)
    assert out.mean().item() == pytest.approx(1.0, abs=0.003)
    assert out.unique().numel() == 2


def test_every_place_is_dropped_alike():
    # Eight places share a random word: each byte of it must be as random as the others.
    torch.manual_seed(1)
    out = torch.stack([Dropout(0.25)(torch.ones(64)) == 0 for _ in range(4000)]).float().mean(0)
    assert_close(out, torch.full((64,), 0.25), atol=0.04, rtol=0)


def test_gradients_pass_where_values_passed():
    torch.manual_seed(2)
    x = torch.randn(7, 5, requires_grad=True)
    out = Dropout(0.5)(x)
    out.sum().backward()
    assert_close(x.grad * x.detach(), out.detach())


def test_the_seed_rules_and_evaluation_drops_nothing():
    x, drop = torch.randn(10, 10), Dropout(0.5)
    torch.manual_seed(3)
    first = drop(x)
    torch.manual_seed(3)
    assert drop(x).equal(first)
    assert drop.eval()(x).equal(x)
    assert Dropout(0.0)(x).equal(x)


@pytest.mark.parametrize("rate", [0.001, 0.999, 1.0])
def test_rates_that_a_byte_cannot_tell_from_none_or_all_still_hold(rate):
    torch.manual_seed(4)
    share = (Dropout(rate)(torch.ones(1000, 1000)) == 0).float().mean().item()
    assert share == pytest.approx(rate, abs=0.0005)
    assert 0 < share < 1 or rate == 1.0


def test_shared_dropout_takes_the_same_features_of_a_row_everywhere():
    torch.manual_seed(5)
    x, drop = torch.ones(3, 4, 50), SharedDropout(0.5)
    out = drop(x)
    assert out.equal(out[:, :1].expand_as(x))
    assert not out[0].equal(out[1])
    assert set(out.unique().tolist()) == {0.0, 2.0}
    assert drop.eval()(x) is x


def test_the_chance_of_being_open_is_how_often_a_sample_is_not_zero():
    torch.manual_seed(0)
    gates = HardConcrete(3)
    with torch.no_grad():
        gates.log_alpha.copy_(torch.tensor([-2.0, 0.0, 2.0]))
        drawn = torch.stack([gates() for _ in range(4000)])
    assert_close((drawn > 0).float().mean(0), gates.chance_open().detach(), atol=0.03, rtol=0)
    assert drawn.min() == 0
    assert drawn.max() == 1


def test_without_noise_gates_are_fixed_and_a_penalty_shuts_them():
    gates = HardConcrete(4).eval()
    assert_close(gates(), gates())
    gates.train()
    optimizer = torch.optim.SGD(gates.parameters(), lr=5.0)
    for _ in range(100):
        optimizer.zero_grad()
        gates.chance_open().sum().backward()
        optimizer.step()
    assert gates.eval()().detach().max() == 0
