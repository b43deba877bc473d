from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.decode.config import DecodeConfig
from regard.decode.greedy import greedy
from regard.errors import ConfigError, DataError
from regard.models.gpt import GPT, GPTConfig
from regard.nn.batch import Packed, Tokens, Windows
from regard.tasks.config import make_config
from regard.training.objectives import LanguageModelling

TINY = GPTConfig(vocab_size=23, width=12, heads=6, layers=2, feed_forward=14, dropout=0.0, max_len=20)
VARIANTS = {
    "GPT-2": {},
    "Llama": {"norm": "rms", "gated": True, "activation": "silu", "bias": False, "positions": "rotary", "kv_heads": 2},
    "untied": {"tied": False},
    "window": {"window": 3, "positions": "rotary"},
    "no positions": {"positions": "none"},
    "sinusoidal": {"positions": "sinusoidal"},
    "ALiBi": {"positions": "alibi", "kv_heads": 3},
    "ALiBi, window": {"positions": "alibi", "window": 3},
    "relative": {"positions": "relative", "relative_buckets": 8, "relative_distance": 12},
}
prompts = st.lists(st.lists(st.integers(4, 22), min_size=1, max_size=9), min_size=1, max_size=4)


def make(variant):
    torch.manual_seed(0)
    model = GPT(replace(TINY, **VARIANTS[variant])).eval()
    for parameter in model.parameters():  # larger than a model starts, so that no prediction is near uniform
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def windows(rows):
    tokens = Tokens.of(rows)
    labels = torch.where(tokens.mask(), tokens.ids, -100)
    return Windows(tokens, labels, int(tokens.lengths.sum()))


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=8)
@given(rows=prompts, data=st.data())
@torch.no_grad()
def test_neither_padding_nor_a_later_token_changes_an_earlier_prediction(variant, rows, data):
    model = make(variant)
    together = model.logits(windows(rows))
    for index, row in enumerate(rows):
        assert_close(together[index, : len(row)], model.logits(windows([row]))[0], atol=1e-5, rtol=1e-5)
    place = data.draw(st.integers(0, len(rows[0]) - 1))
    changed = [[*rows[0][:place], 4 + (rows[0][place] - 3) % 19, *rows[0][place + 1 :]]]
    after = model.logits(windows(changed))[0]
    assert_close(after[:place], together[0, :place], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(after[place], together[0, place])


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=8)
@given(rows=prompts, steps=st.integers(1, 5))
@torch.no_grad()
def test_steps_after_prompts_of_any_lengths_equal_full_recomputation(variant, rows, steps):
    model = make(variant)
    whole = [row + torch.randint(4, 23, (steps,)).tolist() for row in rows]
    state = model.start(Tokens.of(rows))
    choices = torch.tensor([row[-1] for row in rows])
    for step in range(steps + 1):
        log_probs, state = model.step(choices, state)
        for index, row in enumerate(rows):
            so_far = whole[index][: len(row) + step]
            full = model.logits(windows([so_far]))[0, -1].log_softmax(-1)
            assert_close(log_probs[index], full, atol=1e-5, rtol=1e-5)
        if step < steps:
            choices = torch.tensor([one[len(row) + step] for one, row in zip(whole, rows, strict=True)])


