"""Tables of columns: headers, columns by name and number, CSV, and compressed files."""

import bz2
import csv
import gzip
import json
import lzma

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import Documents, PairFiles, TextFiles, formats
from regard.data.labelled_texts import (
    Example,
    Keys,
    Question,
    examples,
    questions,
    tagged,
    unanswered,
    unlabelled,
    untagged,
)
from regard.errors import DataError

CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1, max_size=8)


def zstd(data: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as file:
        file.write(data)
    return sink.getvalue().to_pybytes()


PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd}


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@given(pairs=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6).filter(lambda p: p[0][0][:1] != "\ufeff"))
def test_a_csv_is_read_with_its_quotes_and_line_breaks(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(pairs)
    assert list(PairFiles(path, header=False)) == pairs


@pytest.mark.parametrize("compression", PACK)
@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".tsv", "a b\tc\nd\te\n"),
        (".csv", 'a b,c\n"d",e\n'),
        (".jsonl", '{"en": "a b", "fr": "c"}\n{"en": "d", "fr": "e"}\n'),
    ],
)
def test_pairs_are_read_from_compressed_files_as_what_they_are(tmp_path, compression, suffix, content):
    path = write(tmp_path / f"a{suffix}{compression}", PACK[compression](content.encode()))
    assert list(PairFiles(path, keys=("en", "fr"))) == [("a b", "c"), ("d", "e")]
    with pytest.raises(DataError, match="unpack it"):
        PairFiles(tmp_path / f"a{suffix}.zip")


def test_lines_and_documents_are_read_from_compressed_files(tmp_path):
    path = write(tmp_path / "a.txt.gz", gzip.compress(b"one\ntwo\n"))
    other = write(tmp_path / "b.fr.xz", lzma.compress(b"un\ndeux\n"))
    assert list(PairFiles(path, other)) == [("one", "un"), ("two", "deux")]
    assert list(TextFiles((path,))) == ["one", "two"]
    assert [*Documents.of([tmp_path]).texts()] == ["one\ntwo\n"]  # .fr is no kind that a folder is read for
    write(tmp_path / "a.txt", "one\ntwo\n")
    with pytest.raises(DataError, match=r"a\.txt and .*a\.txt\.gz would be read as two texts"):
        Documents.of([tmp_path])


@pytest.mark.parametrize("compression", [".gz", ".bz2", ".xz", ".zst"])
def test_a_damaged_compressed_file_is_refused_in_one_line(tmp_path, compression):
    whole = PACK[compression]("\n".join(f"{n}\t{n * 7919 % 1000}" for n in range(5000)).encode())
    for content in (b"nothing of the kind", whole[: len(whole) // 2]):
        path = write(tmp_path / f"a.tsv{compression}", content)
        with pytest.raises(DataError, match=rf"a\.tsv\{compression} is not a readable \{compression} file") as caught:
            list(PairFiles(path))
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="is empty"):
        list(PairFiles(write(tmp_path / f"b.tsv{compression}", PACK[compression](b""))))
    with pytest.raises(DataError, match="no such file"):
        list(PairFiles(tmp_path / f"none.tsv{compression}"))


def test_a_line_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "LONGEST", 1000)
    path = write(tmp_path / "a.tsv.gz", gzip.compress(b"a\tb\n" + b"0" * 100_000))
    with pytest.raises(DataError, match="line 2 unpacks to more than"):
        list(PairFiles(path))


def test_parquet_compressed_from_outside_is_refused(tmp_path):
    with pytest.raises(DataError, match="Parquet is compressed inside"):
        PairFiles(tmp_path / "a.parquet.gz")


@pytest.mark.parametrize(
    ("first", "keys"),
    [("en\tfr", ("en", "fr")), ("source\ttarget", ("en", "fr")), ("Source\tTarget", ("source", "target"))],
)
def test_a_header_is_not_trained_on(tmp_path, first, keys):
    pairs = PairFiles(write(tmp_path / "a.tsv", f"{first}\nx\ty\n"), keys=keys)
    assert list(pairs) == [("x", "y")]
    assert f"row 1 of {pairs.source} is taken as a header" in pairs.notes()[0]
    as_text = PairFiles(pairs.source, keys=keys, header=False)
    assert list(as_text) == [tuple(first.split("\t")), ("x", "y")]
    assert as_text.digest() != pairs.digest()
    assert as_text.notes() == ()


def test_what_is_no_header_is_data(tmp_path):
    pairs = PairFiles(write(tmp_path / "a.tsv", "en\tin\nfr\tfor\n"), keys=("en", "fr"))
    assert list(pairs) == [("en", "in"), ("fr", "for")]
    assert pairs.notes() == ()
    forced = PairFiles(pairs.source, keys=("en", "in"), header=True)
    assert list(forced) == [("fr", "for")]


