"""Running text: documents from files, one row of ids, and windows of it in an order that can be taken up anywhere."""

import json
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data import (
    Documents,
    Loader,
    Position,
    TextStore,
    WindowLayout,
    backward_windows,
    prepare_text,
    readers,
    strided_windows,
    text_windows,
)
from regard.data.mixing import Mix
from regard.data.readers import DocumentPart
from regard.data.text_windows import TextCounts
from regard.errors import ConfigError, DataError
from regard.text import TokenizerConfig, train_tokenizer

EOS = 2
TOKENIZER = train_tokenizer(["abcdefghij \n"], TokenizerConfig(kind="character", vocab_size=50))


def store(length):
    return TextStore(np.arange(length, dtype=np.uint32) + 100, EOS, TextCounts(1, length, length, length))


def read(*names, **settings):
    return list(Documents.of(names, **settings))


def test_a_plain_file_is_one_document_and_a_row_is_one(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\n two\r\n", encoding="utf-8", newline="")
    (tmp_path / "b.jsonl").write_text('{"text": "three"}\n{"text": " "}\n{"text": "four"}\n', encoding="utf-8")
    (tmp_path / "notes.csv").write_text("not read of a folder", encoding="utf-8")
    (tmp_path / ".hidden.txt").write_text("nor this", encoding="utf-8")
    whole = [DocumentPart("one\n\n two\r\n", True), DocumentPart("three", True), DocumentPart("four", True)]
    assert read(tmp_path) == whole
    assert read(tmp_path / "a.txt", tmp_path / "b.jsonl") == whole
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (tmp_path / "a.txt").rename(moved / "c.txt")
    assert Documents.of([moved]).digest() == Documents((moved / "c.txt",)).digest()


def test_parquet_is_read_under_its_column(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"body": ["one", None, "two"]}), tmp_path / "a.parquet")
    assert read(tmp_path, key="body") == [DocumentPart("one", True), DocumentPart("two", True)]
    with pytest.raises(DataError, match="no column 'text'"):
        read(tmp_path)


