"""What a training takes of GPUs: traced without values, and never less than what is known to be there."""

import json

import pytest
import torch

from regard import make_config
from regard.analysis.capacity import CONTEXT, GPUS, plan_capacity, show_plan
from regard.cli import main
from regard.errors import ConfigError
from regard.tasks.run import build_model

TINY = ["model.width=16", "model.heads=2", "model.feed_forward=32", "tokenizer.vocab_size=300"]
TINY += ["train.batch_tokens=500"]


def tiny(*settings, preset="tiny"):
    return make_config(None, preset, [*TINY, *settings])


def test_activations_are_what_a_backward_pass_keeps():
    """Traced with shapes alone, as with values: in float32, of one batch, in one process."""
    config = tiny("model.dropout=0").with_stand_ins()
    config, objective, (batch,) = config.kind.random_batches(config, 1)
    found, model = {}, build_model(config.with_stand_ins()).train()
    own = {one.untyped_storage().data_ptr() for one in (*model.parameters(), *model.buffers())}

    def keep(tensor):
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes(), tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = objective.loss(model, batch)
    kept = sum(size for place, (size, _) in found.items() if place not in own)
    plan = plan_capacity(config, "p100")
    assert (plan.precision, plan.copies[0].activations) == ("float32", pytest.approx(kept, rel=0.02))
    assert loss.total.isfinite()


def test_more_gpus_share_the_work_and_shards_the_state():
    config = tiny("train.ema=0.9", "train.accumulate=4")
    (one, took), (alone, _) = (plan := plan_capacity(config, "h100", 1)).copies, plan.shards
    assert took.communicate == 0.0
    assert one == alone, "one GPU has no shards"
    four = plan_capacity(config, "h100", 4)
    assert four.tokens == plan.tokens
    assert four.flops == pytest.approx(plan.flops / 4, rel=0.1)
    copies, shards = four.copies[0], four.shards[0]
    for name in ("weights", "gradients", "optimizer", "average"):
        assert getattr(copies, name) == getattr(one, name)
        assert getattr(shards, name) == pytest.approx(getattr(one, name) / 4)
    assert one.weights == one.gradients == one.average == one.optimizer / 2 == 4 * plan.parameters
    assert one.peak >= one.weights + one.gradients + one.optimizer + one.average + one.activations, "of several batches"
    single = plan_capacity(tiny("train.ema=0.9", "train.accumulate=1")).copies[0]
    assert single.peak < one.peak
    muon = plan_capacity(tiny("train.optimizer=muon", "train.schedule=trapezoid")).copies[0]
    assert muon.optimizer < one.optimizer
    assert plan_capacity(config, efficiency=0.6).copies[1].compute == pytest.approx(took.compute / 2)


@pytest.mark.parametrize("preset", ["gpt-tiny", "bert-tiny", "vit-digits", "bert-classify"])
def test_other_tasks_are_planned_too(preset):
    plan = plan_capacity(make_config(None, preset, ["train.batch_tokens=2000"]), "l4", 2)
    assert plan.copies[0].activations > 0
    assert plan.flops > 0
    assert f"{plan.parameters / 1e6:,.1f} M parameters" in show_plan(plan)


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(ConfigError, match="gpu=h10 is not among those whose rates are known; did you mean 'h100'"):
        plan_capacity(tiny(), "h10")
    with pytest.raises(ConfigError, match="has too few rows for 1000 GPUs"):
        plan_capacity(tiny("train.batch_tokens=130", "train.accumulate=1"), "h100", 1000)
    with pytest.raises(ConfigError, match="cannot be planned: what it computes depends on the values"):
        plan_capacity(make_config(None, "bahdanau-2015", ["train.batch_tokens=500"]))
    with pytest.raises(ConfigError, match="efficiency=0"):
        plan_capacity(tiny(), efficiency=0)
    assert all(gpu.source for gpu in GPUS.values())


def test_the_command_prints_a_table_or_json(capsys):
    settings = [f"--set={one}" for one in TINY]
    asked = ["plan", "--preset", "tiny", *settings, "--gpus", "2", "--gpu", "l4"]
    assert main([*asked, "--memory", "0.5", "--interconnect", "10"]) == 0
    shown = capsys.readouterr().out
    assert "2 x l4: 0 GB" in shown or "2 x l4: 1 GB" in shown
    assert "fits                                  no          no" in shown
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ddp"]["fits"]
    assert found["ddp"]["bytes"]["peak"] + CONTEXT < found["rates"]["memory"]
