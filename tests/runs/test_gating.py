import pytest
import torch
from torch.testing import assert_close

import regard
from regard.analysis.pruning import every_head, gates_shut, learn_to_prune, save, scaled
from regard.errors import ConfigError
from regard.look import attentions, masked
from regard.tasks.config import make_config
from regard.tasks.translation import HeldOutPairs
from regard.trainer.trainer import train

SETTINGS = [
    "model.width=16",
    "model.heads=4",
    "model.encoder_layers=2",
    "model.decoder_layers=1",
    "model.feed_forward=16",
    "model.dropout=0.1",
    "tokenizer.kind=word",
    "train.batch_tokens=300",
    "train.steps=40",
    "train.schedule=constant",
    "train.learning_rate=3e-3",
    "train.validate_sentences=2",
    "train.validate_every=40",
    "train.save_every=40",
    "train.threads=1",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gating")
    pairs = [f"the cat {'sees ' * (n % 4)}a dog\tle chat {'voit ' * (n % 4)}un chien\n" for n in range(30)]
    (folder / "pairs.tsv").write_text("".join(pairs), encoding="utf-8")
    files = {"train": [str(folder / "pairs.tsv")], "valid": [str(folder / "pairs.tsv")]}
    return train(make_config(preset="tiny", overrides=SETTINGS, extra={"data": files}), folder / "whole")


@torch.inference_mode()
def test_a_gate_of_zero_masks_and_a_gate_of_one_changes_nothing(trained):
    heads = every_head(trained.model, "encoder.*")
    batch = HeldOutPairs(trained, limit=6).batches[0]
    shut = {"encoder.0.attention": [1, 2], "encoder.1.attention": [0]}
    gates = torch.tensor([0.0 if head in shut[name] else 1.0 for name, head in heads])
    plain = trained.model.logits(batch)
    with scaled(trained.model, heads, torch.ones(len(heads))):
        assert_close(trained.model.logits(batch), plain)
    with masked(trained.model, shut):
        expected = trained.model.logits(batch)
    with scaled(trained.model, heads, gates):
        assert_close(trained.model.logits(batch), expected)
    assert_close(trained.model.logits(batch), plain, atol=0, rtol=0)


def test_a_model_learns_to_do_without_heads(trained, tmp_path):
    before = {name: value.clone() for name, value in trained.model.state_dict().items()}
    pairing = HeldOutPairs(trained, limit=12)
    heard = []
    how = {"steps": 200, "among": "encoder.*", "learning_rate": 3e-3, "progress": lambda *told: heard.append(told)}
    smaller, chances = learn_to_prune(trained, 6, **how)
    assert heard[0] == (1, 200)
    assert heard[-1] == (200, 200)
    # The gates came near what was wanted, 2 of 8 open, and the six likeliest shut are gone.
    assert sum(chances.values()) == pytest.approx(2, abs=1.5)
    assert sum(smaller.config.model["encoder_heads"]) == 2
    kept = sorted(chances, key=chances.get)[6:]
    assert smaller.config.model["encoder_heads"] == [
        sum(name == f"encoder.{layer}.attention" for name, _ in kept) for layer in range(2)
    ]
    # It goes on learning: without the heads it is no worse than the model it came from.
    assert pairing.nll(smaller.model) < pairing.nll(trained.model) + 0.1
    for name, value in trained.model.state_dict().items():
        assert_close(value, before[name], atol=0, rtol=0)
    again, _ = learn_to_prune(trained, 6, **how)
    for name, value in again.model.state_dict().items():
        assert_close(value, smaller.model.state_dict()[name], atol=0, rtol=0)
    save(smaller, trained.directory, tmp_path / "smaller")
    loaded = regard.load(tmp_path / "smaller", "cpu")
    texts = [source for source, _ in pairing.pairs[:3]]
    assert loaded.translate(texts) == smaller.translate(texts)
    assert len(attentions(loaded.model)) == len(attentions(smaller.model))


def test_what_cannot_be_learnt_is_refused(trained):
    with pytest.raises(ConfigError, match=r"remove=9 must be between 0 and the 8 heads of 'encoder\.\*'"):
        learn_to_prune(trained, 9, steps=10, among="encoder.*")
    with pytest.raises(ConfigError, match="steps=1 must be at least 2"):
        learn_to_prune(trained, 1, steps=1)


def test_gates_shut_one_after_another_until_few_are_left(trained):
    before = {name: value.clone() for name, value in trained.model.state_dict().items()}
    heard = []
    shut = gates_shut(trained, steps=120, among="encoder.*", progress=lambda *told: heard.append(told))
    assert list(shut) == every_head(trained.model, "encoder.*")
    assert heard[-1] == (120, 120)
    # All may be open at first and none at the end: they go at different updates, and nearly all have gone.
    assert len(set(shut.values())) > 3
    assert sum(update == 120 for update in shut.values()) <= 2
    for name, value in trained.model.state_dict().items():
        assert_close(value, before[name], atol=0, rtol=0)
    with pytest.raises(ConfigError, match="steps=1 must be at least 2"):
        gates_shut(trained, steps=1)
