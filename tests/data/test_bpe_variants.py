"""BPE dropout: other pieces of the same text, chosen by seed and epoch, the same whenever they are made."""

import collections

import numpy as np
import pytest
import torch

import regard
from regard import make_config
from regard.data import Loader, PairList, Position, prepare
from regard.data.sequence_packing import VariantLayout
from regard.errors import ConfigError
from regard.nn.batch import PackedPairs, Pairs
from regard.text import TokenizerConfig, train_vocabularies
from regard.text.bpe_dropout import MergeDropout, Merges

WORDS = ["yesterday", "unbelievable", "houses", "household", "relation", "relative", "translation", "a", "the", "mouse"]


def texts(count):
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randint(len(WORDS), (count, 6), generator=generator).tolist()
    return [" ".join(WORDS[i] for i in row[: 2 + n % 5]) for n, row in enumerate(chosen)]


PAIRS = list(zip(texts(90), [text.upper() for text in texts(90)], strict=True))
CONFIG = TokenizerConfig(kind="bpe", vocab_size=330)
VOCABULARIES = train_vocabularies(PAIRS, CONFIG)


def stores(folder, rate=0.3, count=3):
    return [prepare(PairList(PAIRS), VOCABULARIES, folder, drop=MergeDropout(rate, v)) for v in range(count)]


ODD = ["", "  two  spaces ", "Ünïcode — naïve", "emoji 👍🏽 and\ttabs", "<eos> typed", "relation's", "x" * 50]


def test_with_nothing_left_out_texts_are_cut_as_they_always_are():
    for config in (CONFIG, TokenizerConfig(kind="bpe", vocab_size=330, lowercase=True)):
        tokenizer = train_vocabularies(PAIRS, config).source
        assert MergeDropout(0.0, 3).encoder(tokenizer)([*texts(40), *ODD]) == tokenizer.encode_batch([*texts(40), *ODD])
    words = train_vocabularies(PAIRS, TokenizerConfig(kind="word")).source
    assert MergeDropout(0.4, 3).encoder(words)(texts(5)) == words.encode_batch(texts(5))


def test_a_text_with_merges_left_out_is_the_same_text_in_more_pieces():
    tokenizer = VOCABULARIES.source
    encode = MergeDropout(0.4, 3).encoder(tokenizer)
    longer = 0
    for text, ids in zip([*texts(40), *ODD], encode([*texts(40), *ODD]), strict=True):
        assert tokenizer.decode(ids) == text
        longer += len(ids) - len(tokenizer.encode(text))
    assert longer > 40
    (row,) = encode(["mouse mouse mouse mouse mouse mouse mouse mouse"])
    pieces = collections.Counter(tokenizer.pieces(row))
    assert len(pieces) > 3, "a word is not cut alike wherever it stands"


