"""The numbers that lectures on attention work by hand, on the code that trains."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.nn.attention import Attention, attend, attention_weights
from regard.nn.losses.cross_entropy import linear_cross_entropy
from regard.nn.masks import CAUSAL
from regard.nn.positions import offset_rotation, sinusoidal


def weights_of(scores, d_k, mask=None):
    """The attention weights of a score table, by q and k that give those raw scores at width d_k."""
    scores = torch.tensor(scores)
    rows, columns = scores.shape
    q = torch.zeros(1, 1, rows, d_k)
    q[0, 0, :, :rows] = torch.eye(rows)
    k = torch.zeros(1, 1, columns, d_k)
    k[0, 0, :, :rows] = scores.T
    assert_close((q @ k.mT)[0, 0], scores)
    return attention_weights(q, k, mask)[0, 0]


def test_thinking_machines():
    assert_close(weights_of([[112.0, 96.0]], 64), torch.tensor([[0.8808, 0.1192]]), atol=5e-5, rtol=0)


def test_four_tokens():
    weights = weights_of([[112.0, 96.0, 16.0, 8.0]], 64)
    assert_close(weights, torch.tensor([[0.8808, 0.1192, 5e-6, 2e-6]]), atol=5e-5, rtol=0)


def test_help_me():
    weights = weights_of([[6.0, 4.0], [3.0, 8.0]], 16)
    assert_close(weights, torch.tensor([[0.622, 0.378], [0.223, 0.777]]), atol=5e-4, rtol=0)


def test_flying_arrows_with_heads_that_select_features():
    x = torch.tensor([[[0.0, 1, 1, 1, 1, 0], [1.0, 1, 0, -1, -1, 1]]])
    q, k, v = x[..., 0:2], x[..., 2:4], x[..., 4:6]
    mixed, weights = attend(q[None], k[None], v[None])
    assert_close(weights[0, 0, 0], torch.tensor([0.804, 0.196]), atol=5e-4, rtol=0)
    assert_close(mixed[0, 0, 0], torch.tensor([0.609, 0.196]), atol=5e-4, rtol=0)


def test_show_me_the_money():
    table = sinusoidal(4, 4)
    right = [[0, 1, 0, 1], [0.841, 0.540, 0.010, 1.0], [0.909, -0.416, 0.020, 1.0], [0.141, -0.990, 0.030, 1.0]]
    assert_close(table, torch.tensor(right), atol=6e-4, rtol=0)
    money = torch.tensor([0.41, 0.08, 0.51, 0.87]) + table[3]
    assert_close(money, torch.tensor([0.551, -0.910, 0.540, 1.870]), atol=6e-4, rtol=0)


def test_the_look_ahead_table():
    scores = [
        [16.2, 7.7, 2.0, 4.6, 3.1, 8.9],
        [3.2, 21.5, 6.1, 8.4, 8.1, 5.2],
        [1.9, 4.3, 18.7, 6.5, 7.2, 3.3],
        [2.7, 4.1, 7.6, 22.3, 9.0, 3.8],
        [4.4, 5.8, 6.9, 5.6, 24.5, 4.7],
        [4.0, 3.9, 6.7, 7.3, 6.1, 16.8],
    ]
    right = [
        [1.0, 0, 0, 0, 0, 0],
        [0.092, 0.908, 0, 0, 0, 0],
        [0.095, 0.128, 0.777, 0, 0, 0],
        [0.064, 0.076, 0.118, 0.742, 0, 0],
        [0.059, 0.070, 0.080, 0.068, 0.723, 0],
        [0.090, 0.089, 0.126, 0.135, 0.117, 0.444],
    ]
    weights = weights_of(scores, 64, CAUSAL.mask(6, 6, torch.device("cpu")))
    assert_close(weights, torch.tensor(right), atol=6e-4, rtol=0)
    assert weights.triu(1).eq(0).all()


def test_cross_entropy_of_the_six_word_vocabulary():
    trained = torch.tensor(
        [
            [0.01, 0.02, 0.93, 0.01, 0.03, 0.01],
            [0.01, 0.8, 0.1, 0.05, 0.01, 0.03],
            [0.99, 0.001, 0.001, 0.001, 0.002, 0.001],
            [0.001, 0.002, 0.001, 0.02, 0.94, 0.01],
            [0.01, 0.01, 0.001, 0.001, 0.001, 0.98],
        ]
    )
    labels = torch.tensor([2, 1, 0, 4, 5])
    picked = -trained.gather(1, labels[:, None]).log().squeeze(1)
    assert_close(picked, torch.tensor([0.073, 0.223, 0.010, 0.062, 0.020]), atol=6e-4, rtol=0)
    assert picked.mean().item() == pytest.approx(0.0776, abs=5e-5)
    # The printed rows do not quite sum to one; the loss that trains normalises, so each row gains the log of its sum.
    logits = trained.log()
    total, plain = linear_cross_entropy(logits, torch.eye(6), None, labels)
    assert_close(total, (picked + trained.sum(1).log()).sum(), atol=1e-5, rtol=0)
    assert_close(total, plain)


def test_attention_as_a_database_returns_the_one_value_asked_for():
    keys, values = 100 * torch.eye(8)[None, None], torch.randn(1, 1, 8, 8)
    mixed, weights = attend(100 * torch.eye(8)[None, None, 3:4], keys, values)
    assert_close(weights[0, 0, 0], F.one_hot(torch.tensor(3), 8).float())
    assert_close(mixed[0, 0, 0], values[0, 0, 3])


@pytest.mark.parametrize("offset", [0, 1, 7, 100])
def test_positions_at_an_offset_are_a_rotation(offset):
    table, turn = sinusoidal(300, 32), offset_rotation(offset, 32)
    assert_close(table[:150] @ turn.mT, table[offset : offset + 150], atol=2e-5, rtol=0)
    assert_close(turn @ turn.mT, torch.eye(32))


def test_halves_and_interleaved_are_permutations_of_one_another():
    interleaved, halves = sinusoidal(20, 16), sinusoidal(20, 16, "halves")
    assert_close(halves, torch.cat((interleaved[:, 0::2], interleaved[:, 1::2]), 1))


def test_parameters_of_multi_head_attention():
    count = sum(parameter.numel() for parameter in Attention(512, 8, bias=False).parameters())
    assert count == 4 * 512 * 512


def test_variance_of_a_dot_product_is_its_width_and_one_after_scaling():
    torch.manual_seed(0)
    for d_k in (16, 64, 256):
        products = (torch.randn(20_000, d_k) * torch.randn(20_000, d_k)).sum(1)
        assert products.var().item() == pytest.approx(d_k, rel=0.05)
        assert (products / math.sqrt(d_k)).var().item() == pytest.approx(1, rel=0.05)


def test_layer_norm_gives_deviation_one():
    out = F.layer_norm(torch.randn(5, 512) * 3 + 2, (512,))
    assert_close(out.std(1, correction=0), torch.ones(5), atol=1e-3, rtol=0)
