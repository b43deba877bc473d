from dataclasses import replace

import pytest
import torch
from model_zoo import TRANSFORMER, TRANSFORMERS, batch, make, rows
from torch.testing import assert_close

from regard.data.pair_store import PairStore
from regard.data.sequence_packing import PackedLayout
from regard.errors import ConfigError
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.batch import Pairs, Tokens
from regard.tasks.config import make_config
from regard.training.objectives import SequenceToSequence


def test_without_positions_permuting_the_source_changes_no_prediction():
    torch.manual_seed(0)
    model = Transformer(replace(TRANSFORMER, positions="none")).eval()
    source = [4, 5, 6, 7, 8]
    one, other = (model.logits(batch([ids], [[1, 9, 10, 2]])) for ids in (source, [8, 6, 4, 7, 5]))
    assert_close(one, other, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(
        make("transformer, norm first").logits(batch([source], [[1, 9, 2]])),
        make("transformer, norm first").logits(batch([source[::-1]], [[1, 9, 2]])),
    )


def test_memory_of_a_source_is_kept_once_however_many_rows_read_it():
    state = make("transformer, norm first").start(Pairs(Tokens.of([[4, 5, 6], [7, 8]])))
    wide = state.select(torch.tensor([0, 0, 0, 1, 1, 1]))
    assert wide.memories[0].keys is state.memories[0].keys
    assert wide.select(torch.tensor([3, 3, 4]), torch.tensor([1])).memories[0].keys.shape[0] == 1


def parameters(preset, vocab_size=37000):
    mapping = {key: value for key, value in make_config(None, preset).model.items() if key != "name"}
    config = TransformerConfig(source_vocab_size=vocab_size, target_vocab_size=vocab_size, **mapping)
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config).parameters())


@pytest.mark.parametrize(
    ("preset", "D", "F", "layers", "count"),
    [
        ("transformer-base", 512, 2048, (6, 6), 63_082_496),
        ("transformer-big", 1024, 4096, (6, 6), 214_245_376),
        ("transformer-deep-shallow", 512, 2048, (12, 1), 60_978_688),
    ],
)
def test_the_papers_models_have_their_exact_parameter_counts(preset, D, F, layers, count):
    attention, feed_forward, norm = 4 * (D * D + D), 2 * D * F + F + D, 2 * D
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    last = 2 * norm if make_config(None, preset).model["norm_first"] else 0
    assert 37000 * D + layers[0] * encoder + layers[1] * decoder + last == count
    assert parameters(preset) == count


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 5}, "width=12 must be a multiple of heads=5"),
        ({"kv_heads": 3, "heads": 4}, "heads=4 must be a multiple of kv_heads=3"),
        ({"share": "all"}, "share='all' needs one vocabulary"),
        ({"encoder_layers": 0}, "encoder_layers=0 must be at least 1"),
        ({"rotary_base": 1.0}, "rotary_base=1.0 must be above 1"),
        ({"dropout": 1.0}, "dropout=1.0 must be at least 0 and below 1"),
        ({"position_how": "concatenate", "position_width": 12}, "position_width=12 must be between 0 and width=12"),
    ],
)
def test_impossible_settings_are_refused_with_the_rule(change, message):
    with pytest.raises(ConfigError, match=message):
        replace(TRANSFORMER, **change)


def test_ties_are_ties():
    model = make("transformer, all shared")
    assert model.source is model.target
    assert model.head.weight is model.source.tokens.weight
    assert (
        make("transformer, nothing shared").head.weight is not make("transformer, nothing shared").target.tokens.weight
    )


@pytest.mark.parametrize("variant", TRANSFORMERS)
def test_packing_changes_no_prediction_and_no_gradient(variant):
    model = make(f"transformer, {variant}").train()
    sources, targets = rows([(3, 4), (5, 2), (1, 6), (7, 3)], torch.Generator().manual_seed(0))
    padded = batch(sources, targets)
    (group,) = PackedLayout(PairStore.of(list(zip(sources, targets, strict=True))), 600).order(0, 0)
    packed = PackedLayout(PairStore.of(list(zip(sources, targets, strict=True))), 600).batch(group)
    assert int(packed.source.numbers.max()) > 1
    assert packed.count == padded.count == 11
    assert packed.tokens == padded.tokens == 16 + 11
    losses, gradients = [], []
    for one in (padded, packed):
        loss = SequenceToSequence(0.1).loss(model, one)
        losses.append(loss.total)
        gradients.append(torch.autograd.grad(loss.total, list(model.parameters()), allow_unused=True))
    assert_close(*losses, atol=1e-4, rtol=1e-5)
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other, atol=1e-5, rtol=1e-4)
