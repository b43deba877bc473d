"""Every kind of run as a page's document."""

import pytest
import torch

from regard.data import PairList
from regard.errors import ConfigError, DataError
from regard.look.page import render
from regard.nn.batch import Tokens
from regard.runs import Run, make_config
from regard.runs.looking import Wanted, document, wanted
from regard.runs.run import build_model
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
    found = document(run, ["a dog runs"], Wanted(names=("decoder.*.cross*",), heads=(1,), vectors=False))
    assert [one.name for one in found.sentences[0].attentions] == [
        "decoder.0.cross_attention",
        "decoder.1.cross_attention",
    ]
    assert all(one.array().shape[0] == 1 and one.heads == (1,) for one in found.sentences[0].attentions)
    assert all(one.neurons is None for one in found.sentences[0].attentions)
    whole = document(run, ["a dog runs"]).sentences[0].attentions[-1].array()
    assert found.sentences[0].attentions[-1].array()[0] == pytest.approx(whole[1])
    with pytest.raises(ConfigError, match="no attention is called 'decode'"):
        document(run, ["a dog runs"], Wanted(names=("decode",)))
    with pytest.raises(ConfigError, match="no head 2 in"):
        document(run, ["a dog runs"], Wanted(heads=(2,)))


def test_a_page_holds_the_last_attentions_that_fit(runs, monkeypatch):
    run = runs["transformer"]
    monkeypatch.setattr(wanted, "MOST_WEIGHTS", 2 * 11 * 11)
    monkeypatch.setattr(wanted, "MOST_NUMBERS", 0)
    found = document(run, ["the cat sees a dog"], beam=1)
    kept = found.sentences[0].attentions
    assert 0 < len(kept) < 5
    assert kept[-1].name == "decoder.1.cross_attention"
    assert kept[-1].neurons is None
    assert f"the last {len(kept)} attentions; {5 - len(kept)} more did not fit" in found.note
    monkeypatch.setattr(wanted, "MOST_WEIGHTS", 10)
    with pytest.raises(ConfigError, match="alone have"):
        document(run, ["the cat sees a dog"])


def test_a_given_target_is_read_instead_of_decoding(runs):
    run = runs["transformer"]
    (sentence,) = document(run, ["a dog runs"], Wanted(targets=("un chat court",))).sentences
    assert sentence.target.words == ("un", "chat", "court")
    assert "score" not in sentence.scores
    with pytest.raises(DataError, match="2 targets for 1 sentences"):
        document(run, ["a dog runs"], Wanted(targets=("un", "chat")))