def test_a_long_text_comes_in_pieces_cut_between_two_lines_of_text(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "PART_SIZE", 10)
    text = "aaaa bbbb\ncccc\n\ndddd\n  eeee\nffff gggg hhhh\niiii\n"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    pieces = read(tmp_path / "a.txt")
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert [piece.text[-6:] for piece in pieces[:-1]] == [" bbbb\n", "eeee\n"[-6:].rjust(6), " hhhh\n"]


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DataError, match="no such file or folder"):
        read(tmp_path / "nowhere")
    with pytest.raises(DataError, match="holds no file to read"):
        read(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"ab\ncd\xff")
    with pytest.raises(DataError, match="byte 5, on line 2"):
        read(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        read(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_bytes(b" \n")
    with pytest.raises(DataError, match="every document is blank"):
        TextStore.of(iter(Documents.of([tmp_path])), TOKENIZER)


def test_a_side_of_what_is_held_out_that_has_nothing_is_said_to_be_so(tmp_path):
    (tmp_path / "a.jsonl").write_text((json.dumps({"text": "abc"}) + "\n") * 9, encoding="utf-8")
    sides = [Documents.of([tmp_path / "a.jsonl"]).split(0.5, held_out) for held_out in (False, True)]
    told = []
    for side in sides:
        try:
            prepare_text(side, TOKENIZER, tmp_path / "cache")
        except DataError as error:
            told.append(str(error))
    (only,) = told  # alike, they are all on one side
    assert "data.held_out=0.5 sets documents aside by their text" in only


def test_documents_stand_between_ends_and_are_tokenised_once(tmp_path):
    rows = [{"text": "abc"}, {"text": "de"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = prepare_text(Documents.of([tmp_path / "a.jsonl"]), TOKENIZER, tmp_path / "cache")
    expected = [EOS, *TOKENIZER.encode("abc"), EOS, *TOKENIZER.encode("de"), EOS]
    assert found.ids.tolist() == expected
    assert found.counts == TextCounts(documents=2, tokens=8, characters=5, bytes=5)
    assert TextStore.of(iter(Documents.of([tmp_path / "a.jsonl"])), TOKENIZER).ids.tolist() == expected
    (folder,) = (tmp_path / "cache").iterdir()
    stamp = (folder / "text.tokens").stat().st_mtime_ns
    prepare_text(Documents.of([tmp_path / "a.jsonl"]), TOKENIZER, tmp_path / "cache")
    assert (folder / "text.tokens").stat().st_mtime_ns == stamp
    (folder / "text.tokens").write_bytes(b"\0\0")  # cut short: made again
    again = prepare_text(Documents.of([tmp_path / "a.jsonl"]), TOKENIZER, tmp_path / "cache")
    assert again.ids.tolist() == expected


@given(length=st.integers(2, 200), window=st.integers(1, 30), rows=st.integers(1, 5), epoch=st.integers(0, 5))
def test_an_epoch_reads_no_token_twice_and_leaves_out_less_than_a_batch_and_a_window(length, window, rows, epoch):
    if length <= window:
        return
    layout = WindowLayout(store(length), window, budget=window * rows + window // 2)
    order = layout.order(seed=3, epoch=epoch)
    starts = np.concatenate(order)
    assert layout.rows == rows
    assert all(len(group) == rows for group in order) or len(order) == 1
    covered = (np.sort(starts)[:, None] + np.arange(window)).ravel()
    assert len(set(covered.tolist())) == len(covered)
    assert covered.max() < length - 1
    assert length - 1 - len(covered) < (rows + 2) * window
    batch = layout.batch(order[0])
    assert torch.equal(batch.labels[:, :-1], batch.inputs.ids[:, 1:])
    assert batch.count == batch.tokens == batch.labels.numel()


def test_the_stream_is_a_function_of_seed_epoch_and_position():
    layout = WindowLayout(store(100), 7, budget=21)

    def take(count, **settings):
        with Loader(layout, **settings) as stream:
            return [(next(stream).inputs.ids.tolist(), stream.position) for _ in range(count)]

    whole = take(12, seed=5)
    assert whole == take(12, seed=5)
    assert whole != take(12, seed=6)
    for index in (0, 3, 7):
        assert take(12 - index - 1, seed=5, position=whole[index][1]) == whole[index + 1 :]
    assert whole[-1][1].epoch > 0
    assert len({int(layout.order(5, epoch)[0][0]) % 7 for epoch in range(20)}) > 4  # each epoch cuts elsewhere
    assert take(2, seed=5, position=Position(9, 0)) == take(2, seed=5, position=Position(9, 0))


@given(length=st.integers(2, 60), window=st.integers(1, 12), data=st.data())
def test_strides_predict_every_token_once_from_enough_context(length, window, data):
    stride = data.draw(st.integers(1, window))
    seen = []
    for batch in strided_windows(store(length), window, stride=stride, budget=30):
        assert batch.count == int((batch.labels != -100).sum()) > 0
        for ids, labels in zip(batch.inputs.ids.tolist(), batch.labels.tolist(), strict=True):
            asked = [(place, label) for place, label in enumerate(labels) if label != -100]
            assert all(label == ids[place] + 1 for place, label in asked)
            assert all(place >= min(window - stride, label - 101) for place, label in asked)
            seen += [label for _, label in asked]
    assert sorted(seen) == list(range(101, 100 + length))


@given(length=st.integers(2, 60), window=st.integers(1, 12), data=st.data())
def test_backward_strides_predict_every_token_once_from_enough_that_follows(length, window, data):
    stride = data.draw(st.integers(1, window))
    seen = []
    for batch in backward_windows(store(length), window, stride=stride, budget=30):
        assert batch.count == int((batch.labels != -100).sum()) > 0
        for ids, labels in zip(batch.inputs.ids.tolist(), batch.labels.tolist(), strict=True):
            asked = [(place, label) for place, label in enumerate(labels) if label != -100]
            assert all(label == ids[place] - 1 for place, label in asked)
            after = 99 + length
            assert all(len(ids) - 1 - place >= min(window - stride, after - 1 - label) for place, label in asked)
            seen += [label for _, label in asked]
    assert sorted(seen) == list(range(100, 99 + length))


def test_isolated_documents_begin_with_the_end_before_them():
    ids = np.array([7, 8, EOS, 9, 10, EOS, EOS, 11, 12], dtype=np.uint32)
    layout = WindowLayout(TextStore(ids, EOS, TextCounts(3, 9, 5, 5)), 8, budget=8, isolate=True)
    inputs = layout.batch(np.array([0])).inputs
    assert inputs.numbers.tolist() == [[1, 1, 2, 2, 2, 3, 4, 4]]
    assert inputs.places.tolist() == [[0, 1, 0, 1, 2, 0, 0, 1]]


@pytest.mark.parametrize(("size", "dtype"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)])
def test_ids_are_kept_in_as_few_bytes_as_hold_them(size, dtype, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("abc", encoding="utf-8")
    monkeypatch.setattr(type(TOKENIZER), "vocab_size", size)
    assert prepare_text(Documents.of([tmp_path / "a.txt"]), TOKENIZER, tmp_path / "cache").ids.dtype == dtype


def test_what_cannot_be_is_refused():
    with pytest.raises(DataError, match="too few for one window of 10"):
        WindowLayout(store(10), 10, budget=10)
    with pytest.raises(ConfigError, match="less than one window"):
        WindowLayout(store(20), 10, budget=9)
    with pytest.raises(ConfigError, match="stride=11"):
        list(islice(strided_windows(store(20), 10, stride=11, budget=10), 1))


def corpora(tmp_path) -> Documents:
    for name, lines in (("a", 40), ("b", 400)):
        (tmp_path / name).mkdir()
        for shard in range(2):
            rows = [json.dumps({"text": f"{name} {shard} {line} words"}) + "\n" for line in range(lines)]
            (tmp_path / name / f"{shard}.jsonl").write_text("".join(rows), encoding="utf-8")
    return Documents.together([Documents.of([tmp_path / "a"]), Documents.of([str(tmp_path / "b" / "*.jsonl")])])


def test_windows_of_several_corpora_are_mixed_and_none_reaches_into_another(tmp_path):
    store = prepare_text(corpora(tmp_path), TOKENIZER, tmp_path / "cache")
    assert sum(store.parts) == len(store.ids)
    assert store.parts[1] > 8 * store.parts[0]
    mix = Mix(("a", "b"), {"a": 1, "b": 1})
    layout = WindowLayout(store, 16, budget=64, mix=mix)
    first = store.parts[0]
    seen = set()
    for epoch in range(12):
        starts = np.concatenate(layout.order(3, epoch))
        assert not ((starts < first) & (starts + 16 >= first)).any()
        assert starts.max() + 16 < len(store.ids)
        assert abs((starts < first).mean() - 0.5) < 0.02
        seen |= set(starts.tolist())
        assert np.array_equal(starts, np.concatenate(layout.order(3, epoch)))
    assert len({start for start in seen if start < first}) > first // 16  # cut from other places each time
    with pytest.raises(DataError, match=r"the corpus 'a' has .* tokens, too few for one window of 9999"):
        WindowLayout(replace(store, parts=(first, 20_000)), 9999, budget=9999, mix=mix)


def test_text_is_tokenised_in_processes_and_after_a_kill_to_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(text_windows, "CHUNK", 7)
    monkeypatch.setattr(text_windows, "COMMIT", 3)
    monkeypatch.setattr(readers, "PART_SIZE", 100)
    documents = corpora(tmp_path)
    (tmp_path / "plain.txt").write_text("one line\n" * 1000, encoding="utf-8")
    documents = replace(documents, paths=(*documents.paths, tmp_path / "plain.txt"), corpora=(2, 3))
    whole = prepare_text(documents, TOKENIZER, tmp_path / "whole")
    assert whole.ids.tolist() == TextStore.of(iter(documents), TOKENIZER).ids.tolist()
    assert whole.counts == TextStore.of(iter(documents), TOKENIZER).counts
    assert prepare_text(documents, TOKENIZER, tmp_path / "two", workers=2).ids.tolist() == whole.ids.tolist()

    for tokens in (whole.counts.tokens // 3, 2 * whole.counts.tokens // 3):

        def interrupt(done, most=tokens):
            if done > most:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            prepare_text(documents, TOKENIZER, tmp_path / "cut", progress=interrupt)
    said = []
    again = prepare_text(documents, TOKENIZER, tmp_path / "cut", say=said.append)
    assert again.ids.tolist() == whole.ids.tolist()
    assert (again.counts, again.parts) == (whole.counts, whole.parts)
    assert said[0].startswith("going on after the ")


@pytest.mark.parametrize("breaks", ["", "\n", "\n\n"])
def test_of_one_long_line_the_end_is_held_out_from_a_space_on(tmp_path, breaks):
    text = " ".join(f"word{number}" for number in range(4000)) + breaks
    (tmp_path / "line.txt").write_text(text, encoding="utf-8")
    documents = Documents.of([tmp_path / "line.txt"])
    rest, end = ("".join(documents.split(0.1, held_out).texts()) for held_out in (False, True))
    assert rest + end == text
    assert 0.09 * len(text) < len(end) < 0.11 * len(text)
    assert end.startswith("word")
