import pytest
import torch

from regard import Run, evaluate, make_config
from regard.data import PairList
from regard.errors import ConfigError, DataError
from regard.nn.batch import Pairs, Tokens
from regard.tasks.corpora import WorldCorpus, corpus_of, world_held_out
from regard.tasks.looking import document
from regard.tasks.run import build_model
from regard.tasks.translation_metrics import corpus_perplexity, head_alignment
from regard.tasks.translator import encode_pair
from regard.text import TokenizerConfig, train_vocabularies

SETTINGS = [
    "model.width=16",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=2",
    "model.feed_forward=16",
    "model.max_len=24",
    "data.max_len=24",
    "decode.beam=1",
    "decode.max_len=10",
]


@pytest.fixture(scope="module")
def world():
    return WorldCorpus(12, 0, "train")


@pytest.fixture(scope="module")
def run(world, tmp_path_factory):
    vocabularies = train_vocabularies(world, TokenizerConfig(kind="word", vocab_size=2000))
    config = make_config(None, "tiny", SETTINGS).with_vocabularies(vocabularies)
    return Run(tmp_path_factory.mktemp("run"), config, vocabularies, build_model(config).eval())


def test_the_world_is_sampled_once_and_only_as_far_as_asked(world, monkeypatch):
    corpus, whole = WorldCorpus(12, 0, "train"), list(world)
    first = [pair for pair, _ in zip(corpus, range(3), strict=False)]
    kept, _ = corpus._kept_and_rest
    assert len(kept) <= 4
    assert list(corpus)[:3] == first
    monkeypatch.setattr("regard.tasks.corpora.sentences", None)
    assert list(corpus) == list(corpus) == whole
    assert [sentence.english for sentence in corpus.sentences] == [english for english, _ in whole]


def test_the_world_runs_in_either_direction(world):
    other = WorldCorpus(12, 0, "train", "fr")
    assert list(other) == [(french, english) for english, french in world]
    assert other.digest() != world.digest()
    with pytest.raises(ConfigError, match="the bundled corpus has en and fr, not de"):
        world_held_out("test", "de")


def test_scores_are_those_of_the_translations(run, world):
    pairs = [pair for pair in world if len(pair[0].split()) < 12]
    result = evaluate(run, PairList([*pairs, ("", "x"), ("x", " ")]))
    assert result["sentences"] == result["count"] == len(pairs)
    assert result["decode"]["beam"] == 1
    found = run.translate([source for source, _ in pairs])
    perfect = evaluate(run, PairList([(source, text) for (source, _), text in zip(pairs, found, strict=True) if text]))
    assert perfect["exact_match"] == 1
    assert perfect["bleu"] == pytest.approx(100)
    assert evaluate(run, PairList(pairs), limit=2)["sentences"] == 2


def test_any_of_several_answers_is_right(run, world):
    sources = [pair[0] for pair in world if len(pair[0].split()) < 12][:3]
    found = run.translate(sources)
    pairs = [pair for source, text in zip(sources, found, strict=True) for pair in ((source, "wrong"), (source, text))]
    written = []
    result = evaluate(run, PairList(pairs), alternatives=True, out=written.append)
    assert (result["sentences"], result["pairs"]) == (3, 6)
    assert result["exact_match"] == 1
    assert result["exact_match_interval"] == [1.0, 1.0]
    assert result["token_error_rate"] == 0
    assert written == found
    apart = evaluate(run, PairList(pairs))
    assert apart["sentences"] == 6
    assert apart["exact_match"] == 0.5
    low, high = apart["exact_match_interval"]
    assert 0 <= low < 0.5 < high <= 1


def test_progress_is_told(run, world):
    told = []
    evaluate(run, PairList(list(world)[:3]), progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_perplexity_is_that_of_each_token_written_out(run, world):
    pairs = [pair for pair in world if max(map(len, encode_pair(run, *pair))) <= 24]
    assert 0 < len(pairs) < 12
    total, count = 0.0, 0
    for pair in pairs:
        source, target = encode_pair(run, *pair)
        logits = run.model.logits(Pairs(Tokens.of([source]), Tokens.of([target])))
        chances = logits.detach().double().log_softmax(-1)[0]
        total -= sum(float(chances[place, token]) for place, token in enumerate(target[1:]))
        count += len(target) - 1
    value, counted = corpus_perplexity(run, list(world))
    assert counted == len(pairs)
    assert value == pytest.approx(torch.tensor(total / count).exp().item(), rel=1e-4)


def test_alignment_is_scored_per_head_and_leaves_out_what_is_too_long(run, world):
    scores = head_alignment(run, world.sentences)
    assert scores.error_rate.shape == (2, 2)
    readable = [s for s in world.sentences if max(map(len, encode_pair(run, s.english, s.french))) <= 24]
    assert 0 < len(readable) < 12
    assert torch.equal(torch.as_tensor(head_alignment(run, readable).error_rate), torch.as_tensor(scores.error_rate))


def test_what_cannot_be_evaluated_is_said(run, world):
    with pytest.raises(ConfigError, match="names no test or validation set"):
        evaluate(run)
    with pytest.raises(DataError, match="no pair has both sides"):
        evaluate(run, PairList([("", "x")]))
    with pytest.raises(ConfigError, match="tokenize='no' must be one of"):
        evaluate(run, PairList([("x", "x")]), tokenize="no")
    with pytest.raises(DataError, match="sentence 2 has 40 tokens"):
        evaluate(run, PairList([("x", "x"), ("x " * 39 + "x", "x")]), overlong="refuse")
    assert corpus_of(run.config.data, "test") is None


def test_what_is_looked_at_must_be_read_whole(run, world):
    shown = document(run, ["I am a student."])
    (sentence,) = shown.sentences
    assert {attention.name for attention in sentence.attentions} == {
        "encoder.0.attention",
        "decoder.0.attention",
        "decoder.0.cross_attention",
        "decoder.1.attention",
        "decoder.1.cross_attention",
    }
    with pytest.raises(DataError, match="sentence 1 has 40 tokens"):
        document(run, ["x " * 39 + "x"])
