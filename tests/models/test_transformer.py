from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.data.packing import Packing
from regard.data.store import PairStore
from regard.errors import ConfigError
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.batch import Pairs, Tokens
from regard.runs.config import make_config
from regard.training.tasks import Translation

# Every size another prime times the heads, so that a swapped axis cannot pass.
TINY = TransformerConfig(
    source_vocab_size=23,
    target_vocab_size=19,
    width=12,
    heads=2,
    encoder_layers=2,
    decoder_layers=2,
    feed_forward=14,
    norm_first=True,
    share="output",
    dropout=0.0,
    max_len=40,
)
VARIANTS = {
    "norm first": {},
    "norm after": {"norm_first": False},
    "rms, gated silu, no bias": {"norm": "rms", "gated": True, "activation": "silu", "bias": False},
    "gelu, learned positions": {"activation": "gelu", "positions": "learned"},
    "rotary, shared keys": {"positions": "rotary", "kv_heads": 1},
    "alibi": {"positions": "alibi"},
    "linear positions": {"positions": "linear"},
    "positions beside": {"position_how": "concatenate", "position_width": 4},
    "window": {"window": 3},
    "halves": {"position_layout": "halves"},
    "nothing shared": {"share": "none", "output_bias": True},
    "all shared": {"share": "all", "source_vocab_size": 19},
    "queries and keys normed, rotary": {"qk_norm": True, "positions": "rotary"},
    "no residual, no norm, no scale": {"residual": False, "norm": "none", "scaled": False},
}

lengths = st.lists(st.tuples(st.integers(1, 7), st.integers(2, 7)), min_size=1, max_size=4)


def make(variant, seed=0):
    torch.manual_seed(seed)
    return Transformer(replace(TINY, **VARIANTS[variant])).eval()


def rows(sizes, generator=None):
    sources = [torch.randint(4, 19, (source,), generator=generator).tolist() for source, _ in sizes]
    targets = [torch.randint(4, 19, (target,), generator=generator).tolist() for _, target in sizes]
    return sources, targets


def batch(sources, targets):
    return Pairs(Tokens.of(sources), Tokens.of(targets), sum(len(target) - 1 for target in targets))


