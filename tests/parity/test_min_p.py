"""Min-p sampling beside transformers' warpers, alone and after temperature, top-k and top-p."""

import pytest
import torch

from regard.decode.sample import Sampler

transformers = pytest.importorskip("transformers")
from transformers.generation import logits_process as theirs  # noqa: E402

NUMBERS = 4000


def shares(log_probs, **settings):
    """How often each choice is made over evenly spaced numbers: its probability, to one in so many."""
    uniforms = ((torch.arange(NUMBERS, dtype=torch.double) + 0.5) / NUMBERS)[:, None]
    chosen = Sampler(uniforms, **settings)(log_probs.expand(NUMBERS, -1), torch.arange(NUMBERS), 0)
    return torch.bincount(chosen, minlength=log_probs.shape[-1]) / NUMBERS


@pytest.mark.parametrize("min_p", [0.0, 0.02, 0.2, 0.7, 1.0])
@pytest.mark.parametrize(
    "more", [{}, {"temperature": 0.6}, {"temperature": 2.0, "top_k": 9}, {"top_k": 7, "top_p": 0.8}]
)
def test_min_p_keeps_what_transformers_keeps(min_p, more):
    scores = torch.randn(3, 20, generator=torch.Generator().manual_seed(int(100 * min_p))) * 2
    warpers = [theirs.TemperatureLogitsWarper(more.get("temperature", 1.0))]
    warpers += [theirs.TopKLogitsWarper(more["top_k"])] if "top_k" in more else []
    warpers += [theirs.TopPLogitsWarper(more["top_p"])] if "top_p" in more else []
    wanted = scores
    for warper in (*warpers, theirs.MinPLogitsWarper(min_p)):
        wanted = warper(None, wanted)
    for row, probs in zip(scores.log_softmax(-1), wanted.softmax(-1), strict=True):
        found = shares(row[None], min_p=min_p, **more)
        torch.testing.assert_close(found, probs, atol=2 / NUMBERS, rtol=0)
        assert not found[probs == 0].any()
