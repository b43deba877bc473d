"""The mixture of writing and copying: its equations in double precision."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.nn.copy_mechanism import CopyProjection, known_only, mixture
from regard.nn.losses.cross_entropy import IGNORE

V, D = 7, 5


def head():
    torch.manual_seed(0)
    made = CopyProjection(D, V, bias=True).double()
    torch.nn.init.normal_(made.weight)
    return made


def predictions(B, T, S, extra, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draw = {"generator": generator, "dtype": torch.float64}
    vectors, gate = torch.randn(B, T, D, **draw), torch.randn(B, T, 1, **draw)
    weights = torch.randn(B, T, S, **draw).softmax(-1)
    ids = torch.randint(0, V + extra, (B, S), generator=generator)
    return vectors, gate, weights, ids


size = st.integers(1, 4)


@given(B=size, T=size, S=size, extra=st.integers(0, 3), seed=st.integers(0, 99))
def test_the_mixture_is_a_distribution_and_a_word_outside_the_vocabulary_has_its_attention(B, T, S, extra, seed):
    vectors, gate, weights, ids = predictions(B, T, S, extra, seed)
    made = head()
    found = made(made.packed(vectors, gate, weights, ids)).exp()
    assert_close(found.sum(-1), torch.ones(B, T, dtype=torch.float64))
    p_gen = gate.sigmoid()[..., 0]
    written = torch.nn.functional.linear(vectors, made.weight, made.bias).softmax(-1)
    for b in range(B):
        for t in range(T):
            for word in range(found.shape[-1]):
                copied = weights[b, t, ids[b] == word].sum()
                expected = (1 - p_gen[b, t]) * copied + (p_gen[b, t] * written[b, t, word] if word < V else 0)
                assert_close(found[b, t, word], expected)


def test_the_loss_is_that_of_the_mixture_and_its_gradient_that_of_finite_differences():
    vectors, gate, weights, ids = predictions(2, 3, 4, 2)
    ids[0, 0], ids[1, 1] = V, V + 1
    labels = torch.tensor([[V, 2, IGNORE], [V + 1, 0, 3]])
    made = head()
    found = made(made.packed(vectors, gate, weights, ids))
    total, plain = made.loss(made.packed(vectors, gate, weights, ids), labels)
    expected = -sum(found[b, t, labels[b, t]] for b in range(2) for t in range(3) if labels[b, t] != IGNORE)
    assert_close(total, expected)
    assert_close(plain, expected)

    def loss(vectors, gate, scores):
        return made.loss(made.packed(vectors, gate, scores.softmax(-1), ids), labels)[0]

    inputs = tuple(one.detach().requires_grad_() for one in (vectors, gate, weights.log()))
    assert torch.autograd.gradcheck(loss, inputs)
    smoothed, same = made.loss(made.packed(vectors, gate, weights, ids), labels, 0.1)
    assert_close(same, plain)
    assert smoothed != total


def test_what_cannot_be_copied_or_written_costs_much_but_never_more_than_can_be_learnt_from():
    made = head()
    vectors, gate, weights, _ = predictions(1, 1, 2, 0)
    x = made.packed(vectors.float(), gate.float(), weights.float(), torch.tensor([[1, 2]])).requires_grad_()
    total, _ = made.float().loss(x, torch.tensor([[V + 3]]))
    total.backward()
    assert torch.isfinite(total)
    assert torch.isfinite(x.grad).all()


def test_words_outside_the_vocabulary_are_read_as_unknown():
    assert known_only(torch.tensor([0, V - 1, V, V + 5]), V, 3).tolist() == [0, V - 1, 3, 3]


def test_without_copying_a_mixture_is_the_vocabularys_own():
    logits = torch.randn(2, V)
    found = mixture(logits, torch.full((2,), 1e9), torch.ones(2, 1), torch.zeros(2, 1, dtype=torch.long))
    assert_close(found, logits.softmax(-1))
