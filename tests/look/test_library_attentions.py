"""torch's and transformers' attention modules are watched as our own are."""

import pytest
import torch
import transformers
from torch import nn
from torch.testing import assert_close

from regard.errors import ConfigError, RegardWarning
from regard.look import attentions, evened, masked, show, swapped, watch
from regard.nn.attention import ACROSS, BEFORE, WITHIN

WORDS = 40
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
SMALL = {"vocab_size": WORDS, **SIZES}
IDS = torch.randint(3, WORDS, (2, 7), generator=torch.Generator().manual_seed(0))
PADDED = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def bert():
    return transformers.BertModel(transformers.BertConfig(**SMALL)), {"input_ids": IDS, "attention_mask": PADDED}


def gpt2():
    config = transformers.GPT2Config(vocab_size=WORDS, n_embd=16, n_layer=2, n_head=4, **TOKENS)
    return transformers.GPT2Model(config), {"input_ids": IDS}


def llama():
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2)
    return transformers.LlamaModel(config), {"input_ids": IDS, "attention_mask": PADDED}


def t5():
    sizes = {"vocab_size": WORDS, "d_model": 16, "d_kv": 4, "num_heads": 4, "num_layers": 2, "d_ff": 24}
    given = {"input_ids": IDS, "attention_mask": PADDED, "decoder_input_ids": IDS[:, :4]}
    return transformers.T5Model(transformers.T5Config(**sizes, decoder_start_token_id=0)), given


def vit():
    config = transformers.ViTConfig(**SIZES, image_size=8, patch_size=4)
    return transformers.ViTModel(config), {"pixel_values": torch.randn(2, 3, 8, 8)}


