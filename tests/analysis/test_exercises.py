"""The exercises: their answers are what the code that trains computes, and each slip is known by its name."""

import json

import pytest
import torch

from regard.analysis.exercises import EXERCISES, HYPOTHESIS, MONEY, REFERENCE, check, find
from regard.cli import main
from regard.errors import ConfigError, DataError
from regard.metrics.text import corpus_scores
from regard.nn.attention import Attention, attend, softmax_visible
from regard.nn.attention_scores import make_score
from regard.nn.batch import Pairs, Tokens
from regard.nn.blocks import BlockConfig, FeedForward
from regard.nn.masks import CAUSAL
from regard.nn.positions import offset_rotation, sinusoidal
from regard.nn.recurrent.cells import GRUAfterCell

INPUTS = {"positions": (3,), "parameters": (512, 8), "cost": (512,)}


def said(name, values):
    inputs = [str(value) for value in INPUTS.get(name, ())]
    return [*inputs, *(f"{value:.{find(name).decimals + 3}f}" for value in values)]


@pytest.mark.parametrize("name", EXERCISES)
def test_the_answer_is_right_and_every_slip_is_named(name):
    exercise = find(name)
    inputs = INPUTS.get(name, ())
    assert check(name, said(name, exercise.answer(*inputs))).right
    for slip, work in exercise.slips.items():
        verdict = check(name, said(name, work(*inputs)))
        assert not verdict.right
        assert verdict.slip == slip


@pytest.mark.parametrize("place", [0, 1, 3, 7])
def test_positions_are_those_of_the_model(place):
    right = torch.tensor(MONEY) + sinusoidal(place + 1, 4)[place]
    assert check("positions", [str(place), " ".join(f"{value:.3f}" for value in right)]).right


def test_answers_are_those_of_the_parts():
    flying = torch.tensor([[[0.0, 1, 1, 1, 1, 0], [1.0, 1, 0, -1, -1, 1]]])[None]
    mixed, _ = attend(flying[..., 0:2], flying[..., 2:4], flying[..., 4:6])
    assert check("head", [f"{value:.3f}" for value in mixed[0, 0, 0]]).right
    scores = torch.tensor([[1.9, 4.3, 18.7, 6.5, 7.2, 3.3]]).expand(6, 6) / 8
    weights = softmax_visible(scores, CAUSAL.mask(6, 6, scores.device)[0, 0])[2]
    assert check("mask", [f"{value:.3f}" for value in weights]).right
    norm = torch.nn.LayerNorm(4)(torch.tensor([1.0, 2, 3, 4]))
    assert check("layer-norm", [f"{value:.3f}" for value in norm]).right
    count = sum(weight.numel() for weight in Attention(512, 8, bias=False).parameters())
    assert check("parameters", ["512", "8", str(count)]).right
    bleu = corpus_scores([HYPOTHESIS], [REFERENCE]).tokenised_bleu
    assert check("bleu", [f"{bleu:.1f}"]).right


def test_answers_of_the_smaller_parts_are_theirs():
    s, h = torch.tensor([[[1.0, 2]]]), torch.tensor([[[3.0, 4]]])
    cosine = torch.cosine_similarity(s, h, dim=-1)
    scores = [make_score(name, 2, 2)(s, h) for name in ("dot", "scaled-dot")]
    assert check("alignment-scores", [f"{value.item():.3f}" for value in (*scores, cosine)]).right
    layer = FeedForward(BlockConfig(width=2, heads=1, feed_forward=2, activation="relu", dropout=0.0))
    with torch.no_grad():
        layer.inner.weight.copy_(torch.tensor([[1.0, 3], [2, -1]]))
        layer.inner.bias.copy_(torch.tensor([0.0, 1]))
        layer.outer.weight.copy_(torch.tensor([[5.0, 0.5]] * 2))
        layer.outer.bias.fill_(-3.0)
    assert check("feed-forward", [f"{layer(torch.tensor([[[1.0, -1]]]))[0, 0, 0].item():.3f}"]).right
    found, _ = attend(torch.eye(3)[None, None, 2:], torch.eye(3)[None, None], torch.tensor([[[[10.0], [20], [30]]]]))
    assert check("look-up", [f"{found.item():.2f}"]).right
    x = torch.tensor([1.0], requires_grad=True)
    reached = x
    for _ in range(3):
        reached = reached + 0.1 * reached
    reached.backward()
    assert check("residual", ["0.001", f"{x.grad.item():.3f}"]).right
    turn = offset_rotation(2, 2)
    assert check("rotation", [f"{value:.3f}" for value in turn.flatten().tolist()]).right
    batch = Pairs(Tokens.of([[0]]), Tokens.of([list(range(6))]), count=5)
    shown = [*batch.inputs.ids[0].tolist(), *batch.labels[0].tolist()]
    assert check("teacher-forcing", [str(value) for value in shown]).right


def test_an_answer_can_be_pasted_as_a_tensor_is_printed():
    assert check("scores", ["[0.622, 0.378]"]).right
    assert check("positions", ["3", "(0.551 -0.910 0.540 1.870)"]).right


def test_the_gru_is_torchs():
    cell = GRUAfterCell(1, 1)
    with torch.no_grad():
        for weight in cell.parameters():
            weight.zero_()
    ours = cell.advance(cell.project(torch.zeros(1, 1)), (torch.full((1, 1), 0.5),))[0]
    assert ours.item() == pytest.approx(0.25)  # z = 0.5 of 0.5, and as much of a candidate of 0
    assert check("gru", ["-0.7"]).slip.startswith("z writes the new state in MUT")


def test_too_few_decimals_are_told_from_a_slip():
    verdict = check("scores", ["0.62 0.38"])
    assert not verdict.right
    assert "give 3 decimals" in verdict.text
    assert check("scores", ["0.6 0.4"]).slip.startswith("the scores divided by their sum")  # exactly that
    assert check("scores", ["0.88 0.12"]).slip.startswith("the scores were not divided")  # rounded


def test_an_unknown_slip_names_what_is_wrong():
    verdict = check("scores", ["0.622", "0.5"])
    assert verdict.slip is None
    assert verdict.text.endswith("wrong: second")


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("positions", ["3", "0.5"], "takes 5 numbers"),
        ("positions", ["half", "1 2 3 4"], "not a number"),
        ("positions", ["1.5", "1 2 3 4"], "must be a whole number"),
        ("scores", ["nan", "1"], "finite"),
        ("scores", [], "takes 2 numbers"),
    ],
)
def test_what_cannot_be_an_answer_is_refused(name, values, says):
    with pytest.raises(DataError, match=says):
        check(name, values)


def test_an_unknown_exercise_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'positions'"):
        check("position", ["1"])


def test_from_the_command_line(capsys):
    assert main(["check", "positions", "3", "0.551 -0.910 0.540 1.870"]) == 0
    assert capsys.readouterr().out == "right\n"
    assert main(["check", "positions", "3", "0.551", "-0.910", "0.540", "1.870", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"right": True, "slip": None, "text": "right"}
    assert main(["check", "scores", ".881", ".119", "--show"]) == 1
    out = capsys.readouterr().out
    assert "not divided by sqrt(d_k)" in out
    assert "0.622 0.378" in out
    assert main(["check"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(EXERCISES)
    assert main(["check", "bleu"]) == 0
    assert "regard check bleu (BLEU), to 1 decimals" in capsys.readouterr().out
    assert main(["check", "scores", "--shwo"]) == 2
