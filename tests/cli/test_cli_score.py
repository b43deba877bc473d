"""`regard score`, and `--with`: how likely a run, or several together, find texts that are given."""

import json
import math

import pytest
import torch
from cli_toys import small_settings

import regard
from regard.cli import main
from regard.errors import ConfigError, DataError, RunError
from regard.nn.batch import Pairs, Tokens

PAIRS = [("the cat sees", "SEES CAT THE"), ("a dog", "A"), ("big house runs and sleeps", "HOUSE BIG"), ("", "")]


@pytest.fixture(scope="module")
def loaded(trained):
    return regard.load(trained, "cpu")


@pytest.fixture(scope="module")
def other(trained, tmp_path_factory):
    """The same run trained on with another seed: of one vocabulary."""
    out = tmp_path_factory.mktemp("other") / "run"
    asked = ["--from", str(trained), "--set=train.seed=5", "--set=train.steps=4", "--set=train.learning_rate=0.05"]
    data = [f"--data={one}" for one in regard.load(trained, "cpu").config.data.train]
    kept = [
        one for one in small_settings() if not one.startswith(("--set=model", "--set=tokenizer", "--set=train.steps"))
    ]
    assert main(["train", *asked, *data, "--out", str(out), *kept]) == 0
    return out


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    (folder / "text.txt").write_text("sun moon star sky\n" * 30, encoding="utf-8")
    small = ["model.width=16", "model.heads=2", "model.layers=1", "model.feed_forward=24", "model.max_len=16"]
    small += ["data.max_len=16", "train.batch_tokens=64", "train.steps=4", "train.threads=1"]
    arguments = ["train", "--preset", "gpt-tiny", "--data", str(folder / "text.txt"), "--out", str(folder / "run")]
    assert main([*arguments, *(f"--set={setting}" for setting in small)]) == 0
    return folder / "run"


def by_teacher_forcing(run, source, target):
    """The log-probability of every token by one forward pass."""
    from_ids, to_ids = run.vocabularies.source, run.vocabularies.target
    row, tokens = [*from_ids.encode(source), from_ids.eos], [to_ids.bos, *to_ids.encode(target), to_ids.eos]
    with torch.inference_mode():
        log_probs = run.model.logits(Pairs(Tokens.of([row]), Tokens.of([tokens]))).log_softmax(-1)[0]
    return log_probs.gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()


def test_pairs_are_scored_as_the_model_reads_them_in_any_batch(loaded):
    found = loaded.score(PAIRS, tokens=True)
    for one, (source, target) in zip(found, PAIRS, strict=True):
        wanted = by_teacher_forcing(loaded, source, target)
        assert [token.log_prob for token in one.tokens] == pytest.approx(wanted, abs=1e-4)
        assert one.log_prob == pytest.approx(sum(wanted), abs=1e-4)
        assert (one.source, one.text, one.length) == (source, target, len(wanted))
        assert one.tokens[-1].piece == "<eos>"
        (alone,) = loaded.score([(source, target)])
        assert alone.log_prob == pytest.approx(one.log_prob, abs=1e-5)
        assert alone.tokens is None
    ((best,),) = loaded.translations(["the cat"], beam=3, max_len=20)
    (again,) = loaded.score([("the cat", best.text)])
    if best.finished and loaded.vocabularies.target.encode(best.text) == list(best.tokens):
        assert again.log_prob == pytest.approx(best.log_prob, abs=1e-4)


def test_every_way_to_give_pairs_says_the_same(cli, trained, tmp_path, stdin):
    for name, column in (("in.en", 0), ("in.fr", 1)):
        (tmp_path / name).write_text("".join(f"{pair[column]}\n" for pair in PAIRS[:3]))
    (tmp_path / "in.tsv").write_text("".join("\t".join(pair) + "\n" for pair in PAIRS[:3]))
    words = [text for pair in PAIRS[:3] for text in pair]
    ways = [words, ["--input", tmp_path / "in.tsv"], ["--source", tmp_path / "in.en", "--target", tmp_path / "in.fr"]]
    found = [cli("score", trained, *way, "--device", "cpu") for way in ways]
    assert all(one.code == 0 for one in found), found
    stdin((tmp_path / "in.tsv").read_bytes())
    found.append(cli("score", trained, "--device", "cpu"))
    assert len({one.out for one in found}) == 1
    assert len(found[0].out.splitlines()) == 3
    assert cli("score", trained, *words, "--output", tmp_path / "out").out == ""
    assert (tmp_path / "out").read_text() == found[0].out
    records = [json.loads(line) for line in cli("score", trained, *words, "--json", "--tokens").out.splitlines()]
    assert [list(one) for one in records] == [["line", "source", "text", "log_prob", "length", "tokens"]] * 3
    shown = cli("score", trained, *words, "--tokens").out.splitlines()
    for one, line, total in zip(records, shown, found[0].out.splitlines(), strict=True):
        assert f"{one['log_prob']:.4f}" == total
        assert line.split("\t") == [total, *(f"{each['piece']} {each['log_prob']:.4f}" for each in one["tokens"])]


