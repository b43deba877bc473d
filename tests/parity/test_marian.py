"""With the same weights, the same logits, loss, gradients and greedy output as Hugging Face's Marian."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.decode.config import DecodeConfig
from regard.decode.greedy import greedy
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.batch import Pairs, Tokens
from regard.training.objectives import SequenceToSequence

transformers = pytest.importorskip("transformers")
V = 41


@pytest.fixture(scope="module")
def marian():
    torch.manual_seed(0)
    config = transformers.MarianConfig(
        vocab_size=V,
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=36,
        decoder_ffn_dim=36,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="gelu",
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
        max_position_embeddings=64,
        scale_embedding=True,
        attn_implementation="eager",
    )
    model = transformers.MarianMTModel(config).eval()
    for name, parameter in model.named_parameters():
        # A large shift in the last norm, or large token vectors, would predict the same token over and over.
        if "embed_positions" not in name:
            torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.1 if "norm" in name else 0.4)
    return model


@pytest.fixture(scope="module")
def ours(marian):
    model = Transformer(
        TransformerConfig(
            source_vocab_size=V,
            target_vocab_size=V,
            width=24,
            heads=4,
            encoder_layers=2,
            decoder_layers=2,
            feed_forward=36,
            activation="gelu",
            norm_first=False,
            position_layout="halves",
            share="all",
            dropout=0.0,
            max_len=64,
        )
    ).eval()
    model.source.tokens.load_state_dict(marian.model.shared.state_dict())
    for side in ("encoder", "decoder"):
        for mine, other in zip(getattr(model, side), getattr(marian.model, side).layers, strict=True):
            pairs = [(mine.attention, other.self_attn), (mine.around_attention.norm, other.self_attn_layer_norm)]
            pairs += [(mine.feed_forward.inner, other.fc1), (mine.feed_forward.outer, other.fc2)]
            pairs += [(mine.around_feed_forward.norm, other.final_layer_norm)]
            if side == "decoder":
                pairs += [(mine.cross_attention, other.encoder_attn)]
                pairs += [(mine.around_cross_attention.norm, other.encoder_attn_layer_norm)]
            for part, twin in pairs:
                state = twin.state_dict()
                for old, new in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"), ("out_proj", "output")):
                    state = {name.replace(old, new): value for name, value in state.items()}
                part.load_state_dict(state)
    return model


SOURCE = Tokens.of([[5, 6, 7, 8, 2], [9, 10, 2], [11, 12, 13, 14, 15, 16, 2]])
TARGET = Tokens.of([[1, 17, 18, 2], [1, 19, 20, 21, 22, 2], [1, 23, 2]])
BATCH = Pairs(SOURCE, TARGET, 3 + 5 + 2)


def marian_logits(marian):
    return marian(
        input_ids=SOURCE.ids, attention_mask=SOURCE.mask().long(), decoder_input_ids=TARGET.ids[:, :-1]
    ).logits


def test_logits_equal(marian, ours):
    real = TARGET.mask()[:, 1:]
    assert_close(ours.logits(BATCH)[real], marian_logits(marian)[real], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_equal(marian, ours, smoothing):
    labels = TARGET.ids[:, 1:].masked_fill(~TARGET.mask()[:, 1:], -100)
    loss = SequenceToSequence(smoothing).loss(ours, BATCH)
    expected = F.cross_entropy(
        marian_logits(marian).flatten(0, 1), labels.flatten(), label_smoothing=smoothing, reduction="sum"
    )
    assert loss.count == 10
    assert_close(loss.total, expected, atol=1e-4, rtol=1e-5)
    ours.zero_grad()
    marian.zero_grad()
    loss.total.backward()
    expected.backward()
    twins = [
        (ours.source.tokens.weight, marian.model.shared.weight),
        (ours.encoder[0].attention.query.weight, marian.model.encoder.layers[0].self_attn.q_proj.weight),
        (ours.decoder[1].cross_attention.value.bias, marian.model.decoder.layers[1].encoder_attn.v_proj.bias),
        (ours.decoder[0].feed_forward.inner.weight, marian.model.decoder.layers[0].fc1.weight),
    ]
    for mine, other in twins:
        assert_close(mine.grad, other.grad, atol=1e-4, rtol=1e-4)


def test_greedy_decoding_chooses_the_same_tokens(marian, ours):
    found = marian.generate(
        input_ids=SOURCE.ids, attention_mask=SOURCE.mask().long(), num_beams=1, do_sample=False, max_new_tokens=12
    )
    state = ours.start(Pairs(SOURCE))
    config = DecodeConfig(beam=1, max_len=12, max_ratio=None)
    mine = greedy(ours, state, torch.full((3,), 1), eos=2, config=config)
    for row, hypothesis in zip(found.tolist(), mine, strict=True):
        expected = row[1:]
        expected = expected[: expected.index(2)] if 2 in expected else expected
        assert hypothesis.tokens == expected
    assert len({tuple(hypothesis.tokens) for hypothesis in mine}) > 1
