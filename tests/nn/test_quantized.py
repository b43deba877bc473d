"""Matrices of int8: how far they may be from float32, and what cannot be asked of them."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ConfigError, RunError
from regard.nn.embeddings import OutputProjection
from regard.nn.quantized import Int8Linear, choose_engine, parameter_count, quantize, saturates

every_engine = pytest.mark.parametrize("engine", ["fbgemm", "onednn"])


def bound(x, weight, *, nonnegative, reduced):
    """The most by which quantised products can differ: half a step of each weight, and a step of each input."""
    of_weight = weight.abs().amax(1, keepdim=True) / 127
    steps = 127 if reduced else 255
    of_input = x.abs().amax(1, keepdim=True) * (1 if nonnegative else 2) / steps
    return x.abs() @ (of_weight / 2).expand_as(weight).T + of_input * (weight.abs() + of_weight / 2).sum(1) + 1e-5


@every_engine
@pytest.mark.parametrize("reduced", [False, True])
@given(
    rows=st.integers(1, 20),
    inputs=st.integers(1, 70),
    outputs=st.integers(1, 40),
    nonnegative=st.booleans(),
    seed=st.integers(0, 99),
)
def test_outputs_are_within_the_bound(engine, reduced, rows, inputs, outputs, nonnegative, seed):
    if saturates(engine) and not reduced:
        return
    torch.manual_seed(seed)
    x = torch.randn(rows, inputs) * 10.0 ** torch.randint(-3, 4, (rows, 1))
    x = x.relu() if nonnegative else x
    weight, bias = torch.randn(outputs, inputs), torch.randn(outputs)
    layer = Int8Linear(weight, bias, nonnegative=nonnegative, reduced=reduced, engine=engine)
    exact = F.linear(x.double(), weight.double(), bias.double())
    allowed = bound(x.double(), weight.double(), nonnegative=nonnegative, reduced=reduced)
    assert ((layer(x) - exact).abs() <= allowed * (1 + 1e-5)).all()


@every_engine
def test_a_row_does_not_depend_on_its_neighbours(engine):
    torch.manual_seed(0)
    layer = Int8Linear(torch.randn(50, 40), torch.randn(50), engine=engine)
    x = torch.randn(7, 3, 40) * torch.tensor([1e-3, 1.0, 1e3])[:, None]
    together = layer(x)
    for row in range(7):
        assert torch.equal(layer(x[row]), together[row])
    for place in range(3):
        some = x[0].clone()
        some[place] = 0.0
        found = layer(some)
        assert torch.equal(found[place], layer.bias)
        assert torch.equal(found[[row for row in range(3) if row != place]], layer(some[some.any(-1)]))
        some[place, 5] = torch.nan
        assert layer(some)[place].isnan().all()


SATURATING = """
import torch
from regard.nn.quantized import Int8Linear, saturates
print(saturates("onednn"))
x, weight = torch.ones(4, 64), torch.ones(8, 64)
for reduced in (True, False):
    layer = Int8Linear(weight, reduced=reduced, engine="onednn")
    print(float((layer(x) / 64 - 1).abs().max()))
"""


def test_seven_bits_do_not_saturate_without_vnni():
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", SATURATING]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    chosen, reduced, whole = said.split()
    assert chosen == "True"
    assert float(reduced) < 0.02
    assert float(whole) > 0.02  # where this holds no more, 8 bits are safe there too


def test_seven_bits_are_chosen_without_vnni(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    saturates.cache_clear()
    assert Int8Linear(torch.ones(2, 2)).reduced
    saturates.cache_clear()


def test_what_cannot_be_done_is_refused_by_name():
    layer = Int8Linear(torch.ones(2, 3))
    with pytest.raises(RunError, match="no gradients"):
        layer(torch.ones(1, 3, requires_grad=True))
    with pytest.raises(RunError, match="not saved"):
        layer.state_dict()
    with pytest.raises(RunError, match="neither be read nor changed"):
        _ = layer.weight
    with pytest.raises(ConfigError, match="does not apply to a Linear"):
        quantize(torch.nn.Linear(2, 3))


def test_an_engine_is_chosen_and_torchs_own_choice_left_alone(monkeypatch):
    before = torch.backends.quantized.engine
    Int8Linear(torch.ones(2, 3), engine="fbgemm")
    assert torch.backends.quantized.engine == before
    assert choose_engine() == "fbgemm"
    monkeypatch.delattr(torch, "_make_per_channel_quantized_tensor")
    assert choose_engine() == "onednn"
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="use float32 or bfloat16"):
        choose_engine()


def test_a_tied_projection_leaves_its_table_as_it_is():
    table = torch.nn.Parameter(torch.randn(11, 4))
    head = OutputProjection(4, 11, tied=table)
    x, before = torch.randn(3, 4), table.clone()
    exact = head(x).detach()
    count = parameter_count(head)
    quantize(head)
    assert torch.equal(head.weight, before)
    assert not torch.equal(head(x), exact)
    torch.testing.assert_close(head(x), exact, atol=0.1, rtol=0)
    assert parameter_count(head) == count
