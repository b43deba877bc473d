"""Files to pairs, and what is said of files that are not as they should be."""

import builtins
import json

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from regard.data import Corpus, PairFiles, PairList, TextFiles
from regard.errors import ConfigError, DataError

LINES = st.text(st.characters(exclude_characters="\n\r\t", exclude_categories=["Cs"]), max_size=8)
PAIRS = st.lists(st.tuples(LINES, LINES), min_size=1, max_size=6).filter(lambda pairs: pairs[0][0][:1] != "\ufeff")


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_pairs(folder, format, pairs):
    """The pairs in each format; what reads them again."""
    if format == "lines":
        for side, name in enumerate(("a.en", "a.fr")):
            write(folder / name, "".join(pair[side] + "\n" for pair in pairs))
        return PairFiles(folder / "a.en", folder / "a.fr")
    path = folder / f"a.{format}"
    if format == "tsv":
        write(path, "".join(f"{source}\t{target}\r\n" for source, target in pairs))
    elif format == "jsonl":
        write(path, "\n".join(json.dumps({"en": source, "id": 1, "fr": target}) for source, target in pairs))
    else:
        columns = {"fr": [target for _, target in pairs], "en": [source for source, _ in pairs]}
        parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return PairFiles(path, keys=("en", "fr"))


@settings(deadline=None, derandomize=True, max_examples=40)
@given(pairs=PAIRS)
@pytest.mark.parametrize("format", ["lines", "tsv", "jsonl", "parquet"])
def test_what_was_written_is_read_as_often_as_asked(tmp_path_factory, format, pairs):
    corpus = write_pairs(tmp_path_factory.mktemp("pairs"), format, pairs)
    assert list(corpus) == pairs
    assert list(corpus) == pairs
    assert isinstance(corpus, Corpus)


@pytest.mark.parametrize("format", ["lines", "jsonl", "parquet"])
def test_single_texts_are_read_from_every_format(tmp_path, format):
    texts = ["one", "", "trois été"]
    path = tmp_path / f"a.{format}"
    if format == "lines":
        write(path, "\n".join(texts) + "\n")
    elif format == "jsonl":
        write(path, "".join(json.dumps({"text": text}) + "\n" for text in texts))
    else:
        parquet.write_table(pyarrow.table({"text": texts}), path)
    assert list(TextFiles((path, path))) == texts * 2
    assert TextFiles((path, path)).digest() != TextFiles((path,)).digest()


def test_only_a_newline_ends_a_line(tmp_path):
    write(tmp_path / "a", "one\u2028two\x0bthree\x85\r\nfour\rfive")
    write(tmp_path / "b", "\ufeffx\ny\n")
    pairs = list(PairFiles(tmp_path / "a", tmp_path / "b"))
    assert pairs == [("one\u2028two\x0bthree\x85", "x"), ("four\rfive", "y")]


def test_an_explicit_format_wins_over_the_suffix(tmp_path):
    write(tmp_path / "a.txt", "x\ty\n")
    assert list(PairFiles(tmp_path / "a.txt", format="tsv")) == [("x", "y")]
    assert list(TextFiles((write(tmp_path / "b.tsv", "x\ty\n"),), format="lines")) == ["x\ty"]


