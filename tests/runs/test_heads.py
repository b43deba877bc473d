import math

import pytest
import torch

from regard.data.readers import PairFiles
from regard.errors import ConfigError
from regard.look import attentions
from regard.look.roles import largest_margins, thresholds
from regard.runs.config import make_config
from regard.runs.corpora import world_held_out
from regard.runs.heads import _items, answers, head_roles, make_quizzes, pronoun_report, untrained
from regard.runs.run import Run, build_model
from regard.text import train_vocabularies

CORPUS = world_held_out("test", "en", 50)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An untrained run on the bundled corpus."""
    settings = [
        "model.width=16",
        "model.heads=2",
        "model.encoder_layers=2",
        "model.decoder_layers=1",
        "model.feed_forward=16",
        "model.positions=none",
        "tokenizer.kind=word",
        "tokenizer.joint=false",
        "data.world=100",
        "model.share=none",
        "model.max_len=100",
        "data.max_len=100",
        "decode.max_len=4",
    ]
    config = make_config(preset="tiny", overrides=settings)
    vocabularies = train_vocabularies(list(CORPUS), config.tokenizer)
    config = config.with_vocabularies(vocabularies)
    return Run(tmp_path_factory.mktemp("run"), config, vocabularies, build_model(config).eval())


def test_untrained_models_get_no_role_beyond_the_stated_rate(run):
    items = _items(run, CORPUS, 50)
    quizzes = make_quizzes(items)
    largest = []
    for number in range(40):
        found = answers(run, untrained(run, number), items, quizzes)
        largest.append(largest_margins(head for own in found.values() for head in own))
    limits = thresholds(largest[:6], largest[6:25])
    wrong = sum(any(margin > limits[role] for role, margin in one.items()) for one in largest[25:])
    # Fifteen further models at a rate of at most 1 in 20: more than 3 would happen once in 180 times.
    assert wrong <= 3


@torch.no_grad()
def test_a_head_planted_to_look_at_the_previous_word_is_found(run):
    """Rotations by one place: queries are positions turned back by one, keys the positions themselves."""
    model = untrained(run, 0)
    attention = attentions(model)["encoder.0.attention"]
    # Token vectors are silenced in eight features, in which the place is written as two fast and two slow angles.
    speeds = math.pi / torch.tensor([4.0, 13.0, 29.0, 53.0])
    places = torch.arange(100.0)[:, None] * speeds
    written = torch.cat([places.cos(), places.sin()], 1)
    model.source.tokens.weight[:, :8] = 0
    model.encoder[0].around_attention.norm = torch.nn.Identity()
    model.source.register_forward_hook(
        lambda module, given, out: torch.cat([out[..., :8] + written[: out.shape[1]], out[..., 8:]], -1)
    )
    for head, shift in enumerate((1, -1)):
        cos, sin = (shift * speeds).cos().diag(), (shift * speeds).sin().diag()
        back = torch.cat([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)])
        rows = slice(8 * head, 8 * head + 8)
        attention.query.weight[rows] = 0
        attention.key.weight[rows] = 0
        attention.query.weight[rows, :8] = 20 * back
        attention.key.weight[rows, :8] = torch.eye(8)
    planted = Run(run.directory, run.config, run.vocabularies, model)
    report = head_roles(planted, CORPUS, limit=50, judging=5)
    roles = {(head["attention"], head["head"]): head for head in report["heads"]}
    for head, role in enumerate(("previous", "next")):
        own = roles["encoder.0.attention", head]
        assert own["role"] == role
        assert own["evidence"]["accuracy"] > 0.95
        assert own["evidence"]["low"] > own["evidence"]["baseline"] + 0.5
        assert own["measures"]["entropy"] < 1
    assert report["false_positive_rate"] == pytest.approx(1 / 6)
    assert len(report["heads"]) == 2 * 4


def test_pairs_without_gold_are_asked_what_can_be_asked(run, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in CORPUS), encoding="utf-8")
    report = head_roles(run, PairFiles(path), judging=1)
    assert report["sentences"] == 50
    assert "rare" in report["thresholds"]
    assert "alignment" not in report["thresholds"]


def test_the_pronoun_report_counts_every_encoder_head(run):
    found = pronoun_report(run, word=None, limit=4)
    assert found["attention"] in ("encoder.0.attention", "encoder.1.attention")
    assert found["evidence"]["questions"] >= 4
    assert 0 < found["chance"] < 0.3
    assert {name: len(shares) for name, shares in found["translated_when_masked"].items()} == {
        "encoder.0.attention": 2,
        "encoder.1.attention": 2,
    }
    assert found["by_head"][found["attention"]][found["head"]] == found["evidence"]["accuracy"]


def test_nothing_to_compare_with_is_refused(run):
    with pytest.raises(ConfigError, match="judging=0 must be at least 1"):
        head_roles(run, CORPUS, judging=0)
