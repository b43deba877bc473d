import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.errors import ConfigError
from regard.nn.attention import Attention, NoHeads, attend
from regard.nn.masks import CAUSAL, EVERYTHING, SequenceIds, Visible
from regard.nn.positions import Alibi, RelativeBias, Rotary

size = st.integers(1, 5)


@given(B=size, H=size, T=size, S=size, K=size)
def test_attend_agrees_with_torch_even_where_a_query_sees_nothing(B, H, T, S, K):
    q, k, v = torch.randn(B, H, T, K), torch.randn(B, H, S, K), torch.randn(B, H, S, K)
    mask = torch.rand(B, 1, T, S) < 0.5
    mixed, weights = attend(q, k, v, mask)
    assert_close(mixed, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    assert_close(weights.sum(-1), mask.any(-1).float().expand(B, H, T))


@given(
    B=size,
    T=st.integers(1, 7),
    groups=st.sampled_from([1, 2, 4]),
    causal=st.booleans(),
    window=st.sampled_from([None, 1, 2, 5]),
    padded=st.booleans(),
    position=st.sampled_from(["none", "rotary", "alibi", "relative"]),
)
def test_watching_changes_no_output(B, T, groups, causal, window, padded, position):
    torch.manual_seed(B * 100 + T)
    rotary = Rotary(4, 16) if position == "rotary" else None
    distances = {"alibi": Alibi(4), "relative": RelativeBias(4, 6, 7, both_ways=not causal)}.get(position)
    attention = Attention(16, 4, kv_heads=groups, rotary=rotary, distances=distances).eval()
    x = torch.randn(B, T, 16)
    lengths = torch.randint(1, T + 1, (B,)) if padded else None
    visible = Visible(causal=causal, window=window, lengths=lengths)
    fused = attention(x, None, visible)
    seen = []
    attention.watcher = lambda q, k, v, weights: seen.append(weights) or weights
    assert_close(attention(x, None, visible), fused, atol=1e-5, rtol=1e-5)
    (weights,) = seen
    mask = visible.mask(T, T, x.device)
    mask = torch.ones_like(weights, dtype=torch.bool) if mask is None else mask.expand_as(weights)
    assert_close(weights.sum(-1), mask.any(-1).float())
    assert weights.masked_select(~mask).eq(0).all()


@pytest.mark.parametrize("visible", [EVERYTHING, CAUSAL, Visible(window=3), Visible(lengths=torch.tensor([7, 2]))])
@pytest.mark.parametrize("distances", [None, Alibi(4), RelativeBias(4, 6, 7, both_ways=True)])
def test_weights_asked_for_by_head_and_row_are_those_of_the_whole(visible, distances):
    class Looking:
        edit = None

        def look(self, q, k, v, weigh, groups):
            self.parts = [weigh([3, 0], slice(2, 5)), weigh([1], slice(0, 7))]

    torch.manual_seed(0)
    attention, x = Attention(16, 4, kv_heads=2, distances=distances).eval(), torch.randn(2, 7, 16)
    seen, looking = [], Looking()
    attention.watcher = lambda q, k, v, weights: seen.append(weights) or weights
    whole = attention(x, None, visible)
    attention.watcher = looking
    assert_close(attention(x, None, visible), whole)
    assert_close(looking.parts, [seen[0][:, [3, 0], 2:5], seen[0][:, [1]]])


@pytest.mark.parametrize("bias", [False, True])
def test_without_heads_there_is_the_bias_alone(bias):
    none, x = NoHeads(6, 3, bias=bias), torch.randn(2, 5, 6)
    expected = torch.zeros(2, 5, 6)
    if bias:
        with torch.no_grad():
            none.bias.copy_(torch.arange(6.0))
        expected = torch.arange(6.0).expand(2, 5, 6)
    assert_close(none(x, torch.randn(2, 4, 6)), expected)
    assert [part.shape for part in none.keys_values(x)] == [(2, 0, 5, 3)] * 2


def test_a_watcher_can_change_what_the_model_uses():
    attention = Attention(8, 2)
    x = torch.randn(1, 3, 8)
    attention.watcher = lambda q, k, v, weights: torch.zeros_like(weights)
    assert_close(attention(x), attention.output.bias.expand(1, 3, 8))


def test_causal_needs_no_mask_even_when_rows_are_padded_on_the_right():
    torch.manual_seed(0)
    attention = Attention(16, 4).eval()
    x, lengths = torch.randn(3, 6, 16), torch.tensor([6, 2, 4])
    assert Visible(causal=True, lengths=lengths).only_causal(6, 6)
    with_mask = attend(*attention.queries_keys_values(x), Visible(causal=True, lengths=lengths).mask(6, 6, x.device))[0]
    expected = attention.output(with_mask.transpose(1, 2).flatten(2))
    out = attention(x, None, Visible(causal=True, lengths=lengths))
    for row, length in enumerate(lengths):
        assert_close(out[row, :length], expected[row, :length])


@given(T=st.integers(2, 8), window=st.integers(1, 8))
def test_a_window_sees_only_near_keys(T, window):
    mask = Visible(window=window).mask(T, T, torch.device("cpu"))
    for i in range(T):
        for j in range(T):
            assert mask[0, 0, i, j] == (abs(i - j) < window)


def test_packed_sequences_do_not_see_each_other():
    torch.manual_seed(0)
    attention = Attention(8, 2).eval()
    a, b = torch.randn(1, 3, 8), torch.randn(1, 4, 8)
    numbers, places = torch.tensor([[1, 1, 1, 2, 2, 2, 2]]), torch.tensor([[0, 1, 2, 0, 1, 2, 3]])
    packed = attention(torch.cat((a, b), 1), None, Visible(causal=True, packed=SequenceIds(numbers, numbers, places)))
    assert_close(packed, torch.cat((attention(a, None, CAUSAL), attention(b, None, CAUSAL)), 1))


@given(B=size, T=st.integers(1, 6))
def test_permuting_the_inputs_permutes_the_outputs(B, T):
    attention = Attention(16, 4).eval()
    x, order = torch.randn(B, T, 16), torch.randperm(T)
    assert_close(attention(x[:, order]), attention(x)[:, order], atol=1e-5, rtol=1e-5)


@given(B=size, T=size, S=size)
def test_the_order_of_keys_changes_nothing_for_a_query(B, T, S):
    attention = Attention(16, 4).eval()
    x, memory, order = torch.randn(B, T, 16), torch.randn(B, S, 16), torch.randperm(S)
    assert_close(attention(x, memory[:, order]), attention(x, memory), atol=1e-5, rtol=1e-5)


def test_heads_that_share_keys_are_heads_with_equal_keys():
    torch.manual_seed(0)
    shared, full = Attention(16, 4, kv_heads=2).eval(), Attention(16, 4).eval()
    full.query.load_state_dict(shared.query.state_dict())
    full.output.load_state_dict(shared.output.state_dict())
    for name in ("key", "value"):
        for kind in ("weight", "bias"):
            part = getattr(getattr(shared, name), kind)
            repeated = part.unflatten(0, (2, 4)).repeat_interleave(2, 0).flatten(0, 1)
            getattr(getattr(full, name), kind).data.copy_(repeated)
    x = torch.randn(2, 5, 16)
    assert_close(shared(x, None, CAUSAL), full(x, None, CAUSAL))


def test_cross_attention_of_padded_sources_ignores_the_padding():
    torch.manual_seed(0)
    attention = Attention(16, 4).eval()
    x, memory = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    visible = Visible(lengths=torch.tensor([5, 2]))
    out = attention(x, memory, visible)
    assert_close(out[1:], attention(x[1:], memory[1:, :2], EVERYTHING), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_one_product_gives_what_three_do(bias, qk_norm):
    torch.manual_seed(0)
    attention = Attention(16, 4, kv_heads=2, bias=bias, qk_norm=qk_norm, rotary=Rotary(4, 16))
    x, places = torch.randn(2, 3, 16), torch.tensor([[0, 1, 0], [4, 5, 6]])
    for where in ({"past": 2}, {"places": places}):
        q, (k, v) = attention.queries(x, **where), attention.keys_values(x, **where)
        assert_close(attention.queries_keys_values(x, **where), (q, k, v))
        assert_close(attention.queries_keys_values(x, **where, joined=attention.joined()), (q, k, v))


def test_weights_are_dropped_in_training_alone():
    torch.manual_seed(0)
    attention, x = Attention(16, 4, dropout=0.5), torch.randn(2, 6, 16)
    whole = Attention(16, 4).eval()
    whole.load_state_dict(attention.state_dict())
    assert_close(attention.eval()(x, None, CAUSAL), whole(x, None, CAUSAL))
    assert not torch.allclose(attention.train()(x, None, CAUSAL), whole(x, None, CAUSAL), atol=1e-3)
    attention.watcher = lambda q, k, v, weights: weights
    assert not torch.allclose(attention(x, None, CAUSAL), whole(x, None, CAUSAL), atol=1e-3)
    assert_close(attention.eval()(x, None, CAUSAL), whole(x, None, CAUSAL))


def test_widths_that_do_not_divide_are_refused():
    with pytest.raises(ConfigError, match="width=10 must be a multiple of heads=4"):
        Attention(10, 4)
    with pytest.raises(ConfigError, match="heads=4 must be a multiple of kv_heads=3"):
        Attention(16, 4, kv_heads=3)