@pytest.mark.parametrize("variant", VARIANTS)
@given(sizes=lengths)
def test_padding_never_changes_a_result(variant, sizes):
    model = make(variant)
    sources, targets = rows(sizes)
    together = model.logits(batch(sources, targets))
    for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
        alone = model.logits(batch([source], [target]))
        assert_close(together[index, : len(target) - 1], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@given(sizes=lengths, data=st.data())
def test_a_later_target_token_never_changes_an_earlier_logit(variant, sizes, data):
    model = make(variant)
    sources, targets = rows([(source, 7) for source, _ in sizes])
    place = data.draw(st.integers(1, 5))
    before = model.logits(batch(sources, targets))
    for target in targets:
        target[place] = 4 + (target[place] - 3) % 15
    after = model.logits(batch(sources, targets))
    assert_close(after[:, :place], before[:, :place], atol=1e-6, rtol=1e-6)
    if model.config.residual:  # without it all news comes through the source, and one token says nothing new
        assert not torch.allclose(after[:, place:], before[:, place:])


@pytest.mark.parametrize("variant", VARIANTS)
@given(sizes=lengths)
def test_cached_decoding_equals_full_recomputation(variant, sizes):
    model = make(variant)
    sources, targets = rows([(source, 6) for source, _ in sizes])
    full = model.logits(batch(sources, targets)).log_softmax(-1)
    state = model.start(Pairs(Tokens.of(sources)))
    for step in range(5):
        log_probs, state = model.step(torch.tensor([target[step] for target in targets]), state)
        assert_close(log_probs, full[:, step], atol=1e-5, rtol=1e-5)


@given(sizes=lengths, width=st.integers(1, 3), data=st.data())
@torch.no_grad()
def test_selected_rows_go_on_as_if_they_had_been_decoded_alone(sizes, width, data):
    model = make("rotary, shared keys")
    sources, _ = rows(sizes)
    B = len(sources)
    state = model.start(Pairs(Tokens.of(sources)))
    _, state = model.step(torch.full((B,), 1), state)
    state = state.select(torch.arange(B).repeat_interleave(width))
    words = torch.randint(4, 19, (B * width,))
    _, state = model.step(words, state)
    kept = data.draw(st.lists(st.integers(0, B - 1), min_size=1, max_size=B, unique=True).map(sorted))
    picks = [source * width + data.draw(st.integers(0, width - 1)) for source in kept for _ in range(width)]
    state = state.select(torch.tensor(picks), torch.tensor(kept))
    log_probs, state = model.step(torch.full((len(picks),), 5), state)
    assert state.memories[0].keys.shape[0] == len(kept)
    for row, pick in enumerate(picks):
        alone = model.logits(batch([sources[pick // width]], [[1, int(words[pick]), 5, 2]]))
        assert_close(log_probs[row], alone[0, 2].log_softmax(-1), atol=1e-5, rtol=1e-5)


def test_without_positions_permuting_the_source_changes_no_prediction():
    torch.manual_seed(0)
    model = Transformer(replace(TINY, positions="none")).eval()
    source = [4, 5, 6, 7, 8]
    one, other = (model.logits(batch([ids], [[1, 9, 10, 2]])) for ids in (source, [8, 6, 4, 7, 5]))
    assert_close(one, other, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(
        make("norm first").logits(batch([source], [[1, 9, 2]])),
        make("norm first").logits(batch([source[::-1]], [[1, 9, 2]])),
    )


def parameters(preset, vocab_size=37000):
    mapping = {key: value for key, value in make_config(None, preset).model.items() if key != "name"}
    config = TransformerConfig(source_vocab_size=vocab_size, target_vocab_size=vocab_size, **mapping)
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config).parameters())


@pytest.mark.parametrize(
    ("preset", "D", "F", "count"),
    [
        ("transformer-base", 512, 2048, 63_082_496),
        ("transformer-big", 1024, 4096, 214_245_376),
    ],
)
def test_the_papers_models_have_their_exact_parameter_counts(preset, D, F, count):
    attention, feed_forward, norm = 4 * (D * D + D), 2 * D * F + F + D, 2 * D
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    assert 37000 * D + 6 * encoder + 6 * decoder == count
    assert parameters(preset) == count


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 5}, "width=12 must be a multiple of heads=5"),
        ({"kv_heads": 3, "heads": 4}, "heads=4 must be a multiple of kv_heads=3"),
        ({"share": "all"}, "share='all' needs one vocabulary"),
        ({"encoder_layers": 0}, "encoder_layers=0 must be at least 1"),
        ({"dropout": 1.0}, "dropout=1.0 must be at least 0 and below 1"),
        ({"position_how": "concatenate", "position_width": 12}, "position_width=12 must be between 0 and width=12"),
    ],
)
def test_impossible_settings_are_refused_with_the_rule(change, message):
    with pytest.raises(ConfigError, match=message):
        replace(TINY, **change)


def test_ties_are_ties():
    model = make("all shared")
    assert model.source is model.target
    assert model.head.weight is model.source.tokens.weight
    assert make("nothing shared").head.weight is not make("nothing shared").target.tokens.weight


@pytest.mark.parametrize("variant", VARIANTS)
def test_packing_changes_no_prediction_and_no_gradient(variant):
    model = make(variant).train()
    sources, targets = rows([(3, 4), (5, 2), (1, 6), (7, 3)], torch.Generator().manual_seed(0))
    padded = batch(sources, targets)
    (group,) = Packing(PairStore.of(list(zip(sources, targets, strict=True))), 600).order(0, 0)
    packed = Packing(PairStore.of(list(zip(sources, targets, strict=True))), 600).batch(group)
    assert int(packed.source.numbers.max()) > 1
    assert packed.count == padded.count == 11
    assert packed.tokens == padded.tokens == 16 + 11
    losses, gradients = [], []
    for one in (padded, packed):
        loss = Translation(0.1).loss(model, one)
        losses.append(loss.total)
        gradients.append(torch.autograd.grad(loss.total, list(model.parameters()), allow_unused=True))
    assert_close(*losses, atol=1e-4, rtol=1e-5)
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other, atol=1e-5, rtol=1e-4)