def test_texts_of_a_language_model_are_scored_alone(cli, refused, words):
    run = regard.load(words, "cpu")
    text = "sun moon"
    (found,) = run.score([text], tokens=True)
    ids = run.vocabularies.target.encode(text)
    with torch.inference_mode():
        read = Tokens.of([[run.vocabularies.target.eos, *ids]])
        log_probs = run.model.head(run.model.read(read)).log_softmax(-1)[0]
    wanted = [float(log_probs[place, token]) for place, token in enumerate(ids)]
    assert [one.log_prob for one in found.tokens] == pytest.approx(wanted, abs=1e-5)
    assert found.length == len(ids)
    some = run.score(["sun", "", "moon star", text])
    assert some[1].log_prob == 0
    assert some[3].log_prob == pytest.approx(found.log_prob, abs=1e-5)
    printed = cli("score", words, text, "sun", "--json", "--device", "cpu").out.splitlines()
    assert "source" not in json.loads(printed[0])
    assert json.loads(printed[0])["log_prob"] == pytest.approx(found.log_prob, abs=1e-5)
    assert "has 100 tokens; the model reads at most 16" in refused("score", words, "x" * 100)
    assert "this one scores texts: --input" in refused("score", words, "--source", "a", "--target", "b")
    both = regard.ensemble([words, words], "cpu")
    assert both.generate("sun", temperature=0, max_len=10) == run.generate("sun", temperature=0, max_len=10)
    assert both.generate("sun", beam=3, max_len=10) == run.generate("sun", beam=3, max_len=10)
    assert both.generate("sun", seed=4, max_len=30) == run.generate("sun", seed=4, max_len=30)
    with pytest.raises(RunError, match="an ensemble decodes and scores"):
        both.model(None)
    assert [one.log_prob for one in both.score([text, "", "sun"])] == pytest.approx(
        [one.log_prob for one in run.score([text, "", "sun"])], abs=1e-4
    )


def test_an_ensemble_is_the_mean_of_probabilities(cli, loaded, other, trained, corpus):
    second = regard.load(other, "cpu")
    both = regard.ensemble([loaded, second])
    for pair in PAIRS:
        one, two, mean = (run.score([pair], tokens=True)[0].tokens for run in (loaded, second, both))
        for each in zip(one, two, mean, strict=True):
            first, then, found = (token.log_prob for token in each)
            assert math.exp(found) == pytest.approx((math.exp(first) + math.exp(then)) / 2, abs=1e-5)
    sentences = [source for source, _ in PAIRS]
    again = regard.ensemble([loaded, trained], "cpu").translations(sentences)
    for found, usual in zip(again, loaded.translations(sentences), strict=True):
        assert found[0].text == usual[0].text
        assert found[0].score == pytest.approx(usual[0].score, abs=1e-4)
    asked = [*sentences[:3], "--device", "cpu"]
    printed = cli("translate", trained, *asked, "--with", other).out
    assert printed.splitlines() == both.translate(sentences[:3])
    assert printed != cli("translate", trained, *asked).out
    result = cli("evaluate", trained, "--data", corpus / "valid.tsv", "--with", other, "--json", "--device", "cpu")
    assert result.code == 0, result.err
    measured = json.loads(result.out)["perplexity"]
    pairs = [tuple(line.split("\t")) for line in (corpus / "valid.tsv").read_text().splitlines()]
    scored = both.score(pairs)
    nll = -sum(one.log_prob for one in scored) / sum(one.length for one in scored)
    assert measured == pytest.approx(math.exp(nll), rel=1e-4)


def test_runs_that_do_not_fit_are_refused_by_name(refused, trained, loaded, other, words, corpus, tmp_path):
    files = ["--data", corpus / "train.fr", "--data", corpus / "train.en", "--valid", corpus / "valid.tsv"]
    apart = small_settings("tokenizer.joint=false", "model.share=none")
    assert main(["train", "--preset", "tiny", *map(str, files), "--out", str(tmp_path / "run"), *apart]) == 0
    said = refused("translate", trained, "the cat", "--with", tmp_path / "run")
    assert f"{tmp_path / 'run'} has another source vocabulary than {trained}" in said
    with pytest.raises(RunError, match=r"is a run for language, .* one for translation: an ensemble does one task"):
        regard.ensemble([trained, words], "cpu")
    for option in (["--alignments"], ["--coverage-penalty", 0.1]):
        assert "needs one model, whose attention it is" in refused(
            "translate", trained, "the cat", "--with", other, *option
        )
    assert "--with is for runs that translate" in refused("evaluate", words, "--with", words)


def test_what_is_no_pair_is_refused(refused, loaded, trained, stdin, tmp_path):
    with pytest.raises(ConfigError, match="pairs of two texts"):
        loaded.ask("score", ["the cat"])
    with pytest.raises(
        DataError, match=r"the source 'cat cat .* has 61 tokens with its end; the model reads at most 24"
    ):
        loaded.score([(" ".join(["cat"] * 60), "CAT")])
    assert "3 texts; give a source and its target" in refused("score", trained, "a", "b", "c")
    assert "give --source and --target together" in refused("score", trained, "--source", tmp_path / "x")
    stdin(b"no tab\n")
    assert "'no tab' is no pair" in refused("score", trained)
