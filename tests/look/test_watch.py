import pytest
import torch
from torch.testing import assert_close

from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError
from regard.look import attentions, watch
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.batch import Pairs, Tokens

NAMES = [
    "encoder.0.attention",
    "encoder.1.attention",
    "decoder.0.attention",
    "decoder.0.cross_attention",
    "decoder.1.attention",
    "decoder.1.cross_attention",
]
BOS, EOS = 1, 2


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = TransformerConfig(
        source_vocab_size=17,
        target_vocab_size=17,
        width=12,
        heads=3,
        encoder_layers=2,
        decoder_layers=2,
        feed_forward=8,
        dropout=0.0,
        max_len=32,
    )
    return Transformer(config).eval()


@pytest.fixture(scope="module")
def batch():
    return Pairs(Tokens.of([[4, 5, 6, 7, EOS], [8, 9, EOS]]), Tokens.of([[BOS, 4, 5, EOS], [BOS, 6, EOS]]))


def untouched(model):
    return all(module.watcher is None for module in attentions(model).values())


def test_every_attention_is_seen_under_its_name(model, batch):
    assert sorted(attentions(model)) == sorted(NAMES)
    with watch(model) as trace:
        model(batch)
    assert sorted(trace.names) == sorted(NAMES)
    assert trace.weights("encoder.0.attention").shape == (2, 3, 5, 5)
    assert trace.weights("decoder.0.attention").shape == (2, 3, 3, 3)
    assert trace.weights("decoder.1.cross_attention").shape == (2, 3, 3, 5)
    for name in NAMES:
        weights = trace.weights(name)
        assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    # The second source has three tokens, and no target token sees a later one.
    assert trace.weights("decoder.0.cross_attention")[1, :, :, 3:].abs().max() == 0
    assert trace.weights("decoder.0.attention").triu(1).abs().max() == 0


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        ("encoder.1.attention", ["encoder.1.attention"]),
        ("decoder.*.cross_attention", ["decoder.0.cross_attention", "decoder.1.cross_attention"]),
        (["encoder.0.*", "decoder.1.attention"], ["encoder.0.attention", "decoder.1.attention"]),
    ],
)
def test_names_and_patterns_choose(model, batch, names, wanted):
    with watch(model, names) as trace:
        watched = [name for name, module in attentions(model).items() if module.watcher is not None]
        model(batch)
    assert trace.names == watched == wanted
    assert all(len(calls) == 1 for calls in trace.calls.values())


def test_a_watched_model_gives_what_an_unwatched_one_gives(model, batch):
    plain = model.logits(batch)
    with watch(model):
        watched = model.logits(batch)
    assert_close(watched, plain)
    assert untouched(model)
    assert_close(model.logits(batch), plain, atol=0, rtol=0)


def test_an_unwatched_model_is_the_same_object_as_before(model, batch):
    def attributes():
        return {name: dict(vars(module)) for name, module in model.named_modules()}

    before = attributes()
    with watch(model, parts=["weights", "q"]):
        model(batch)
    after = attributes()
    assert before.keys() == after.keys()
    for name, values in before.items():
        assert values.keys() == after[name].keys()
        assert all(after[name][key] is value for key, value in values.items()), name


def test_heads_and_parts_are_those_asked_for(model, batch):
    with watch(model) as whole:
        model(batch)
    with watch(model, "encoder.0.attention", heads=[2, 0], parts=["weights", "q", "k", "v"]) as trace:
        model(batch)
    seen = trace["encoder.0.attention"]
    assert_close(seen.weights, whole.weights("encoder.0.attention")[:, [2, 0]])
    assert seen.q.shape == seen.k.shape == seen.v.shape == (2, 2, 5, 4)
    scores = (seen.q @ seen.k.mT / 2)[0].softmax(-1)  # the first source has no padding
    assert_close(seen.weights[0], scores)
    with watch(model, parts="q") as queries:
        model(batch)
    assert queries["encoder.0.attention"].weights is None
    with pytest.raises(ConfigError, match="weights were not among the parts watched"):
        queries.weights("encoder.0.attention")


