"""The decoder's step in few operations gives what the blocks give, and steps aside where somebody watches."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.attention import Attention
from regard.nn.batch import Pairs, Tokens
from regard.nn.kv_cache import DecoderState
from regard.nn.lean_decoder import GROWTH, LeanState
from regard.nn.quantized import quantize

PLAIN = TransformerConfig(
    source_vocab_size=50,
    target_vocab_size=50,
    width=32,
    heads=4,
    encoder_layers=1,
    decoder_layers=2,
    feed_forward=48,
    max_len=64,
)
SOURCES = [[4, 5, 6, 7, 2], [8, 9, 2], [10, 2]]


def make(int8=False, **change):
    torch.manual_seed(0)
    model = Transformer(replace(PLAIN, **change)).eval()
    return quantize(model) if int8 else model


def steps(model, state, count):
    """The log-probabilities of some steps, with rows widened, reordered and dropped in between."""
    tokens, found = torch.tensor([1, 1, 1]), []
    for step in range(count):
        log_probs, state = model.step(tokens, state)
        found.append(log_probs)
        if step == 0:
            state = state.select(torch.tensor([0, 0, 1, 1, 2, 2]))
            tokens = torch.arange(4, 10)
        elif step == 3:
            state = state.select(torch.tensor([1, 0, 4, 4]), torch.tensor([0, 2]))
            tokens = torch.arange(20, 24)
        elif step % 2:
            state = state.select(torch.arange(len(tokens)).view(-1, 2).flip(1).flatten())
    return found


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"norm_first": True, "activation": "gelu", "bias": False},
        {"norm": "rms", "gated": True, "activation": "silu", "positions": "learned", "position_offset": 2},
        {"norm_embedding": True, "position_how": "concatenate", "position_width": 8, "scale_embedding": False},
        {"int8": True},
        {"int8": True, "norm_first": True, "gated": True},
    ],
)
@torch.inference_mode()
def test_the_lean_step_gives_what_the_blocks_give(change):
    model, batch = make(**change), Pairs(Tokens.of(SOURCES, 0))
    lean = model.start(batch)
    assert isinstance(lean, LeanState)
    handle = model.decoder[0].register_forward_hook(lambda *_: None)
    plain = model.start(batch)
    handle.remove()
    assert isinstance(plain, DecoderState)
    # In int8 a last bit that differs can put a number into the next step of its grid.
    near = 2e-2 if change.get("int8") else 1e-5
    for one, other in zip(steps(model, lean, GROWTH + 4), steps(model, plain, GROWTH + 4), strict=True):
        assert_close(one, other, atol=near, rtol=near)


@pytest.mark.parametrize(
    "change",
    [
        {"positions": "rotary"},
        {"positions": "alibi"},
        {"positions": "relative"},
        {"window": 4},
        {"kv_heads": 2},
        {"qk_norm": True},
        {"residual": False},
        {"decoder_heads": (4, 2)},
        {"cross_heads": (0, 4)},
    ],
)
@torch.inference_mode()
def test_what_is_not_plain_attention_keeps_its_blocks(change):
    assert isinstance(make(**change).start(Pairs(Tokens.of(SOURCES, 0))), DecoderState)


def test_training_and_gradients_keep_the_blocks():
    batch = Pairs(Tokens.of(SOURCES, 0))
    assert isinstance(make().start(batch), DecoderState)
    with torch.no_grad():
        assert isinstance(make().start(batch), LeanState)
        assert isinstance(make().train().start(batch), DecoderState)


@torch.inference_mode()
def test_a_watcher_sees_every_step_and_the_output_is_the_same():
    model, batch = make(), Pairs(Tokens.of(SOURCES, 0))
    config = DecodeConfig(beam=3, max_len=8)

    def decode():
        return beam_search(model, model.start(batch), torch.ones(3, dtype=torch.long), eos=2, config=config)

    before, seen = decode(), []
    watched = model.decoder[1].cross_attention
    assert isinstance(watched, Attention)
    watched.watcher = lambda q, k, v, weights: seen.append(weights.shape) or weights
    after = decode()
    assert seen
    assert [one[0].tokens for one in after] == [one[0].tokens for one in before]
    assert [one[0].score for one in after] == pytest.approx([one[0].score for one in before], abs=1e-5)


@torch.inference_mode()
def test_a_source_decodes_alike_alone_and_among_others():
    model = make(int8=True)
    config = DecodeConfig(beam=4, max_len=12)

    def decode(rows):
        first = torch.ones(len(rows), dtype=torch.long)
        return beam_search(model, model.start(Pairs(Tokens.of(rows, 0))), first, eos=2, config=config)

    together = decode(SOURCES)
    for source, found in zip(SOURCES, together, strict=True):
        (alone,) = decode([source])
        assert alone[0].tokens == found[0].tokens
        assert alone[0].score == pytest.approx(found[0].score, abs=1e-4)
