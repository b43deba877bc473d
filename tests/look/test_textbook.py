"""Figures that need no run."""

import re
from xml.etree import ElementTree

import pytest
import torch

from regard.cli import main
from regard.errors import ConfigError
from regard.look.textbook import dot_product_variances, masks_figure, positions_figure, softmax_figure
from regard.nn.positions import sinusoidal

COMMANDS = {
    "positions": ["--width", "8", "--length", "5", "--layout", "halves"],
    "masks": ["--length", "5", "--window", "2"],
    "softmax": ["--scores", "2,1,0"],
    "schedules": ["--steps", "100", "--warmup", "10"],
    "variance": ["--widths", "4,16", "--samples", "200"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_figure_is_written_as_svg(name, tmp_path, capsys):
    out = tmp_path / f"{name}.svg"
    assert main(["draw", name, *COMMANDS[name], "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert ElementTree.parse(out).getroot().tag.endswith("svg")


def fills(svg):
    return re.findall(r'<rect [^>]*fill="(#[0-9a-f]{6})"', svg)


def test_cells_are_the_table():
    table = sinusoidal(5, 8, "halves").flatten().tolist()
    shades = fills(positions_figure("sinusoidal", width=8, length=5, layout="halves"))
    assert len(shades) == 40
    # Below zero red is strongest, above it blue, at zero neither.
    for value, shade in zip(table, shades, strict=True):
        warmth = int(shade[1:3], 16) - int(shade[5:7], 16)
        assert warmth == 0 if abs(value) < 1e-3 else abs(value) < 0.02 or (warmth > 0) == (value < 0)
    grows = fills(positions_figure("linear-unscaled", width=1, length=4))
    assert grows[0] == "#ffffff"
    assert len(set(grows)) == 4


def test_masks_hide_what_they_say():
    seen = torch.tensor([shade != "#ffffff" for shade in fills(masks_figure(length=4, window=2, padding=1))])
    everything, causal, window, padded = seen.view(4, 4, 4)
    assert everything.all()
    assert causal.equal(torch.ones(4, 4).tril().bool())
    assert window.equal(torch.ones(4, 4).tril().triu(-1).bool())
    assert padded.equal(torch.tensor([True] * 3 + [False]).expand(4, 4))


def test_scaling_brings_the_variance_of_dot_products_to_one():
    for width, (before, after) in zip((4, 64), dot_product_variances([4, 64], samples=20_000), strict=True):
        assert before == pytest.approx(width, rel=0.1)
        assert after == pytest.approx(1, rel=0.1)


def test_what_cannot_be_plotted_is_refused():
    with pytest.raises(ConfigError, match="belong to a model"):
        positions_figure("rotary", width=8, length=4)
    with pytest.raises(ConfigError, match="must be even"):
        positions_figure("sinusoidal", width=7, length=4)
    with pytest.raises(ConfigError, match="layout='rows'"):
        positions_figure("sinusoidal", width=8, length=4, layout="rows")
    with pytest.raises(ConfigError, match="padding=4 must be below"):
        masks_figure(length=4, window=2, padding=4)
    with pytest.raises(ConfigError, match="two finite numbers"):
        softmax_figure([1.0])
