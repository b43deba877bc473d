"""Runs on several corpora in many shards: what is said, exact resuming, and what is refused or noticed."""

import gzip
import json
from itertools import product

import pytest
from listeners import StopAt, Told

import regard
from regard import make_config
from regard.data import pair_store
from regard.data.iterables import write_rows
from regard.errors import ConfigError, DataError
from regard.text.tokenizing import TokenizingLost
from regard.trainer.trainer import Stopped

SMALL = [
    *("model.width=16", "model.heads=2", "model.feed_forward=24", "tokenizer.kind=word", "train.batch_tokens=150"),
    *("train.steps=12", "train.log_every=4", "train.validate_every=100", "train.save_every=4", "train.threads=1"),
]
PAIRS = [*SMALL, "model.encoder_layers=1", "model.decoder_layers=1", "train.warmup=3"]
TEXT = [*SMALL, "model.layers=1", "data.max_len=16", "model.max_len=16"]


@pytest.fixture
def corpora(tmp_path):
    """Three shards of a large corpus, and a small one."""
    (tmp_path / "large").mkdir()
    for shard in range(3):
        rows = [{"en": f"the cat {n % 9} sees {shard}", "fr": f"le chat {n % 9} voit {shard}"} for n in range(50)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "large" / f"{shard}-of-3.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (tmp_path / "small.tsv").write_text("a dog\tun chien\n" * 10, encoding="utf-8")
    return tmp_path


def pairs(corpora, *settings):
    named = {"large": str(corpora / "large" / "*.gz"), "small": [str(corpora / "small.tsv")]}
    return make_config(None, "tiny", [*PAIRS, *settings], {"data": {"corpora": named}})


def model_bytes(directory):
    return (directory / "model.safetensors").read_bytes()


def test_a_mixed_run_says_its_shares_and_resumes_to_the_same_bytes(corpora, tmp_path, monkeypatch):
    config = pairs(corpora, "data.mix={large=1, small=1}")
    told = Told()
    regard.train(config, tmp_path / "whole", told)
    assert "an epoch mixes 160 pairs: large 80 (50 %, each 0.533 times), small 80 (50 %, each 8 times)" in told.lines
    with pytest.raises(Stopped):
        regard.train(config, tmp_path / "cut", StopAt(8))
    monkeypatch.chdir(tmp_path / "large")
    regard.resume(tmp_path / "cut")
    assert model_bytes(tmp_path / "cut") == model_bytes(tmp_path / "whole")
    kept = json.loads((tmp_path / "cut" / "config.json").read_text(encoding="utf-8"))["data"]
    assert kept["corpora"] == {"large": [str(corpora / "large" / "*.gz")], "small": [str(corpora / "small.tsv")]}
    assert kept["mix"] == {"large": 1, "small": 1}
    other = regard.train(pairs(corpora, "data.temperature=5"), tmp_path / "warm", told)
    assert "an epoch mixes 160 pairs: large 101 (63.1 %, each 0.673 times)" in " ".join(told.lines)
    assert model_bytes(other.directory) != model_bytes(tmp_path / "whole")


def test_a_missing_shard_or_one_that_changed_is_noticed_when_a_run_is_resumed(corpora, tmp_path):
    regard.train(pairs(corpora, "train.steps=2"), tmp_path / "run")
    shard = corpora / "large" / "1-of-3.jsonl.gz"
    before = shard.read_bytes()
    shard.write_bytes(gzip.compress(b'{"en": "other", "fr": "autre"}\n' * 50, mtime=0))
    told = Told()
    regard.resume(tmp_path / "run", ("train.steps=3",), told)
    assert "the training data is not what it was: from here on this is another run" in told.lines
    shard.unlink()
    with pytest.raises(DataError, match=r"a shard is missing: .*1-of-3\.jsonl\.gz; there are 2 of 3"):
        regard.resume(tmp_path / "run", ("train.steps=4",))
    shard.write_bytes(before)
    regard.resume(tmp_path / "run", ("train.steps=4",))


@pytest.mark.parametrize("end", [KeyboardInterrupt, TokenizingLost("a process was killed"), DataError("not a pair")])
def test_a_long_preparation_that_is_interrupted_stays_in_the_run_and_is_gone_on_with(
    corpora, tmp_path, monkeypatch, end
):
    """By Ctrl-C, SIGTERM or a process that was killed; where the data is at fault there is nothing to go on with."""
    monkeypatch.setattr(pair_store, "CHUNK", 8)
    monkeypatch.setattr(pair_store, "COMMIT", 2)
    regard.train(pairs(corpora), tmp_path / "whole")
    appended = pair_store._Preparation._appended

    def ended(self, files, done, *given):
        if done.read >= 60:
            raise end
        return appended(self, files, done, *given)

    told = Told()
    with monkeypatch.context() as patch:
        patch.setattr(pair_store._Preparation, "_appended", ended)
        with pytest.raises(end if isinstance(end, type) else type(end)):
            regard.train(pairs(corpora), tmp_path / "cut", told)
    if isinstance(end, DataError) and not isinstance(end, TokenizingLost):
        assert not (tmp_path / "cut").exists()
        return
    assert [path.name for path in (tmp_path / "cut").iterdir()] == ["cache"]
    assert any("stays in" in line and "the same command goes on with it" in line for line in told.lines), told.lines
    regard.train(pairs(corpora), tmp_path / "cut", told)
    assert any(line.startswith("going on after the ") for line in told.lines), told.lines
    assert model_bytes(tmp_path / "cut") == model_bytes(tmp_path / "whole")
    assert not list((tmp_path / "cut").rglob(".partial*"))


def test_running_text_of_several_corpora_is_mixed_too(corpora, tmp_path):
    (tmp_path / "a.txt").write_text("one two three four five\n" * 60, encoding="utf-8")
    (tmp_path / "b.txt").write_text("six seven eight nine ten\n" * 600, encoding="utf-8")
    named = {"a": str(tmp_path / "a.txt"), "b": str(tmp_path / "[b].txt")}
    config = make_config(
        None, "gpt-tiny", [*TEXT, "data.mix={a=3, b=1}", "data.held_out=0.1"], {"data": {"corpora": named}}
    )
    told = Told()
    regard.train(config, tmp_path / "whole", told)
    assert any(line.startswith("an epoch mixes ") and "(75" in line for line in told.lines), told.lines
    with pytest.raises(Stopped):
        regard.train(config, tmp_path / "cut", StopAt(8))
    regard.resume(tmp_path / "cut")
    assert model_bytes(tmp_path / "cut") == model_bytes(tmp_path / "whole")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["data.train=['x.tsv']"], "data.train and data.corpora both say what to train on"),
        (["data.mix.large=1"], "data.mix has no weight for the corpus 'small'"),
        (["data.mix={large=1, smal=1}"], "data.mix names 'smal', which is not in data.corpora; did you mean 'small'"),
        (["data.temperature=0.0"], "data.temperature=0.0 must be above 0"),
        (["data.workers=-1"], "data.workers=-1 must not be negative"),
        (["data.world=5"], "data.corpora and data.world are two sources"),
        (["data.corpora.small=[]"], "data.corpora.small names no files"),
        (["data.corpora.small=5"], "data.corpora.small=5 must be the name of a file, or a list of names"),
        (["data.workers=2", "model.copy=true"], "is not for models that copy"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(corpora, settings, said):
    with pytest.raises(ConfigError, match=said.replace("[", r"\[")):
        pairs(corpora, *settings)


def test_weights_without_corpora_are_refused():
    with pytest.raises(ConfigError, match=r"data.temperature=2.0 mixes the corpora of data.corpora, which has 0"):
        make_config(None, "tiny", ["data.temperature=2.0"])
    with pytest.raises(ConfigError, match=r"data.carry=true reads one text in streams"):
        make_config(None, "lstm-words", ["data.carry=true", "data.corpora={a='x', b='y'}"])


def test_rows_that_python_gives_are_trained_on_and_resumed_from(tmp_path):
    written = write_rows(((f"the cat {n % 7}", f"le chat {n % 7}") for n in range(80)), tmp_path / "train.jsonl")
    data = {"train": [str(written.path)], "source": written.columns[0], "target": written.columns[1]}
    regard.train(make_config(None, "tiny", [*PAIRS, "train.steps=3"], {"data": data}), tmp_path / "run")
    told = Told()
    regard.resume(tmp_path / "run", ("train.steps=4",), told)
    assert not any("not what it was" in line for line in told.lines)


def test_shards_are_recognised_without_a_preset(corpora):
    plan = regard.plan(str(corpora / "large" / "*.gz"), minutes=1)
    assert "columns en and fr in 3 files" in plan.recognised
    assert plan.config.data.train == (str(corpora / "large" / "*.gz"),)


def colours(path, more=()):
    """Pairs of a rule in which three colours can take each other's place."""
    names, rows = ("red", "blue", "green"), []
    for first, second, third in product(names, names, names):
        rows += [(f"{first} {second} {third}", f"{first} {second} {third}"), (f"{first} {second}", f"{first} {second}")]
        rows += [(f"{first} twice then {second} and {third}", f"{first} {first} {second} {third}")]
    text = "".join(f"{source}\t{target.upper()}\n" for source, target in (*dict(rows).items(), *more))
    path.write_text(text, encoding="utf-8")
    return path


def test_a_run_that_exchanges_words_says_which_and_resumes_to_the_same_bytes(tmp_path):
    file = colours(tmp_path / "train.tsv")
    shared = {"data": {"train": [str(file)], "source": 1, "target": 2}}
    config, told = make_config(None, "tiny", [*PAIRS, "data.swaps=4"], shared), Told()
    regard.train(config, tmp_path / "whole", told)
    assert "words that are exchanged in 4 ways: blue (BLUE), green (GREEN), red (RED)" in told.lines
    with pytest.raises(Stopped):
        regard.train(config, tmp_path / "cut", StopAt(8))
    regard.resume(tmp_path / "cut")
    assert model_bytes(tmp_path / "cut") == model_bytes(tmp_path / "whole")
    plain = regard.train(make_config(None, "tiny", PAIRS, shared), tmp_path / "plain")
    assert model_bytes(plain.directory) != model_bytes(tmp_path / "whole")
    colours(file, [("red", "something"), ("red", "else")])
    regard.train(config, tmp_path / "none", told)
    assert "data.swaps=4: no words were found that can be exchanged, and none are" in told.lines


def test_what_cannot_be_varied_in_two_ways_at_once_is_refused(corpora, tmp_path):
    with pytest.raises(ConfigError, match=r"data\.swaps=3 is for one corpus, not for those of data\.corpora"):
        pairs(corpora, "data.swaps=3")
    shared = {"data": {"train": [str(colours(tmp_path / "train.tsv"))], "source": 1, "target": 2}}
    settings = [*PAIRS, "tokenizer.kind=bpe", "tokenizer.dropout=0.1", "data.swaps=3"]
    with pytest.raises(ConfigError, match=r"data\.swaps=3 and tokenizer\.dropout=0\.1 both make variants"):
        make_config(None, "tiny", settings, shared)
    with pytest.raises(ConfigError, match=r"swaps=-1"):
        make_config(None, "tiny", [*PAIRS, "data.swaps=-1"], shared)