@settings(max_examples=8)
@given(rows=prompts, data=st.data())
@torch.no_grad()
def test_selected_rows_go_on_as_they_would_have(rows, data):
    model = make("Llama")
    picks = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=5))
    state = model.start(Tokens.of(rows)).select(torch.tensor(picks))
    log_probs, _ = model.step(torch.tensor([rows[pick][-1] for pick in picks]), state)
    for row, pick in enumerate(picks):
        full = model.logits(windows([rows[pick]]))[0, -1].log_softmax(-1)
        assert_close(log_probs[row], full, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_greedy_outputs_of_prompts_together_equal_those_alone():
    model = make("window")
    rows = [[4, 5, 6], [7], [8, 9, 10, 11, 12]]
    config = DecodeConfig(beam=1, max_len=6, max_ratio=None)

    def outputs(rows):
        first = torch.tensor([row[-1] for row in rows])
        return [one.tokens for one in greedy(model, model.start(Tokens.of(rows)), first, eos=2, config=config)]

    assert outputs(rows) == [outputs([row])[0] for row in rows]


@torch.no_grad()
def test_packed_documents_do_not_see_each_other():
    model = make("GPT-2")
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 11]])
    numbers = torch.tensor([[1, 1, 1, 2, 2, 2, 2]])
    places = torch.tensor([[0, 1, 2, 0, 1, 2, 3]])
    batch = Windows(Packed(ids, places, numbers), ids, 7)
    found = model.logits(batch)[0]
    assert_close(found[:3], model.logits(windows([[5, 6, 7]]))[0], atol=1e-5, rtol=1e-5)
    assert_close(found[3:], model.logits(windows([[8, 9, 10, 11]]))[0], atol=1e-5, rtol=1e-5)


def test_the_loss_is_the_cross_entropy_of_the_next_token():
    model = make("untied")
    batch = Windows(Tokens.of([[4, 5, 6], [7, 8, 9]]), torch.tensor([[5, 6, 7], [-100, 9, 10]]), 5)
    loss = LanguageModelling().loss(model, batch)
    expected = torch.nn.functional.cross_entropy(
        model.logits(batch).flatten(0, 1), batch.labels.flatten(), reduction="sum"
    )
    assert loss.count == 5
    assert_close(loss.total, expected)
    assert_close(loss.parts["nll"], expected.detach())


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [
        ("gpt2-small", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_presets_have_gpt2s_parameters_exactly(preset, parameters):
    config = make_config(preset=preset)
    config = replace(config, model={**config.model, "vocab_size": 50257}).model_config()
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in GPT(config).parameters()) == parameters


def test_first_predictions_are_near_uniform():
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=500, width=64, heads=4, layers=4, feed_forward=256, dropout=0.0))
    log_probs = model.logits(windows([list(range(100))])).log_softmax(-1)
    assert_close(-log_probs.mean(), torch.tensor(500.0).log(), atol=0.05, rtol=0.0)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="layers=0"):
        GPTConfig(vocab_size=9, layers=0)
    with pytest.raises(ConfigError, match="kv_heads=4"):
        GPTConfig(vocab_size=9, kv_heads=4)
    with pytest.raises(ConfigError, match="window=0"):
        GPTConfig(vocab_size=9, window=0)
    with pytest.raises(ConfigError, match=r"layer_heads cannot differ .* alibi"):
        GPTConfig(vocab_size=9, layers=1, layer_heads=(2,), positions="alibi")
    with pytest.raises(ConfigError, match="relative_buckets=2"):
        GPTConfig(vocab_size=9, positions="relative", relative_buckets=2)
    with pytest.raises(ConfigError, match="rotary_base"):
        GPTConfig(vocab_size=9, rotary_base=1.0)
    model = make("GPT-2")
    with pytest.raises(DataError, match="without a token"):
        model.start(Tokens.of([[4], []]))
    with pytest.raises(DataError, match="longer than the model's max_len=20"):
        model.start(Tokens.of([[4] * 22]))
    state = model.start(Tokens.of([[4] * 20, [5]]))
    _, state = model.step(torch.tensor([4, 5]), state)
    with pytest.raises(DataError, match="longer than the model's max_len=20"):
        model.step(torch.tensor([4, 5]), state)


@torch.no_grad()
def test_linear_positions_are_seen_past_an_rms_norm_and_not_past_a_layer_norm():
    """What is the same in every feature is what a layer norm takes away."""
    for norm, seen in (("layer", False), ("rms", True)):
        outputs = []
        for kind in ("none", "linear-unscaled"):
            torch.manual_seed(0)
            config = GPTConfig(vocab_size=9, width=8, heads=2, layers=2, feed_forward=8, positions=kind, norm=norm)
            outputs.append(GPT(config).eval().read(Tokens.of([[5, 6, 7, 8]])))
        assert (not torch.allclose(*outputs, atol=1e-4)) == seen
