"""Runs that copy: words outside the vocabulary come out as they stand in the source."""

import random
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import regard
from regard import make_config
from regard.data.synthetic.world.corpus import LEFT_OUT, is_held_out, telegrams
from regard.errors import ConfigError
from regard.look.document import Document
from regard.models.recurrent import RecurrentConfig, RecurrentModel
from regard.nn.batch import Pairs, Tokens
from regard.tasks.looking import document
from regard.tasks.translation import encode_pair
from regard.text import TokenizerConfig, train_vocabularies
from regard.text.vocabularies import encode_with_copies, extended
from regard.trainer.trainer import Stopped

sys.path.append(str(Path(__file__).parents[1] / "models"))
from listeners import StopAt

SMALL = ["model.width=24", "tokenizer.min_count=2", "train.batch_tokens=400", "train.log_every=10", "train.threads=1"]
SMALL += ["train.warmup=10", "train.learning_rate=0.01", "train.validate_sentences=4", "decode.beam=2"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The second word, then the first: one of them made up anew in each sentence."""
    folder, chance = tmp_path_factory.mktemp("corpus"), random.Random(0)
    lines = []
    for _ in range(400):
        new = "".join(chance.choice("bdfgklmnprst") + chance.choice("aeiou") for _ in range(4))
        lines.append(
            f"the {new} sleeps\tsleeps {new}" if chance.random() < 0.5 else f"a cat sees {new}\tsees {new} cat"
        )
    (folder / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "test.tsv").write_text(
        "the Xylo sleeps\tsleeps Xylo\na cat sees Zorro\tsees Zorro cat\n", encoding="utf-8"
    )
    return folder


def config_of(corpus, *settings):
    files = {
        name: [str(corpus / f"{file}.tsv")] for name, file in (("train", "train"), ("valid", "test"), ("test", "test"))
    }
    return make_config(None, "see-2017", [*SMALL, *settings], {"data": files})


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    settings = ["train.steps=120", "train.validate_every=120", "train.save_every=120"]
    return regard.train(config_of(corpus, *settings), tmp_path_factory.mktemp("runs") / "copying")


def test_words_outside_the_vocabulary_are_copied_by_any_search_in_any_batch(run):
    for settings in ({"beam": 1}, {"beam": 3}):
        texts = ["the Xylo sleeps", "a cat sees Zorro", "the Abc sleeps"]
        found = run.translate(texts, **settings)
        assert found == ["sleeps Xylo", "sees Zorro cat", "sleeps Abc"]
        assert found == [
            run.translate([text], **settings)[0] for text in ("the Xylo sleeps", "a cat sees Zorro", "the Abc sleeps")
        ]


def test_copied_words_are_scored_aligned_covered_and_averaged_like_any_others(run):
    texts = ["the Xylo sleeps", "a cat sees Zorro"]
    found = [best for (best,) in run.translations(texts, beam=3, alignments=True)]
    scored = run.score([(text, best.text) for text, best in zip(texts, found, strict=True)], tokens=True)
    assert [one.log_prob for one in scored] == pytest.approx([best.log_prob for best in found], abs=1e-4)
    assert [one.piece for one in scored[0].tokens] == ["sleeps", "Xylo", "<eos>"]
    links = [
        {(text.split()[i], best.text.split()[j]) for i, j in best.alignment}
        for text, best in zip(texts, found, strict=True)
    ]
    assert ("Xylo", "Xylo") in links[0]
    assert ("Zorro", "Zorro") in links[1]
    assert run.translate(texts, beam=3, coverage_penalty=0.1) == [best.text for best in found]
    assert regard.ensemble([run, run]).translate(texts) == [best.text for best in found]


def test_evaluation_counts_them(run):
    found = regard.evaluate(run)
    assert found["unknown_words"]["right"] == 1
    assert found["unknown_words"]["sentences"] == found["unknown_words"]["words"] == 2
    assert found["perplexity"] < 1.5


def test_the_page_names_copied_words(run):
    (sentence,) = document(run, ["the Xylo sleeps"]).sentences
    assert "Xylo" in sentence.target.text
    assert "Xylo" in sentence.target.pieces
    assert "Xylo" in [candidate.piece for candidate in sentence.candidates[1]]


def test_the_page_says_how_much_of_each_step_is_writing(run):
    found = document(run, ["the Xylo sleeps"])
    (sentence,) = found.sentences
    mixture, piece = sentence.decoding.mixture, sentence.target.pieces.index("Xylo")
    assert len(mixture) == len(sentence.target.pieces)
    # A word outside the vocabulary cannot be written.
    assert mixture[piece].written == 0.0
    assert mixture[piece].copied > 0.5
    assert mixture[piece].writing < 0.5
    for one, step, name in zip(mixture, sentence.candidates, sentence.target.pieces, strict=True):
        (chosen,) = [candidate for candidate in step if candidate.piece == name]
        assert chosen.probability == pytest.approx(one.written + one.copied, abs=1e-5)
    assert sentence.decoding.arrays()["hidden"].shape[1] == run.model.config.width
    plain = found.to_mapping(packed=False)
    assert plain["sentences"][0]["decoding"]["mixture"][piece]["writing"] == mixture[piece].writing
    assert Document.from_mapping(plain).sentences[0].decoding.mixture == mixture


def test_without_copying_none_can_be_right(corpus, tmp_path):
    settings = ["model.copy=false", "train.steps=30", "train.validate_every=30", "train.save_every=30"]
    plain = regard.train(config_of(corpus, *settings), tmp_path / "plain")
    assert regard.evaluate(plain)["unknown_words"]["right"] == 0


def test_a_resumed_run_equals_an_unbroken_one_byte_for_byte(corpus, tmp_path):
    settings = [
        "train.steps=6",
        "train.validate_every=6",
        "train.save_every=6",
        "model.dropout=0.1",
        "train.log_every=1",
    ]
    config = config_of(corpus, *settings)
    whole = regard.train(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        regard.train(config, tmp_path / "broken", StopAt(3))
    broken = regard.resume(tmp_path / "broken")
    one, other = ((run.directory / "model.safetensors").read_bytes() for run in (whole, broken))
    assert one == other


def test_a_step_gives_copied_words_what_recomputation_gives(run):
    rows = [
        encode_pair(run, source, target)
        for source, target in (("the Xylo sleeps", "sleeps Xylo"), ("cat sees A B", "A B"))
    ]
    batch = Pairs(Tokens.of([row[0] for row in rows]), Tokens.of([row[1] for row in rows]))
    with torch.no_grad():
        full = run.model.logits(batch)
        state = run.model.start(batch)
        for step in range(3):
            log_probs, state = run.model.step(batch.target.ids[:, step], state)
            assert_close(log_probs.exp(), full[:, step].exp(), atol=1e-5, rtol=1e-4)
    assert full.shape[-1] == run.vocabularies.target.vocab_size + 2
    assert_close(full.exp().sum(-1), torch.ones(full.shape[:2]), atol=1e-5, rtol=1e-5)


def test_unknown_words_are_numbered_by_source_and_come_back_as_they_were():
    vocabularies = train_vocabularies([("the cat, it sees", "cat")], TokenizerConfig(kind="word", vocab_size=20))
    size = vocabularies.source.vocab_size
    source, target = encode_with_copies(vocabularies, "the dog, it sees Foo's dog", "Foo's bar dog, it")
    assert [index - size for index in source if index >= size] == [0, 1, 0]
    assert [index - size for index in target if index >= size] == [1, 0]
    assert target[1] == vocabularies.target.unk
    read = extended(vocabularies, "the dog, it sees Foo's dog")
    assert read.target.decode(target) == "Foo's <unk> dog, it"
    assert read.source.decode(source) == "the dog, it sees Foo's dog"
    assert extended(vocabularies, "the cat") is vocabularies
    assert len(vocabularies.source.split("the dog, it")) == len(vocabularies.source.encode("the dog, it"))


def test_telegrams_keep_the_words_and_hold_out_half_of_the_nouns():
    train, test = (list(telegrams(60, seed=1, split=split)) for split in ("train", "test"))
    assert train == list(telegrams(60, seed=1, split="train"))
    for english, telegram in (*train, *test):
        words = english.replace(",", " ").replace(".", " ").split()
        assert [word for word in words if word in telegram.split()][:1] == telegram.split()[:1]
        assert set(telegram.split()) <= set(words)
    trained = {word for pair in train for word in pair[0].replace(",", " ").replace(".", " ").split()}
    tested = {word for pair in test for word in pair[1].split()}
    held = {word for word in tested if is_held_out(word, "NN")} - trained
    assert len(held) > 10
    assert "DT" in LEFT_OUT


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("tokenizer.kind=bpe", "needs tokenizer.kind='word'"),
        ("tokenizer.joint=false", "tokenizer.joint=true"),
        ("model.attention=none", "needs an attention"),
        ("train.r_drop=1.0", "not for models that copy"),
    ],
)
def test_what_cannot_copy_is_refused(corpus, setting, complaint):
    more = ["model.share=output"] if "joint" in setting else []
    with pytest.raises(ConfigError, match=complaint):
        config_of(corpus, setting, *more)


def test_copying_adds_a_gate_and_nothing_else():
    sizes = {"source_vocab_size": 11, "target_vocab_size": 11, "width": 6}
    models = [RecurrentModel(RecurrentConfig(**sizes, copy=copy)) for copy in (True, False)]
    counts = [sum(one.numel() for one in model.parameters()) for model in models]
    assert counts[0] - counts[1] == 3 * 6 + 1
