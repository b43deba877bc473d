from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from regard.errors import ConfigError
from regard.models.convolutional import Convolutional, ConvolutionalConfig
from regard.nn.batch import Pairs, Tokens
from regard.nn.blocks import GatedConvolution
from regard.tasks.config import make_config

TINY = ConvolutionalConfig(
    source_vocab_size=23,
    target_vocab_size=19,
    width=6,
    encoder_layers=2,
    decoder_layers=2,
    share="output",
    dropout=0.0,
    max_len=12,
)


@pytest.mark.parametrize(
    ("kernel", "causal", "dilation"),
    [(3, False, 1), (5, False, 1), (3, True, 1), (4, True, 1), (1, True, 1), (3, False, 2), (3, True, 2), (2, True, 3)],
)
def test_a_gated_convolution_is_its_definition(kernel, causal, dilation):
    torch.manual_seed(0)
    layer = GatedConvolution(3, kernel, causal=causal, dilation=dilation).double()
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    found = layer(x)
    weight, bias = layer.convolution.weight, layer.convolution.bias
    before = kernel - 1 if causal else kernel // 2
    for t in range(7):
        total = bias.expand(2, -1)
        for place in range(kernel):
            seen = t + dilation * (place - before)
            if 0 <= seen < 7:
                total = total + x[:, seen] @ weight[:, :, place].T
        assert_close(found[:, t], total[:, :3] * torch.sigmoid(total[:, 3:]))


@pytest.mark.parametrize(("kernel", "dilation"), [(4, 1), (2, 3)])
def test_a_window_is_all_that_a_step_needs(kernel, dilation):
    torch.manual_seed(0)
    layer = GatedConvolution(3, kernel, causal=True, dilation=dilation)
    x = torch.randn(2, 7, 3)
    whole, window = layer(x), layer.window(x[:, 0])
    for t in range(7):
        out, window = layer.step(x[:, t], window)
        assert window.shape == (2, 3, 3)
        assert_close(out, whole[:, t])


def test_each_layer_reaches_one_kernel_further_and_no_more():
    torch.manual_seed(0)
    model = Convolutional(TINY).eval()
    before = model.encode(Tokens.of([list(range(4, 15))]))
    after = model.encode(Tokens.of([[3, *range(5, 15)]]))
    changed = (before.keys[0] != after.keys[0]).any(-1)[0]
    assert changed.tolist() == [True] * 3 + [False] * 8  # two layers of three: two places to the right


def test_a_layer_neither_fades_nor_bursts_at_first():
    torch.manual_seed(0)
    layer = GatedConvolution(256, 3)
    assert 0.5 < float(layer(torch.randn(8, 64, 256))[:, 2:-2].detach().std()) < 1.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder_kernel": 4}, "encoder_kernel=4 must be odd"),
        ({"decoder_kernel": 0}, "decoder_kernel=0 must be at least 1"),
        ({"share": "all"}, "share='all' needs one vocabulary"),
        ({"dropout": 1.0}, "dropout=1.0 must be at least 0 and below 1"),
    ],
)
def test_impossible_settings_are_refused_with_the_rule(change, message):
    with pytest.raises(ConfigError, match=message):
        replace(TINY, **change)


def test_packing_is_refused_before_anything_is_read():
    with pytest.raises(ConfigError, match="a convolutional model reads one sequence per row"):
        make_config(None, "gehring-2017", ["train.pack=always"])


def test_the_preset_has_the_parameters_that_its_layers_ask_for():
    mapping = {key: value for key, value in make_config(None, "gehring-2017").model.items() if key != "name"}
    model = Convolutional(ConvolutionalConfig(source_vocab_size=4000, target_vocab_size=4000, **mapping))
    tables, convolution, linear = 2 * (4000 + 128) * 128, 3 * 128 * 256 + 256, 128 * 128 + 128
    wanted = tables + 4 * convolution + 3 * (convolution + 2 * linear)
    assert sum(parameter.numel() for parameter in model.parameters()) == wanted


def test_the_preset_learns_where_to_look_within_sixty_updates():
    """To reverse rows of eight words: with scores that are not scaled each step is stuck with one word, near chance."""
    mapping = {key: value for key, value in make_config(None, "gehring-2017").model.items() if key != "name"}
    mapping |= {"encoder_layers": 1, "decoder_layers": 1}
    torch.manual_seed(0)
    model = Convolutional(ConvolutionalConfig(source_vocab_size=40, target_vocab_size=40, **mapping))
    optimizer, dice = torch.optim.AdamW(model.parameters(), 2e-3), torch.Generator().manual_seed(0)
    for _ in range(60):
        rows = torch.randint(4, 40, (16, 8), generator=dice)
        rows[:, 0] = 1
        logits = model.logits(Pairs(Tokens.of(rows.flip(1).tolist()), Tokens.of(rows.tolist())))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 1.5  # 0.6; chance is 3.6