def whisper():
    stacks = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    widths = {"d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "num_mel_bins": 4, "max_source_positions": 8}
    config = transformers.WhisperConfig(vocab_size=WORDS, **stacks, **widths, **TOKENS, decoder_start_token_id=1)
    return transformers.WhisperModel(config), {"input_features": torch.randn(2, 4, 16), "decoder_input_ids": IDS[:, :4]}


def gemma2():
    """Nobody here imports this one; its scores are capped, and every second layer sees a window only."""
    more = {"num_key_value_heads": 2, "head_dim": 4, "sliding_window": 3, "pad_token_id": 0}
    return transformers.Gemma2Model(transformers.Gemma2Config(**SMALL, **more)), {"input_ids": IDS}


def gpt_neox():
    return transformers.GPTNeoXModel(transformers.GPTNeoXConfig(**SMALL)), {"input_ids": IDS}


ARCHITECTURES = [bert, gpt2, llama, t5, vit, whisper, gemma2, gpt_neox]
FIELDS = {"encoder_attentions": WITHIN, "attentions": WITHIN, "decoder_attentions": BEFORE, "cross_attentions": ACROSS}


@pytest.fixture(params=ARCHITECTURES, ids=lambda make: make.__name__)
def made(request):
    torch.manual_seed(0)
    model, given = request.param()
    return model.eval(), given


@torch.no_grad()
def test_weights_are_those_that_transformers_itself_reports(made):
    model, given = made
    plain = model(**given)[0]
    with watch(model) as trace:
        assert torch.equal(model(**given)[0], plain)
    model.set_attn_implementation("eager")
    reported, compared = model(**given, output_attentions=True), 0
    for field, sides in FIELDS.items():
        own = [name for name in trace.names if trace.sides[name] == sides]
        if layers := reported.get(field):
            compared += len(layers)
            for name, weights in zip(own, layers, strict=True):
                assert_close(trace.weights(name), weights, atol=1e-5, rtol=1e-4)
    assert compared == len(trace.names) in (2, 6)


@torch.no_grad()
def test_masking_a_head_is_zeroing_its_columns_of_the_output_matrix(made):
    model, given = made
    name = list(attentions(model))[-1]
    plain, before = model(**given)[0], attentions(model)[name].module.__dict__.copy()
    with masked(model, {name: [1]}):
        changed = model(**given)[0]
        with watch(model, name) as trace:
            model(**given)
    assert not torch.allclose(changed, plain)
    assert trace.weights(name)[:, 1].count_nonzero() == 0
    assert trace.weights(name)[:, 0].count_nonzero() > 0
    assert torch.equal(model(**given)[0], plain)
    assert attentions(model)[name].module.__dict__ == before
    matrix = model.get_submodule(OUTPUTS.get(type(model).__name__, f"{name}.o_proj"))
    weight = matrix.weight.T if isinstance(matrix, nn.Linear) else matrix.weight  # GPT-2's stands upright
    weight[4:8] = 0
    assert_close(model(**given)[0], changed, atol=1e-5, rtol=1e-4)


OUTPUTS = {
    "BertModel": "encoder.layer.1.attention.output.dense",
    "GPT2Model": "h.1.attn.c_proj",
    "T5Model": "decoder.block.1.layer.1.EncDecAttention.o",
    "WhisperModel": "decoder.layers.1.encoder_attn.out_proj",
    "GPTNeoXModel": "layers.1.attention.dense",
}
"""The matrix after the heads of the last attention, where it is not called o_proj."""


@torch.no_grad()
def test_neurons_are_shown_where_the_weights_follow_from_them_and_nowhere_else(made):
    model, given = made
    with watch(model, parts=("weights", "q", "k", "v")) as trace:
        model(**given)
    shown = {one.name: one.neurons for one in show(trace, item=1).sentences[0].attentions}
    for name, neurons in shown.items():
        # T5 adds a bias by distance within a side; the cap of Gemma 2 does nothing to scores as small as these.
        assert (neurons is None) == (type(model).__name__ == "T5Model" and trace.sides[name] != ACROSS), name
        if neurons is not None:
            scores = (neurons.q @ neurons.k.mT * neurons.scale).masked_fill(trace.weights(name)[1] == 0, -torch.inf)
            assert_close(scores.softmax(-1), trace.weights(name)[1], atol=1e-5, rtol=0)
    with evened(model, {trace.names[-1]: [0]}), watch(model, parts=("weights", "q", "k", "v")) as edited:
        model(**given)
    assert show(edited).sentences[0].attentions[-1].neurons is None


@torch.no_grad()
def test_heads_are_evened_and_swapped_with_another_batch_by_name():
    torch.manual_seed(0)
    model, given = bert()
    model.eval()
    other = {**given, "input_ids": given["input_ids"].flip(0)}
    name = "encoder.layer.0.attention.self"
    with watch(model, name) as there:
        model(**other)
    with swapped(model, other, {name: [2]}), watch(model, name) as trace:
        model(**given)
    assert_close(trace.weights(name)[:, 2], there.weights(name)[:, 2])
    with evened(model, {name: [0]}), watch(model, name) as trace:
        model(**given)
    assert_close(trace.weights(name)[1, 0, 0], torch.tensor([0.2] * 5 + [0.0] * 2))


def test_what_goes_past_the_interface_is_said():
    sizes = {"vocab_size": WORDS, "d_model": 16, "d_kv": 4, "num_heads": 4, "num_layers": 1, "d_ff": 24}
    model = transformers.LongT5Model(transformers.LongT5Config(**sizes, decoder_start_token_id=0)).eval()
    with torch.no_grad(), pytest.warns(RegardWarning, match="not seen: LongT5LocalAttention"), watch(model) as trace:
        model(input_ids=IDS, decoder_input_ids=IDS[:, :4])
    # Its list of outputs does not say which attentions look across; its calls do.
    assert list(trace.sides.values()) == [BEFORE, ACROSS]
    assert [trace.weights(name).shape[-2:] for name in trace.names] == [(4, 4), (4, 7)]
    alone = transformers.MPNetModel(transformers.MPNetConfig(**SMALL))
    with pytest.raises(ConfigError, match=r"MPNetSelfAttention in it, .* output_attentions=True"), watch(alone):
        pass


def test_a_kernel_whose_mask_is_not_ours_to_read_is_refused():
    model, _ = bert()
    model.config._attn_implementation_internal = "flex_attention"
    with pytest.raises(ConfigError, match=r"flex_attention.*sdpa"), watch(model):
        pass


@torch.no_grad()
def test_a_cached_decoder_is_seen_step_by_step():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, **TOKENS)
    model = transformers.LlamaForCausalLM(config).eval()
    with watch(model, layers=1) as trace:
        model.generate(IDS[:1], max_new_tokens=3, min_new_tokens=3, do_sample=False)
    (name,) = trace.names
    assert [tuple(one.weights.shape) for one in trace.calls[name]] == [(1, 4, 7, 7), (1, 4, 1, 8), (1, 4, 1, 9)]
    for one in trace.calls[name]:
        assert_close(one.weights.sum(-1), torch.ones(one.weights.shape[:-1]))


@torch.no_grad()
def test_a_generation_is_shown_as_one_call_over_all_that_was_written():
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=WORDS, n_embd=16, n_layer=2, n_head=4, **TOKENS)
    model = transformers.GPT2LMHeadModel(config).eval()
    with watch(model) as trace:
        written = model.generate(IDS[:1], max_new_tokens=3, min_new_tokens=3, do_sample=False)
    found = show(trace)
    assert found.note == ""
    with watch(model) as whole:
        model(written[:, :-1])
    for one in found.sentences[0].attentions:
        assert_close(one.weights, whole.weights(one.name)[0], atol=1e-5, rtol=1e-4)
    with watch(model, parts=("weights", "q", "k", "v")) as trace:
        model.generate(IDS[:1], max_new_tokens=3, min_new_tokens=3, do_sample=False)
    assert all(one.neurons.q.shape == (4, 9, 4) for one in show(trace).sentences[0].attentions)
    with watch(model) as trace:
        model.generate(IDS[:1], max_new_tokens=3, min_new_tokens=3, do_sample=False, num_beams=2)
    assert "rows of a beam change places" in show(trace).note


