"""Rows that Python gives, written as a file to train from."""

import json
from collections import namedtuple

import numpy as np
import pyarrow
import pytest

from regard.data import PairFiles
from regard.data.iterables import is_rows, write_rows
from regard.errors import DataError

PAIRS = [("one", "un"), ("two", "deux"), ("three", "trois")]
Pair = namedtuple("Pair", ["en", "fr"])


class Frame:
    """As much of a frame of pandas as is asked of it."""

    columns = ("en", "fr")

    def itertuples(self, index, name):
        assert index is False
        assert name is None
        return iter(PAIRS)


class Polars:
    def iter_rows(self, named):
        assert named
        return ({"en": source, "fr": target} for source, target in PAIRS)


class Streamed:
    """As an `IterableDataset` of the `datasets` library: rows of mappings, iterated when asked."""

    def __iter__(self):
        return (
            {"id": number, "translation": {"en": source, "fr": target}} for number, (source, target) in enumerate(PAIRS)
        )


@pytest.mark.parametrize(
    ("data", "columns"),
    [
        (PAIRS, ("en", "fr")),
        ([list(pair) for pair in PAIRS], ("en", "fr")),
        (iter(PAIRS), ("en", "fr")),
        (lambda: iter(PAIRS), ("en", "fr")),
        ([{"en": source, "fr": target} for source, target in PAIRS], ()),
        ([Pair(*pair) for pair in PAIRS], ()),
        ({"en": [source for source, _ in PAIRS], "fr": [target for _, target in PAIRS]}, ()),
        (pyarrow.table({"en": [source for source, _ in PAIRS], "fr": [target for _, target in PAIRS]}), ()),
        (Frame(), ()),
        (Polars(), ()),
        (Streamed(), ()),
    ],
    ids=[
        "tuples",
        "lists",
        "iterator",
        "function",
        "mappings",
        "named",
        "columns",
        "arrow",
        "frame",
        "polars",
        "stream",
    ],
)
@pytest.mark.parametrize("name", ["train.jsonl", "train.jsonl.gz"])
def test_what_gives_rows_becomes_a_file_of_pairs(tmp_path, data, columns, name):
    if hasattr(data, "__next__") and name.endswith(".gz"):
        data = iter(PAIRS)
    assert is_rows(data)
    written = write_rows(data, tmp_path / "data" / name, columns=columns)
    assert (written.rows, written.columns) == (3, ("en", "fr"))
    assert list(PairFiles(written.path, keys=("en", "fr"))) == PAIRS
    assert [path.name for path in written.path.parent.iterdir()] == [name]


def test_values_are_plain_and_missing_ones_are_empty(tmp_path):
    rows = [{"text": "a", "label": np.int64(3), "vector": np.arange(2)}, {"text": None, "label": 1.5, "vector": ["x"]}]
    written = write_rows(rows, tmp_path / "a.jsonl")
    found = [json.loads(line) for line in written.path.read_text(encoding="utf-8").splitlines()]
    assert found == [{"text": "a", "label": 3, "vector": [0, 1]}, {"text": "", "label": 1.5, "vector": ["x"]}]
    assert write_rows(["one", "two"], tmp_path / "b.jsonl").columns == ("text",)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "no rows to train on"),
        ([("a", "b"), ("c",)], "row 2 has the columns text, the first row source, target"),
        ([{"a": 1}, {"b": 1}], "row 2 has the columns b, the first row a"),
        ([("a", "b", "c")], "row 1 has 3 values without names"),
        ([object()], "row 1 is a object"),
        ([{"a": object()}], "row 1: 'a' is a object"),
        ([{"a": "\ud800"}], "row 1 is not Unicode"),
        ({"train": object(), "test": object()}, r"give the rows of one split.* train, test"),
        ({"a": ["x"], "b": []}, "equally long, not a 1, b 0"),
        (5, "an iterable of them, such as a list, not as int"),
    ],
)
def test_rows_that_cannot_be_written_are_refused_and_leave_nothing(tmp_path, data, said):
    with pytest.raises(DataError, match=said):
        write_rows(data, tmp_path / "a.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_a_generator_that_fails_leaves_the_file_that_was_there(tmp_path):
    path = write_rows(PAIRS, tmp_path / "a.jsonl").path
    before = path.read_bytes()

    def broken():
        yield "x", "y"
        raise KeyError("no more")

    with pytest.raises(KeyError):
        write_rows(broken(), path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["a.jsonl"]


def test_names_of_files_are_no_rows(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("x\n", encoding="utf-8")
    assert not any(map(is_rows, ["a.txt", file, [file], [str(file)], (str(tmp_path / "*.txt"),), None]))
    assert is_rows(["a sentence", "another"])
    assert is_rows(["a document longer than a name of a file may be " * 20])
