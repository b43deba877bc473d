"""The memory-network is its equations, to rounding; its gradients are those of finite differences."""

import pytest
import torch
from torch.testing import assert_close

from regard.models.lstmn import LSTMNLayer

X, D = 4, 3


def layer(span=9):
    torch.manual_seed(0)
    found = LSTMNLayer(X, D, span).double()
    found.initialise()
    return found


def written_out(layer, x):
    """The paper's equations for one row."""
    score = layer.attention.score
    Wx, Wm = score.query.weight.split((X, D), dim=1)
    (Ui, Uf, Ug, Uo), (Wi, Wf, Wg, Wo) = layer.hidden.weight.split(D), layer.inputs.weight.split(D)
    bi, bf, bg, bo = layer.inputs.bias.split(D)
    hs, cs, m, all_weights = [], [], torch.zeros(D, dtype=torch.float64), []
    bias = 0.0 if score.query.bias is None else score.query.bias
    for x_t in x:
        first = max(0, len(hs) - layer.span)
        if hs:
            tape = score.keys(torch.stack(hs[first:])[None])[0]
            scores = [score.vector.weight[0] @ torch.tanh(key + Wx @ x_t + Wm @ m + bias) for key in tape]
            s = torch.stack(scores).softmax(0)
            m, n = s @ torch.stack(hs[first:]), s @ torch.stack(cs[first:])
            all_weights.append(s)
        else:
            m, n = torch.zeros(D, dtype=torch.float64), torch.zeros(D, dtype=torch.float64)
        i, f, o = (torch.sigmoid(U @ m + W @ x_t + b) for U, W, b in ((Ui, Wi, bi), (Uf, Wf, bf), (Uo, Wo, bo)))
        c = f * n + i * torch.tanh(Ug @ m + Wg @ x_t + bg)
        cs.append(c)
        hs.append(o * torch.tanh(c))
    return torch.stack(hs)


@pytest.mark.parametrize("span", [2, 9])
def test_a_layer_is_its_equations(span):
    one = layer(span)
    x = torch.randn(2, 6, X, dtype=torch.float64)
    found, _ = one(x, one.zeros(x))
    for row in range(2):
        assert_close(found[row], written_out(one, x[row]), atol=1e-10, rtol=1e-10)


def test_gradients_are_those_of_finite_differences():
    one = layer()
    weights = dict(one.named_parameters())
    x = torch.randn(2, 4, X, dtype=torch.float64, requires_grad=True)

    def run(x, *tensors):
        outputs, end = torch.func.functional_call(one, dict(zip(weights, tensors, strict=True)), (x, one.zeros(x)))
        return outputs, *end[:3]

    assert torch.autograd.gradcheck(run, (x, *weights.values()))


@pytest.mark.parametrize("span", [2, 9])
def test_a_shorter_row_ends_where_it_would_end_alone(span):
    one = layer(span)
    x, lengths = torch.randn(3, 5, X, dtype=torch.float64), torch.tensor([5, 2, 1])
    outputs, tape = one(x, one.zeros(x), lengths)
    more = torch.randn(3, X, dtype=torch.float64)
    after, _ = one.step(more, tape)
    for row, length in enumerate(lengths.tolist()):
        alone, own = one(x[row : row + 1, :length], one.zeros(x[:1]))
        assert_close(outputs[row, :length], alone[0])
        assert_close(after[row], one.step(more[row : row + 1], own)[0][0])
