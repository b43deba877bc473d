import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

import regard.nn.losses.cross_entropy as loss_module
from regard.nn.losses.cross_entropy import IGNORE, linear_cross_entropy


@given(
    N=st.integers(1, 200),
    V=st.integers(2, 40),
    smoothing=st.sampled_from([0.0, 0.1, 0.5]),
    biased=st.booleans(),
    ignored=st.booleans(),
)
def test_it_is_torch_cross_entropy_to_the_gradient(N, V, smoothing, biased, ignored):
    generator = torch.Generator().manual_seed(N * 50 + V)
    x = torch.randn(N, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(V, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(V, generator=generator, dtype=torch.float64, requires_grad=True) if biased else None
    labels = torch.randint(V, (N,), generator=generator)
    if ignored:
        labels[::3] = IGNORE
    inputs = [x, weight] if bias is None else [x, weight, bias]
    total, plain = linear_cross_entropy(x, weight, bias, labels, smoothing)
    logits = F.linear(x, weight, bias)
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    assert_close(total.double(), expected, rtol=1e-5, atol=1e-5)
    assert_close(plain.double(), F.cross_entropy(logits, labels, reduction="sum"), rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(
        torch.autograd.grad(total / 7, inputs), torch.autograd.grad(expected / 7, inputs), strict=True
    ):
        assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 64, 65, 1000])
def test_chunks_of_any_size_give_the_same(rows, monkeypatch):
    torch.manual_seed(0)
    x, weight, labels = torch.randn(300, 8), torch.randn(50, 8), torch.randint(50, (300,))
    whole, _ = linear_cross_entropy(x, weight, None, labels, 0.1)
    monkeypatch.setattr(loss_module, "_chunk_rows", lambda vocab_size, device: rows)
    assert_close(linear_cross_entropy(x, weight, None, labels, 0.1)[0], whole)


def test_all_padding_costs_nothing():
    total, plain = linear_cross_entropy(torch.randn(4, 3), torch.randn(5, 3), None, torch.full((4,), IGNORE))
    assert total == plain == 0


def test_in_lower_precision_the_gradient_of_the_weights_is_still_summed_in_full(monkeypatch):
    torch.manual_seed(0)
    x, labels = torch.randn(400, 16), torch.randint(30, (400,))
    weight = torch.randn(30, 16, requires_grad=True)
    exact = torch.autograd.grad(F.cross_entropy(F.linear(x, weight), labels, reduction="sum"), weight)[0]
    monkeypatch.setattr(loss_module, "_chunk_rows", lambda vocab_size, device: 100)
    with torch.autocast("cpu", torch.bfloat16):
        total, _ = linear_cross_entropy(x, weight, None, labels)
    (found,) = torch.autograd.grad(total, weight)
    assert found.dtype == torch.float32
    assert (found - exact).norm() < 0.01 * exact.norm()
    # Not merely numbers of the lower precision in a wider type.
    assert not torch.equal(found, found.bfloat16().float())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased", [False, True])
def test_columns_added_for_the_kernels_sake_change_nothing(smoothing, biased, monkeypatch):
    torch.manual_seed(0)
    x, weight = torch.randn(30, 6, requires_grad=True), torch.randn(13, 6, requires_grad=True)
    bias = torch.randn(13, requires_grad=True) if biased else None
    labels = torch.randint(13, (30,))
    inputs = [x, weight, bias] if biased else [x, weight]

    def found():
        total, plain = linear_cross_entropy(x, weight, bias, labels, smoothing)
        return total, plain, *torch.autograd.grad(total, inputs)

    expected = found()
    monkeypatch.setitem(loss_module._ALIGN, "cpu", 8)
    seen = []
    kernel = loss_module.loss_and_gradient
    monkeypatch.setattr(
        loss_module, "loss_and_gradient", lambda logits, *rest: (seen.append(logits.shape), kernel(logits, *rest))[1]
    )
    assert_close(found(), expected)
    assert seen == [(30, 13 if smoothing else 16)]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_where_nothing_is_learnt_only_the_logits_are_worked_out(mode):
    x, weight, bias = torch.randn(30, 6), torch.nn.Parameter(torch.randn(13, 6)), torch.nn.Parameter(torch.randn(13))
    labels = torch.randint(13, (30,))
    with mode(), FlopCounterMode(display=False) as counter:
        total, plain = linear_cross_entropy(x, weight, bias, labels, 0.1)
    assert counter.get_total_flops() == 2 * 30 * 6 * 13
    assert_close((total, plain), tuple(one.detach() for one in linear_cross_entropy(x, weight, bias, labels, 0.1)))
