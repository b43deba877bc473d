"""Preparing: what is stored, when it is reused, and what a failure leaves behind."""

import gc
import mmap
import os
import resource

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import Loader, PairFiles, PairList, PairStore, pair_store, prepare, prepared_cache
from regard.data.pair_store import Counts
from regard.data.readers import SplitPairs
from regard.errors import ConfigError, DataError
from regard.text import Tokenizer, TokenizerConfig, Vocabularies, train_vocabularies

PAIRS = [("the street", "la rue"), ("the animal", "l'animal"), ("the wide street", "la rue large")]
WORDS = train_vocabularies(PAIRS, TokenizerConfig(kind="word", joint=False))


def texts(store):
    return [(WORDS.source.decode(source.tolist()), WORDS.target.decode(target.tolist())) for source, target in store]


@settings(deadline=None, derandomize=True, max_examples=25)
@given(
    pairs=st.lists(st.sampled_from([*PAIRS, ("", "la"), ("the", " "), ("\t", "")]), max_size=12),
    chunk=st.integers(1, 5),
)
def test_stored_pairs_are_the_corpus_without_its_blanks(tmp_path_factory, pairs, chunk):
    full = [pair for pair in pairs if pair in PAIRS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_store, "CHUNK", chunk)
        folder = tmp_path_factory.mktemp("cache")
        if not full:
            with pytest.raises(DataError, match=f"none of {len(pairs)} pairs can be used: {len(pairs)} have a blank"):
                prepare(PairList(pairs), WORDS, folder)
            return
        store = prepare(PairList(pairs), WORDS, folder)
    assert texts(store) == full
    assert (store.counts.read, store.counts.kept, store.counts.blank) == (len(pairs), len(full), len(pairs) - len(full))
    for source, target in store:
        assert source[-1] == WORDS.source.eos
        assert (target[0], target[-1]) == (WORDS.target.bos, WORDS.target.eos)
    assert store.source.lengths.tolist() == [len(source) for source, _ in store]
    assert store.counts.target_tokens == store.target.lengths.sum()


@pytest.mark.parametrize("held", [0, prepared_cache.HELD])
def test_rows_are_views_of_what_is_held_or_of_large_files_mapped(tmp_path, monkeypatch, held):
    monkeypatch.setattr(prepared_cache, "HELD", held)
    store = prepare(PairList(PAIRS), WORDS, tmp_path)
    base = store.source.tokens
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(getattr(base, "obj", base), mmap.mmap) == (held == 0)
    assert not store.source.tokens.flags.writeable
    assert np.shares_memory(store[1][0], store.source.tokens)
    assert store.source.tokens.dtype == np.uint16
    assert store.source.lengths.dtype == np.int32
    assert np.array_equal(store[np.int64(2)][1], store[-1][1])
    with pytest.raises(IndexError):
        store[3]


def test_a_large_vocabulary_takes_wider_tokens(tmp_path):
    pairs = [(" ".join(f"w{i}" for i in range(start, start + 500)), "x") for start in range(0, 66_000, 500)]
    words = train_vocabularies(pairs, TokenizerConfig(kind="word", vocab_size=70_000))
    assert words.source.vocab_size > 2**16
    store = prepare(PairList(pairs), words, tmp_path, max_len=600)
    assert store.source.tokens.dtype == np.uint32
    assert words.source.decode(store[131][0].tolist()) == pairs[131][0]


