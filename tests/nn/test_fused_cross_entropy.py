"""The kernel of the loss. It runs where there is a GPU, or anywhere with triton and TRITON_INTERPRET=1."""

import os
from importlib.util import find_spec

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.nn.embeddings import OutputProjection
from regard.nn.losses.cross_entropy import _ALIGN, IGNORE, linear_cross_entropy, loss_and_gradient

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
runs = pytest.mark.skipif(
    not find_spec("triton") or (DEVICE == "cpu" and not os.environ.get("TRITON_INTERPRET")),
    reason="needs triton and a GPU",
)


@runs
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("V", [11, 5000, 17001])
def test_it_is_torchs_cross_entropy_and_its_gradient(V, smoothing):
    torch.manual_seed(0)
    logits = (3 * torch.randn(7, V, device=DEVICE)).requires_grad_()
    labels = torch.randint(V, (7,), device=DEVICE)
    labels[2] = IGNORE
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    expected.backward()
    from regard.nn.losses.fused_cross_entropy import fused_loss_and_gradient

    loss, plain, gradient = fused_loss_and_gradient(logits.detach().clone(), labels, smoothing)
    assert_close(loss, expected.detach())
    assert_close(plain, F.cross_entropy(logits.detach(), labels, reduction="sum"))
    assert_close(gradient, logits.grad, atol=1e-5, rtol=1e-4)


@runs
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_whole_loss_is_the_same_with_it(smoothing, dtype, monkeypatch):
    torch.manual_seed(0)
    x = torch.randn(3000, 32, device=DEVICE).to(dtype).requires_grad_()
    weight = torch.randn(1003, 32, device=DEVICE, requires_grad=True)
    labels = torch.randint(1003, (3000,), device=DEVICE)
    labels[::7] = IGNORE

    def found(kernel):
        total, plain = linear_cross_entropy(x, weight.to(dtype), None, labels, smoothing, kernel)
        return total, plain, *torch.autograd.grad(total, (x, weight))

    close = {"atol": 1e-3, "rtol": 1e-3} if dtype == torch.float32 else {"atol": 0.1, "rtol": 0.02}
    from regard.nn.losses.fused_cross_entropy import fused_loss_and_gradient

    wanted = found(loss_and_gradient)
    monkeypatch.setitem(_ALIGN, "cpu", 8)  # as on a GPU
    assert_close(found(fused_loss_and_gradient), wanted, **close)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own imports
def test_a_head_on_a_cpu_is_compiled_even_where_triton_is_installed(monkeypatch):
    monkeypatch.setattr("regard.nn.embeddings.find_spec", lambda _: "found")
    head = OutputProjection(4, 8)
    assert head.kernel is loss_and_gradient
    head.fuse()
    assert getattr(head.kernel, "__wrapped__", None) is loss_and_gradient


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_head_on_a_gpu_has_the_kernel():
    head = OutputProjection(4, 8).cuda()
    head.fuse()
    assert getattr(head.kernel, "__name__", "") == "fused_loss_and_gradient"
