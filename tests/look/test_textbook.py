"""Figures that need no run."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from regard.cli import main
from regard.errors import ConfigError, DataError
from regard.look.calculator import EXAMPLES, LOOK_AHEAD, WorkedExample, calculator, matrix_of
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


def test_a_wide_table_keeps_rows_that_can_be_seen():
    svg = positions_figure("sinusoidal", width=512, length=20, layout="halves")
    width, height = (float(re.search(rf'<rect[^>]* {side}="([0-9.]+)"', svg)[1]) for side in ("width", "height"))
    assert width * 512 == pytest.approx(960, rel=0.01)
    assert height == 14


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
    with pytest.raises(ConfigError, match="learned positions belong to a model"):
        positions_figure("learned", width=8, length=4)
    with pytest.raises(ConfigError, match="layout='halves' is for sinusoidal positions"):
        positions_figure("linear", width=8, length=4, layout="halves")
    with pytest.raises(ConfigError, match="must be even"):
        positions_figure("sinusoidal", width=7, length=4)
    with pytest.raises(ConfigError, match="layout='rows'"):
        positions_figure("sinusoidal", width=8, length=4, layout="rows")
    with pytest.raises(ConfigError, match="padding=4 must be below"):
        masks_figure(length=4, window=2, padding=4)
    with pytest.raises(ConfigError, match="two finite numbers"):
        softmax_figure([1.0])


RIGHT = {
    0: [[0.8808, 0.1192]],
    1: [[0.8808, 0.1192, 0.0, 0.0]],
    2: [[0.622, 0.378], [0.223, 0.777]],
    3: [[0.804, 0.196]],
    5: [[0.0, 1.0, 0.0]],
}


@pytest.mark.parametrize("number", RIGHT)
def test_worked_examples_open_with_their_right_weights(number):
    (seen,) = EXAMPLES[number].sentence().attentions
    assert seen.array()[0][: len(RIGHT[number])] == pytest.approx(np.array(RIGHT[number]), abs=5e-4)


def test_a_calculator_opens_with_what_was_typed_and_says_what_is_wrong():
    own = WorkedExample(title="mine", tokens=(), scores=matrix_of("--scores", "6 4; 3 8"), d_k=16)
    found = calculator(own)
    assert len(found.sentences) == 1 + len(EXAMPLES)
    assert found.sentences[0].attentions[0].array()[0, 1] == pytest.approx([0.2227, 0.7773], abs=5e-4)
    masked = WorkedExample(title="", tokens=(), scores=LOOK_AHEAD, d_k=64, causal=True).sentence()
    assert masked.attentions[0].array()[0, 2] == pytest.approx([0.095, 0.128, 0.777, 0, 0, 0], abs=5e-4)
    vectors = WorkedExample(title="", tokens=(), q=[[1.0]], k=[[2.0], [0.0]], v=[[1.0], [3.0]]).sentence()
    assert (vectors.worked.d_k, vectors.worked.raw) == (1, False)
    for given, said in (
        ({"scores": [[1.0]]}, "give d_k"),
        ({"scores": [[1.0]], "d_k": 0}, "must be above 0"),
        ({"scores": [[1.0]], "q": [[1.0]], "d_k": 4}, "not both"),
        ({"q": [[1.0]]}, "give q and k"),
        ({"q": [[1.0, 2.0]], "k": [[1.0]]}, "a dot product needs as many"),
        ({"q": [[1.0]], "k": [[1.0]], "v": [[1.0], [2.0]]}, "each key has one"),
        ({"q": [[1.0], []], "k": [[1.0]]}, "rows of equally many numbers"),
        ({"q": [[float("nan")]], "k": [[1.0]]}, "not finite"),
    ):
        with pytest.raises(DataError, match=said):
            calculator(WorkedExample(title="", tokens=(), **given))
    with pytest.raises(DataError, match="must be numbers"):
        matrix_of("--q", "one two")


def test_the_command_writes_a_calculator_of_ones_own_numbers(tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["draw", "calculator", "--scores", "6 4; 3 8", "--d-k", "16", "--out", str(out)]) == 0
    assert "Your own numbers" in out.read_text(encoding="utf-8")
    assert main(["draw", "calculator", "--scores", "6 4", "--out", str(out)]) == 2
    assert "give d_k" in capsys.readouterr().err
