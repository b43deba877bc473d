"""A run that starts from another: which weights it takes, and which begin at random."""

from dataclasses import asdict, replace

import pytest
import torch

from regard.errors import RunError
from regard.models.bert import Bert, BertConfig
from regard.runs.checkpoint import weights_of
from regard.runs.files import write_json, write_tensors
from regard.tasks.fine_tuning import load_base_weights

CONFIG = BertConfig(
    vocab_size=19, width=12, heads=2, layers=1, feed_forward=14, max_len=8, head="classes", labels=("x", "y")
)


def saved(folder, config, leave_out=()):
    torch.manual_seed(1)
    weights = {name: value for name, value in weights_of(Bert(config)).items() if name not in leave_out}
    write_tensors(folder / "model.safetensors", weights)
    write_json(folder / "config.json", {"model": {"name": "bert", **asdict(config)}})
    return weights


def started(folder, config):
    """The new model, what is said of it, and how it was before."""
    torch.manual_seed(2)
    model = Bert(config)
    before = {name: value.clone() for name, value in weights_of(model).items()}
    return weights_of(model), load_base_weights(model, asdict(config), folder), before


@pytest.mark.parametrize(
    ("changes", "fresh"),
    [
        ({}, set()),
        ({"labels": ("y", "x")}, {"classifier"}),  # as many classes, but others
        ({"labels": ("x", "y", "z")}, {"classifier"}),
        ({"head": "tags"}, {"classifier"}),  # the same names, of tags
        ({"head": "words", "labels": ()}, {"words"}),
    ],
)
def test_a_head_is_taken_over_only_where_it_says_the_same(changes, fresh, tmp_path):
    theirs = saved(tmp_path, CONFIG)
    found, said, before = started(tmp_path, replace(CONFIG, **changes))
    for name, value in found.items():
        expected = before[name] if name.split(".")[0] in fresh else theirs[name]
        assert torch.equal(value, expected), name
    assert ("at random" in said) == bool(fresh)
    assert all(part in said for part in fresh)


def test_all_but_a_head_must_be_there(tmp_path):
    saved(tmp_path, CONFIG, leave_out=("encoder.0.feed_forward.inner.weight",))
    with pytest.raises(RunError, match=r"encoder\.0\.feed_forward\.inner\.weight"):
        started(tmp_path, CONFIG)
