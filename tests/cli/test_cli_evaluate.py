import json

import pytest
from cli_toys import small_settings

from regard.cli import main
from regard.tasks.translation_metrics import show_scores

WORLD = {"pronoun_accuracy", "pronouns", "alignment_error_rate", "alignment_head", "alignment_by_head"}
SCORES = {"bleu", "bleu_signature", "chrf", "chrf_signature", "ter", "exact_match", "perplexity", "by_length"}


@pytest.fixture(scope="module")
def world(corpus, tmp_path_factory):
    """A run on the bundled corpus; validated on a few lines of another, for speed."""
    out = tmp_path_factory.mktemp("runs") / "world"
    arguments = ["--world", "100", "--valid", str(corpus / "valid.tsv"), *small_settings("train.steps=2")]
    assert main(["train", "--preset", "tiny", *arguments, "--out", str(out)]) == 0
    return out


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr("regard.tasks.translation_metrics.ALIGNED", 8)


def test_the_bundled_corpus_is_scored_against_its_gold(cli, world):
    result = cli("evaluate", world, "--json", "--limit", 12, "--beam", 1)
    assert result.code == 0
    scores = json.loads(result.out)
    assert scores.keys() >= SCORES | WORLD
    assert scores["sentences"] == 12
    assert 0 <= scores["alignment_error_rate"] <= 1
    assert scores["alignment_head"]["attention"] == "decoder.0.cross_attention"
    assert sum(band["count"] for band in scores["by_length"]) == 12
    # Some sentences of the corpus are longer than this model reads: translated in pieces, and told of.
    assert scores["perplexity_sentences"] < 12
    text = show_scores(scores)
    for name in ("BLEU", "chrF", "pronoun accuracy", "alignment error", "too long for the", scores["bleu_signature"]):
        assert name in text


def test_files_have_no_gold(cli, trained, corpus):
    scores = json.loads(cli("evaluate", trained, "--json").out)
    assert scores.keys() >= SCORES
    assert not scores.keys() & WORLD
    assert scores["sentences"] == 6
    files = ["--data", corpus / "valid.en", "--data", corpus / "valid.fr"]
    assert json.loads(cli("evaluate", trained, *files, "--json").out) == scores
    lower = json.loads(cli("evaluate", trained, *files, "--json", "--lowercase").out)
    assert "case:lc" in lower["bleu_signature"]
    assert "exact match" in cli("evaluate", trained).out


def test_what_cannot_be_evaluated_is_one_line(refused, trained, corpus, tmp_path):
    (tmp_path / "blank.tsv").write_text("a\t \n")
    (tmp_path / "long.tsv").write_text(f"{'the ' * 40}\tLE\n")
    assert "not both" in refused("evaluate", trained, "--world", "--data", corpus / "valid.tsv")
    assert "no such file" in refused("evaluate", trained, "--data", tmp_path / "none.tsv")
    assert "no pair has both sides" in refused("evaluate", trained, "--data", tmp_path / "blank.tsv")
    assert "is named twice" in refused("evaluate", trained, *["--data", corpus / "valid.tsv"] * 3)
    assert "tokenize='nope' must be one of 13a" in refused("evaluate", trained, "--tokenize", "nope")
    assert "beam=0 must be at least 1" in refused("evaluate", trained, "--beam", 0)
    overlong = ["--data", tmp_path / "long.tsv", "--overlong"]
    assert "sentence 1 has" in refused("evaluate", trained, *overlong, "refuse")
    assert "every pair is longer" in refused("evaluate", trained, *overlong, "split")
    assert "must be one of split" in refused("evaluate", trained, *overlong, "spilt")


def test_a_run_without_held_out_pairs_says_so(cli, refused, corpus, tmp_path):
    arguments = ["--data", corpus / "train.tsv", "--out", tmp_path / "run", *small_settings("train.steps=1")]
    assert cli("train", "--preset", "tiny", *arguments).code == 0
    assert "the run names no test or validation set" in refused("evaluate", tmp_path / "run")
