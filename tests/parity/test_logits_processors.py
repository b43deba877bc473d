"""Beside transformers' logits processors: min-p alone and after others, forbidden phrases, n-gram blocking."""

import pytest
import torch

from regard.decode.constraints import Prefix, no_repeats, without_phrases
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


def test_phrases_and_repeated_runs_are_ruled_out_as_by_transformers():
    generator = torch.Generator().manual_seed(1)
    tokens, scores = torch.randint(0, 4, (300, 6), generator=generator), torch.zeros(300, 5)
    prefix, phrases = Prefix(6, tokens, torch.arange(300)), [[3], [1, 2], [0, 1, 0], [2, 2, 2, 2, 2, 2, 2]]
    bad = theirs.NoBadWordsLogitsProcessor(phrases, eos_token_id=4)
    assert torch.equal(without_phrases(phrases)(scores.clone(), prefix), bad(tokens, scores.clone()))
    for size in (2, 3):
        repeated = theirs.NoRepeatNGramLogitsProcessor(size)
        assert torch.equal(no_repeats(size)(scores.clone(), prefix), repeated(tokens, scores.clone()))
