"""Labelled texts from files: what each format holds, and what is wrong said with its place."""

import json
from pathlib import Path

import numpy as np
import pytest

from regard.data.labelled_texts import (
    Example,
    Keys,
    LabelledRows,
    Question,
    Tagged,
    class_folders,
    class_part,
    examples,
    questions,
    tagged,
)
from regard.errors import DataError
from regard.nn.losses.cross_entropy import IGNORE
from regard.text.encoder_inputs import EncoderInput

pyarrow = pytest.importorskip("pyarrow")


def write(path, rows):
    """Rows by name, in the format that the file's name says."""
    if path.suffix == ".parquet":
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_rows_by_name_hold_texts_numbers_and_lists(tmp_path, suffix):
    path = write(tmp_path / f"a.{suffix}", [{"text": "one", "other": "two", "label": 1}])
    assert list(examples(path, Keys())) == [Example(("one",), "1")]
    assert list(examples(path, Keys(pair="other"))) == [Example(("one", "two"), "1")]
    path = write(tmp_path / f"b.{suffix}", [{"words": ["a", "b"], "tags": ["X", "O"]}])
    assert list(tagged(path, Keys("words", None, "tags"))) == [Tagged(("a", "b"), ("X", "O"))]
    asked = Keys("context", "question", "answer")
    rows = [
        {"context": "ab ab", "question": "q", "answer": {"text": ["ab"], "answer_start": [3]}},
        {"context": "ab", "question": "q", "answer": {"text": [], "answer_start": []}},
    ]
    found = list(questions(write(tmp_path / f"c.{suffix}", rows), asked))
    assert found == [Question("q", "ab ab", "ab", 3), Question("q", "ab", "", -1)]
    rows = [{"context": "ab ab", "question": "q", "answer": "ab", "start": 3}]
    assert next(questions(write(tmp_path / f"d.{suffix}", rows), asked)).start == 3


def test_only_what_has_a_label_is_asked_for():
    rows = [EncoderInput([1, 5, 6, 2], [0] * 4, [-1, 0, 0, -1]), EncoderInput([1, 7, 2], [0] * 3, [-1, 0, -1])]
    tags = LabelledRows.of(rows, [[IGNORE, 0, 1, IGNORE], [IGNORE, 2, IGNORE]], pad=9, segmented=False)
    batch = tags.batch(np.array([1, 0]))
    assert batch.labels.tolist() == [[IGNORE, 2, IGNORE, IGNORE], [IGNORE, 0, 1, IGNORE]]
    assert batch.inputs.ids.tolist() == [[1, 7, 2, 9], [1, 5, 6, 2]]
    assert batch.count == 3
    classes = LabelledRows.of(rows, [[1], [0]], pad=9, segmented=True).batch(np.array([0, 1]))
    assert classes.labels.tolist() == [1, 0]
    assert (classes.count, classes.inputs.segments.shape) == (2, (2, 4))


def test_a_table_has_its_columns_in_order_or_named(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("one\t1\ntwo\t0\n", encoding="utf-8")
    assert list(examples(path, Keys())) == [Example(("one",), "1"), Example(("two",), "0")]
    path.write_text("label\tid\ttext\n1\t7\tone\n", encoding="utf-8")
    assert list(examples(path, Keys())) == [Example(("one",), "1")]
    path.write_text("label\tsentence\n1\tone\n", encoding="utf-8")  # the one column left is the text
    assert list(examples(path, Keys())) == [Example(("one",), "1")]
    path.write_text("A\tX\nb O\n\n\nc\tnoun\tX\n", encoding="utf-8")
    assert list(tagged(path, Keys())) == [Tagged(("A", "b"), ("X", "O")), Tagged(("c",), ("X",))]


@pytest.mark.parametrize(
    ("name", "text", "read", "pattern"),
    [
        ("a.tsv", "one\n", examples, "1 column where 2 columns should be"),
        ("a.tsv", "label\tx\ty\n1\ta\tb\n", examples, "no column 'text'"),
        ("a.tsv", "one\t \n", examples, "row 1 has no label"),
        ("a.jsonl", "{}\n", examples, "no key 'text'"),
        ("a.jsonl", '{"text": ["a"], "label": "x"}\n', examples, "not text"),
        ("a.jsonl", "[1]\n", examples, "not a JSON object"),
        ("a.jsonl", "{\n", examples, "line 1 is not JSON"),
        ("a.jsonl", '{"text": ["a"], "label": []}\n', tagged, "lists of texts of one length"),
        ("a.tsv", "word\n", tagged, "line 1 is no word and tag"),
        ("a.tsv", "one\tX\ntwo\t\n", tagged, "sentence from line 1: 'two' has no tag"),
        ("a.tsv", "one\t \n\ntwo\tX\n", tagged, "sentence from line 1: 'one' has no tag"),
        ("a.jsonl", '{"text": ["\\ud800"], "label": ["x"]}\n', tagged, "half of a surrogate"),
        ("a.jsonl", '{"text": "\\ud800", "label": "x"}\n', examples, "half of a surrogate"),
        ("a.jsonl", '{"text": "a", "question": "q", "label": "\\ud800"}\n', questions, "half of a surrogate"),
        ("a.parquet", "no", examples, "not a readable Parquet file"),
        ("a.jsonl", '{"text": "abc", "question": "q", "label": 3}\n', questions, "not an answer"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, name, text, read, pattern):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=pattern):
        list(read(tmp_path / name, Keys()))


def test_bytes_in_a_column_of_text_are_said_not_to_be_text(tmp_path):
    path = write(tmp_path / "a.parquet", [{"text": b"one", "label": 1.5}])
    with pytest.raises(DataError, match=r"row 1: 'text' is .*one.*, not text"):
        list(examples(path, Keys()))


def test_to_find_the_parts_of_a_folder_makes_no_path_for_each_of_its_texts(tmp_path, monkeypatch):
    for part in ("train", "test"):
        for label in ("neg", "pos"):
            inside = tmp_path / part / label
            inside.mkdir(parents=True)
            for number in range(50):
                (inside / f"{number}.txt").write_text("some words", encoding="utf-8")
    made, joined = [], Path.__truediv__
    monkeypatch.setattr(Path, "__truediv__", lambda one, name: made.append(name) or joined(one, name))
    assert class_part(tmp_path, "train") == tmp_path / "train"
    assert class_part(tmp_path, "valid") is None
    assert not [name for name in made if str(name).endswith("49.txt")]
    assert [len(files) for files in class_folders(tmp_path / "test").values()] == [50, 50]
    assert len([name for name in made if str(name).endswith("49.txt")]) == 2
