"""Pairs in many files: names and patterns, what is refused, processes that tokenise, and a cursor that goes on."""

import gzip
import json
import os
import subprocess
import sys

import pyarrow
import pytest
from pyarrow import parquet

from regard import make_config
from regard.data import PairFiles, PairList, pair_store, prepare
from regard.data.file_names import files_of, passed_over
from regard.data.prepared_cache import CURSOR
from regard.data.readers import SplitPairs
from regard.data.shards import TABLES, Corpora, Cursor, PairShards, check_shards, chunks_from, files_read, pair_corpus
from regard.errors import ConfigError, DataError
from regard.tasks.corpora import check_pair_files, check_running_text
from regard.text import TokenizerConfig, Vocabularies, train_vocabularies
from regard.text.bpe_dropout import MergeDropout
from regard.text.tokenizing import Tokenizing

KEYS = ("en", "fr")
PAIRS = [(f"the house number {n}", f"la maison numéro {n}") for n in range(60)]


def write_shards(folder, kinds=("jsonl", "parquet", "tsv", "jsonl.gz"), pairs=PAIRS):
    """The pairs over as many files as kinds, in order of their names."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(pairs) // len(kinds))
    for number, kind in enumerate(kinds):
        some = pairs[number * size : (number + 1) * size]
        path = folder / f"{number:02}.{kind}"
        records = "".join(json.dumps(dict(zip(KEYS, pair, strict=True))) + "\n" for pair in some)
        if kind == "parquet":
            columns = {key: [pair[side] for pair in some] for side, key in enumerate(KEYS)}
            parquet.write_table(pyarrow.table(columns), path)
        elif kind == "tsv":
            path.write_text("".join("\t".join(pair) + "\n" for pair in some), encoding="utf-8")
        else:
            path.write_bytes(gzip.compress(records.encode()) if kind.endswith("gz") else records.encode())
    return folder


@pytest.fixture(scope="module")
def vocabularies() -> Vocabularies:
    return train_vocabularies(PAIRS, TokenizerConfig(kind="bpe", vocab_size=320))


def contents(cache):
    (folder,) = cache.iterdir()
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in ("meta.json", "digests.json")}


def test_shards_of_all_kinds_are_read_in_order_by_folder_pattern_or_name(tmp_path):
    folder = write_shards(tmp_path / "shards")
    for names in ([folder], [folder / "*"], [folder / "00.jsonl", folder / "0[123].*"], sorted(folder.iterdir())):
        corpus = pair_corpus([str(name) for name in names], KEYS)
        assert isinstance(corpus, PairShards)
        assert list(corpus) == PAIRS
        check_shards(corpus)
        assert "4 shards of pairs" in corpus.notes()[-1]
        assert files_read(corpus) == sorted(folder.iterdir())
    one = pair_corpus([str(folder / "00.jsonl")], KEYS)
    assert one == PairFiles(folder / "00.jsonl", keys=KEYS)


def test_files_of_a_folder_that_are_not_read_are_said(tmp_path):
    folder = write_shards(tmp_path / "shards")
    assert list(passed_over([folder, folder / "00.jsonl"], TABLES)) == []
    (folder / "README.md").write_text("what this is\n", encoding="utf-8")
    (folder / ".hidden").write_text("", encoding="utf-8")
    heard: list[str] = []
    config = make_config("tiny", data={"train": [str(folder)], "source": "en", "target": "fr"})
    check_pair_files(config.data, heard.append)
    (line,) = (line for line in heard if "not read" in line)
    assert line.startswith(f"{folder}: 1 file is of a kind that is not read (README.md); known kinds: .tsv")
    for number in range(4):
        (folder / f"{number}.rar").write_text("", encoding="utf-8")
    (line,) = passed_over([folder], TABLES)
    assert "5 files are of a kind that is not read (0.rar, 1.rar, 2.rar, ...)" in line
    heard.clear()
    check_running_text(make_config("gpt-tiny", data={"train": [str(folder)], "text": "en"}), heard.append)
    (line,) = (line for line in heard if "not read" in line)
    assert "5 files are" in line
    assert "02.tsv" in line


def test_a_shard_that_is_named_twice_is_found_among_thousands(tmp_path):
    first = tmp_path / "00000.jsonl"
    first.write_text(json.dumps(dict(zip(KEYS, PAIRS[0], strict=True))), encoding="utf-8")
    for number in range(1, 1200):
        os.link(first, tmp_path / f"{number:05}.jsonl")
    with pytest.raises(ConfigError, match=r"01100\.jsonl is named twice"):
        pair_corpus([str(tmp_path), str(tmp_path / "01100.jsonl")], KEYS)


def test_line_aligned_shards_come_in_pairs(tmp_path):
    for side, key in enumerate(KEYS):
        (tmp_path / key).mkdir()
        for number in range(3):
            some = PAIRS[number * 20 : (number + 1) * 20]
            text = "".join(pair[side] + "\n" for pair in some)
            (tmp_path / key / f"part{number}.{key}").write_text(text, encoding="utf-8")
    for names in (["en", "fr"], ["en/*.en", "fr/part?.fr"]):
        assert list(pair_corpus([str(tmp_path / name) for name in names], KEYS)) == PAIRS
    (tmp_path / "fr" / "part2.fr").unlink()
    with pytest.raises(DataError, match=r"stands for 3 files and .* for 2: line-aligned shards come in pairs"):
        pair_corpus([str(tmp_path / "en"), str(tmp_path / "fr")], KEYS)


def test_what_is_missing_twice_there_or_not_alike_is_refused_by_name(tmp_path):
    folder = write_shards(tmp_path / "shards", ["jsonl"] * 3)
    with pytest.raises(DataError, match=r"no file matches .*\*\.csv"):
        pair_corpus([str(folder / "*.csv")], KEYS)
    with pytest.raises(DataError, match=r"no such file or folder: .*none"):
        pair_corpus([str(folder / "none.tsv")], KEYS)
    with pytest.raises(ConfigError, match=r"00\.jsonl is named twice"):
        pair_corpus([str(folder), str(folder / "00.jsonl")], KEYS)
    (tmp_path / "lines").write_text("a\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="lines is no table"):
        pair_corpus([str(folder / "00.jsonl"), str(folder / "01.jsonl"), str(tmp_path / "lines")], KEYS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty holds no file to read"):
        pair_corpus([str(tmp_path / "empty")], KEYS)
    (folder / "01.jsonl").write_text('{"en": "a", "de": "b"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"01\.jsonl, line 1 has no key 'fr'"):
        check_shards(pair_corpus([str(folder)], KEYS))


def test_a_gap_in_numbered_shards_is_a_missing_shard(tmp_path):
    for number in (0, 1, 3):
        (tmp_path / f"train-{number:05}-of-00004.tsv").write_text("a\tb\n", encoding="utf-8")
    for name in (tmp_path, tmp_path / "train-*.tsv"):
        with pytest.raises(DataError, match=r"a shard is missing: .*train-00002-of-00004\.tsv; there are 3 of 4"):
            files_of(str(name))


def test_tables_with_other_columns_are_refused_before_any_work(tmp_path):
    (tmp_path / "0.tsv").write_text("fr\ten\nun\tone\n", encoding="utf-8")
    (tmp_path / "1.tsv").write_text("deux\ttwo\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"1\.tsv has other columns than .*0\.tsv: 2 without a header against 2 with"):
        check_shards(pair_corpus([str(tmp_path)], KEYS))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    folder = write_shards(tmp_path, ["parquet", "jsonl"])
    (tmp_path / "02.jsonl.zst").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"needs pyarrow: pip install 'regard\[parquet\]'"):
        check_shards(pair_corpus([str(folder)], KEYS))
    with pytest.raises(DataError, match=r"needs pyarrow: pip install 'regard\[zstd\]'"):
        list(pair_corpus([str(folder / "02.jsonl.zst")], KEYS))


def test_a_cursor_goes_on_in_the_midst_of_a_shard(tmp_path):
    shards = [PairFiles(path, keys=KEYS) for path in sorted(write_shards(tmp_path / "s").iterdir())]
    whole = list(chunks_from(shards, Cursor(), 7))
    assert [pair for _, chunk in whole for pair in chunk] == PAIRS
    for number, (cursor, _) in enumerate(whole):
        assert list(chunks_from(shards, cursor, 7)) == whole[number + 1 :]


@pytest.mark.parametrize("drop", [None, MergeDropout(0.3, 1)])
def test_processes_tokenise_to_the_same_bytes(tmp_path, vocabularies, monkeypatch, drop):
    monkeypatch.setattr(pair_store, "CHUNK", 7)
    corpus = PairList([*PAIRS, ("", "x"), ("long " * 60, "y")])
    for workers in (0, 2):
        store = prepare(
            corpus, vocabularies, tmp_path / str(workers), max_len=40, overlong="truncate", workers=workers, drop=drop
        )
        assert (store.counts.kept, store.counts.blank, store.counts.truncated) == (61, 1, 1)
    assert contents(tmp_path / "0") == contents(tmp_path / "2")


def test_what_goes_wrong_in_a_process_is_said(vocabularies):
    with Tokenizing([vocabularies.source], 1) as tokenizing, pytest.raises(DataError, match="half of a surrogate pair"):
        list(tokenizing.encode([("first", [["\ud800"]])]))
    with Tokenizing([vocabularies.source], 1) as tokenizing:
        tokenizing._processes[0]._process.kill()
        with pytest.raises(DataError, match="a process that tokenises ended with status -9"):
            list(tokenizing.encode([("first", [["text"]])]))


def test_rows_are_as_they_were_with_every_way_to_deal_with_long_ones(tmp_path, vocabularies):
    pairs = [*PAIRS[:5], ("long " * 30, "y"), ("x", "long " * 30)]
    source, target = vocabularies.source, vocabularies.target
    for overlong, most in (("skip", 20), ("truncate", 20), ("truncate", 3)):
        store = prepare(PairList(pairs), vocabularies, tmp_path, max_len=most, overlong=overlong)
        expected = []
        for one, other in pairs:
            ids, others = source.encode(one), target.encode(other)
            if max(len(ids), len(others)) + 1 <= most or overlong == "truncate":
                expected.append((vocabularies.source_row(ids[: most - 1]), vocabularies.target_row(others[: most - 1])))
        assert [(a.tolist(), b.tolist()) for a, b in (store[row] for row in range(len(store)))] == expected
    with pytest.raises(DataError, match=r"pair 6 is \d+ tokens long; max_len=20 is the most"):
        prepare(PairList(pairs), vocabularies, tmp_path, max_len=20, overlong="refuse")


KILLED = """
import os, sys
from pathlib import Path
from regard.data import pair_store, prepare
from regard.data.shards import pair_corpus
from regard.text import Vocabularies
pair_store.CHUNK, pair_store.COMMIT = 4, 2
folder, cache, tokenizer, most = sys.argv[1:]
def progress(read):
    if read >= int(most):
        os.kill(os.getpid(), 9)
