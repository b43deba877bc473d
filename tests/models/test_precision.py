"""Models in bfloat16 and in int8: what they keep of themselves in float32."""

import pytest
import torch
from language_zoo import STATELESS, make_language
from model_zoo import ENCODERS, PICTURE_MODELS, TRANSFORMERS, batch, make, texts
from torch.testing import assert_close

from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError, RunError
from regard.look import watch
from regard.models.pointer_network import PointerConfig, PointerNetwork
from regard.nn.batch import Images, Pairs, Tokens
from regard.nn.quantized import Int8Linear, parameter_count, quantize

SOURCES, TARGETS = [[4, 5, 6, 7, 8, 2], [7, 8, 2]], [[1, 9, 10, 4, 2], [1, 11, 2]]
BOS, EOS = 1, 2
every_transformer = pytest.mark.parametrize("name", [f"transformer, {variant}" for variant in TRANSFORMERS])
every_gpt = pytest.mark.parametrize("name", [name for name in STATELESS if name.startswith("gpt")])


def stepped(model, source, inputs):
    """The log-probabilities after each of `inputs`, as decoding finds them."""
    state, found = model.start(source), []
    for token in inputs:
        log_probs, state = model.step(torch.tensor([token]), state)
        found.append(log_probs)
    return torch.cat(found)


@every_transformer
@torch.inference_mode()
def test_int8_decodes_what_it_computes_as_a_whole(name):
    model = quantize(make(name))
    whole = model.logits(batch(SOURCES[:1], TARGETS[:1]))[0].log_softmax(-1)
    # The products are the same whatever is computed beside them; only torch's own sums differ in their order, and may
    # fall on the other side of where a number is rounded.
    assert_close(stepped(model, Pairs(Tokens.of(SOURCES[:1])), TARGETS[0][:-1]), whole, atol=0.1, rtol=0)


@every_transformer
@torch.inference_mode()
def test_int8_is_near_float32(name):
    pairs = batch(SOURCES, TARGETS)
    exact = make(name).logits(pairs).softmax(-1)
    found = quantize(make(name)).logits(pairs).softmax(-1)
    assert found.dtype == torch.float32
    assert not torch.equal(found, exact)
    assert (found - exact).abs().sum(-1).mean() < 0.1


@every_transformer
@torch.inference_mode()
def test_bfloat16_keeps_its_log_probabilities_in_float32(name):
    exact = stepped(make(name), Pairs(Tokens.of(SOURCES[:1])), TARGETS[0][:-1])
    model = make(name).to(torch.bfloat16)
    found = stepped(model, Pairs(Tokens.of(SOURCES[:1])), TARGETS[0][:-1])
    assert found.dtype == torch.float32
    assert_close(found.exp().sum(-1), torch.ones(len(found)), atol=1e-5, rtol=0)
    assert (found.exp() - exact.exp()).abs().sum(-1).mean() < 0.1
    if model.config.share in ("all", "output") and model.config.position_how == "add":
        assert model.head.weight is model.target.tokens.weight


@every_gpt
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@torch.inference_mode()
def test_a_language_model_steps_in_either(name, precision):
    prompt = Tokens.of([[3, 4, 5, 6], [7, 8]])
    exact = make_language(name)
    model = make_language(name)
    model = quantize(model) if precision == "int8" else model.to(torch.bfloat16)
    last = torch.tensor([6, 8])
    found, _ = model.step(last, model.start(prompt))
    right, _ = exact.step(last, exact.start(prompt))
    assert found.dtype == torch.float32
    assert (found.exp() - right.exp()).abs().sum(-1).mean() < 0.1


@every_transformer
def test_an_int8_model_is_watched(name):
    model = quantize(make(name))
    with torch.no_grad(), watch(model) as trace:
        seen = model.logits(batch(SOURCES, TARGETS))
    with torch.no_grad():
        assert_close(model.logits(batch(SOURCES, TARGETS)), seen)
    assert_close(trace.weights("decoder.1.cross_attention")[0, :, 0].sum(-1), torch.ones(2))


@pytest.mark.parametrize("name", [*ENCODERS, *PICTURE_MODELS])
@torch.inference_mode()
def test_encoders_have_int8(name):
    read = texts([[4, 5, 6, 7, 8], [7, 8]])
    if name in PICTURE_MODELS:
        torch.manual_seed(1)
        read = Images(torch.randn(2, make(name).config.channels, 12, 12), torch.zeros(2, dtype=torch.long), 2)
    exact, found = make(name).logits(read), quantize(make(name)).logits(read)
    assert found.shape == exact.shape
    assert not torch.equal(found, exact)
    assert (found - exact).abs().mean() < 0.1 * exact.abs().mean() + 0.01


def test_an_int8_model_counts_its_parameters_and_is_not_saved():
    model = make("transformer, norm first")
    count = parameter_count(model)
    quantize(model)
    assert parameter_count(model) == count == sum(one.numel() for one in make("transformer, norm first").parameters())
    assert isinstance(model.encoder[0].attention.query, Int8Linear)
    with pytest.raises(RunError, match="not saved"):
        model.state_dict()


def test_a_model_without_such_matrices_is_refused():
    with pytest.raises(ConfigError, match="does not apply to a PointerNetwork"):
        quantize(PointerNetwork(PointerConfig(width=8, encoder="recurrent")))


@torch.inference_mode()
def test_what_int8_writes_does_not_depend_on_the_batch():
    model = quantize(make("transformer, norm after"))
    config = DecodeConfig(beam=3, max_len=9)
    rows = [[4, 5, 6, 7, 8, 2], [9, 4, 11, 3, 5, 2], [7, 7, 8, 12, 6, 2]]

    def best(some):
        found = beam_search(
            model, model.start(Pairs(Tokens.of(some))), torch.full((len(some),), BOS), eos=EOS, config=config
        )
        return [one[0].tokens for one in found]

    assert best(rows) == [best([row])[0] for row in rows]
