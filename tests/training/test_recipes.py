"""Muon, the trapezoid, R-Drop as a task, and the loss compiled with its model."""

import pytest
import torch
from torch.testing import assert_close
from training_toys import tiny, work

from regard.errors import ConfigError
from regard.models.vit import ViT, ViTConfig
from regard.training.config import TrainConfig
from regard.training.loop import fit, train_step, validate
from regard.training.objectives import SequenceToSequence
from regard.training.optim import (
    Muon,
    hidden_matrices,
    layer_shares,
    make_optimizer,
    optimizer_tensors,
    orthogonalised,
    restore_optimizer,
)
from regard.training.schedule import learning_rate


@pytest.mark.parametrize("shape", [(4, 16, 16), (3, 8, 24), (2, 24, 8), (1, 5, 5)])
def test_orthogonalised_keeps_directions_and_levels_sizes(shape):
    torch.manual_seed(0)
    matrices = torch.randn(shape) * 7
    found = orthogonalised(matrices)
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.3
    assert values.max() < 1.35
    # In the basis of the matrix itself nothing stands off the diagonal.
    inside = u.mT @ found @ v.mT
    assert (inside - torch.diag_embed(torch.diagonal(inside, dim1=-2, dim2=-1))).abs().max() < 1e-3
    assert_close(orthogonalised(matrices * 1000), found, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(4, 16, 16), (3, 8, 24), (2, 24, 8), (6, 128, 128)])
def test_orthogonalised_in_bfloat16_is_near_that_in_float32(shape):
    torch.manual_seed(0)
    matrices = torch.randn(shape)
    found, exact = orthogonalised(matrices, "bfloat16"), orthogonalised(matrices)
    assert found.dtype == torch.float32
    assert_close(orthogonalised(matrices, "float32"), exact)
    assert 1e-4 < (found - exact).norm() / exact.norm() < 0.03


def test_muon_takes_the_matrices_inside_and_adamw_the_rest():
    model = tiny()
    optimizer = make_optimizer(model, TrainConfig(optimizer="muon", learning_rate=0.01, weight_decay=0.1))
    assert isinstance(optimizer, Muon)
    inner = {id(p) for p in optimizer.param_groups[0]["params"]}
    names = {name for name, p in model.named_parameters() if id(p) in inner}
    assert "encoder.0.attention.query.weight" in names
    assert "decoder.0.feed_forward.outer.weight" in names
    assert not any("tokens" in name or "bias" in name or "norm" in name for name in names)
    everything = [p for group in optimizer.param_groups for p in group["params"]]
    assert sorted(map(id, everything)) == sorted(map(id, model.parameters()))
    assert len(hidden_matrices(model)) == len(inner)


def test_muon_moves_as_its_formula_says():
    model = tiny()
    name = "encoder.1.feed_forward.inner.weight"
    optimizer = make_optimizer(model, TrainConfig(optimizer="muon", learning_rate=0.02, weight_decay=0.1, momentum=0.9))
    parameter, momentum = model.get_parameter(name), torch.zeros(12, 8)
    for _ in range(3):
        before = parameter.detach().clone()
        loss = SequenceToSequence().loss(model, work())
        (gradient,) = torch.autograd.grad(loss.total, parameter)
        train_step(model, SequenceToSequence(), [work()], optimizer)
        gradient = gradient / loss.count
        momentum = 0.9 * momentum + 0.1 * gradient
        move = orthogonalised((0.1 * gradient + 0.9 * momentum)[None])[0]
        expected = before * (1 - 0.02 * 0.1) - 0.02 * 0.2 * 12**0.5 * move
        assert_close(parameter.detach(), expected, rtol=1e-4, atol=1e-5)


def test_muon_learns_and_resumes_to_the_bit():
    def train(model, optimizer, start, count):
        return list(
            fit(
                model, SequenceToSequence(), [[work()]] * count, optimizer, lambda n: 0.02 / n**0.5, start=start, seed=1
            )
        )

    config = TrainConfig(optimizer="muon", learning_rate=0.02)
    whole = tiny(dropout=0.1)
    steps = train(whole, make_optimizer(whole, config), 0, 30)
    assert steps[-1].loss < 0.85 * steps[0].loss
    first = tiny(dropout=0.1)
    optimizer = make_optimizer(first, config)
    train(first, optimizer, 0, 12)
    tensors = {name: value.clone() for name, value in optimizer_tensors(first, optimizer).items()}
    assert "momentum/encoder.0.attention.key.weight" in tensors
    assert "exp_avg/source.tokens.weight" in tensors
    again = tiny(dropout=0.1, seed=5)
    again.load_state_dict(first.state_dict())
    optimizer = make_optimizer(again, config)
    restore_optimizer(again, optimizer, tensors)
    train(again, optimizer, 12, 18)
    for name, value in whole.named_parameters():
        assert torch.equal(value, again.get_parameter(name)), name