def test_merges_are_left_out_as_often_as_the_rate_says():
    # Two merges make this word: "ab", then "abc". Step by step: "ab" is made with 1 - p, then "abc" with 1 - p.
    merges = Merges({"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, [["a", "b"], ["ab", "c"]], 0.3)
    found = collections.Counter(len(merges.spelling("abc", number)) for number in range(4000))
    expected = {3: 0.3, 2: 0.7 * 0.3, 1: 0.7 * 0.7}
    surprise = sum((found[n] - 4000 * share) ** 2 / (4000 * share) for n, share in expected.items())
    assert surprise < 13.8  # the chi-square that one draw in a thousand exceeds
    assert Merges({"a": 0, "b": 1, "ab": 2}, ["a b"], 0.0).spelling("ab", 1) == [2]


def test_variants_differ_decode_to_the_text_and_are_the_same_when_made_again(tmp_path):
    first, again = stores(tmp_path / "a"), stores(tmp_path / "b")
    plain = prepare(PairList(PAIRS), VOCABULARIES, tmp_path / "a")
    spellings = collections.Counter()
    for one, other in zip(first, again, strict=True):
        assert np.array_equal(one.source.tokens, other.source.tokens)
        assert np.array_equal(one.target.tokens, other.target.tokens)
        assert len(one.source.tokens) > len(plain.source.tokens)
        for row, (source, target) in enumerate(PAIRS):
            assert VOCABULARIES.source.decode(one.source[row].tolist()) == source
            assert VOCABULARIES.target.decode(one.target[row].tolist()) == target
        spellings[one.source.tokens.tobytes()] += 1
    assert len(spellings) == 3


@pytest.mark.parametrize("pack", [False, True])
def test_each_epoch_reads_the_next_variant_and_can_be_taken_up_anywhere(tmp_path, pack):
    found = stores(tmp_path)
    layout = VariantLayout(found, 500, pack=pack)

    def take(position, count):
        with Loader(layout, seed=4, position=position, ahead=2) as loader:
            return [(next(loader), loader.position) for _ in range(count)]

    sizes = [len(layout.order(4, epoch)) for epoch in range(4)]
    whole = take(Position(), sum(sizes))
    start = 0
    for epoch, size in enumerate(sizes):
        tokens = sum(batch.tokens for batch, _ in whole[start : start + size])
        store = found[(4 + epoch) % 3]
        assert tokens == len(store.source.tokens) + len(store.target.tokens) - len(store), epoch
        start += size
    cut = sizes[0] + 2
    for (batch, at), (other, there) in zip(whole[cut:], take(whole[cut - 1][1], 5), strict=False):
        assert at == there
        assert torch.equal(batch.source.ids, other.source.ids)
        assert torch.equal(batch.labels, other.labels)
    assert {type(batch) for batch, _ in whole} == {PackedPairs if pack else Pairs}
    if pack:
        assert len({batch.source.ids.shape for batch, _ in whole}) == 1


SMALL = [
    "model.width=8",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.feed_forward=8",
    "tokenizer.vocab_size=330",
    "tokenizer.dropout=0.2",
    "tokenizer.variants=2",
    "train.batch_tokens=700",
    "train.save_every=9",
    "train.threads=1",
    "train.optimizer=muon",
    "train.learning_rate=0.01",
    "train.r_drop=1",
    "train.dropout_until=14",
    "model.layer_drop=0.2",
    "model.qk_norm=true",
]


@pytest.mark.parametrize("more", [[], ["train.pack=always", "train.accumulate=2", "train.ema=0.9"]])
def test_a_run_with_every_recipe_resumes_to_the_byte(tmp_path, more):
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")

    def config(steps):
        settings = [*SMALL, f"train.steps={steps}", "train.schedule=constant", "train.warmup=0", *more]
        return make_config(None, "tiny", settings, {"data": {"train": [str(path)]}})

    regard.train(config(18), tmp_path / "whole")
    regard.train(config(9), tmp_path / "short")
    regard.resume(tmp_path / "short", ("train.steps=18",))
    ends = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "short")]
    assert ends[0] == ends[1]
    ends = [(tmp_path / name / "checkpoints/step-18/optimizer.safetensors").read_bytes() for name in ("whole", "short")]
    assert ends[0] == ends[1]


def test_each_side_may_have_its_own_kind():
    config = TokenizerConfig(source_kind="character", target_kind="word", joint=False, vocab_size=300)
    pairs = [("about", "AH B AW T"), ("house", "HH AW S")]
    vocabularies = train_vocabularies(pairs, config)
    assert vocabularies.source.pieces(vocabularies.source.encode("about")) == list("about")
    assert vocabularies.target.pieces(vocabularies.target.encode("HH AW S")) == ["HH", "AW", "S"]
    assert config.kinds == ("character", "word")
    with pytest.raises(ConfigError, match="joint=false"):
        TokenizerConfig(source_kind="character")


@pytest.mark.parametrize(
    "settings",
    [{"dropout": 1.0}, {"dropout": 0.1, "kind": "word"}, {"variants": 0}, {"vocab_size": 200, "target_kind": "bpe"}],
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ConfigError):
        TokenizerConfig(**{"joint": False, "source_kind": "word", "kind": "bpe", **settings})