@torch.no_grad()
def test_layers_that_share_an_attention_are_each_shown_and_calls_before_the_last_are_said():
    torch.manual_seed(0)
    config = transformers.AlbertConfig(embedding_size=8, **SMALL)
    model = transformers.AlbertModel(config).eval()
    with watch(model) as trace:
        model(IDS)
    (name,) = trace.names
    shown = show(trace).sentences[0].attentions
    assert [one.name for one in shown] == [f"{name}, use 1 of 2", f"{name}, use 2 of 2"]
    model.set_attn_implementation("eager")
    for one, weights in zip(shown, model(IDS, output_attentions=True).attentions, strict=True):
        assert_close(one.weights, weights[0], atol=1e-5, rtol=1e-4)
    with watch(model) as trace:
        model(IDS)
        model(IDS[:, :4])
    found = show(trace)
    assert [one.array().shape for one in found.sentences[0].attentions] == [(4, 4, 4)] * 2
    assert found.note == "The last of 2 calls: `trace.calls` has all of them."
    assert not model._forward_pre_hooks


@pytest.mark.parametrize("batch_first", [True, False])
@torch.no_grad()
def test_multihead_attention_of_torch(batch_first):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(12, 3, batch_first=batch_first, kdim=8, vdim=6).eval()
    sizes = [(2, 4, 12), (2, 5, 8), (2, 5, 6)]
    q, k, v = (torch.randn(size if batch_first else (size[1], size[0], size[2])) for size in sizes)
    hidden = torch.zeros(2, 5, dtype=torch.bool)
    hidden[1, 3:] = True
    mask = torch.randn(6, 4, 5)
    given = {"key_padding_mask": hidden, "attn_mask": mask}
    with pytest.warns(UserWarning, match="mismatched"):
        plain, weights = module(q, k, v, **given, average_attn_weights=False)
    with pytest.warns(UserWarning, match="mismatched"), watch(module, parts=("weights", "q")) as trace:
        again, _ = module(q, k, v, **given)
    assert torch.equal(again, plain)
    (name,) = trace.names
    assert_close(trace.weights(name), weights)
    assert trace[name].q.shape == (2, 3, 4, 4)
    assert trace.sides[name] == ACROSS
    with pytest.warns(UserWarning, match="mismatched"), watch(module, edit=lambda name, weights: weights):
        same, told = module(q, k, v, **given)
    assert_close(same, plain)
    assert_close(told, weights.mean(1))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@torch.no_grad()
def test_transformer_of_torch_by_its_sides_with_padding():
    torch.manual_seed(0)
    model = nn.Transformer(16, 4, 2, 2, 24, batch_first=True).eval()
    source, target = torch.randn(2, 5, 16), torch.randn(2, 3, 16)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    causal = nn.Transformer.generate_square_subsequent_mask(3)
    given = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding, "tgt_mask": causal}
    plain = model(source, target, **given)
    with watch(model) as trace:
        watched = model(source, target, **given)
    assert_close(watched, plain, atol=1e-5, rtol=1e-4)
    assert [trace.sides[name] for name in trace.names] == [WITHIN, WITHIN, BEFORE, ACROSS, BEFORE, ACROSS]
    for name in trace.names:
        assert_close(trace.weights(name).sum(-1), torch.ones(trace.weights(name).shape[:-1]))
    assert trace.weights("decoder.layers.0.self_attn").triu(1).count_nonzero() == 0
    assert trace.weights("decoder.layers.1.multihead_attn")[1, ..., 3:].count_nonzero() == 0
    with masked(model, {"encoder.layers.1.self_attn": [0, 1, 2, 3]}):
        changed = model(source, target, **given)
    model.encoder.layers[1].self_attn.out_proj.weight.zero_()
    assert_close(model(source, target, **given), changed, atol=1e-5, rtol=1e-4)
    assert model.encoder.use_nested_tensor


def test_gradients_pass_through_an_edited_head():
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 3, 8)
    with masked(module, {"": [0]}):
        module(x, x, x)[0].sum().backward()
    assert module.in_proj_weight.grad[16:20].count_nonzero() == 0
    assert module.in_proj_weight.grad[20:].count_nonzero() > 0
