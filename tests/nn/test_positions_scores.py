import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.errors import ConfigError, DataError
from regard.nn.attention_scores import SCORES, make_score
from regard.nn.positions import Alibi, Positions, RelativeBias, Rotary, distance_buckets, linear, sinusoidal


@given(shift=st.integers(0, 20), layout=st.sampled_from(["halves", "interleaved"]))
def test_rotary_scores_depend_on_distance_alone(shift, layout):
    torch.manual_seed(0)
    rotary = Rotary(8, 64, layout=layout)
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    here = rotary(q, 5) @ rotary(k, 2).mT
    there = rotary(q, 5 + shift) @ rotary(k, 2 + shift).mT
    assert_close(here, there, atol=1e-5, rtol=1e-5)


def test_rotary_pairs_neighbours_or_halves():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).expand(1, 1, 3, 4)
    for layout, pairs in (("halves", [(0, 2), (1, 3)]), ("interleaved", [(0, 1), (2, 3)])):
        turned = Rotary(4, 3, layout=layout)(x)[0, 0, 2]
        for (a, b), frequency in zip(pairs, (1.0, 0.01), strict=True):
            angle = torch.tensor(2 * frequency)
            assert_close(turned[a], x[0, 0, 0, a] * angle.cos() - x[0, 0, 0, b] * angle.sin())
            assert_close(turned[b], x[0, 0, 0, b] * angle.cos() + x[0, 0, 0, a] * angle.sin())


def test_rotary_keeps_lengths_and_continues_from_the_past():
    rotary, x = Rotary(8, 32), torch.randn(2, 3, 10, 8)
    assert_close(rotary(x).norm(dim=-1), x.norm(dim=-1))
    assert_close(rotary(x)[:, :, 6:], rotary(x[:, :, 6:], 6))


def test_alibi_penalises_distance_by_each_heads_slope():
    bias = Alibi(4)(1, 5, past=4)[0, :, 0]
    assert_close(bias[:, 4], torch.zeros(4))
    assert_close(bias[0], -0.25 * torch.tensor([4.0, 3, 2, 1, 0]))
    assert_close(bias[3], -(2.0**-8) * torch.tensor([4.0, 3, 2, 1, 0]))


def test_near_distances_have_a_bucket_each_and_far_ones_share():
    def buckets(offsets, **options):
        return distance_buckets(torch.tensor([offsets]), 16, 64, **options)[0].tolist()

    assert buckets(range(0, -8, -1), both_ways=False) == list(range(8))
    assert buckets([5, 1, 0], both_ways=False) == [0, 0, 0]
    assert buckets([-8, -10, -11, -32, -63, -64, -1000], both_ways=False) == [8, 8, 9, 13, 15, 15, 15]
    assert buckets([-3, -2, 0, 1, 2, 3], both_ways=True) == [3, 2, 0, 9, 10, 11]
    assert buckets([-64, -1000, 64, 1000], both_ways=True) == [7, 7, 15, 15]


def test_a_relative_bias_goes_by_distance_alone_and_goes_on_from_the_past():
    bias = RelativeBias(3, 8, 20, both_ways=False)
    whole = bias(9, 9)
    assert whole.shape == (1, 3, 9, 9)
    assert_close(whole[0, :, 5, 2], bias.table[3])
    assert_close(whole[0, :, 8, 5], bias.table[3])
    assert_close(bias(1, 9, past=8), whole[:, :, 8:])


def test_learned_positions_may_begin_at_a_later_row():
    x, positions = torch.zeros(1, 3, 8), Positions("learned", 8, 4, offset=2)
    assert positions.table.shape == (6, 8)
    assert_close(positions(x)[0], positions.table[2:5])
    assert_close(positions(x, places=torch.tensor([[3, 0, 1]]))[0], positions.table[[5, 2, 3]])
    with pytest.raises(DataError, match="max_len=4"):
        positions(x, past=2)


def test_positions_are_added_or_put_beside():
    x = torch.randn(2, 3, 8)
    assert_close(Positions("sinusoidal", 8, 10)(x, past=4), x + sinusoidal(10, 8)[4:7])
    beside = Positions("sinusoidal", 4, 10, how="concatenate")(x)
    assert_close(beside, torch.cat((x, sinusoidal(3, 4).expand(2, 3, 4)), -1))
    assert Positions("linear", 8, 10)(x).shape == x.shape
    nothing = torch.zeros(1, 10, 1)
    assert_close(Positions("linear", 1, 10)(nothing)[0, :, 0], torch.arange(10) / 10)
    assert_close(Positions("linear-unscaled", 1, 10)(nothing)[0, :, 0], torch.arange(10.0))
    assert_close(linear(3, 2.0, 1.0), torch.tensor([[1.0], [3.0], [5.0]]))
    learned = Positions("learned", 8, 10)
    assert_close(learned(x), x + learned.table[:3])
    assert learned.table.requires_grad


def test_too_long_a_sequence_is_refused_with_the_rule():
    with pytest.raises(DataError, match="11 tokens is longer than the model's max_len=10"):
        Positions("learned", 8, 10)(torch.randn(1, 3, 8), past=8)
    with pytest.raises(DataError, match="max_len=10"):
        Rotary(8, 10)(torch.randn(1, 1, 11, 8))
    with pytest.raises(ConfigError, match="width=7 must be even"):
        sinusoidal(3, 7)


EQUATIONS = {
    "cosine": lambda m, s, h: m.sharpness * (s @ h) / (s.norm() * h.norm()),
    "additive": lambda m, s, h: (
        m.vector.weight[0] @ torch.tanh(torch.cat((m.query.weight, m.memory.weight), 1) @ torch.cat((s, h)))
    ),
    "general": lambda m, s, h: h @ m.weight.weight @ s,
    "dot": lambda m, s, h: s @ h,
    "scaled-dot": lambda m, s, h: s @ h / 6**0.5,
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_each_score_is_its_equation(name):
    torch.manual_seed(0)
    score = make_score(name, 6, 6).double()
    query, memory = torch.randn(2, 3, 6, dtype=torch.float64), torch.randn(2, 4, 6, dtype=torch.float64)
    found = score(query, memory)
    assert found.shape == (2, 3, 4)
    for b in range(2):
        for t in range(3):
            for s in range(4):
                assert_close(found[b, t, s], EQUATIONS[name](score, query[b, t], memory[b, s]))


def test_the_location_score_knows_its_longest_source_and_nothing_of_the_memory():
    score = make_score("location", 6, 5, 7)
    query = torch.randn(2, 3, 6)
    assert_close(score(query, torch.randn(2, 4, 5)), score.places(query)[..., :4])
    with pytest.raises(DataError, match="8 tokens is longer than the location score's max_len=7"):
        score(query, torch.randn(2, 8, 5))
    with pytest.raises(ConfigError, match="needs max_len"):
        make_score("location", 6, 5)


def test_unknown_scores_and_unequal_widths_are_refused():
    assert set(SCORES) == {*EQUATIONS, "location"}
    with pytest.raises(ConfigError, match="did you mean 'additive'"):
        make_score("aditive", 4, 4)
    with pytest.raises(ConfigError, match="needs equal widths, not 4 and 6"):
        make_score("dot", 4, 6)
