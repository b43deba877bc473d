import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from regard.errors import ConfigError
from regard.nn.recurrent.cells import CELLS, LSTMCell
from regard.nn.recurrent.kernels import KERNELS
from regard.nn.recurrent.layers import Recurrent, RecurrentLayer

X, D = 5, 3


def sigm(x):
    return 1 / (1 + torch.exp(-x))


def split(linear, width=D):
    return linear.weight.split(width), None if linear.bias is None else linear.bias.split(width)


def rnn(cell, x, h):
    return (torch.tanh(cell.inputs.weight @ x + cell.hidden.weight @ h + cell.inputs.bias),)


def lstm(cell, x, h, c):
    (Wi, Wf, Wg, Wo), (bi, bf, bg, bo) = split(cell.inputs)
    (Ui, Uf, Ug, Uo), _ = split(cell.hidden)
    i, f, o = (sigm(W @ x + U @ h + b) for W, U, b in ((Wi, Ui, bi), (Wf, Uf, bf), (Wo, Uo, bo)))
    c = f * c + i * torch.tanh(Wg @ x + Ug @ h + bg)
    return o * torch.tanh(c), c


def gru_before(cell, x, h):
    (Wr, Wz, Wh), (br, bz, bh) = split(cell.inputs)
    (Ur, Uz), _ = split(cell.gates)
    r, z = sigm(Wr @ x + Ur @ h + br), sigm(Wz @ x + Uz @ h + bz)
    return (z * h + (1 - z) * torch.tanh(Wh @ x + cell.hidden.weight @ (r * h) + bh),)


def gru_after(cell, x, h):
    (Wr, Wz, Wh), (br, bz, bh) = split(cell.inputs)
    (Ur, Uz, Uh), (dr, dz, dh) = split(cell.hidden)
    r, z = sigm(Wr @ x + Ur @ h + br + dr), sigm(Wz @ x + Uz @ h + bz + dz)
    return (z * h + (1 - z) * torch.tanh(Wh @ x + bh + r * (Uh @ h + dh)),)


def widened(cell, x):
    return x if isinstance(cell.widen, nn.Identity) else cell.widen.weight @ x


def mut1(cell, x, h):
    (Wz, Wr), (bz, br) = split(cell.inputs)
    z, r = sigm(Wz @ x + bz), sigm(Wr @ x + cell.reset.weight @ h + br)
    new = torch.tanh(cell.hidden.weight @ (r * h) + torch.tanh(widened(cell, x)) + cell.hidden.bias)
    return (new * z + h * (1 - z),)


def mut2(cell, x, h):
    (Wz, Wh), (bz, bh) = split(cell.inputs)
    z = sigm(Wz @ x + cell.gates.weight @ h + bz)
    r = sigm(widened(cell, x) + cell.reset.weight @ h + cell.reset.bias)
    return (torch.tanh(cell.hidden.weight @ (r * h) + Wh @ x + bh) * z + h * (1 - z),)


def mut3(cell, x, h):
    (Wz, Wr, Wh), (bz, br, bh) = split(cell.inputs)
    z = sigm(Wz @ x + cell.gates.weight @ torch.tanh(h) + bz)
    r = sigm(Wr @ x + cell.reset.weight @ h + br)
    return (torch.tanh(cell.hidden.weight @ (r * h) + Wh @ x + bh) * z + h * (1 - z),)


EQUATIONS = {
    "rnn": rnn,
    "lstm": lstm,
    "gru-before": gru_before,
    "gru-after": gru_after,
    "mut1": mut1,
    "mut2": mut2,
    "mut3": mut3,
}
TORCHS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru-after": nn.GRU}


