import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import regard.nn.losses.cross_entropy as loss_module
from regard.nn.embeddings import OutputProjection
from regard.nn.losses.cross_entropy import IGNORE


def by_hand(logits, labels, smoothing, alpha):
    """The loss of two sets of logits (2, N, V) in plain torch, padding left out."""
    real = labels != IGNORE
    p, q = logits[:, real].log_softmax(-1)
    entropy = F.cross_entropy(
        logits.flatten(0, 1), labels.repeat(2), label_smoothing=smoothing, reduction="sum", ignore_index=IGNORE
    )
    divergence = 0.5 * (
        F.kl_div(q, p, log_target=True, reduction="sum") + F.kl_div(p, q, log_target=True, reduction="sum")
    )
    return entropy + alpha * divergence, divergence


@given(
    B=st.integers(1, 7),
    T=st.integers(1, 11),
    V=st.integers(2, 30),
    alpha=st.sampled_from([0.5, 5.0]),
    smoothing=st.sampled_from([0.0, 0.1]),
    biased=st.booleans(),
    padded=st.booleans(),
    chunk=st.sampled_from([1, 6, 7, 1000]),
)
def test_it_is_its_formula_to_the_gradient(B, T, V, alpha, smoothing, biased, padded, chunk):
    generator = torch.Generator().manual_seed(B * 1000 + T * 50 + V)
    head = OutputProjection(5, V, bias=biased).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    x = torch.randn(2 * B, T, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(V, (B, T), generator=generator)
    if padded:
        labels[0, ::2] = IGNORE
    inputs = [x, *head.parameters()]
    rows = loss_module._chunk_rows
    loss_module._chunk_rows = lambda vocab_size, device: chunk
    try:
        total, plain, divergence = head.r_drop_loss(x, labels.repeat(2, 1), smoothing, alpha)
    finally:
        loss_module._chunk_rows = rows
    logits = head(x).view(2, B * T, V)
    expected, expected_divergence = by_hand(logits, labels.flatten(), smoothing, alpha)
    assert_close(total.double(), expected, rtol=1e-5, atol=1e-5)
    assert_close(divergence.double(), expected_divergence, rtol=1e-5, atol=1e-5)
    nll = F.cross_entropy(logits.flatten(0, 1), labels.repeat(2, 1).flatten(), reduction="sum", ignore_index=IGNORE)
    assert_close(plain.double(), nll / 2, rtol=1e-5, atol=1e-5)
    ours, theirs = torch.autograd.grad(total / 7, inputs), torch.autograd.grad(expected / 7, inputs)
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine, other, rtol=1e-5, atol=1e-6)


def test_only_padding_costs_nothing():
    head = OutputProjection(3, 5)
    total, plain, divergence = head.r_drop_loss(torch.randn(4, 2, 3), torch.full((4, 2), IGNORE), 0.1, 1.0)
    assert total == plain == divergence == 0
