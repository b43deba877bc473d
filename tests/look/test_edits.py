import pytest
import torch
from torch.testing import assert_close

from regard.errors import ConfigError
from regard.look import attentions, evened, masked, row_set, swapped, watch
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.batch import Pairs, Tokens

FIRST, CROSS = "encoder.0.attention", "decoder.0.cross_attention"


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    sizes = {"width": 12, "heads": 3, "encoder_layers": 2, "decoder_layers": 1, "feed_forward": 8, "max_len": 32}
    model = Transformer(TransformerConfig(source_vocab_size=17, target_vocab_size=17, dropout=0.0, **sizes)).eval()
    for module in attentions(model).values():
        torch.nn.init.normal_(module.output.bias)
    return model


def pairs(*sources):
    return Pairs(Tokens.of([*sources]), Tokens.of([[1, 4, 5, 2]] * len(sources)))


BATCH, OTHER = pairs([4, 5, 6, 2], [7, 8, 9, 2]), pairs([10, 11, 12, 2], [13, 14, 15, 2])


def untouched(model):
    hooks = [module.output._forward_pre_hooks for module in attentions(model).values()]
    return all(module.watcher is None for module in attentions(model).values()) and not any(hooks)


@torch.no_grad()
def test_a_masked_head_gives_nothing(model):
    plain = model(BATCH)
    with masked(model, {FIRST: [1], CROSS: [0, 2]}):
        cut = model(BATCH)
    kept = {name: attentions(model)[name].output.weight.clone() for name in (FIRST, CROSS)}
    for name, heads in ((FIRST, [1]), (CROSS, [0, 2])):
        for head in heads:
            attentions(model)[name].output.weight[:, 4 * head : 4 * head + 4] = 0
    assert_close(model(BATCH), cut)
    assert not torch.allclose(cut, plain)
    for name, weight in kept.items():
        attentions(model)[name].output.weight.copy_(weight)
    with masked(model, {FIRST: []}):
        assert_close(model(BATCH), plain)
    assert untouched(model)


@torch.no_grad()
def test_with_every_head_masked_only_the_bias_is_left(model):
    attention = attentions(model)[FIRST]
    x = torch.randn(2, 5, 12)
    with masked(model, {FIRST: [0, 1, 2]}):
        assert_close(attention(x), attention.output.bias.expand(2, 5, 12))


@torch.no_grad()
def test_a_row_is_written_and_the_rest_is_left(model):
    with watch(model, FIRST) as before:
        model(BATCH)
    with row_set(model, FIRST, head=2, row=1, weights=[0.0, 0.0, 0.0, 1.0], item=0), watch(model, FIRST) as after:
        changed = model(BATCH)
    expected = before.weights(FIRST).clone()
    expected[0, 2, 1] = torch.tensor([0, 0, 0, 1.0])
    assert_close(after.weights(FIRST), expected)
    plain = model(BATCH)
    assert not torch.allclose(changed[0], plain[0])
    assert_close(changed[1], plain[1])
    with row_set(model, FIRST, head=2, row=1, weights=torch.tensor([0, 0, 0, 1.0])), watch(model, FIRST) as after:
        model(BATCH)
    assert after.weights(FIRST)[:, 2, 1, 3].tolist() == [1.0, 1.0]
    assert untouched(model)


@pytest.mark.parametrize("what", ["weights", "outputs"])
@torch.no_grad()
def test_swapping_every_head_of_the_first_layer(model, what):
    attention, x, y = attentions(model)[FIRST], torch.randn(2, 4, 12), torch.randn(2, 4, 12)
    every = {"": [0, 1, 2]}
    with swapped(attention, y, every, what=what):
        changed = attention(x)
    if what == "outputs":
        assert_close(changed, attention(y))
    else:
        with watch(attention, "") as trace:
            attention(y)
        mixed = trace.weights("") @ attention.keys_values(x)[1]
        assert_close(changed, attention.output(mixed.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("what", ["weights", "outputs"])
@torch.no_grad()
def test_swapping_with_oneself_changes_nothing_and_with_another_one_head(model, what):
    plain = model(BATCH)
    with swapped(model, BATCH, {FIRST: [0], CROSS: [1]}, what=what):
        assert_close(model(BATCH), plain)
    with swapped(model, OTHER, {FIRST: [0]}, what=what), watch(model, FIRST) as trace:
        assert not torch.allclose(model(BATCH), plain)
    with watch(model, FIRST) as here:
        model(BATCH)
    assert_close(trace.weights(FIRST)[:, 1:], here.weights(FIRST)[:, 1:])
    with swapped(model, BATCH, {FIRST: []}, what=what):
        assert_close(model(BATCH), plain)
    assert untouched(model)


@torch.no_grad()
def test_edits_nest_and_the_outer_comes_first(model):
    with masked(model, {FIRST: [0, 1]}):
        together = model(BATCH)
    with masked(model, {FIRST: [0]}), masked(model, {FIRST: [1]}), watch(model) as trace:
        assert_close(model(BATCH), together)
    assert trace.weights(FIRST)[:, :2].abs().max() == 0
    written = row_set(model, FIRST, head=0, row=0, weights=[1.0, 0.0, 0.0, 0.0])
    with masked(model, {FIRST: [0]}), written, watch(model, FIRST) as trace:
        model(BATCH)
    assert trace.weights(FIRST)[:, 0].sum() == 2


def test_what_cannot_be_is_refused(model):
    cases = [
        (masked(model, {"encoder.7.attention": [0]}), "no attention is called 'encoder.7.attention'; did you mean"),
        (masked(model, {FIRST: [3]}), "no head 3 in 'encoder.0.attention': it has 3"),
        (row_set(model, FIRST, head=0, row=9, weights=[1.0, 0.0, 0.0, 0.0]), "no row 9 of item 0"),
        (row_set(model, FIRST, head=0, row=0, weights=[1.0]), "has 4 weights, one per key"),
        (swapped(model, pairs([4, 2]), {FIRST: [0]}), r"is \(2, 3, 4, 4\) here and \(1, 3, 2, 2\) on the other"),
    ]
    for edit, said in cases:
        with pytest.raises(ConfigError, match=said), edit:
            model(BATCH)
    assert untouched(model)


@torch.no_grad()
def test_an_evened_head_looks_alike_at_all_that_it_sees(model):
    with evened(model, {FIRST: [1], "decoder.0.attention": [0]}), watch(model) as trace:
        model(BATCH)
    assert_close(trace.weights(FIRST)[:, 1], torch.full((2, 4, 4), 0.25))
    assert not torch.allclose(trace.weights(FIRST)[:, 0], torch.tensor(0.25))
    causal = torch.ones(3, 3).tril()
    assert_close(trace.weights("decoder.0.attention")[:, 0], (causal / causal.sum(-1, keepdim=True)).expand(2, 3, 3))
    assert untouched(model)