prepare(pair_corpus([folder], ("en", "fr")), Vocabularies.load(Path(tokenizer)), Path(cache), progress=progress)
"""


def test_a_preparation_that_is_killed_goes_on_mid_shard_and_ends_in_the_same_bytes(tmp_path, vocabularies, monkeypatch):
    monkeypatch.setattr(pair_store, "CHUNK", 4)
    monkeypatch.setattr(pair_store, "COMMIT", 2)
    folder = write_shards(tmp_path / "shards")
    vocabularies.save(tmp_path / "tokenizer.json")
    corpus = pair_corpus([str(folder)], KEYS)
    prepare(corpus, vocabularies, tmp_path / "whole")
    cache = tmp_path / "cut"
    command = [sys.executable, "-c", KILLED, str(folder), str(cache), str(tmp_path / "tokenizer.json"), "41"]
    assert subprocess.run(command, check=False).returncode == -9
    (begun,) = cache.iterdir()
    left = json.loads((begun / CURSOR).read_text(encoding="utf-8"))["state"]
    # Chunks of 4, 4, 4 and 3 in each shard; committed after every second.
    assert (left["read"], left["shard"], left["row"]) == (38, 2, 8)
    opened: list[str] = []
    original = PairFiles.__iter__

    def noted(self):
        opened.append(self.source.name)
        return original(self)

    monkeypatch.setattr(PairFiles, "__iter__", noted)
    said: list[str] = []
    prepare(corpus, vocabularies, cache, say=said.append)
    assert said == ["going on after the 38 pairs that were tokenised before a kill"]
    assert opened == ["02.tsv", "03.jsonl.gz"]
    assert contents(cache) == contents(tmp_path / "whole")


def test_a_process_that_is_lost_loses_what_was_not_yet_synced_and_no_more(tmp_path, vocabularies, monkeypatch):
    monkeypatch.setattr(pair_store, "CHUNK", 4)
    monkeypatch.setattr(pair_store, "COMMIT", 2)
    lost: list[Tokenizing] = []
    original = Tokenizing.__enter__
    monkeypatch.setattr(Tokenizing, "__enter__", lambda self: lost.append(self) or original(self))

    def kill(read):
        if read == 20:
            lost[0]._processes[0]._process.kill()

    with pytest.raises(DataError, match="ended with status -9"):
        prepare(PairList(PAIRS), vocabularies, tmp_path, workers=1, progress=kill)
    said: list[str] = []
    assert len(prepare(PairList(PAIRS), vocabularies, tmp_path, workers=1, say=said.append)) == 60
    assert said
    assert said[0].startswith("going on after the ")


@pytest.mark.parametrize("damage", ["flip", "cut", "cursor"])
def test_what_was_begun_and_is_damaged_is_begun_again(tmp_path, vocabularies, monkeypatch, damage):
    monkeypatch.setattr(pair_store, "CHUNK", 4)
    monkeypatch.setattr(pair_store, "COMMIT", 2)
    corpus = PairList(PAIRS)

    def interrupt(read):
        if read > 30:
            raise KeyboardInterrupt

    prepare(corpus, vocabularies, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        prepare(corpus, vocabularies, tmp_path / "cut", progress=interrupt)
    (begun,) = (tmp_path / "cut").iterdir()
    path = begun / (CURSOR if damage == "cursor" else "target.tokens")
    data = bytearray(path.read_bytes())
    data[9] ^= 1
    path.write_bytes(data[:40] if damage == "cut" else b"{" if damage == "cursor" else data)
    prepare(corpus, vocabularies, tmp_path / "cut")
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_what_was_begun_of_other_data_stays_for_a_week_and_no_longer(tmp_path, vocabularies, monkeypatch):
    monkeypatch.setattr(pair_store, "CHUNK", 4)
    monkeypatch.setattr(pair_store, "COMMIT", 1)

    def interrupt(read):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(PairList(PAIRS), vocabularies, tmp_path, progress=lambda read: interrupt(read) if read > 8 else None)
    (begun,) = tmp_path.iterdir()
    prepare(PairList(PAIRS[:9]), vocabularies, tmp_path)
    assert begun.exists()
    for path in [*begun.iterdir(), begun]:
        os.utime(path, (0, 0))
    prepare(PairList(PAIRS[:8]), vocabularies, tmp_path)
    assert not begun.exists()


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, vocabularies):
    folder = write_shards(tmp_path / "shards", ["jsonl"] * 2)
    corpus = SplitPairs(pair_corpus([str(folder)], KEYS), 0.2, False)

    def change(read):
        with (folder / "01.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"en": "more", "fr": "plus"}\n')

    with pytest.raises(DataError, match=r"01\.jsonl was changed or removed while it was being read"):
        prepare(corpus, vocabularies, tmp_path / "cache", progress=change)
    assert not list((tmp_path / "cache").iterdir())


def test_several_corpora_are_one_store_that_knows_how_many_pairs_each_has(tmp_path, vocabularies):
    first = pair_corpus([str(write_shards(tmp_path / "a", ["jsonl"] * 2))], KEYS)
    corpora = Corpora({"a": first, "b": PairList(PAIRS[:7]), "c": PairList([("", "")])})
    with pytest.raises(DataError, match="no pair of the corpus 'c' can be used"):
        prepare(corpora, vocabularies, tmp_path / "cache")
    store = prepare(Corpora({"a": first, "b": PairList(PAIRS[:7])}), vocabularies, tmp_path / "cache")
    assert store.parts == (60, 7)
    assert len(store) == 67
    assert prepare(PairList(PAIRS), vocabularies, tmp_path / "cache").parts == ()
    split = SplitPairs(Corpora({"a": first, "b": PairList(PAIRS[:7])}), 0.3, True)
    assert sum(prepare(split, vocabularies, tmp_path / "cache").parts) == len(list(split))


def test_labelled_texts_are_named_by_patterns_too(tmp_path):
    from regard import make_config
    from regard.tasks.spec import TASKS

    for shard in range(2):
        (tmp_path / f"{shard}.tsv").write_text(f"text {shard}\tyes\nother {shard}\tno\n", encoding="utf-8")
    config = make_config(None, "lstm-classify", ["train.threads=1"], {"data": {"train": [str(tmp_path / "*.tsv")]}})
    task = TASKS["classification"]
    task.check_files(config, lambda said: None)
    assert [item.texts[0] for item in task.items_of(config, "train")] == ["text 0", "other 0", "text 1", "other 1"]