def test_the_trapezoid_rises_stays_and_comes_down():
    def rate(step):
        return learning_rate(step, kind="trapezoid", peak=2.0, warmup=100, total=1000, floor=0.1, decay=0.25)

    assert rate(50) == pytest.approx(1.0)
    assert rate(100) == rate(500) == rate(750) == pytest.approx(2.0)
    assert rate(875) == pytest.approx(2.0 * 0.55)
    assert rate(1000) == pytest.approx(0.2)


@pytest.mark.parametrize("packed", [False, True])
def test_r_drop_reads_twice_in_training_only(packed):
    batch = work(packed)
    model = tiny(dropout=0.3)
    task = SequenceToSequence(0.1, r_drop=2.0)
    torch.manual_seed(7)
    loss = task.loss(model, batch)
    assert loss.count == batch.count
    assert loss.parts["divergence"] > 0
    # Both passes in one: twice the cross-entropy, and the divergence on top.
    still = tiny().train()
    twice, once = task.loss(still, batch), SequenceToSequence(0.1).loss(still, batch)
    assert_close(twice.total, 2 * once.total)
    assert_close(twice.parts["nll"], once.parts["nll"])
    assert twice.parts["divergence"].abs() < 1e-3
    model.eval()
    assert_close(task.loss(model, batch).total, SequenceToSequence(0.1).loss(model, batch).total, rtol=0, atol=0)
    assert set(validate(model, task, [batch])) == {"loss", "nll"}


def test_r_drop_brings_the_two_passes_together():
    def divergence(alpha):
        model, batch = tiny(dropout=0.3), work()
        task = SequenceToSequence(0.1, r_drop=alpha)
        steps = list(fit(model, task, [[batch]] * 40, torch.optim.Adam(model.parameters(), 1e-2), lambda n: 1e-2))
        return sum(float(step.parts["divergence"]) for step in steps[-10:]) / 10

    assert divergence(5.0) < 0.6 * divergence(1e-6)


def test_lower_layers_have_a_smaller_share_of_the_rate():
    model = tiny()
    shares = layer_shares(model, 0.5)
    named = {name: shares[parameter] for name, parameter in model.named_parameters()}
    stack = len(model.encoder)
    assert named[f"encoder.{stack - 1}.attention.query.weight"] == 0.5
    assert named["encoder.0.feed_forward.inner.bias"] == 0.5**stack
    tokens = next(name for name in named if name.endswith("tokens.weight"))
    assert named[tokens] == 0.5 ** (stack + 1)
    assert set(layer_shares(model, 1.0).values()) == {1.0}
    pictures = ViT(ViTConfig(image_size=4, patch_size=2, width=4, heads=2, layers=3, feed_forward=4, labels=("a", "b")))
    for shown, head, table in ((pictures, "head", "embedding"), (tiny(share="none"), "head", "target")):
        shares = {name: layer_shares(shown, 0.5)[parameter] for name, parameter in shown.named_parameters()}
        assert {share for name, share in shares.items() if name.startswith(head)} == {1.0}
        assert {share for name, share in shares.items() if name.startswith(table)} == {min(shares.values())}
    with pytest.raises(ConfigError, match="layer_decay"):
        layer_shares(torch.nn.Linear(2, 2), 0.5)
    assert set(layer_shares(torch.nn.Linear(2, 2), 1.0).values()) == {1.0}


def test_each_layer_moves_by_its_share_of_the_rate():
    # Adam's first move is of the size of the rate wherever there is a gradient.
    model, moves = tiny(), {}
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = make_optimizer(model, TrainConfig(optimizer="adam", layer_decay=0.5, epsilon=1e-12))
    (step,) = fit(model, SequenceToSequence(), [[work()]], optimizer, lambda _: 1e-3)
    assert step.learning_rate == 1e-3  # what is told is the whole rate
    for name, share in ((name, layer_shares(model, 0.5)[one]) for name, one in model.named_parameters()):
        moves.setdefault(share, []).append(float((model.get_parameter(name).detach() - before[name]).abs().max()))
    assert len(moves) == len(model.encoder) + 1
    for share, found in moves.items():
        assert max(found) == pytest.approx(1e-3 * share, rel=0.01)


@pytest.mark.parametrize(
    "settings",
    [
        {"layer_decay": 0.0},
        {"layer_decay": 1.5},
        {"layer_decay": 0.5, "optimizer": "muon"},
        {"decay": 0.0},
        {"momentum": 1.0},
        {"r_drop": -1.0},
        {"dropout_until": -1},
        {"compile_loss": True},
        {"compile": True, "compile_blocks": True},
        {"cuda_graphs": True, "pack": "never"},
    ],
)
def test_impossible_settings_are_refused_by_name(settings):
    with pytest.raises(ConfigError, match=f"train.{next(iter(settings))}"):
        TrainConfig(**settings)
