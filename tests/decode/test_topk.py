import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.decode.topk import CHUNK, best_sums, by_chunks, on_host, stable_topk

repeatable = settings(deadline=None, derandomize=True, max_examples=100)


@repeatable
@given(
    find=st.sampled_from([best_sums, by_chunks]),
    B=st.integers(1, 3),
    W=st.integers(1, 4),
    C=st.sampled_from([1, 2, 7, CHUNK, 20 * CHUNK, 20 * CHUNK + 1, 37 * CHUNK - 1]),
    count=st.integers(1, 10),
    values=st.sampled_from([2, 40, 1500, 1_000_000]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    aside=st.booleans(),
    impossible=st.sampled_from([0.0, 0.2, 0.9999]),
    seed=st.integers(0, 1000),
)
def test_the_best_are_those_of_a_stable_sort_ties_and_all(find, B, W, C, count, values, dtype, aside, impossible, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-3, 1, (B, W), generator=generator) * 0.5
    log_probs = (torch.randint(-values, 1, (B * W, C), generator=generator) / 4).to(dtype)
    if aside:  # as a slice of something wider
        log_probs = torch.nn.functional.pad(log_probs, (3, 2))[:, 3:-2]
    log_probs[torch.rand(B * W, C, generator=generator) < impossible] = -torch.inf
    found, places = find(scores, log_probs, count)
    sums = (scores[..., None] + log_probs.view(B, W, C)).flatten(1)
    wanted = torch.sort(sums, dim=1, descending=True, stable=True)
    assert torch.equal(found, wanted.values[:, :count])
    assert places.min() >= 0
    assert places.max() < W * C
    possible = found > -torch.inf
    assert torch.equal(places[possible], wanted.indices[:, :count][possible])


def test_numbers_of_either_sign_and_none_are_ordered():
    values = torch.tensor([[-0.0, 3.5, -torch.inf, 0.0, 1e-40, -1e-40, torch.inf, -2.0, -1e30, 3.5]])
    _, places = stable_topk(values, 10)
    assert places.tolist() == [[6, 1, 9, 4, 0, 3, 5, 7, 8, 2]]


@pytest.mark.parametrize("find", [best_sums, by_chunks])
def test_log_probabilities_are_left_as_they_are(find):
    log_probs = torch.randn(2, 100 * CHUNK + 5)
    kept = log_probs.clone()
    find(torch.zeros(2, 1), log_probs, 3)
    assert torch.equal(log_probs, kept)


def test_many_choices_are_looked_at_by_chunks(monkeypatch):
    seen = []
    monkeypatch.setattr("regard.decode.topk.on_host", lambda *arguments: seen.append(arguments) or on_host(*arguments))
    scores, log_probs = torch.zeros(1, 20), torch.randn(20, 10_000)
    _, places = best_sums(scores, log_probs, 3)
    assert len(seen) == 1
    assert places.tolist() == [log_probs.flatten().topk(3).indices.tolist()]
    best_sums(scores[:, :2], log_probs[:2, :100], 3)
    assert len(seen) == 1


def test_what_is_not_a_number_is_found_among_many_choices():
    log_probs = torch.randn(2, 10_000)
    log_probs[1, 77] = torch.nan
    found, _ = best_sums(torch.zeros(1, 2), log_probs, 3)
    assert found.isnan().any()
