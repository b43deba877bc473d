"""Query-key norms, layers left out and dropout that ends."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from regard.errors import ConfigError
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.attention import Attention
from regard.nn.batch import Pairs, Tokens
from regard.training.loop import fit, train_step
from regard.training.objectives import SequenceToSequence
from regard.training.schedule import DropoutUntil

TINY = TransformerConfig(
    source_vocab_size=19,
    target_vocab_size=19,
    width=12,
    heads=2,
    encoder_layers=3,
    decoder_layers=3,
    feed_forward=14,
    norm_first=True,
    dropout=0.0,
)


def make(**settings):
    torch.manual_seed(0)
    return Transformer(replace(TINY, **settings))


def pairs():
    sources, targets = [[5, 6, 7, 2], [8, 2]], [[1, 9, 10, 2], [1, 11, 2]]
    return Pairs(Tokens.of(sources), Tokens.of(targets), 5)


def test_normed_queries_and_keys_do_not_grow_with_their_matrices():
    torch.manual_seed(0)
    attention = Attention(12, 3, qk_norm=True, bias=False)
    x = torch.randn(2, 5, 12)
    before, memory_before = attention(x), attention(x, x.flip(1))
    with torch.no_grad():
        attention.query.weight.mul_(50.0)
        attention.key.weight.mul_(0.5)
    assert_close(attention(x), before, rtol=1e-3, atol=1e-4)
    assert_close(attention(x, x.flip(1)), memory_before, rtol=1e-3, atol=1e-4)
    q, k, _ = attention.queries_keys_values(x)
    assert_close(q.pow(2).mean(-1), torch.ones(2, 3, 5), rtol=1e-3, atol=1e-3)
    assert_close(k.pow(2).mean(-1), torch.ones(2, 3, 5), rtol=1e-3, atol=1e-3)
    with torch.no_grad():
        attention.query_norm.weight.mul_(3.0)  # type: ignore[union-attr]
    assert (attention(x) - before).abs().max() > 1e-4


def test_layers_are_left_out_in_training_as_often_as_asked():
    model = make(layer_drop=0.25)
    batch, calls = pairs(), []
    for block in [*model.encoder, *model.decoder]:
        block.register_forward_hook(lambda *_: calls.append(1))
    torch.manual_seed(1)
    for _ in range(200):
        model(batch)
    assert sum(calls) / (200 * 6) == pytest.approx(0.75, abs=0.04)
    calls.clear()
    model.eval()
    assert_close(model(batch), make().eval()(batch))
    assert sum(calls) == 6


def test_which_layers_are_left_out_depends_on_the_seed_and_the_step_alone():
    def losses(start, count, seed=3):
        model = make(layer_drop=0.5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        steps = fit(model, SequenceToSequence(), [[pairs()]] * count, optimizer, lambda n: 0.0, start=start, seed=seed)
        return [float(step.loss) for step in steps]

    assert losses(0, 8)[5:] == losses(5, 3)
    assert len(set(losses(0, 8))) > 3


def test_a_layer_left_out_is_not_updated():
    model = make(layer_drop=0.9)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    torch.manual_seed(0)
    train_step(model, SequenceToSequence(), [pairs()], torch.optim.SGD(model.parameters(), lr=1.0))
    moved = [
        not torch.equal(before[f"encoder.{i}.feed_forward.inner.weight"], block.feed_forward.inner.weight)
        for i, block in enumerate(model.encoder)
    ]
    assert not all(moved)
    assert not torch.equal(before["source.tokens.weight"], model.source.tokens.weight)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_an_impossible_rate_is_refused(rate):
    with pytest.raises(ConfigError, match="layer_drop"):
        replace(TINY, layer_drop=rate)


def test_dropout_ends_where_it_should_and_comes_back_for_an_earlier_step():
    model = make(dropout=0.3, attention_dropout=0.2, activation_dropout=0.1)
    schedule, batch = DropoutUntil(model, 4), pairs()
    clear = make()(batch)
    for step, dropped in ((1, True), (4, True), (5, False), (9, False), (2, True)):
        schedule(step)
        torch.manual_seed(step)
        assert (not torch.allclose(model(batch), clear)) == dropped, step
    assert model.encoder[0].attention.dropout == 0.2
    assert model.encoder[0].feed_forward.dropout.p == 0.1


def test_dropout_until_is_a_function_of_the_step():
    def losses(start, count):
        model = make(dropout=0.4)
        steps = fit(
            model,
            SequenceToSequence(),
            [[pairs()]] * count,
            torch.optim.SGD(model.parameters(), lr=0.0),
            lambda n: 0.0,
            start=start,
            before=DropoutUntil(model, 4),
        )
        return [float(step.loss) for step in steps]

    whole = losses(0, 7)
    assert len(set(whole[:4])) == 4
    assert len(set(whole[4:])) == 1
    assert losses(3, 4) == whole[3:]
    assert losses(5, 2) == whole[5:]