def test_columns_are_chosen_by_name_and_by_number(tmp_path):
    path = write(tmp_path / "a.csv", "id,de,en\n1,ja,yes\n")
    assert list(PairFiles(path, keys=("en", "de"))) == [("yes", "ja")]
    assert list(PairFiles(path, keys=(3, 2))) == [("yes", "ja")]
    assert list(PairFiles(path, keys=("en", 2))) == [("yes", "ja")]
    assert PairFiles(path, keys=("en", "de")).notes()[1] == f"{path}: not used: id"
    path = write(tmp_path / "b.tsv", "1\tja\tyes\n")
    assert PairFiles(path, keys=(3, 2)).notes() == (f"{path}: not used: column 1",)
    assert list(PairFiles(path, keys=(3, 2))) == [("yes", "ja")]
    assert list(examples(path, Keys(2, None, 1))) == [Example(("ja",), "1")]
    assert list(TextFiles((path,), key=3)) == ["yes"]


@pytest.mark.parametrize(
    ("name", "content", "keys", "message"),
    [
        (
            "a.csv",
            "id,source,target\n1,x,y\n",
            ("en", "fr"),
            "no column 'en'.*it has id, source, target: set data.s",
        ),
        ("a.tsv", "1\tx\ty\n", ("en", "fr"), r"3 columns where 2 columns should be \(en, fr\); choose them by number"),
        ("a.tsv", "1\tx\ty\n", (2, "fr"), "no header that names a column 'fr': give data.target as a number"),
        ("a.tsv", "x\ty\n", (1, 3), "data.target=3: .* has columns 1 to 2"),
        ("a.csv", "x;y\n", ("en", "fr"), "a CSV has commas between its columns, not ';'"),
        ("a.csv", 'x,"y\n', ("en", "fr"), "line 1 is not CSV"),
        ("a.csv", "x,y\nz\n", ("en", "fr"), "line 2: 1 column where 2 columns"),
        ("a.tsv", "en\tfr\ten\nx\ty\tz\n", ("en", "fr"), "3 columns where 2"),
        ("a.jsonl", '{"en": "x"}\n', ("en", 2), "data.target=2: the keys of JSONL have names, not numbers"),
        ("a.jsonl", '{"en": "x"}\n', ("en", "fr"), "no key 'fr'.*data.target chooses the key"),
        ("a.csv", "\n\n", ("en", "fr"), "is empty"),
    ],
)
def test_what_is_wrong_names_the_setting(tmp_path, name, content, keys, message):
    with pytest.raises(DataError, match=message):
        list(PairFiles(write(tmp_path / name, content), keys=keys))


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".parquet"])
def test_a_labelled_table_without_a_column_names_the_setting_that_chooses_it(tmp_path, suffix):
    path, columns = tmp_path / f"a{suffix}", {"id": ["1"], "sentence": ["fine"], "label": ["good"]}
    if suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(columns), path)
    else:
        between = {".tsv": "\t", ".csv": ","}[suffix]
        write(path, f"{between.join(columns)}\n{between.join(cells[0] for cells in columns.values())}\n")
    with pytest.raises(DataError, match=r"no column 'text'; it has id, sentence, label: set data\.text to one of them"):
        list(examples(path, Keys()))
    assert list(examples(path, Keys("sentence", None, "label"))) == [Example(("fine",), "good")]


def test_two_columns_of_one_name_are_refused(tmp_path):
    path = write(tmp_path / "a.tsv", "text\ttext\tlabel\nx\ty\t1\n")
    with pytest.raises(DataError, match="two columns of its header are called 'text'"):
        list(examples(path, Keys(header=True)))


def test_an_unused_second_text_is_mentioned(tmp_path):
    keys = Keys("sentence1", None, "label").labelled
    path = write(tmp_path / "a.tsv", "sentence1\tsentence2\tlabel\na\tb\t1\n")
    line = f"{path}: not used: sentence2; data.pair=sentence2 would read it as a second text"
    assert formats.notes_on(path, "tsv", keys) == (
        f"row 1 of {path} is taken as a header: sentence1, sentence2, label",
        line,
    )
    path = write(tmp_path / "a.jsonl", '{"sentence1": "a", "sentence2": "b", "label": 1}\n')
    assert formats.notes_on(path, "jsonl", keys) == (line.replace("a.tsv", "a.jsonl"),)
    with pytest.raises(DataError, match=r"3 columns .* \(data.text=1, data.pair=2, data.label=3\)"):
        list(examples(write(tmp_path / "c.tsv", "a b\tc d\t1\n"), Keys()))
    path = write(tmp_path / "b.csv", "sentence,label\na,1\n")
    taken = f"{path}: column 'sentence' is taken for data.text"
    assert formats.notes_on(path, "csv", Keys().labelled)[1:] == (taken,)


