"""Every kind of run as a page's document."""

from itertools import pairwise

import numpy as np
import pytest
import torch

import regard
from regard import Run, make_config
from regard.data import PairList
from regard.errors import ConfigError, DataError, RunError
from regard.look.edits import evened, masked, swapped
from regard.look.page import render
from regard.nn.batch import Pairs, Tokens
from regard.tasks.looking import LookOptions, document, look_options
from regard.tasks.run import build_model
from regard.tasks.translation import encode_pair
from regard.text import TokenizerConfig, train_vocabularies

PAIRS = PairList([("the cat sees a dog", "le chat voit un chien"), ("a dog runs", "un chien court")] * 3)
COMMON = ["model.width=16", "model.max_len=24", "data.max_len=24", "decode.beam=2", "decode.max_len=10"]
KINDS = {
    "transformer": ("tiny", ["model.heads=2", "model.encoder_layers=1", "model.decoder_layers=2"], 5),
    "recurrent": ("bahdanau-2015", [], 1),
    "convolutional": ("gehring-2017", ["model.encoder_layers=2", "model.decoder_layers=2"], 2),
    "gpt": ("gpt-tiny", ["model.heads=2", "model.layers=2", "data.train=['x']"], 2),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    def make(kind):
        preset, settings, _ = KINDS[kind]
        vocabularies = train_vocabularies(PAIRS, TokenizerConfig(kind="word", vocab_size=100, joint=True))
        kept = [one for one in COMMON if kind != "gpt" or not one.startswith("decode.beam")]
        config = make_config(None, preset, [*kept, *settings]).with_vocabularies(vocabularies)
        return Run(tmp_path_factory.mktemp(kind), config, vocabularies, build_model(config).eval())

    return {kind: make(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_makes_a_page(runs, kind):
    found = document(runs[kind], ["the cat sees a dog"])
    (sentence,) = found.sentences
    assert len(sentence.attentions) == KINDS[kind][2]
    for attention in sentence.attentions:
        assert attention.neurons is not None
        assert attention.array().sum(-1) == pytest.approx(1, abs=1e-4)
    assert len(sentence.candidates) == len((sentence.target or sentence.source).pieces)
    assert sentence.source.words == ("the", "cat", "sees", "a", "dog")
    render(found)


def test_a_language_model_is_read_with_the_text_it_is_given(runs):
    run = runs["gpt"]
    (sentence,) = document(run, ["the cat sees"]).sentences
    ids = run.generator.prompt_ids("the cat sees")
    assert sentence.target is None
    assert len(sentence.source.pieces) == len(ids)
    weights = sentence.attentions[0].array()
    assert (weights[:, 0, 1:] == 0).all()
    with torch.no_grad():
        logits = run.model.head(run.model.read(Tokens.of([ids])))[0]
    best = float(logits.softmax(-1)[-1].max())
    assert sentence.candidates[-1][0].probability == pytest.approx(best, abs=1e-6)
    with pytest.raises(DataError, match="text 2 has 30 tokens; the model reads at most 24"):
        document(run, ["a", " ".join(["cat"] * 30)])


def test_only_what_is_wanted_is_kept(runs):
    run = runs["transformer"]
    found = document(run, ["a dog runs"], LookOptions(names=("decoder.*.cross*",), heads=(1,), vectors=False))
    assert [one.name for one in found.sentences[0].attentions] == [
        "decoder.0.cross_attention",
        "decoder.1.cross_attention",
    ]
    assert all(one.array().shape[0] == 1 and one.heads == (1,) for one in found.sentences[0].attentions)
    assert all(one.neurons is None for one in found.sentences[0].attentions)
    whole = document(run, ["a dog runs"]).sentences[0].attentions[-1].array()
    assert found.sentences[0].attentions[-1].array()[0] == pytest.approx(whole[1])
    with pytest.raises(ConfigError, match="no attention is called 'decode'"):
        document(run, ["a dog runs"], LookOptions(names=("decode",)))
    with pytest.raises(ConfigError, match="no head 2 in"):
        document(run, ["a dog runs"], LookOptions(heads=(2,)))


def test_a_page_holds_the_last_attentions_that_fit(runs, monkeypatch):
    run = runs["transformer"]
    monkeypatch.setattr(look_options, "MOST_WEIGHTS", 2 * 11 * 11)
    monkeypatch.setattr(look_options, "MOST_NUMBERS", 0)
    found = document(run, ["the cat sees a dog"], beam=1)
    kept = found.sentences[0].attentions
    assert 0 < len(kept) < 5
    assert kept[-1].name == "decoder.1.cross_attention"
    assert kept[-1].neurons is None
    assert f"the last {len(kept)} attentions; {5 - len(kept)} more did not fit" in found.note
    monkeypatch.setattr(look_options, "MOST_WEIGHTS", 10)
    with pytest.raises(ConfigError, match="alone have"):
        document(run, ["the cat sees a dog"])


def test_a_given_target_is_read_instead_of_decoding(runs):
    run = runs["transformer"]
    (sentence,) = document(run, ["a dog runs"], LookOptions(targets=("un chat court",))).sentences
    assert sentence.target.words == ("un", "chat", "court")
    assert "score" not in sentence.scores
    with pytest.raises(DataError, match="2 targets for 1 sentences"):
        document(run, ["a dog runs"], LookOptions(targets=("un", "chat")))


@pytest.mark.parametrize("beam", [1, 3])
def test_the_tree_of_a_beam_leads_to_the_translation(runs, beam):
    run = runs["transformer"]
    (sentence,) = document(run, ["the cat sees a dog"], beam=beam).sentences
    (best,) = run.translations(["the cat sees a dog"], beam=beam)[0]
    assert sentence.target.text == best.text
    steps = sentence.decoding.beam
    way = [[branch for branch in step if branch.best] for step in steps]
    pieces = [step[0].piece for step in way if step]
    assert pieces in (list(sentence.target.pieces), list(sentence.target.pieces[:-1]))
    assert way[len(pieces) - 1][0].log_prob == pytest.approx(best.log_prob, abs=1e-4)
    place = steps[len(pieces) - 1].index(way[len(pieces) - 1][0])
    for step in range(len(pieces) - 1, -1, -1):
        assert steps[step][place].best
        place = steps[step][place].parent
    for step in steps:
        assert sum(branch.fate == "kept" for branch in step) <= beam
        assert all(one.log_prob >= two.log_prob for one, two in pairwise(step))
    if beam == 1:
        assert best.text == run.translate(["the cat sees a dog"], beam=1)[0]


def test_hidden_vectors_give_the_candidates_again(runs):
    for kind, run in runs.items():
        (sentence,) = document(run, ["the cat sees a dog"]).sentences
        vectors = sentence.decoding.arrays()
        with torch.no_grad():
            chances = run.model.head(torch.as_tensor(vectors["hidden"])).softmax(-1)
        best = [step[0].probability for step in sentence.candidates]
        assert chances.amax(-1).tolist() == pytest.approx(best, abs=1e-5), kind
        assert len(vectors["context"]) == len(vectors["hidden"])


def test_the_piece_that_came_is_always_among_the_candidates(runs):
    for run in runs.values():
        (sentence,) = document(run, ["a dog runs"]).sentences
        came = sentence.target.pieces if sentence.target else sentence.source.pieces[1:]
        for piece, step in zip(came, sentence.candidates, strict=False):
            assert piece in [one.piece for one in step]


@pytest.mark.parametrize("kind", ["transformer", "gpt"])
def test_edits_are_what_changing_a_head_gives(runs, kind):
    run, told = runs[kind], []
    texts = ["the cat sees a dog", "a dog sees the cat", "a dog runs"]
    found = document(run, texts, LookOptions(edits=True, told=lambda *one: told.append(one)), beam=1)
    sentence = found.sentences[0]
    heads = sum(len(one.array()) for one in sentence.attentions)
    swaps = heads if kind == "gpt" else 2
    assert [one.edit for one in sentence.edited] == ["masked"] * heads + ["even"] * heads + ["swapped"] * swaps
    assert {one.other for one in sentence.edited if one.edit == "swapped"} == {1}
    assert {one.edit for one in found.sentences[2].edited} == {"masked", "even"}
    assert len(told) == sum(len(one.edited) for one in found.sentences)
    changes = {"masked": masked, "even": evened, "swapped": lambda model, heads: swapped(model, other, heads)}
    if kind == "gpt":
        ids = run.generator.prompt_ids(texts[1])
        other = Pairs(Tokens.of([ids]), Tokens.of([[*ids, 0]]))
    else:
        other = Pairs(*(Tokens.of([row]) for row in encode_pair(run, texts[1], found.sentences[1].target.text)))
    for one in (sentence.edited[heads - 1], sentence.edited[heads], sentence.edited[-1]):
        with changes[one.edit](run.model, {one.attention: [one.head]}):
            targets = None if sentence.target is None else (sentence.target.text,)
            (again,) = document(run, texts[:1], LookOptions(targets=targets), beam=1).sentences
            if kind == "transformer":
                assert one.text == run.translate(texts[:1], beam=1)[0]
        side = (again.target or again.source).pieces
        for step, chance in enumerate(one.probabilities):
            piece = side[step] if sentence.target else side[step + 1] if step + 1 < len(side) else None
            like = [each.probability for each in again.candidates[step] if each.piece == piece]
            assert chance == pytest.approx(like[0] if piece else 1.0, abs=1e-5)


def test_a_history_measures_each_checkpoint_and_leaves_the_run_as_it_was(tmp_path):
    settings = [*COMMON, *KINDS["transformer"][1], "train.steps=4", "train.save_every=2", "train.keep=9"]
    settings += ["train.batch_tokens=60", "train.threads=1", "train.warmup=1", "tokenizer.kind=word", "train.ema=0"]
    files = [tmp_path / "train.en", tmp_path / "train.fr"]
    for file, side in zip(files, zip(*PAIRS, strict=True), strict=True):
        file.write_text("\n".join(side) + "\n")
    config = make_config(None, "tiny", settings, {"data": {"train": [str(file) for file in files]}})
    run = regard.train(config, tmp_path / "run")
    before = document(run, ["a dog runs"]).to_mapping()
    found = document(run, ["a dog runs"], LookOptions(history=True))
    assert found.history.steps == (2, 4)
    assert document(run, ["a dog runs"]).to_mapping() == before
    last = {(one.attention, one.head): one.measures for one in found.history.heads}
    for attention in found.sentences[0].attentions:
        weights = attention.array().astype(float)
        entropy = -(weights * np.log(np.where(weights > 0, weights, 1))).sum(-1).mean(-1)
        for head, value in enumerate(entropy):
            assert last[attention.name, head]["entropy"][-1] == pytest.approx(value, abs=1e-5)
    with pytest.raises(RunError, match="keeps 0 checkpoints; a history needs two"):
        document(Run(tmp_path, run.config, run.vocabularies, run.model), ["a dog"], LookOptions(history=True))
