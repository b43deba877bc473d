"""Tokens to vectors and vectors to predictions, written out."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from regard.nn.embeddings import Embedding, OutputProjection
from regard.nn.losses.cross_entropy import IGNORE
from regard.nn.positions import Positions

IDS = torch.tensor([[3, 5, 3], [1, 0, 5]])


@pytest.mark.parametrize("scale", [False, True])
def test_a_token_is_its_scaled_vector_plus_its_place_and_then_normed(scale):
    torch.manual_seed(0)
    positions, norm = Positions("sinusoidal", 4, 10), nn.LayerNorm(4)
    embedding = Embedding(7, 4, positions=positions, scale=scale, norm=norm)
    vectors = embedding.tokens.weight[IDS] * (2.0 if scale else 1.0)
    assert_close(embedding(IDS, past=2), norm(vectors + positions.table[2:5]))
    places = torch.tensor([[0, 1, 0], [4, 5, 6]])
    assert_close(embedding(IDS, places=places), norm(vectors + positions.table[places]))


def test_a_word_that_is_dropped_is_dropped_wherever_it_stands():
    torch.manual_seed(0)
    embedding = Embedding(200, 4, scale=False, token_dropout=0.5)
    ids = torch.arange(200).repeat(2, 1)
    kept = embedding(ids) / embedding.tokens.weight[ids]
    assert kept.equal(kept[:1, :, :1].expand_as(kept))
    assert_close(kept.unique(), torch.tensor([0.0, 2.0]))
    assert 60 < int((kept[0, :, 0] == 0).sum()) < 140
    assert_close(embedding.eval()(ids), embedding.tokens.weight[ids])


@pytest.mark.parametrize("scale", [False, True])
def test_a_loss_is_that_of_the_scores(scale):
    torch.manual_seed(0)
    head = OutputProjection(4, 7, bias=True, scale=scale)
    nn.init.normal_(head.weight)
    nn.init.normal_(head.bias)
    x, labels = torch.randn(4, 3, 4), torch.randint(7, (4, 3))
    labels[0, 1] = IGNORE
    logits = x * (0.5 if scale else 1.0) @ head.weight.T + head.bias
    assert_close(head(x), logits)
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1, reduction="sum")
    assert_close(head.loss(x, labels, 0.1)[0], expected)
    labels[2:] = labels[:2]
    total, plain, divergence = head.r_drop_loss(x, labels, 0.1, 0.0)
    assert_close((total, 2 * plain), head.loss(x, labels, 0.1))
    p, q = (half[labels[:2] != IGNORE].softmax(-1) for half in logits.chunk(2))
    assert_close(divergence, 0.5 * ((p - q) * (p.log() - q.log())).sum())


def test_a_tied_head_has_the_table_itself():
    table = nn.Parameter(torch.randn(7, 4))
    assert OutputProjection(4, 7, tied=table).weight is table
