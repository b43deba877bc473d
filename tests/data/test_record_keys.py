"""Records whose keys are objects with keys of their own, and names with dots that lead into them."""

import json

import pyarrow
import pytest
from pyarrow import parquet

from regard.data import PairFiles
from regard.errors import DataError


def records(path, *found):
    path.write_text("".join(f"{json.dumps(one)}\n" for one in found))
    return path


def test_a_key_with_a_dot_comes_before_the_path_that_it_spells(tmp_path):
    both = {"a.b": "key", "a": {"b": "path", "c.d": "inner key", "c": {"d": "inner path"}, "e": {"f": "deep"}}}
    path = records(tmp_path / "a.jsonl", both)
    assert list(PairFiles(path, keys=("a.b", "a.c.d"))) == [("key", "inner key")]
    assert list(PairFiles(path, keys=("a.e.f", "a.b"))) == [("deep", "key")]
    assert PairFiles(path, keys=("a.e.f", "a.b")).notes() == ()
    parquet.write_table(pyarrow.Table.from_pylist([both, {"a.b": "key", "a": None}]), tmp_path / "a.parquet")
    assert list(PairFiles(tmp_path / "a.parquet", keys=("a.b", "a.e.f"))) == [("key", "deep"), ("key", "")]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("a.x", r"a.jsonl, line 2 has no key 'a.x': 'a' has y, z; data.target chooses the key"),
        ("b.x", r"a.jsonl, line 1 has no key 'b.x': 'b' holds no object"),
        ("c.x", r"a.jsonl, line 1 has no key 'c.x'; known: a, b"),
    ],
)
def test_a_missing_inner_key_is_said_with_its_line_and_the_keys_there(tmp_path, key, message):
    path = records(tmp_path / "a.jsonl", {"a": {"x": "1", "y": "2"}, "b": "3"}, {"a": {"y": "1", "z": "2"}, "b": "3"})
    with pytest.raises(DataError, match=message):
        list(PairFiles(path, keys=("b", key)))


def test_a_text_that_is_null_is_empty(tmp_path):
    path = records(tmp_path / "a.jsonl", {"source": None, "target": "x"}, {"source": "y", "target": "z"})
    assert list(PairFiles(path)) == [("", "x"), ("y", "z")]
