"""A shortlist of output words: learned from pairs, kept beside a run, and without effect where it holds all words."""

import json
import shutil

import numpy as np
import pytest
import torch

from regard import load
from regard.cli import main
from regard.decode.config import DecodeConfig
from regard.decode.shortlist import Shortlist, ShortlistStepper, learn_shortlist
from regard.errors import ConfigError, DataError, RunError
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.batch import Pairs, Tokens
from regard.nn.quantized import quantize
from regard.tasks.shortlisting import SHORTLIST, write_shortlist


def test_words_that_explain_each_other_are_found_however_frequent_another_is():
    # Word 10 is in every target; 4, 5 and 6 are translated by 14, 15 and 16.
    draw = np.random.default_rng(0)
    sources = [draw.choice([4, 5, 6], size=2, replace=False).tolist() for _ in range(30)]
    pairs = [([*source, 2], [10, *(word + 10 for word in source)]) for source in sources]
    found = learn_shortlist(pairs, source_size=8, target_size=20, frequent=1, each=1, rounds=8)
    assert found.frequent.tolist() == [10]
    assert found.likely[[4, 5, 6], 0].tolist() == [14, 15, 16]
    assert found.likely[7, 0] == -1
    assert found.words([4, 6, 2], always=(1, 2)).tolist() == [1, 2, 10, 14, 16]
    with pytest.raises(DataError, match="needs pairs"):
        learn_shortlist([], source_size=8, target_size=20)


@torch.inference_mode()
def test_no_source_depends_on_the_words_of_its_neighbours():
    torch.manual_seed(0)
    config = TransformerConfig(
        source_vocab_size=40, target_vocab_size=40, width=16, heads=2, encoder_layers=1, decoder_layers=1, max_len=20
    )
    model = Transformer(config).eval()
    rows, lists = [[4, 5, 2], [7, 2, 2]], [np.array([1, 2, 9, 10, 30]), np.array([1, 2, 10, 11, 12, 13])]
    together = ShortlistStepper(model, lists)
    assert together.words.tolist() == [1, 2, 9, 10, 11, 12, 13, 30]
    one, state = together.step(torch.tensor([0, 0]), together.start(Pairs(Tokens.of(rows))))
    assert one.exp().sum(-1).tolist() == pytest.approx([1.0, 1.0])
    for row, words in enumerate(lists):
        alone = ShortlistStepper(model, [words])
        log_probs, _ = alone.step(torch.tensor([0]), alone.start(Pairs(Tokens.of([rows[row]]))))
        places = np.searchsorted(together.words, words)
        torch.testing.assert_close(one[row, places], log_probs[0])
        others = np.setdiff1d(np.arange(8), places)
        assert (one[row, others] == -torch.inf).all()
    second, _ = together.step(torch.tensor([3]), state.select(torch.tensor([1]), torch.tensor([1])))
    assert second.shape == (1, 8)


def every_word(run):
    size = run.vocabularies.target.vocab_size
    return Shortlist(np.arange(size, dtype=np.int32), np.full((run.vocabularies.source.vocab_size, 1), -1, np.int32))


@pytest.fixture
def run(trained, tmp_path):
    """A small run of its own."""
    return load(shutil.copytree(trained, tmp_path / "run"), "cpu")


SENTENCES = ["the cat sees the red dog", "a big house", "sleeps", ""]


@pytest.mark.parametrize(
    "how",
    [{"beam": 4, "top_beams": 2}, {"beam": 1}, {"temperature": 1.0, "samples": 2}, {"beam": 3, "require": ["CAT"]}],
)
@pytest.mark.parametrize("int8", [False, True])
def test_with_every_word_nothing_changes(run, how, int8, monkeypatch):
    if int8:
        monkeypatch.setattr(run, "model", quantize(load(run.directory, "cpu").model))
    monkeypatch.setitem(run.__dict__, "translator", run.task.parts["translator"](run))
    monkeypatch.setattr(run.translator, "_read_shortlist", lambda: every_word(run))
    plain, short = (run.translations(SENTENCES, shortlist=asked, max_len=12, **how) for asked in (False, True))
    assert [[one.text for one in best] for best in short] == [[one.text for one in best] for best in plain]
    for one, other in zip(short, plain, strict=True):
        assert [best.score for best in one] == pytest.approx([best.score for best in other], abs=1e-4)


def test_a_shortlist_is_made_used_and_verified_from_the_command_line(run, capsys):
    path = run.directory / SHORTLIST
    assert main(["translate", str(run.directory), "the cat", "--shortlist", "--device", "cpu"]) != 0
    assert "regard shortlist" in capsys.readouterr().err
    assert main(["shortlist", str(run.directory), "--frequent", "3", "--each", "2"]) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(path)
    assert "learned from 60 pairs" in said.err
    args = ["translate", str(run.directory), "the cat sleeps", "--shortlist", "--device", "cpu", "--json"]
    assert main(args) == 0
    found = json.loads(capsys.readouterr().out)
    short = load(run.directory, "cpu").translator
    short.check(DecodeConfig(shortlist=True))
    row = run.vocabularies.source_row(run.vocabularies.source.encode("the cat sleeps"))
    assert set(run.vocabularies.target.encode(found["translations"][0]["text"])) <= set(
        short._shortlist.words(row, (1, 2)).tolist()
    )
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(RunError, match="digest"):
        load(run.directory, "cpu").translate(["the cat"], shortlist=True)


def test_where_a_shortlist_cannot_be_honoured_it_is_refused(run, monkeypatch):
    with pytest.raises(ConfigError, match="coverage_penalty"):
        run.translate(["the cat"], beam=2, coverage_penalty=0.2, shortlist=True)
    with pytest.raises(ConfigError, match="has none yet"):
        run.translate(["the cat"], shortlist=True)
    with pytest.raises(ConfigError, match="looked at"):
        run.translator.searched("the cat", DecodeConfig(shortlist=True))
    monkeypatch.setattr(run.translator, "copies", True)
    with pytest.raises(ConfigError, match="copies"):
        run.translate(["the cat"], shortlist=True)
    with pytest.raises(ConfigError, match="copies"):
        write_shortlist(run)
    with pytest.raises(ConfigError, match="each=0"):
        write_shortlist(run, each=0)
