import pytest
import torch

from regard.nn.attention import Attention
from regard.nn.flops import operations
from regard.nn.masks import CAUSAL
from regard.nn.recurrent.layers import Recurrent

B, T, D = 2, 12, 16


@pytest.mark.parametrize(("kind", "matrices"), [("rnn", 2), ("lstm", 8), ("gru-before", 6), ("gru-after", 6)])
def test_a_recurrence_costs_its_matrices_at_every_position(kind, matrices):
    model = Recurrent(kind, D, D, 1)
    with operations(model) as counter:
        model(torch.randn(B, T, D))
    assert counter.get_total_flops() == 2 * B * T * matrices * D * D
    assert model.layers[0].fused


def test_attention_costs_four_projections_and_two_products_and_twice_that_on_the_way_back():
    model = Attention(D, heads=4)
    forward = 2 * B * T * D * (4 * D + 2 * T)
    with operations(model) as counter:
        found = model(torch.randn(B, T, D, requires_grad=True), None, CAUSAL)
        assert counter.get_total_flops() == forward
        found.sum().backward()
    # Fused, the way back forms the scores once more.
    assert counter.get_total_flops() == pytest.approx(3 * forward, rel=0.15)