def test_an_edit_changes_what_the_model_uses(model, batch):
    plain = model(batch)
    with watch(model, edit=lambda name, weights: weights):
        assert_close(model(batch), plain)

    def cut(name, weights):
        weights = weights.clone()
        weights[:, 1] = 0
        return weights

    with watch(model, "decoder.1.cross_attention", edit=cut) as trace:
        changed = model(batch)
    assert not torch.allclose(changed, plain)
    assert trace.weights("decoder.1.cross_attention")[:, 1].abs().max() == 0
    # A head whose weights are zero gives nothing, as if its part of the output's matrix were zero.
    output = model.decoder[1].cross_attention.output.weight
    kept = output.detach().clone()
    with torch.no_grad():
        output[:, 4:8] = 0
    assert_close(model(batch), changed)
    with torch.no_grad():
        output.copy_(kept)


@pytest.mark.parametrize("returned", [None, torch.ones(1)])
def test_an_edit_that_returns_no_weights_is_refused(model, batch, returned):
    said = pytest.raises(ConfigError, match=r"edit of 'encoder.0.attention' must return weights of shape")
    with said, watch(model, edit=lambda name, weights: returned):
        model(batch)
    assert untouched(model)


def test_it_is_put_back_after_an_exception(model):
    with pytest.raises(RuntimeError, match="stop"), watch(model):
        raise RuntimeError("stop")
    assert untouched(model)


def test_watching_nests(model, batch):
    with watch(model) as outer:
        with watch(model, "encoder.0.attention") as inner:
            model(batch)
        model(batch)
    assert len(inner.calls["encoder.0.attention"]) == 1
    assert len(outer.calls["encoder.0.attention"]) == 1
    assert len(outer.calls["encoder.1.attention"]) == 2
    assert untouched(model)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"names": "encodr.0.attention"}, "no attention is called 'encodr.0.attention'; did you mean 'encoder.0"),
        ({"names": ["encoder.0.attention", "nothing"]}, "no attention is called 'nothing'"),
        ({"heads": [3]}, "no head 3 in 'encoder.0.attention': it has 3, counted from 0"),
        ({"heads": [-1]}, "no head -1"),
    ],
)
def test_what_is_not_there_is_named(model, settings, said):
    with pytest.raises(ConfigError, match=said), watch(model, **settings):
        pass
    assert untouched(model)


def test_what_was_not_seen_is_named(model, batch):
    with watch(model, "encoder.*") as trace:
        with pytest.raises(ConfigError, match=r"nothing was seen of 'encoder.0.attention'"):
            trace.weights("encoder.0.attention")
        model(batch)
    with pytest.raises(ConfigError, match=r"nothing was seen of 'decoder.0.attention'"):
        trace.weights("decoder.0.attention")


def test_beam_decoding_is_watched_step_by_step_and_stays_the_same(model, batch):
    config = DecodeConfig(beam=3, max_len=6, max_ratio=None)

    def search():
        first = torch.full((2,), BOS)
        return beam_search(model, model.start(Pairs(batch.source)), first, eos=EOS, config=config)

    with torch.inference_mode():
        plain = search()
        with watch(model) as trace:
            watched = search()
        again = search()
    assert [[one.tokens for one in best] for best in watched] == [[one.tokens for one in best] for best in plain]
    assert [[one.score for one in best] for best in again] == [[one.score for one in best] for best in plain]
    for best, wanted in zip(watched, plain, strict=True):
        assert_close([one.score for one in best], [one.score for one in wanted])
    calls = trace.calls["decoder.0.cross_attention"]
    assert len(trace.calls["encoder.0.attention"]) == 1
    # Every choice of an output was read from a row whose weights were seen.
    best = watched[0][0]
    for step, row in enumerate(best.rows):
        weights = calls[step].weights
        assert_close(weights.flatten(0, -2).sum(-1), torch.ones(weights.flatten(0, -2).shape[0]))
        assert row < weights.shape[0] * weights.shape[2]
    assert [seen.weights.shape[-1] for seen in trace.calls["decoder.0.attention"]] == list(range(1, len(calls) + 1))
    assert untouched(model)