def test_unchanged_input_is_reused_and_any_change_prepared_again(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("the street\tla rue\n")
    calls = []
    again = {"progress": calls.append}
    prepare(PairFiles(path), WORDS, tmp_path / "cache", **again)
    prepare(PairFiles(path), WORDS, tmp_path / "cache", **again)
    assert calls == [1]
    prepare(PairFiles(path), WORDS, tmp_path / "cache", max_len=9, **again)
    prepare(PairFiles(path), WORDS, tmp_path / "cache", overlong="truncate", **again)
    prepare(PairFiles(path), Vocabularies(WORDS.source, WORDS.source), tmp_path / "cache", **again)
    assert calls == [1] * 4
    path.write_text("the animal\tla rue\n")
    store = prepare(PairFiles(path), WORDS, tmp_path / "cache", **again)
    assert calls == [1] * 5
    assert texts(store) == [("the animal", "la rue")]
    assert len(list((tmp_path / "cache").iterdir())) == 5


def test_overlong_pairs_are_skipped_cut_or_refused(tmp_path):
    skipped = prepare(PairList(PAIRS), WORDS, tmp_path, max_len=3)
    assert texts(skipped) == PAIRS[:2]
    assert (skipped.counts.overlong, skipped.counts.truncated) == (1, 0)
    assert "1 skipped as too long" in skipped.counts.describe()
    cut = prepare(PairList(PAIRS), WORDS, tmp_path, max_len=3, overlong="truncate")
    assert texts(cut)[2] == ("the wide", "la rue")
    assert cut.source.lengths.max() == 3
    assert cut.target.lengths.max() == 4
    assert (cut.counts.overlong, cut.counts.truncated) == (0, 1)
    assert cut[2][1][-1] == WORDS.target.eos
    with pytest.raises(DataError, match="pair 3 is 4 tokens long; max_len=3 is the most"):
        prepare(PairList(PAIRS), WORDS, tmp_path, max_len=3, overlong="refuse")
    with pytest.raises(DataError, match="none of 3 pairs can be used: 0 have a blank side, 3 exceed max_len=2"):
        prepare(PairList(PAIRS), WORDS, tmp_path, max_len=2)
    with pytest.raises(ConfigError, match="max_len=1 must be at least 2"):
        prepare(PairList(PAIRS), WORDS, tmp_path, max_len=1)
    for held_out, said in ((True, "no pair is held out to validate on"), (False, "no pair is left to train on")):
        share = 1e-9 if held_out else 1.0
        with pytest.raises(DataError, match=f"{said}: data.held_out=.* give more pairs, or files to validate on"):
            prepare(SplitPairs(PairList(PAIRS), share, held_out), WORDS, tmp_path)
    assert not list(tmp_path.glob(".partial*"))


def test_a_preparation_cut_short_leaves_nothing_that_looks_complete(tmp_path):
    def killed(_):
        assert list(tmp_path.glob(".partial*"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(PairList(PAIRS), WORDS, tmp_path, progress=killed)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["source.tokens", "target.offsets", "meta.json"])
def test_a_damaged_folder_is_prepared_again(tmp_path, damage):
    prepare(PairList(PAIRS), WORDS, tmp_path)
    (folder,) = tmp_path.iterdir()
    os.truncate(folder / damage, 2)
    with pytest.raises(DataError, match="holds no prepared data"):
        PairStore.open(folder)
    assert texts(prepare(PairList(PAIRS), WORDS, tmp_path)) == PAIRS


def flip(path):
    content = bytearray(path.read_bytes())
    content[-len(content) // 3] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name", ["source.tokens", "source.offsets", "target.tokens", "target.offsets", "meta.json", "digests.json"]
)
def test_a_flipped_bit_is_found_said_and_prepared_again(tmp_path, name):
    prepare(PairList(PAIRS), WORDS, tmp_path)
    (folder,) = tmp_path.iterdir()
    before, said = {path.name: path.read_bytes() for path in folder.iterdir()}, []
    flip(folder / name)
    assert texts(prepare(PairList(PAIRS), WORDS, tmp_path, say=said.append)) == PAIRS
    (line,) = said
    assert str(folder) in line
    assert line.endswith(": it is prepared again")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    prepare(PairList(PAIRS), WORDS, tmp_path, say=said.append)
    assert len(said) == 1


def test_a_folder_without_digests_is_read_as_before(tmp_path):
    prepare(PairList(PAIRS), WORDS, tmp_path)
    (folder,) = tmp_path.iterdir()
    (folder / "digests.json").unlink()
    said = []
    assert texts(prepare(PairList(PAIRS), WORDS, tmp_path, say=said.append)) == PAIRS
    assert not said
    assert not (folder / "digests.json").exists()


def test_what_is_held_stays_whatever_becomes_of_its_files(tmp_path):
    store = prepare(PairList(PAIRS), WORDS, tmp_path)
    for path in next(tmp_path.iterdir()).iterdir():
        os.truncate(path, 0)
    assert texts(store) == PAIRS


def test_a_mapped_file_that_is_cut_while_it_is_read_ends_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(prepared_cache, "HELD", 0)
    store = prepare(PairList(PAIRS), WORDS, tmp_path)
    (folder,) = tmp_path.iterdir()
    with Loader(store, budget=64, ahead=0) as loader:
        next(loader)
        os.truncate(folder / "target.tokens", 0)
        with pytest.raises(
            DataError, match=r"target.tokens was cut short while it was in use: 0 of \d+ bytes are left"
        ):
            next(loader)
    del store, loader
    gc.collect()
    assert texts(prepare(PairList(PAIRS), WORDS, tmp_path)) == PAIRS


@pytest.mark.skipif(prepared_cache.fcntl is None, reason="needs locks on directories")
def test_what_a_killed_process_left_is_removed_at_once_and_what_another_writes_is_not(tmp_path):
    prepare(PairList(PAIRS), WORDS, tmp_path)
    orphan = tmp_path / ".partial-locked-0123"
    orphan.mkdir()
    (orphan / "source.tokens").write_bytes(b"xx")
    during = []

    def meanwhile(_):
        during.extend(path.name for path in tmp_path.glob(".partial*"))
        prepare(PairList(PAIRS), WORDS, tmp_path)  # sweeps, too
        during.extend(path.name for path in tmp_path.glob(".partial*"))

    prepare(PairList(PAIRS), WORDS, tmp_path)  # though there is nothing to prepare
    assert not orphan.exists()
    prepare(PairList(PAIRS[:2]), WORDS, tmp_path, progress=meanwhile)
    assert len(during) == 2
    assert during[0] == during[1]
    assert len(list(tmp_path.iterdir())) == 2


def test_what_a_killed_process_left_is_removed_once_it_is_old(tmp_path):
    for name, age in ((".partial-old", 7200), (".partial-new", 60)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "source.tokens").write_bytes(b"xx")
        for path in (tmp_path / name / "source.tokens", tmp_path / name):
            os.utime(path, (path.stat().st_mtime - age,) * 2)
    prepare(PairList(PAIRS), WORDS, tmp_path)
    assert [path.name for path in tmp_path.glob(".partial*")] == [".partial-new"]


def test_a_full_disk_gives_one_clear_error_and_leaves_nothing(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    pairs = PairList(PAIRS * 4000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))  # no file may grow beyond: as on a full disk
    try:
        with pytest.raises(DataError, match=r"cannot write prepared data to .*: File too large"):
            prepare(pairs, WORDS, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
    assert len(prepare(pairs, WORDS, tmp_path)) == 12_000


def test_two_preparations_at_once_end_with_one_folder(tmp_path):
    def meanwhile(_):
        prepare(PairList(PAIRS), WORDS, tmp_path)

    store = prepare(PairList(PAIRS), WORDS, tmp_path, progress=meanwhile)
    assert texts(store) == PAIRS
    assert len(list(tmp_path.iterdir())) == 1


def test_the_same_words_under_another_tokenizer_have_another_name(tmp_path):
    copy = Vocabularies(Tokenizer.from_json(WORDS.source.to_json()), Tokenizer.from_json(WORDS.target.to_json()))
    prepare(PairList(PAIRS), WORDS, tmp_path)
    prepare(PairList(PAIRS), copy, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    prepare(PairList(PAIRS), Vocabularies(WORDS.target, WORDS.source), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_what_became_of_the_pairs_is_said_in_one_line():
    assert Counts(9, 9, 0, 0, 0, 1234, 55).describe() == "9 pairs (1,234 source and 55 target tokens)"
    said = "5 pairs (1 source and 2 target tokens); 1 skipped with a blank side; 2,000 skipped as too long; "
    assert Counts(9, 5, 1, 2000, 3, 1, 2).describe() == said + "3 cut to the longest length allowed"
