"""The life of an encoder: pre-train on plain text, tune, and use: fill, classify, tag, answer, embed, look."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from encoder_toys import SHAPE, SMALL, config, same_bytes, write_texts
from listeners import StopAt
from torch.testing import assert_close

import regard
from regard import make_config
from regard.cli import main
from regard.data.labelled_texts import Keys, questions
from regard.errors import ConfigError, DataError, RegardError, RunError
from regard.interop.huggingface.bert import BERT, ROBERTA
from regard.metrics.classification_metrics import answer_scores
from regard.models.bert import Bert, BertConfig
from regard.nn.batch import Texts, Tokens
from regard.runs.files import read_tensors
from regard.runs.log import read_log
from regard.tasks.encoder import nearest_texts, token_vectors, word_in_contexts
from regard.tasks.looking import document
from regard.tasks.spec import Silence
from regard.text.encoder_inputs import InputBuilder, truncate_pair
from regard.trainer.trainer import Stopped


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def base(files, tmp_path_factory):
    return regard.train(config(files, "bert-tiny", ".txt"), tmp_path_factory.mktemp("runs") / "base")


@pytest.fixture(scope="module")
def classifier(files, base, tmp_path_factory):
    made = config(files, "bert-classify", ".tsv", "train.steps=60", start=base.directory)
    return regard.train(made, tmp_path_factory.mktemp("runs") / "classes")


def test_bert_base_has_its_published_number_of_parameters():
    sizes = {**make_config(preset="bert-base").with_stand_ins().model, "head": "none"}
    sizes.pop("name")
    with torch.device("meta"):
        model = Bert(BertConfig(**sizes))
    assert sum(parameter.numel() for parameter in model.parameters()) == 109_482_240


def test_a_stopped_pretraining_ends_with_the_same_bytes(files, base, tmp_path):
    with pytest.raises(Stopped):
        regard.train(config(files, "bert-tiny", ".txt"), tmp_path / "run", StopAt(12))
    regard.resume(tmp_path / "run")
    assert same_bytes(base.directory, tmp_path / "run")


def test_both_objectives_are_logged_apart(base):
    records = read_log(base.directory / "log.jsonl")
    for record in records:
        assert record["words"] + record["next"] == pytest.approx(record["nll"], rel=1e-5)
        assert 0 <= record["next_accuracy"] <= 1
    words = [record["words"] for record in records if record["kind"] == "train"]
    assert words[-1] < words[0]
    assert {"word_accuracy", "next_accuracy"} <= regard.evaluate(base).keys()


def test_a_batch_split_by_rows_gives_the_same_gradient(files, base):
    from regard.nn.batch import halves
    from regard.training.objectives import MaskedLanguageModelling

    _, job = base.config.kind.prepare(base.config, base.directory, Silence(), new=False)
    batch = next(iter(job.validation()))
    whole = MaskedLanguageModelling().loss(base.model, batch)
    parts = [MaskedLanguageModelling().loss(base.model, part) for part in halves(batch)]
    assert sum(part.count for part in parts) == whole.count
    assert_close(sum(part.total for part in parts), whole.total)


def test_words_alone_with_whole_words_and_bytes(files, tmp_path):
    made = config(
        files, "bert-tiny", ".txt", "model.head=words", "data.whole_words=true", "train.steps=3", "tokenizer.kind=bpe",
        "tokenizer.vocab_size=300", "model.segments=0",
    )  # fmt: skip
    run = regard.train(made, tmp_path / "run")
    assert "next" not in read_log(run.directory / "log.jsonl")[-1]
    assert "next_loss" not in regard.evaluate(run)
    ((first, *_),) = run.fill("the sun was <mask> today.", top=3)
    assert first.text.startswith("the sun was")


def test_filled_words_are_the_models_own(base, capsys):
    tokenizer = base.vocabularies.target
    found = base.fill("the [MASK] was [MASK] today.", top=4)
    ids = [tokenizer.bos, *tokenizer.encode_masked("the [MASK] was [MASK] today."), tokenizer.eos]
    row = base.encoder.framer.ids(ids[1:-1])
    assert row.ids == ids
    with torch.no_grad():
        chances = base.model.logits(base.encoder.texts([row])).softmax(-1)[0]
    for mask, place in zip(found, [i for i, token in enumerate(ids) if token == tokenizer.mask], strict=True):
        assert [one.probability for one in mask] == sorted((one.probability for one in mask), reverse=True)
        assert mask[0].probability == pytest.approx(float(chances[place].max()), abs=1e-6)
    assert all(one.token.removeprefix("##") in one.text for mask in found for one in mask)
    assert main(["fill", str(base.directory), "the [MASK] was cold today.", "--top", "2", "--device", "cpu"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    with pytest.raises(DataError, match="no \\[MASK\\]"):
        base.fill("nothing hidden")
    with pytest.raises(DataError, match="longer than"):
        base.fill("the [MASK] " + "sun " * 60)


def test_whether_a_text_follows_is_told_by_a_model_with_that_head_and_refused_by_others(base, classifier, capsys):
    assert main(["follows", str(base.directory), "The cat sleeps.", "A dog runs."]) == 0
    assert capsys.readouterr().out.split("\t")[0] in ("yes", "no")
    assert main(["follows", str(classifier.directory), "The cat sleeps.", "A dog runs."]) == 2
    said = capsys.readouterr().err
    assert "is a run for classification, and 'follows' needs a model that was pre-trained to tell" in said
    assert not hasattr(classifier, "follows")


def test_a_tuned_classifier_starts_from_its_base_and_learns(files, base, classifier, capsys):
    assert classifier.config.model["labels"] == ["bad", "good"]
    assert regard.evaluate(classifier)["accuracy"] > 0.9
    assert classifier.classify(["the sea was good today."])[0][0].label == "good"
    assert main(["evaluate", str(classifier.directory), "--data", str(files / "valid-head.tsv")]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert main(["evaluate", str(classifier.directory), "--beam", "3"]) == 2
    with pytest.raises(ConfigError, match="no head for words"):
        classifier.fill("the [MASK]")


def test_a_stopped_tuning_ends_with_the_same_bytes(files, base, classifier, tmp_path):
    made = config(files, "bert-classify", ".tsv", "train.steps=60", start=base.directory)
    with pytest.raises(Stopped):
        regard.train(made, tmp_path / "run", StopAt(20))
    regard.resume(tmp_path / "run")
    assert same_bytes(classifier.directory, tmp_path / "run")


def test_starting_takes_the_weights_and_only_heads_are_new(files, base, tmp_path):
    made = config(
        files, "bert-classify", "-head.tsv", "train.steps=1", "train.learning_rate=1e-12", start=base.directory
    )
    run = regard.train(made, tmp_path / "run")
    before, after = (read_tensors(path / "model.safetensors") for path in (base.directory, run.directory))
    shared = before.keys() & after.keys()
    assert {name.split(".")[0] for name in shared} == {"embedding", "encoder", "pooler"}
    assert {name.split(".")[0] for name in after.keys() - shared} == {"classifier"}
    for name in shared:
        assert_close(before[name], after[name], atol=1e-6, rtol=1e-6)
    with pytest.raises(ConfigError, match=r"model\.width=8' cannot change"):
        config(files, "bert-classify", ".tsv", "model.width=8", start=base.directory)
    with pytest.raises(RunError, match="no such run"):
        config(files, "bert-classify", ".tsv", start=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="cannot start"):
        config(files, "gpt-tiny", ".tsv", start=base.directory)
    again = config(
        files, "bert-tiny", ".txt", "train.steps=1", start=run.directory
    )  # a head left behind comes back new
    assert regard.train(again, tmp_path / "again").config.task == "masking"


def test_pairs_are_classified_from_random_weights(files, tmp_path, capsys):
    keys = {"text": "one", "pair": "two", "label": "same"}
    run = regard.train(config(files, "bert-classify", "-pairs.jsonl", "train.steps=2", **keys), tmp_path / "run")
    assert run.config.model["labels"] == ["0", "1"]
    assert main(["classify", str(run.directory), "the sun", "the sea", "a", "b", "--device", "cpu"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    for texts, count in ((["the sun", "the sea", "a"], "3 texts"), (["the sun"], "1 text")):
        assert main(["classify", str(run.directory), *texts]) == 2
        assert f"pairs: {count} cannot be taken two at a time" in capsys.readouterr().err
    (tmp_path / "pairs.tsv").write_text("a\tb\n", encoding="utf-8")
    assert main(["classify", str(run.directory), "-i", str(tmp_path / "pairs.tsv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["input"] == "a ||| b"


def test_words_are_tagged_whatever_their_length(files, base, tmp_path, capsys):
    made = config(files, "bert-tag", "-tags.tsv", "train.steps=50", start=base.directory)
    run = regard.train(made, tmp_path / "run")
    scores = regard.evaluate(run)
    assert scores["accuracy"] > 0.9
    assert scores["entities"]["f1"] > 0.9
    words = ["the", "sun", "was"] * 20  # more than the model reads at a time
    (tags,) = run.tag([words])
    assert [one.word for one in tags] == words
    assert {one.tag for one in tags if one.word == "sun"} == {"B-X"}
    assert main(["tag", str(run.directory), "the sea was cold."]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("sea\tB-X\t")


def test_answers_are_stretches_of_the_text(files, base, tmp_path, capsys):
    made = config(files, "bert-answer", "-asked.jsonl", "train.steps=50", start=base.directory)
    run = regard.train(made, tmp_path / "run")
    assert regard.evaluate(run)["f1"] > 0.5
    text = "the sea was fine today. " * 12
    best = run.answer("what was it?", text, top=3)
    assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)
    for one in best:
        assert text[one.start : one.end] == one.text
    assert main(["answer", str(run.directory), "what was it?", "the sea was fine today."]) == 0
    assert main(["answer", str(run.directory), "what was it?"]) == 2
    with pytest.raises(RunError, match="is a run for masking, not for answering"):
        base.answer("what?", "that")


def test_vectors_are_means_of_tokens_and_search_finds_the_same_text(base, tmp_path, capsys):
    texts = ["the sun was good today.", "the sea", "a day was cold."]
    vectors = base.embed(texts)
    assert_close(np.linalg.norm(vectors, axis=1), np.ones(3, dtype=np.float32))
    row = base.encoder.framer.texts(texts[1])
    with torch.no_grad():
        x = base.model(base.encoder.texts([row]))[0]
    assert_close(base.embed(texts, normalise=False)[1], x.mean(0).numpy(), atol=1e-5, rtol=1e-5)
    assert_close(base.embed(texts, pooling="first", normalise=False)[1], x[0].numpy(), atol=1e-5, rtol=1e-5)
    found = nearest_texts(vectors, vectors, 2)
    assert [near[0].index for near in found] == [0, 1, 2]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    run, file = str(base.directory), str(tmp_path / "texts.txt")
    assert main(["embed-text", run, "--input", file, "--out", str(tmp_path / "v.npy")]) == 0
    assert_close(np.load(tmp_path / "v.npy"), vectors)
    assert main(["embed-text", run, "--input", file, "--out", str(tmp_path / "v.jsonl")]) == 0
    assert json.loads((tmp_path / "v.jsonl").read_text().splitlines()[1])["text"] == "the sea"
    capsys.readouterr()
    assert main(["embed-text", run, "the sea", "--search", file, "--top", "1"]) == 0
    assert capsys.readouterr().out.split("\t")[1:] == ["2", "the sea\n"]
    both = ["--search", file, "--json", "--out", str(tmp_path / "w.npy")]
    for wrong in (["--out", str(tmp_path / "v.txt")], [], ["--search", file, "--pooling", "max"], both):
        assert main(["embed-text", run, "the sea", *wrong]) == 2


def test_near_is_a_matter_of_direction_alone():
    vectors = np.array([[10.0, 10.0], [0.1, 0.0], [0.0, -3.0], [0.0, 0.0]], dtype=np.float32)
    ((first, second, third),) = nearest_texts(np.array([[2.0, 0.0]], dtype=np.float32), vectors, 3)
    assert [first.index, second.index, third.index] == [1, 0, 2]  # of equals the earlier
    assert [round(one.cosine, 4) for one in (first, second, third)] == [1.0, 0.7071, 0.0]


def test_every_kind_of_run_can_be_looked_into(base, classifier, tmp_path):
    made = document(base, ["the [MASK] was cold. ||| It was good.", "the sea was fine."])
    pair, single = made.sentences
    assert len(pair.attentions) == 2
    assert pair.attentions[0].array().shape == (2, len(pair.source.pieces), len(pair.source.pieces))
    assert pair.source.pieces[0] == "<bos>"
    assert pair.source.pieces.count("<eos>") == 2
    assert "hidden word 1" in pair.scores
    assert_close(
        single.attentions[0].array().sum(-1), np.ones((2, len(single.source.pieces)), np.float32), atol=1e-3, rtol=1e-3
    )
    assert set(document(classifier, ["the sea was fine."]).sentences[0].scores) == {"good", "bad"}
    assert main(["look", str(base.directory), "the sea was fine.", "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert main(["describe", str(base.directory)]) == 0


@pytest.mark.parametrize(("first", "second", "room"), [(10, 2, 8), (10, 9, 9), (3, 3, 9), (0, 7, 4), (5, 5, 0)])
def test_of_two_texts_the_longer_loses_first(first, second, room):
    one, other = truncate_pair(first, second, room)
    a, b = list(range(first)), list(range(second))
    while len(a) + len(b) > room:  # as BERT does it, a token at a time
        (a if len(a) > len(b) else b).pop()
    assert (one, other) == (len(a), len(b))
    assert truncate_pair(first, None, room) == (min(first, room), 0)


def test_words_keep_whole_in_rows(base):
    framer = InputBuilder(base.vocabularies.target, 8)
    words = ["sun", "unheardof", "sea", "was"] * 4
    rows = framer.words(words)
    assert sorted(word for _, first in rows for word in first) == list(range(16))
    assert all(len(row.ids) <= 8 for row, _ in rows)
    assert 2 <= len(base.vocabularies.target.encode("odd")) <= 6  # pieces that a row has room for
    for before in range(6):  # every row begins with a word's beginning
        assert all(min(first.values()) == 1 for _, first in framer.words(["sun"] * before + ["odd"] * 8))


def test_an_answer_is_right_if_any_is(tmp_path):
    right = {"text": ["Ada", "Ada of London"], "answer_start": [0, 0]}
    row = {"question": "who?", "context": "Ada of London", "answer": right}
    (tmp_path / "asked.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    (item,) = questions(tmp_path / "asked.jsonl", Keys("context", "question", "answer"))
    assert (item.answer, item.start, item.others) == ("Ada", 0, ("Ada of London",))
    assert answer_scores(["the ada of London."], [(item.answer, *item.others)]) == {"exact_match": 1.0, "f1": 1.0}
    assert answer_scores(["ADA", "London"], [(item.answer, *item.others)] * 2) == {
        "exact_match": 0.5,
        "f1": (1 + 0.5) / 2,
    }


def test_without_a_pooler_a_text_is_judged_by_its_one_vector():
    torch.manual_seed(0)
    config = BertConfig(vocab_size=9, width=12, heads=2, layers=1, feed_forward=8, head="classes", labels=("a", "b"))
    model = Bert(replace(config, pooler="none")).eval()
    texts = Texts(Tokens.of([[1, 2, 3, 4], [5, 6]], 0))
    vectors = torch.stack([model(texts)[0].mean(0), model(texts)[1, :2].mean(0)])
    assert_close(model.logits(texts), model.classifier(vectors))
    first = Bert(replace(config, pooler="none", pooling="first")).eval()
    assert_close(first.logits(texts), first.classifier(first(texts)[:, 0]))
    for family in (BERT, ROBERTA):
        with pytest.raises(ConfigError, match="pooler"):
            family.configuration(model.config)


def test_impossible_settings_and_data_are_refused(files, base, tmp_path):
    with pytest.raises(ConfigError, match="pooler"):
        BertConfig(vocab_size=9, head="pretraining", pooler="none")
    with pytest.raises(ConfigError, match="must differ"):
        BertConfig(vocab_size=9, head="tags", labels=("a", "a"))
    with pytest.raises(ConfigError, match="needs labels"):
        Bert(BertConfig(vocab_size=9, width=12, head="tags"))
    with pytest.raises(ConfigError, match="labels are for"):
        BertConfig(vocab_size=9, labels=("a", "b"))
    with pytest.raises(ConfigError, match="which needs classes"):
        config(files, "bert-classify", ".tsv", "model.head=tags")
    with pytest.raises(ConfigError, match="no words to mask"):
        config(files, "bert-tiny", ".txt", "tokenizer.kind=character", "data.whole_words=true")
    cases = {"one.tsv": ("a\tx\nb\tx\n", "nothing to tell apart"), "two.tsv": ("a\tx\tb\n", "3 columns")}
    for name, (text, pattern) in cases.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        part = {"train": [str(tmp_path / name)]}
        with pytest.raises(DataError, match=pattern):
            regard.train(config(files, "bert-classify", ".tsv", start=base.directory, **part), tmp_path / "none")
    (tmp_path / "asked.jsonl").write_text('{"question": "q", "context": "abc", "answer": "x"}\n', encoding="utf-8")
    with pytest.raises(DataError, match="does not stand in its context"):
        regard.train(
            config(files, "bert-answer", "-asked.jsonl", train=[str(tmp_path / "asked.jsonl")]), tmp_path / "none"
        )
    assert not (tmp_path / "none").exists()


BERT_RUN = Path(__file__).parents[1] / "compatibility" / "runs_0_1_0" / "bert"
BANKS = ["the cat sat on the mat", "a cat is here", "cat"]


def test_whether_a_text_follows_is_what_the_pretraining_head_says(capsys, tmp_path):
    run = regard.load(BERT_RUN, "cpu")
    pairs = [("the cat sat", "it slept"), ("it slept", "the cat sat on the mat and slept")]
    found = run.ask("follows", pairs)
    encoder = run.encoder
    for pair, one in zip(pairs, found, strict=True):
        texts = encoder.texts([encoder.framer.texts(*pair)])
        with torch.no_grad():
            expected = run.model.next_logits(run.model(texts)).softmax(-1)[0, 0].item()
        assert one.probability == pytest.approx(expected, abs=1e-5)
        assert one.follows == (expected > 0.5)
    assert main(["follows", str(BERT_RUN), *pairs[0], "--device", "cpu", "--precision", "float32"]) == 0
    said = capsys.readouterr().out.split()
    assert said == ["yes" if found[0].follows else "no", f"{found[0].probability:.4f}"]
    (tmp_path / "story.txt").write_text("the cat sat\nit slept\nthe end\n", encoding="utf-8")
    assert main(["follows", str(BERT_RUN), "--input", str(tmp_path / "story.txt"), "--json", "--device", "cpu"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["first"], one["second"]) for one in lines] == [("the cat sat", "it slept"), ("it slept", "the end")]
    assert main(["follows", str(BERT_RUN), "one text", "--device", "cpu"]) != 0
    assert "two at a time" in capsys.readouterr().err


def test_a_model_without_that_head_does_not_say_what_follows(classifier):
    with pytest.raises(RegardError, match="follows"):
        classifier.ask("follows", [("a", "b")])


def test_each_token_has_a_vector_that_knows_the_others_and_a_word_lies_where_its_texts_put_it(tmp_path, capsys):
    run = regard.load(BERT_RUN, "cpu")
    found = token_vectors(run.encoder, BANKS)
    row = run.encoder.framer.texts(BANKS[0])
    with torch.no_grad():
        expected = run.model(run.encoder.texts([row]))[0]
    places = [place for place, source in enumerate(row.sources) if source >= 0]
    assert found[0].vectors == pytest.approx(expected[places].numpy(), abs=1e-4)
    assert len(found[0].tokens) == len(found[0].spans) == len(places)
    names, vectors, static = word_in_contexts(run.encoder, "cat", BANKS)
    assert len(names) == 3
    for name, text in zip(names, BANKS, strict=True):  # named by the words around it, none of them cut
        assert f" {name.partition(': ')[2]} " in f" {text} "
    assert vectors @ vectors.T == pytest.approx((vectors @ vectors.T).T)
    assert (vectors[0] @ vectors[1]) < 1 - 1e-4  # the same word, other vectors
    again = word_in_contexts(run.encoder, "cat", BANKS[1:])[2]
    assert static == pytest.approx(again)  # a static vector knows no text
    out = tmp_path / "cat.svg"
    command = ["embed-text", str(BERT_RUN), *BANKS, "--device", "cpu"]
    assert main([*command, "--word", "cat", "--plane", str(out)]) == 0
    assert "cat, static" in out.read_text(encoding="utf-8")
    capsys.readouterr()
    assert main([*command, "--tokens", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [tuple(line["tokens"]) for line in lines] == [one.tokens for one in found]
    assert np.shape(lines[0]["vectors"]) == found[0].vectors.shape
    for more in (["--word", "cat"], ["--tokens", "--out", "x.npy"], ["--tokens", "--search", "x.txt"]):
        assert main([*command, *more]) != 0
    with pytest.raises(DataError, match="none of the 3 texts has the word 'dog'"):
        word_in_contexts(run.encoder, "dog", BANKS)


def test_in_a_fresh_head_classes_of_too_few_texts_start_as_rare_as_they_are(files, tmp_path):
    rows = (files / "train.tsv").read_text(encoding="utf-8").splitlines()
    odd = [f"the odd day number {number}\todd-{number}" for number in range(3)]
    (tmp_path / "train.tsv").write_text("\n".join([*rows, *odd]) + "\n", encoding="utf-8")
    still, said = ("train.steps=1", "train.learning_rate=1e-12"), []

    class Heard(Silence):
        def say(self, text):
            said.append(text)

    def trained(name, data, *settings, start=None):
        made = make_config(
            None,
            "bert-classify",
            [*SMALL, *([] if start else SHAPE), "data.max_len=32", *still, *settings],
            {"data": {"train": [str(data)], "valid": [str(files / "valid.tsv")]}}
            | ({"train": {"start_from": str(start)}} if start else {}),
        )
        return regard.train(made, tmp_path / name, Heard()).model

    model = trained("odd", tmp_path / "train.tsv")
    counts = Counter(row.split("\t")[1] for row in [*rows, *odd])
    often = (counts["bad"] + counts["good"]) / 2
    wanted = [0.0 if label in ("bad", "good") else -math.log(often) for label in model.config.labels]
    assert_close(model.classifier.bias, torch.tensor(wanted), atol=1e-5, rtol=1e-5)
    assert said.count("of 5 classes 3 have fewer than 5 texts: to the model they are rare from the start") == 1
    said.clear()
    assert not trained("even", files / "train.tsv").classifier.bias.abs().gt(1e-6).any()
    # A head that was trained is taken as it is.
    before = trained("moved", tmp_path / "train.tsv", "train.steps=3", "train.learning_rate=0.5").classifier.bias
    said.clear()
    after = trained("again", tmp_path / "train.tsv", start=tmp_path / "moved").classifier.bias
    assert_close(before, after, atol=1e-6, rtol=1e-6)
    assert not any("rare from the start" in one for one in said)
