import math

import pytest
import torch
from torch.testing import assert_close

from regard.errors import DataError
from regard.look import Measures, flow, rollout, value_norms, watch
from regard.look.measures import measures_of
from regard.nn.attention import Attention

# Two heads, two queries, three keys: the first head is sharp, the second even.
WEIGHTS = torch.tensor([[[[1.0, 0, 0], [0, 0, 1]], [[0.5, 0.5, 0], [0.25, 0.25, 0.5]]]])


def test_the_measures_are_those_worked_by_hand():
    measures = Measures()
    measures.add(WEIGHTS, separators=torch.tensor([[False, True, True]]))
    means = measures.means()
    assert means.queries == 2
    # (ln 2 + 1.5 ln 2) / 2 for the second head.
    assert_close(means.entropy, torch.tensor([0.0, 1.25 * math.log(2)], dtype=torch.double))
    assert_close(means.maximum, torch.tensor([1.0, 0.5], dtype=torch.double))
    # Query 0: 0 and 0.5. Query 1: 1, and 0.25 * 1 + 0.25 * 0 + 0.5 * 1.
    assert_close(means.distance, torch.tensor([0.5, 0.625], dtype=torch.double))
    assert_close(means.first, torch.tensor([0.5, 0.375], dtype=torch.double))
    assert_close(means.last, torch.tensor([0.5, 0.25], dtype=torch.double))
    assert_close(means.separator, torch.tensor([0.5, 0.625], dtype=torch.double))
    assert means.to_mapping()["maximum"] == [1.0, 0.5]


def test_padding_is_not_counted_and_batches_add_up():
    padded = torch.zeros(2, 2, 4, 5)
    padded[0, :, :2, :3] = WEIGHTS[0]
    padded[1, :, 0, 0] = 1
    together = Measures()
    together.add(padded, queries=torch.tensor([2, 1]), keys=torch.tensor([3, 1]))
    apart = Measures()
    apart.add(WEIGHTS)
    apart.add(torch.ones(1, 2, 1, 1))
    for here, there in zip(together.means().to_mapping().values(), apart.means().to_mapping().values(), strict=True):
        assert here == pytest.approx(there)


def test_nothing_to_measure_and_other_heads_are_refused():
    measures = Measures()
    with pytest.raises(DataError, match="no queries"):
        measures.means()
    measures.add(WEIGHTS)
    with pytest.raises(DataError, match="weights of 1 heads after 2"):
        measures.add(WEIGHTS[:, :1])


def test_flow_is_the_most_that_runs_through_the_pipes():
    back = torch.tensor([[1.0, 0], [1, 0]])
    even = torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    first, second = back[None, None], even[None, None]
    # Half identity: layer one [[1, 0], [.5, .5]], layer two [[.75, .25], [.25, .75]], the later on top. From 0 to 0
    # .75 runs straight and .25 by way of 1; from 0 to 1 all must come through 1, by a pipe of .25.
    assert_close(flow([first, second])[0], torch.tensor([[1.0, 0.25], [0.75, 0.5]]))
    assert_close(flow([first, second], queries=[1])[0], torch.tensor([[0.75, 0.5]]))
    assert_close(flow([first], residual=0.0)[0], back)
    with pytest.raises(DataError, match="no layers"):
        flow([])


@torch.no_grad()
def test_flow_is_never_less_than_rollout():
    generator = torch.Generator().manual_seed(0)
    layers = [torch.randn(2, 3, 5, 5, generator=generator).softmax(-1) for _ in range(3)]
    # One unit leaves the top: what rollout sends along all paths is one way to let it run.
    assert (flow(layers) >= rollout(layers) - 1e-6).all()
    assert flow(layers).max() <= 1 + 1e-6


def test_rollout_of_two_layers_is_the_product_worked_by_hand():
    back = torch.tensor([[1.0, 0], [1, 0]])
    even = torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    first, second = torch.stack([back, back])[None], torch.stack([even, even])[None]
    # Half identity: layer one [[1, 0], [.5, .5]], layer two [[.75, .25], [.25, .75]]; their product, the later first.
    assert_close(rollout([first, second])[0], torch.tensor([[0.875, 0.125], [0.625, 0.375]]))
    assert_close(rollout([first, second], residual=0.0)[0], back)
    assert_close(rollout([first], residual=1.0)[0], torch.eye(2))
    # Heads are averaged first.
    assert_close(rollout([torch.stack([back, even])[None]], residual=0.0)[0], (back + even) / 2)


def test_a_rollout_over_other_places_is_refused():
    with pytest.raises(DataError, match="keeps its places"):
        rollout([torch.eye(2)[None, None], torch.eye(3)[None, None]])
    with pytest.raises(DataError, match="at least one"):
        rollout([])
    with pytest.raises(DataError, match="between 0 and 1"):
        rollout([torch.eye(2)[None, None]], residual=1.5)


def test_value_norms_weigh_what_a_value_becomes():
    weights = torch.tensor([[[[0.9, 0.1]]]])
    v = torch.tensor([[[[0.1, 0.0], [3.0, 4.0]]]])
    # The small value under a large weight adds 0.09, the large one under a small weight 0.5.
    assert_close(value_norms(weights, v, torch.eye(2)), torch.tensor([[[[0.09, 0.5]]]]))


def test_value_norms_are_of_the_parts_that_an_attention_adds_up():
    torch.manual_seed(0)
    attention = Attention(6, 2, bias=False)
    x = torch.randn(3, 5, 6)
    with torch.no_grad(), watch(attention, "", parts=("weights", "v")) as trace:
        output = attention(x)
    seen = trace[""]
    parts = torch.einsum("bhts,bhsk,dhk->bhtsd", seen.weights, seen.v, attention.output.weight.unflatten(1, (2, 3)))
    assert_close(parts.sum((1, 3)), output)
    assert_close(value_norms(seen.weights, seen.v, attention.output.weight.detach()), parts.norm(dim=-1).detach())
    with pytest.raises(DataError, match="2 heads of 3 give 6"):
        value_norms(seen.weights, seen.v, torch.eye(5))


def test_measures_say_where_a_head_looks():
    back = torch.eye(4).roll(1, 1)[None].numpy()  # each place at the next, the last at the first
    found = measures_of(back, within=True, aligned=[(0, 1), (1, 1)])
    assert found["entropy"] == [0]
    assert found["largest weight"] == [1]
    assert found["weight on the next"] == [1]
    assert found["weight on itself"] == found["weight on the one before"] == [0]
    assert found["distance"] == [(1 + 1 + 1 + 3) / 4]
    assert found["weight on the first"] == [0.25]
    assert found["weight on the aligned"] == [0.5]
    assert set(measures_of(back, within=False)) == {"entropy", "largest weight", "weight on the first"}