def test_every_cell_has_its_equations_here():
    assert EQUATIONS.keys() == CELLS.keys()


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("width_in", [X, D])
def test_each_cell_is_its_equations(kind, width_in):
    torch.manual_seed(0)
    cell = CELLS[kind](width_in, D).double()
    x = torch.randn(2, width_in, dtype=torch.float64)
    state = tuple(torch.randn(2, D, dtype=torch.float64) for _ in range(cell.parts))
    found = cell.advance(cell.project(x), state)
    for row in range(2):
        wanted = EQUATIONS[kind](cell, x[row], *(part[row] for part in state))
        for one, other in zip(found, wanted, strict=True):
            assert_close(one[row], other, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("kind", CELLS)
def test_gradients_are_those_of_finite_differences(kind):
    torch.manual_seed(0)
    layer = RecurrentLayer(kind, X, D, fused=False).double()
    weights = dict(layer.named_parameters())
    x = torch.randn(2, 3, X, dtype=torch.float64, requires_grad=True)

    def run(x, *tensors):
        outputs, state = torch.func.functional_call(
            layer, dict(zip(weights, tensors, strict=True)), (x, torch.tensor([3, 2]))
        )
        return outputs, *state

    assert torch.autograd.gradcheck(run, (x, *weights.values()))


@pytest.mark.parametrize("lengths", [None, [1, 3]])
@pytest.mark.parametrize("kind", sorted(KERNELS))
def test_gradients_of_kernels_are_those_of_finite_differences(kind, lengths):
    torch.manual_seed(0)
    layer = RecurrentLayer(kind, 3, 2).double()
    weights = dict(layer.named_parameters())
    x = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    starts = [torch.randn(2, 2, dtype=torch.float64, requires_grad=True) for _ in range(layer.parts)]
    lengths = None if lengths is None else torch.tensor(lengths)

    def run(x, *rest):
        given = (x, lengths, tuple(rest[: layer.parts]))
        named = dict(zip(weights, rest[layer.parts :], strict=True))
        outputs, state = torch.func.functional_call(layer, named, given)
        return outputs, *state

    assert torch.autograd.gradcheck(run, (x, *starts, *weights.values()))


@pytest.mark.parametrize("direction", ["forward", "both"])
@pytest.mark.parametrize("kind", sorted(KERNELS))
def test_kernels_and_their_gradients_are_the_plain_loops_in_double_precision(kind, direction):
    torch.manual_seed(0)
    layers = [RecurrentLayer(kind, X, 4, direction=direction, fused=fused).double() for fused in (True, False)]
    layers[1].load_state_dict(layers[0].state_dict())
    x = torch.randn(3, 4, X, dtype=torch.float64, requires_grad=True)
    starts = tuple(torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(layers[0].parts))
    for lengths in (None, torch.tensor([2, 4, 1])):
        results = []
        for layer in layers:
            outputs, state = layer(x, lengths, starts)
            loss = (outputs**2).sum() + sum((part**3).sum() for part in state)
            results.append((outputs, *state, *torch.autograd.grad(loss, [x, *starts, *layer.parameters()])))
        assert_close(*results, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("kind", sorted(KERNELS))
def test_weights_that_are_dropped_are_dropped_alike_in_kernel_and_loop(kind):
    torch.manual_seed(0)
    layers = [RecurrentLayer(kind, X, D, weight_drop=0.5, fused=fused) for fused in (True, False)]
    layers[1].load_state_dict(layers[0].state_dict())
    x, results = torch.randn(2, 4, X), []
    for layer in layers:
        torch.manual_seed(1)
        outputs, _ = layer(x)
        results.append((outputs, *torch.autograd.grad(outputs.square().sum(), list(layer.parameters()))))
        assert not torch.allclose(outputs, layer.eval()(x)[0])
    assert_close(*results, atol=1e-5, rtol=1e-5)


def as_torchs(layer, kind, direction):
    """torch's own layer with the same weights."""
    ways = len(layer.cells)
    theirs = TORCHS[kind](X, D, batch_first=True, bidirectional=direction == "both")
    for cell, end in zip(layer.cells, ["_l0", "_l0_reverse"][:ways], strict=True):
        getattr(theirs, f"weight_ih{end}").data.copy_(cell.inputs.weight)
        getattr(theirs, f"weight_hh{end}").data.copy_(cell.hidden.weight)
        getattr(theirs, f"bias_ih{end}").data.copy_(cell.inputs.bias)
        second = torch.zeros_like(cell.inputs.bias) if cell.hidden.bias is None else cell.hidden.bias
        getattr(theirs, f"bias_hh{end}").data.copy_(second)
    return theirs


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("direction", ["forward", "both"])
@pytest.mark.parametrize("kind", TORCHS)
def test_where_torch_has_the_same_equations_it_gives_the_same_numbers(kind, direction, fused):
    torch.manual_seed(0)
    ways = 2 if direction == "both" else 1
    layer = RecurrentLayer(kind, X, ways * D, direction=direction, fused=fused)
    theirs = as_torchs(layer, kind, direction)
    x, lengths = torch.randn(3, 6, X), torch.tensor([4, 6, 1])
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    wanted, ends = theirs(packed)
    wanted, _ = nn.utils.rnn.pad_packed_sequence(wanted, batch_first=True)
    found, state = layer(x, lengths)
    assert_close(found, wanted, atol=1e-6, rtol=1e-6)
    for one, other in zip(state, ends if kind == "lstm" else [ends], strict=True):
        assert_close(one, torch.cat(tuple(other), dim=-1), atol=1e-6, rtol=1e-6)


def test_the_two_forms_of_a_gru_differ():
    torch.manual_seed(0)
    after, before = CELLS["gru-after"](X, D), CELLS["gru-before"](X, D)
    before.inputs.load_state_dict(after.inputs.state_dict())
    after.hidden.bias.data.zero_()
    before.gates.weight.data, before.hidden.weight.data = after.hidden.weight.data.split((2 * D, D))
    x, h = torch.randn(2, X), torch.randn(2, D)
    assert not torch.allclose(after.advance(after.project(x), (h,))[0], before.advance(before.project(x), (h,))[0])


sizes = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
@pytest.mark.parametrize("kind", CELLS)
@settings(max_examples=4)
@given(sizes=sizes)
def test_fused_and_plain_agree_outputs_states_and_gradients(kind, direction, sizes):
    torch.manual_seed(0)
    fused = Recurrent(kind, X, 4, 2, direction=direction)
    plain = Recurrent(kind, X, 4, 2, direction=direction, fused=False)
    plain.load_state_dict(fused.state_dict())
    x = torch.randn(len(sizes), max(sizes), X)
    results = []
    for lengths in (torch.tensor(sizes), None):
        for stack in (fused, plain):
            outputs, states = stack(x, lengths)
            loss = (outputs**2).sum() + sum((part**3).sum() for state in states for part in state)
            results.append((outputs, *states[0], *states[1], *torch.autograd.grad(loss, list(stack.parameters()))))
        for one, other in zip(*results[-2:], strict=True):
            assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
@pytest.mark.parametrize("kind", CELLS)
@settings(max_examples=4)
@given(sizes=sizes)
def test_a_padded_row_is_as_if_it_were_alone(kind, direction, sizes):
    torch.manual_seed(0)
    stack = Recurrent(kind, X, 4, 2, direction=direction)
    x = torch.randn(len(sizes), max(sizes), X)
    outputs, states = stack(x, torch.tensor(sizes))
    for row, length in enumerate(sizes):
        alone, ends = stack(x[row : row + 1, :length])
        assert_close(outputs[row, :length], alone[0])
        assert not outputs[row, length:].any()
        for state, end in zip(states, ends, strict=True):
            for one, other in zip(state, end, strict=True):
                assert_close(one[row], other[0])


@pytest.mark.parametrize("kind", CELLS)
def test_steps_are_what_the_whole_sequence_gives(kind):
    torch.manual_seed(0)
    stack = Recurrent(kind, X, 4, 2)
    x = torch.randn(3, 5, X)
    outputs, ends = stack(x)
    states = tuple(layer.zeros(x) for layer in stack.layers)
    for t in range(5):
        out, states = stack.step(x[:, t], states)
        assert_close(out, outputs[:, t])
    assert_close(states, ends)


def test_backward_reads_what_forward_would_read_of_the_reversed_row():
    torch.manual_seed(0)
    forward, backward = RecurrentLayer("lstm", X, D), RecurrentLayer("lstm", X, D, direction="backward")
    backward.load_state_dict(forward.state_dict())
    x = torch.randn(1, 4, X)
    one, end = forward(x.flip(1))
    other, other_end = backward(x)
    assert_close(one.flip(1), other)
    assert_close(end, other_end)


def gates(f, i):
    """An LSTM whose forget and input gates are held open or shut whatever it reads."""
    torch.manual_seed(0)
    cell = LSTMCell(X, D).double()
    for matrix in (cell.inputs.weight, cell.hidden.weight):
        matrix.data[: 2 * D] = 0.0
    cell.inputs.bias.data[:D], cell.inputs.bias.data[D : 2 * D] = i, f
    return cell


def test_an_lstm_that_forgets_nothing_and_writes_nothing_keeps_its_cell_for_ever():
    cell = gates(f=60.0, i=-60.0)
    h, start = torch.randn(2, D, dtype=torch.float64), torch.randn(2, D, dtype=torch.float64)
    c = start
    for _ in range(1000):
        h, c = cell.advance(cell.project(torch.randn(2, X, dtype=torch.float64)), (h, c))
    assert_close(c, start, atol=1e-15, rtol=1e-15)


def test_the_direct_path_from_a_cell_to_the_one_before_is_the_forget_gate():
    torch.manual_seed(0)
    cell = LSTMCell(X, D).double()
    x, h, c = (torch.randn(1, width, dtype=torch.float64) for width in (X, D, D))
    # With h held, a cell depends on the one before by that path alone.
    jacobian = torch.autograd.functional.jacobian(lambda c: cell.advance(cell.project(x), (h, c))[1], c)
    f = (cell.project(x) + cell.hidden(h)).chunk(4, dim=-1)[1].sigmoid()
    assert_close(jacobian.view(D, D), torch.diag(f[0]), atol=1e-12, rtol=1e-12)


def test_an_lstm_begins_by_keeping_and_no_state_matrix_fades():
    layer = RecurrentLayer("lstm", X, D)
    assert_close(layer.cells[0].inputs.bias[D : 2 * D], torch.ones(D))
    for matrix in layer.cells[0].hidden.weight.split(D):
        assert_close(matrix @ matrix.T, torch.eye(D), atol=1e-5, rtol=1e-5)


def test_a_layer_that_reads_both_ways_needs_an_even_width():
    with pytest.raises(ConfigError, match="width=3 must be even"):
        RecurrentLayer("lstm", X, 3, direction="both")


@pytest.mark.parametrize("kind", sorted(CELLS))
def test_a_state_of_low_precision_is_taken_up_in_full(kind):
    torch.manual_seed(0)
    layer = RecurrentLayer(kind, X, D)
    x, state = torch.randn(2, 4, X), tuple(torch.randn(2, D) for _ in range(layer.parts))
    low = tuple(part.bfloat16() for part in state)
    with torch.autocast("cpu", torch.bfloat16):
        found, ends = layer(x.bfloat16(), None, low)
    expected, expected_ends = layer(x.bfloat16().float(), None, tuple(part.float() for part in low))
    assert_close(found, expected)
    assert_close(ends, expected_ends)
