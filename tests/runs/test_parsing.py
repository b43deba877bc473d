"""The life of a parser: train, stop and go on, start from an encoder, parse, measure, look; and bad input refused."""

import json

import pytest
from listeners import StopAt

import regard
from regard import make_config
from regard.cli import main
from regard.data.trees import grammar_trees, tree_of
from regard.errors import ConfigError, DataError, TooLarge
from regard.tasks.looking import LookOptions, document
from regard.tasks.verbs import VERBS, RequestLimits
from regard.trainer.trainer import Stopped

SMALL = [
    *("data.trees=60", "train.steps=4", "train.log_every=1", "train.warmup=2", "train.batch_tokens=1500"),
    *("train.threads=1", "train.validate_every=4", "train.save_every=2", "train.validate_sentences=3"),
    *("model.width=8", "model.heads=2", "model.feed_forward=8", "tokenizer.vocab_size=200", "model.max_open=3"),
]
TEXT = "The animal didn't cross the street (twice)."


@pytest.fixture(scope="module", autouse=True)
def few_trees():
    """A thousand held-out trees are more than a test needs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.tasks.parsing.TREES_HELD_OUT", 6)
        yield


@pytest.fixture(scope="module", params=["tags", "XX"])
def run(request, tmp_path_factory):
    made = make_config(None, "parse-tiny", [*SMALL, f"data.terminals={request.param}"])
    return regard.train(made, tmp_path_factory.mktemp("runs") / request.param)


def test_a_run_is_measured_by_labelled_brackets_with_intervals(run):
    result = regard.evaluate(run, limit=4)
    assert result["sentences"] == 4
    low, high = result["f1_interval"]
    assert 0 <= low <= result["f1"] <= high <= 100
    assert ("tag_accuracy" in result) == (run.directory.name == "tags")
    assert "F1" in run.task.show(result)
    assert run.task.headline(result)["F1"].startswith(f"{result['f1']:.2f} [")


def test_a_resumed_run_equals_an_unbroken_one_byte_for_byte(tmp_path):
    settings = ["model.dropout=0.1", "model.token_dropout=0.2", "model.encoder=recurrent", "train.smoothing=0.1"]
    made = make_config(None, "parse-tiny", [*SMALL, *settings])
    whole = regard.train(made, tmp_path / "whole")
    with pytest.raises(Stopped, match="stopped at step 2"):
        regard.train(made, tmp_path / "broken", StopAt(2))
    broken = regard.resume(tmp_path / "broken")
    one, other = ((found.directory / "model.safetensors").read_bytes() for found in (whole, broken))
    assert one == other


def test_python_the_command_and_the_verb_give_the_same_tree_over_the_words(run, tmp_path, capsys):
    (tree,) = run.parse([TEXT], beam=2)
    words = ("The", "animal", "didn't", "cross", "the", "street", "-LRB-", "twice", "-RRB-", ".")
    assert tree_of(tree).words == words
    command = ["parse", str(run.directory), "--beam", "2", "--device", "cpu"]
    assert main([*command, TEXT]) == 0
    assert capsys.readouterr().out.strip() == tree
    assert main([*command, "--json", TEXT]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["trees"][0]["tree"] == tree
    assert said["trees"][0]["symbols"].count(")") == sum(one.startswith("(") for one in said["trees"][0]["symbols"])
    (tmp_path / "some.trees").write_text(f"(TOP {tree})\n", encoding="utf-8")
    assert main([*command, "--input", str(tmp_path / "some.trees"), "--symbols"]) == 0
    assert capsys.readouterr().out.split()[0].startswith("(")
    (result,) = run.ask("parse", [TEXT], beam=2)
    assert result.trees[0].tree == tree
    assert tree_of(run.parse([["a-b", "c.d"]])[0]).words == ("a-b", "c.d")


def test_samples_go_by_number_and_seed_and_a_beam_has_several_trees(run):
    first = run.parses([TEXT, TEXT], temperature=1.0, samples=2, seed=3)
    assert first == run.parses([TEXT, TEXT], temperature=1.0, samples=2, seed=3)
    assert first[0] != first[1]
    several = run.parses([TEXT], beam=3, top_beams=3)[0]
    assert len({one.tree for one in several}) == 3
    assert several[0].score >= several[1].score >= several[2].score


def test_the_page_has_the_tree_and_which_words_each_bracket_looked_at(run):
    (written,) = document(run, ["A dog sleeps."], beam=1).sentences
    assert written.source.pieces[2:] == ("A", "dog", "sleeps", ".")
    assert [node.word for node in written.tree if node.word is not None] == [2, 3, 4, 5]
    assert written.target.pieces[-1] == "⟨end⟩"
    for node in written.tree:
        assert written.target.pieces[node.step].removeprefix("(") == node.label
    shapes = {(one.rows, one.columns): one.array().shape[1:] for one in written.attentions}
    steps = len(written.target.pieces)
    assert shapes == {
        ("source", "source"): (6, 6),
        ("target", "prefix"): (steps, steps),
        ("target", "source"): (steps, 6),
    }
    for one in written.attentions:
        assert one.array().sum(-1).max() <= 1 + 1e-3
    given = str(next(grammar_trees(1, seed=1, split="train")))
    words = " ".join(tree_of(given).words)
    (shown,) = document(run, [words], LookOptions(targets=(given,))).sentences
    assert len([node for node in shown.tree if node.word is not None]) == len(words.split())
    with pytest.raises(DataError, match="not over the words"):
        document(run, ["A dog sleeps."], LookOptions(targets=(given,)))


def test_a_parser_starts_from_a_bert_and_takes_its_encoder_alone(tmp_path):
    (tmp_path / "text.txt").write_text("a dog sleeps\n\nthe cat is small\n" * 20, encoding="utf-8")
    small = ["model.width=8", "model.heads=2", "model.feed_forward=8", "model.layers=2", "train.threads=1"]
    data = {"data": {"train": [str(tmp_path / "text.txt")]}}
    words = ["tokenizer.vocab_size=60", "model.head=words", "train.steps=2", "train.batch_tokens=128"]
    bert = regard.train(make_config(None, "bert-tiny", [*small, *words], data), tmp_path / "bert")
    (tmp_path / "train.trees").write_text("(S (NP (DT a) (NN dog)) (VP (VBZ sleeps)))\n" * 8, encoding="utf-8")
    extra = {"data": {"train": [str(tmp_path / "train.trees")]}, "train": {"start_from": str(bert.directory)}}
    short = [
        "data.max_len=64",
        "train.epochs=1",
        "train.batch_tokens=200",
        "train.threads=1",
        "train.learning_rate=1e-9",
    ]
    tuned = regard.train(make_config(None, "parse-tune", [*short, "model.decoder_layers=1"], extra), tmp_path / "tuned")
    assert tuned.config.model["width"] == 8
    assert tuned.config.model["name"] == "parser"
    theirs, ours = bert.model.state_dict(), tuned.model.state_dict()
    shared = [name for name in ours if name.startswith(("embedding.", "encoder."))]
    assert len(shared) > 20
    assert all(abs(ours[name] - theirs[name]).max() < 1e-6 for name in shared)
    again = {**extra, "train": {"start_from": str(tuned.directory)}}
    both = regard.train(make_config(None, "parse-tune", short, again), tmp_path / "again")
    assert abs(both.model.state_dict()["head.output.weight"] - ours["head.output.weight"]).max() < 1e-6
    with pytest.raises(ConfigError, match="cannot change"):
        make_config(None, "parse-tune", ["model.width=16"], extra)
    wrong = {**extra, "train": {"start_from": str(tuned.directory)}}
    with pytest.raises(ConfigError, match="is a model 'parser', from which a 'bert' cannot start"):
        make_config(None, "bert-tune", [], wrong)


def test_what_cannot_be_parsed_is_refused_in_one_line(run, tmp_path, capsys):
    for given, said in (
        ([" "], "sentence 1 has no words"),
        (["a dog", []], "sentence 2 has no words"),
        ([["two words"]], "a list of words without spaces"),
        (["word " * 100_000], "sentence 1 has 100,000 words, 100,000 tokens or more; the model reads 128: split it"),
    ):
        with pytest.raises(DataError, match=said):
            run.parse(given)
    with pytest.raises(DataError, match="give a list of sentences"):
        run.parse("a dog")
    with pytest.raises(ConfigError, match="max_len does not apply"):
        run.parse(["a dog"], max_len=3)
    (tmp_path / "bad.mrg").write_text("(S (NN a)\n", encoding="utf-8")
    assert main(["evaluate", str(run.directory), "--data", str(tmp_path / "bad.mrg"), "--device", "cpu"]) != 0
    said = capsys.readouterr().err
    assert "bad.mrg, line 1: the tree that begins here is not closed" in said
    assert "Traceback" not in said
    made = make_config(None, "parse-tiny", SMALL[1:], {"data": {"train": [str(tmp_path / "bad.mrg")]}})
    with pytest.raises(DataError, match=r"bad\.mrg, line 1"):
        regard.train(made, tmp_path / "no")
    with pytest.raises(ConfigError, match="two sources of training trees"):
        make_config(None, "parse-tiny", ["data.train=['x']"])
    with pytest.raises(ConfigError, match="a tree cannot be cut"):
        make_config(None, "parse-tiny", ["data.overlong=truncate"])


def test_a_sentence_too_long_for_the_model_counts_as_a_flat_tree(run):
    tree = tree_of(f"(S {' '.join(['(NN word)'] * 200)})")
    heard = []
    result = regard.evaluate(run, [tree, *grammar_trees(2, seed=5, split="train")], say=heard.append)
    assert result["too_long"] == 1
    assert "1 sentences are longer" in heard[0]


def test_a_server_bounds_what_it_parses(run):
    verb, request = VERBS["parse"], VERBS["parse"].without_inputs(beam=1)
    assert verb.check(run, request, [TEXT], RequestLimits())[0].given[0] == "The"
    with pytest.raises(TooLarge, match="has 3 sentences"):
        verb.check(run, request, [TEXT] * 3, RequestLimits(texts=2))
    with pytest.raises(TooLarge, match="symbols for each word"):
        verb.check(run, request, [TEXT], RequestLimits(budget=20))


def test_heads_are_scored_by_f1_and_trees_left_out_are_said(run, tmp_path):
    held = run.task.held_out_data(run, None, 4)
    assert held.count == 4
    assert 0 <= held.score(run) <= 100
    assert held.nll(run.model) > 0