def test_a_parquet_file_packed_in_an_unknown_way_is_refused(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise pyarrow.ArrowNotImplementedError("no such codec\nand more")

    parquet.write_table(pyarrow.table({"source": ["a"], "target": ["b"]}), tmp_path / "a.parquet")
    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", refuse)
    with pytest.raises(DataError, match=r"a\.parquet is not a readable Parquet file: no such codec$"):
        list(PairFiles(tmp_path / "a.parquet"))


def test_a_missing_parquet_value_is_a_blank_text(tmp_path):
    parquet.write_table(pyarrow.table({"source": ["a", None], "target": ["b", "c"]}), tmp_path / "a.parquet")
    assert list(PairFiles(tmp_path / "a.parquet")) == [("a", "b"), ("", "c")]


def test_digest_follows_content_not_name(tmp_path):
    first = PairFiles(write(tmp_path / "a.tsv", "x\ty\n"))
    moved = PairFiles(write(tmp_path / "b.tsv", "x\ty\n"))
    edited = PairFiles(write(tmp_path / "c.tsv", "x\tz\n"))
    assert first.digest() == moved.digest() != edited.digest()
    assert PairList([("x", "y")]).digest() == PairList([("x", "y")]).digest() != PairList([("x", "z")]).digest()
    assert PairList([("x", "y"), ("z", "w")]).digest() != PairList([("x", "yz"), ("", "w")]).digest()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "x\ty\nx\n", r"a.tsv, line 2: 1 column where 2 columns should be"),
        ("a.tsv", "x\ty\tz\n", r"a.tsv, line 1: 3 columns where 2 columns should be"),
        ("a.tsv", b"ab\tc\n\xc3\xa9\t\xff\n", r"a.tsv is not UTF-8 text: byte 8, on line 2"),
        ("a.tsv", "caf\u00e9\tc\n".encode("latin-1"), r"on line 1; if it is Latin-1, .* iconv -f CP1252 -t UTF-8"),
        ("a.tsv", "a\tb\n".encode("utf-16"), r"on line 1; it is UTF-16: convert it"),
        ("a.tsv", b"\x89PNG\x00\xff\x00", r"on line 1; it holds zero bytes, as no text does"),
        ("a.tsv", "", r"a.tsv is empty"),
        ("a.jsonl", '{"source": "x", "target": "y"}\n{"source": "x", "taget": "y"}\n', "line 2 has no key 'target'"),
        ("a.jsonl", '{"source": "x", "taget": "y"}\n', "did you mean 'taget'"),
        ("a.jsonl", '{"source": "x", "target": 3}\n', "line 1: 'target' is 3, not text"),
        ("a.jsonl", '{"source": "x", "target": "\\ud800"}\n', "half of a surrogate pair"),
        ("a.jsonl", '\n{"source": "x"\n', "line 2 is not JSON"),
        ("a.jsonl", '["x", "y"]\n', "line 1 is not a JSON object"),
        ("a.jsonl", "\n\n", "a.jsonl is empty"),
        ("a.parquet", "nonsense", "a.parquet is not a readable Parquet file"),
    ],
)
def test_a_broken_file_is_said_in_one_line_with_the_place(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message) as caught:
        list(PairFiles(write(tmp_path / name, content)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"source": ["x"], "targets": ["y"]}, "has no column 'target'; did you mean 'targets'"),
        ({"source": ["x"], "target": [1]}, "column 'target' holds int64, not text"),
        ({"source": [], "target": []}, "column 'source' holds null, not text"),
    ],
)
def test_a_parquet_file_without_the_columns_is_refused(tmp_path, table, message):
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=message):
        list(PairFiles(tmp_path / "a.parquet"))


@pytest.mark.parametrize(("lines", "others"), [(2, 5), (5, 2), (3, 2)])
def test_files_of_unequal_length_are_refused_with_both_lengths(tmp_path, lines, others):
    write(tmp_path / "a", "x\n" * lines)
    write(tmp_path / "b", "y\n" * others)
    longer = "a" if lines > others else "b"
    message = f"a has {lines} lines and .*b has {others}: line {min(lines, others) + 1} of .*{longer} has no partner"
    with pytest.raises(DataError, match=message):
        list(PairFiles(tmp_path / "a", tmp_path / "b"))


def test_an_empty_side_and_a_missing_file_are_named(tmp_path):
    write(tmp_path / "a", "x\n")
    write(tmp_path / "b", "")
    with pytest.raises(DataError, match="b is empty"):
        list(PairFiles(tmp_path / "a", tmp_path / "b"))
    with pytest.raises(DataError, match=r"no such file: .*none"):
        list(PairFiles(tmp_path / "a", tmp_path / "none"))
    with pytest.raises(DataError, match=r"no such file: .*none"):
        PairFiles(tmp_path / "a", tmp_path / "none").digest()
    with pytest.raises(DataError, match="is not a file"):
        list(PairFiles(tmp_path / "a", tmp_path))


def test_one_side_alone_and_two_tables_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="name the other"):
        PairFiles(tmp_path / "a.en")
    with pytest.raises(ConfigError, match="two files are read as lines, not as tsv"):
        PairFiles(tmp_path / "a", tmp_path / "b", format="tsv")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("pyarrow"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    path = write(tmp_path / "a.parquet", "x")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataError, match=r"needs pyarrow: pip install 'regard\[parquet\]'"):
        list(PairFiles(path))
