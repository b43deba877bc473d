import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.decode.best import CHUNK, best, top

repeatable = settings(deadline=None, derandomize=True, max_examples=60)


@repeatable
@given(
    B=st.integers(1, 3),
    W=st.integers(1, 4),
    C=st.sampled_from([1, 2, 7, CHUNK, 20 * CHUNK, 20 * CHUNK + 1, 37 * CHUNK - 1]),
    count=st.integers(1, 10),
    values=st.sampled_from([2, 40, 1_000_000]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    seed=st.integers(0, 1000),
)
def test_the_best_are_those_of_a_stable_sort_ties_and_all(B, W, C, count, values, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-3, 1, (B, W), generator=generator) * 0.5
    log_probs = (torch.randint(-values, 1, (B * W, C), generator=generator) / 4).to(dtype)
    log_probs[torch.rand(B * W, C, generator=generator) < 0.2] = -torch.inf
    found, places = best(scores, log_probs, count)
    sums = (scores[..., None] + log_probs.view(B, W, C)).flatten(1)
    wanted = torch.sort(sums, dim=1, descending=True, stable=True)
    assert torch.equal(places, wanted.indices[:, :count])
    assert torch.equal(found, wanted.values[:, :count])


def test_numbers_of_either_sign_and_none_are_ordered():
    values = torch.tensor([[-0.0, 3.5, -torch.inf, 0.0, 1e-40, -1e-40, torch.inf, -2.0, -1e30, 3.5]])
    _, places = top(values, 10)
    assert places.tolist() == [[6, 1, 9, 4, 0, 3, 5, 7, 8, 2]]


@pytest.mark.parametrize("width", [CHUNK + 5, 100 * CHUNK + 5])
def test_log_probabilities_are_left_as_they_are(width):
    log_probs = torch.randn(2, width)
    kept = log_probs.clone()
    best(torch.zeros(2, 1), log_probs, 3)
    assert torch.equal(log_probs, kept)
