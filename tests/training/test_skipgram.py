"""Skip-gram: one update is the gradient of its loss; words that keep the same company come near each other."""

import random

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid
from torch.testing import assert_close

from regard.errors import ConfigError, DataError
from regard.text.word_vectors import WordVectors
from regard.training import skipgram
from regard.training.skipgram import SkipGramConfig, train_skip_gram


class Recorder:
    def __init__(self, weight):
        self.weight, self.gradient = weight.detach(), torch.zeros_like(weight)

    def descend(self, rows, gradients, rate):
        self.gradient.index_add_(0, rows.flatten(), gradients.reshape(-1, gradients.shape[-1]))


def test_an_update_descends_the_loss_of_its_pairs_and_of_the_negative_samples():
    torch.manual_seed(0)
    v, u = (torch.randn(9, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    ids = np.array([3, 1, 4, 1, 5, 2, 6, 5, 3, 5])
    text, centre, near = next(skipgram._blocks(ids, 2, skipgram._Uniforms(1, 0)))
    negative_ids = torch.tensor([7, 8, 1])
    loss = 0.0
    for block in range(len(centre)):
        for i, word in enumerate(centre[block].tolist()):
            for j, other in enumerate(text[block].tolist()):
                if near[block, i, j]:
                    loss = loss - logsigmoid(v[word] @ u[other])
                    loss = loss - 5 / 3 * sum(logsigmoid(-v[word] @ u[k]) for k in negative_ids.tolist())
    loss.backward()
    words, contexts = Recorder(v), Recorder(u)
    skipgram._update(words, contexts, text, centre, near.double(), negative_ids, 5, 0.1)
    assert_close(words.gradient, v.grad)
    assert_close(contexts.gradient, u.grad)


def test_every_word_meets_those_within_its_window_and_no_others():
    ids = np.arange(150)
    seen = {}
    for text, centre, near in skipgram._blocks(ids, 3, skipgram._Uniforms(1, 0)):
        for block, i, j in near.nonzero().tolist():
            seen.setdefault(int(centre[block, i]), []).append(int(text[block, j]))
    assert seen.keys() == set(range(150))
    reaches = set()
    for word, others in seen.items():
        reach = max(abs(word - other) for other in others)
        reaches.add(reach)
        assert sorted(others) == [o for o in range(word - reach, word + reach + 1) if 0 <= o < 150 and o != word]
    assert reaches == {1, 2, 3}


def corpus():
    """Two kinds of words: those that stand between a and b, and those that stand between c and d."""
    uniforms, ids = random.Random(0), []
    for _ in range(1500):
        kind = uniforms.random() < 0.5
        ids += [0, uniforms.choice([4, 5, 6]), 1] if kind else [2, uniforms.choice([7, 8, 9]), 3]
    return np.array(ids)


@pytest.mark.parametrize("method", ["skip-gram", "cbow"])
def test_words_that_keep_the_same_company_come_near_each_other_the_same_every_time(method):
    config = SkipGramConfig(width=12, window=1, epochs=6, subsample=0.0, method=method)
    matrix = train_skip_gram(corpus(), 10, config)
    vectors = WordVectors(tuple("abcdxyzpqr"), matrix)
    assert {word for word, _ in vectors.near("x", 2)} == {"y", "z"}
    assert {word for word, _ in vectors.near("q", 2)} == {"p", "r"}
    assert np.array_equal(train_skip_gram(corpus(), 10, config), matrix)
    assert not np.array_equal(train_skip_gram(corpus(), 10, SkipGramConfig(width=12, seed=2)), matrix)


def test_an_update_by_cbow_follows_the_gradient_of_its_loss():
    torch.manual_seed(0)
    config = SkipGramConfig(width=4, window=2, method="cbow")
    words, contexts = Recorder(torch.randn(9, 4)), Recorder(torch.randn(9, 4))
    text, centre, near = next(skipgram._blocks(np.arange(40) % 9, 2, skipgram._Uniforms(1, 0)))
    others, K = torch.tensor([1, 5, 7]), 3
    w, c = words.weight.clone().requires_grad_(), contexts.weight.clone().requires_grad_()
    count = near.sum(-1, keepdim=True)
    mean = (near @ w[text]) / count.clamp_min(1)
    there = (count[..., 0] > 0).float()
    loss = -((mean * c[centre]).sum(-1).sigmoid().log() * there).sum()
    loss -= ((-(mean @ c[others].T)).sigmoid().log() * there[..., None]).sum() * config.negatives / K
    gradients = torch.autograd.grad(loss, (w, c))
    skipgram._update_by_mean(words, contexts, text, centre, near, others, config.negatives, 0.1)
    assert_close(words.gradient, gradients[0], atol=1e-4, rtol=1e-4)
    assert_close(contexts.gradient, gradients[1], atol=1e-4, rtol=1e-4)


def test_frequent_words_are_left_out_more_often():
    ids = np.array([0] * 9000 + [1] * 1000)
    kept, share = skipgram._subsampled(ids, np.bincount(ids), 0.1, skipgram._Uniforms(1, 0))
    left = np.bincount(kept)
    assert left[1] == pytest.approx(1000, abs=1)  # as rare as the threshold: all of them
    assert left[0] == pytest.approx(9000 * ((0.1 / 0.9) ** 0.5 + 0.1 / 0.9), rel=0.1)
    assert share == len(kept) / len(ids)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="width=0 must be at least 1"):
        SkipGramConfig(width=0)
    with pytest.raises(ConfigError, match="method='glove' must be one of skip-gram, cbow"):
        SkipGramConfig(method="glove")
    with pytest.raises(ConfigError, match="window=64 must be below 64"):
        SkipGramConfig(window=64)
    with pytest.raises(DataError, match="less than two words"):
        train_skip_gram(np.array([1]), 3, SkipGramConfig())