def test_labelled_texts_and_questions_are_read_from_csv(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\n"one, ""two""\nthree",1\n\nfour,0\n')
    assert list(examples(path, Keys())) == [Example(('one, "two"\nthree',), "1"), Example(("four",), "0")]
    path = write(tmp_path / "q.csv", "context,question,answer\na b c,which?,b\n")
    assert list(questions(path, Keys("context", None, "answer"))) == [Question("which?", "a b c", "b", 2)]
    assert list(unanswered(path, Keys("context", None, "answer"))) == [("which?", "a b c")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "one\t1\ntwo\t0\n"),
        ("a.tsv", "one\ntwo\n"),
        ("a.tsv", "label\ttext\n1\tone\n0\ttwo\n"),
        ("a.csv", "sentence,label\none,1\ntwo,0\n"),
        ("a.csv", "text\none\ntwo\n"),
        ("a.jsonl", '{"text": "one", "label": 1}\n{"text": "two"}\n'),
        ("a.txt", "one\ntwo\n"),
    ],
)
def test_texts_are_read_with_or_without_their_labels(tmp_path, name, content):
    path = write(tmp_path / name, content)
    assert list(unlabelled(path, Keys())) == [("one",), ("two",)]


def test_pairs_are_read_with_or_without_their_labels(tmp_path):
    for content in ("a\tb\t1\n", "a\tb\n", "pair\tid\ttext\nb\t3\ta\n"):
        for name in ("a.tsv", "a.txt"):
            assert list(unlabelled(write(tmp_path / name, content), Keys(pair="pair"))) == [("a", "b")]


def test_sentences_are_read_with_or_without_their_tags(tmp_path):
    keys = Keys("words", None, "tags")
    for name, content in [
        ("a.tsv", "A\tX\nb\tO\n\nc\tX\n"),
        ("a.csv", "A,X\nb,O\n\nc,X\n"),
        ("a.jsonl", '{"words": ["A", "b"], "tags": ["X", "O"]}\n{"words": ["c"]}\n'),
    ]:
        path = write(tmp_path / name, content)
        assert list(untagged(path, keys)) == [("A", "b"), ("c",)]
    assert [item.words for item in tagged(write(tmp_path / "b.csv", "A,X\nb,O\n\nc,X\n"), keys)] == [("A", "b"), ("c",)]
    assert list(untagged(write(tmp_path / "a.txt", "A b\nc\n"), keys)) == ["A b", "c"]


@pytest.mark.parametrize("name", ["a.conll", "a.txt"])
@pytest.mark.parametrize("content", ["A X\nb Y\n\nc X\n. .\n", "word tag\n-DOCSTART- O\n\nA p X\nb p Y\n\nc\tX\n. .\n"])
def test_words_with_tags_that_are_known_are_read_without_them_whatever_the_files_name(tmp_path, name, content):
    path = write(tmp_path / name, content)
    words = [item.words for item in tagged(path, Keys())]
    assert words[-2:] == [("A", "b"), ("c", ".")]
    assert list(untagged(path, Keys(), ("X", "Y", "."))) == words


@pytest.mark.parametrize("texts", [["b X"], ["A .", "b ."], ["A X", "b"], ["see A", "see B", "see X"]])
def test_sentences_are_read_as_such_though_some_end_like_a_tag(tmp_path, texts):
    path = write(tmp_path / "a.txt", "\n".join(texts) + "\n")
    assert list(untagged(path, Keys(), ("X", "Y", "."))) == texts


def test_texts_with_labels_are_not_taken_for_words_with_tags(tmp_path):
    path = write(tmp_path / "a.tsv", "a fine film\t1\na dull one\t0\nbad\t0\n")
    with pytest.raises(DataError, match=r"'a fine film' is a text, not a word.*task='classification'"):
        list(tagged(path, Keys()))


def test_running_text_is_read_from_the_column_of_a_table(tmp_path):
    path = write(tmp_path / "a.csv", 'id,text\n1,"one\ntwo"\n2,three\n')
    assert [*Documents.of([path]).texts()] == ["one\ntwo", "three"]
    assert Documents.of([path]).notes()[1] == f"{path}: not used: id"
    with pytest.raises(DataError, match=r"no column 'body'.*set data.text"):
        list(Documents.of([path], "body"))
    table = write(tmp_path / "a.tsv", "id\ttext\n1\tone\n")
    assert [*Documents.of([table]).texts()] == ["one"]
    assert [*Documents.of([table], 1, False).texts()] == ["id", "1"]
    plain = write(tmp_path / "b.tsv", "one\ttwo\n")
    assert [*Documents.of([plain]).texts()] == ["one\ttwo\n"]
    assert "is read as plain text" in Documents.of([plain]).notes()[0]
    assert len({Documents.of([one], 1, header).digest() for one in (table, plain) for header in ("auto", False)}) == 3


def test_json_objects_still_say_what_they_lack(tmp_path):
    path = write(tmp_path / "a.jsonl", json.dumps({"body": "x", "label": 1}) + "\n")
    with pytest.raises(DataError, match=r"no key 'text'.*data.text chooses the key"):
        list(examples(path, Keys()))
