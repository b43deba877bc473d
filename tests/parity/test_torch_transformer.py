"""With the same weights, the same outputs and gradients as `torch.nn.Transformer`."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.batch import Pairs, Tokens


def copy_attention(ours, theirs):
    for index, part in enumerate((ours.query, ours.key, ours.value)):
        part.weight.data.copy_(theirs.in_proj_weight.chunk(3)[index])
        part.bias.data.copy_(theirs.in_proj_bias.chunk(3)[index])
    ours.output.load_state_dict(theirs.out_proj.state_dict())


def copy_block(ours, theirs):
    copy_attention(ours.attention, theirs.self_attn)
    ours.feed_forward.inner.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.outer.load_state_dict(theirs.linear2.state_dict())
    norms = [ours.around_attention.norm]
    if hasattr(ours, "cross_attention"):
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        norms.append(ours.around_cross_attention.norm)
    for index, norm in enumerate([*norms, ours.around_feed_forward.norm], 1):
        norm.load_state_dict(getattr(theirs, f"norm{index}").state_dict())


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_outputs_and_gradients_equal_torchs(norm_first, activation):
    torch.manual_seed(0)
    theirs = nn.Transformer(
        24, 4, 2, 3, 40, dropout=0.0, activation=activation, norm_first=norm_first, batch_first=True
    )
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.2)
    if not norm_first:
        # torch ends a stack with one more norm than the 2017 paper; take it away to compare the paper's own form.
        theirs.encoder.norm = theirs.decoder.norm = None
    config = TransformerConfig(
        source_vocab_size=31,
        target_vocab_size=29,
        width=24,
        heads=4,
        encoder_layers=2,
        decoder_layers=3,
        feed_forward=40,
        norm_first=norm_first,
        activation=activation,
        share="none",
        dropout=0.0,
    )
    ours = Transformer(config)
    for mine, other in zip(ours.encoder, theirs.encoder.layers, strict=True):
        copy_block(mine, other)
    for mine, other in zip(ours.decoder, theirs.decoder.layers, strict=True):
        copy_block(mine, other)
    if norm_first:
        ours.encoder_norm.load_state_dict(theirs.encoder.norm.state_dict())
        ours.decoder_norm.load_state_dict(theirs.decoder.norm.state_dict())
    source = Tokens.of([[4, 5, 6, 7, 8], [9, 10, 11], [12]])
    target = Tokens.of([[1, 13, 14, 2], [1, 15, 16, 17, 18, 2], [1, 2]])
    out = ours(Pairs(source, target))
    hidden = ~source.mask()
    expected = theirs(
        ours.source(source.ids),
        ours.target(target.ids[:, :-1]),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(target.ids.shape[1] - 1),
        src_key_padding_mask=hidden,
        memory_key_padding_mask=hidden,
        tgt_is_causal=True,
    )
    real = target.mask()[:, 1:]
    assert_close(out[real], expected[real], atol=1e-5, rtol=1e-5)
    names = ["encoder.0.feed_forward.inner.weight", "decoder.2.cross_attention.output.weight"]
    their_names = ["encoder.layers.0.linear1.weight", "decoder.layers.2.multihead_attn.out_proj.weight"]
    mine = torch.autograd.grad(out[real].square().sum(), [ours.get_parameter(name) for name in names])
    other = torch.autograd.grad(expected[real].square().sum(), [theirs.get_parameter(name) for name in their_names])
    for one, two in zip(mine, other, strict=True):
        assert_close(one, two, atol=1e-4, rtol=1e-4)
