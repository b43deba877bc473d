"""Hidden words and next sentences: the shares are tested, never trusted."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import Documents, Loader, Position
from regard.data.masked_language_model import MaskedLayout, Masking
from regard.data.sentence_store import (
    SentenceCounts,
    SentenceStore,
    numbered_sentences,
    prepare_sentences,
    split_sentences,
)
from regard.errors import DataError
from regard.nn.losses.cross_entropy import IGNORE
from regard.text import TokenizerConfig, train_tokenizer
from regard.text.encoder_inputs import InputTemplate

V, MASK = 50, 4
ORDINARY = np.arange(5, V)


def random_bits(seed=0):
    return np.random.Philox(key=np.array([seed, 0], dtype=np.uint64))


def hidden_rows(B=400, S=101, **settings):
    ids = ORDINARY[random_bits(7).random_raw(B * S).reshape(B, S) % np.uint64(len(ORDINARY))].astype(np.int64)
    may = np.ones((B, S), dtype=bool)
    may[:, 0] = False
    masking, begins = Masking(MASK, ORDINARY, **settings), np.ones((B, S), dtype=bool)
    changed, hidden = masking.mask_tokens(ids, may, begins, random_bits())
    return ids, changed, hidden, may


def chi_square(counts, shares):
    expected = np.array(shares) * sum(counts)
    return float((((np.array(counts) - expected) ** 2) / expected).sum())


def test_fifteen_hundredths_are_hidden_in_the_stated_ways():
    ids, changed, hidden, may = hidden_rows()
    assert (hidden.sum(1) == 15).all()
    assert not (hidden & ~may).any()
    assert (changed[~hidden] == ids[~hidden]).all()
    masked, kept = int((changed[hidden] == MASK).sum()), int((changed[hidden] == ids[hidden]).sum())
    other = int(hidden.sum()) - masked - kept
    # One in 45 of the random words is by chance the word itself, and counts as kept.
    chance = 0.1 / len(ORDINARY)
    assert chi_square([masked, other, kept], [0.8, 0.1 - chance, 0.1 + chance]) < 13.8  # p = 0.001, 2 degrees


def test_pieces_of_a_word_are_hidden_apart_unless_words_are_hidden_whole():
    ids, may, begins = np.full((20, 8), 9), np.ones((20, 8), dtype=bool), np.zeros((20, 8), dtype=bool)
    begins[:, 0] = begins[:, 4] = True
    _, apart = Masking(MASK, ORDINARY, share=0.5).mask_tokens(ids, may, begins, random_bits())
    assert (apart.sum(1) == 4).all()
    assert len({tuple(row) for row in apart.tolist()}) > 10
    _, whole = Masking(MASK, ORDINARY, share=0.5, whole_words=True).mask_tokens(ids, may, begins, random_bits())
    assert {tuple(row) for row in whole.tolist()} == {(True,) * 4 + (False,) * 4, (False,) * 4 + (True,) * 4}
    _, all_of_it = Masking(MASK, ORDINARY, share=1.0, whole_words=True).mask_tokens(ids, may, begins, random_bits())
    assert all_of_it.all()


def test_every_place_is_hidden_as_often_and_random_words_are_uniform():
    ids, changed, hidden, _ = hidden_rows(B=4000)
    places = hidden[:, 1:].sum(0)
    # 15 of 100 without repetition: the variance of a place's count is 0.85 of the chi-square's own.
    assert chi_square(places, [0.01] * 100) / 0.85 < 149  # p = 0.001, 99 degrees
    drawn = changed[hidden & (changed != MASK) & (changed != ids)]
    assert chi_square(np.bincount(drawn, minlength=V)[5:], [1 / 45] * 45) < 78.8  # p = 0.001, 44 degrees
    halves = np.array([[hidden[:, 1:51].sum(), hidden[:, 51:].sum()]])
    assert abs(halves[0, 0] - halves[0, 1]) < 4 * math.sqrt(hidden.sum())


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), lengths=st.lists(st.integers(1, 30), min_size=1, max_size=5))
def test_whole_words_are_hidden_whole(seed, lengths):
    S = max(lengths) + 2
    may = np.zeros((len(lengths), S), dtype=bool)
    for row, length in enumerate(lengths):
        may[row, 1 : length + 1] = True
    begins = (random_bits(seed).random_raw(may.size).reshape(may.shape) % np.uint64(3) == 0) | ~may
    begins[:, 1] = True
    ids = np.full(may.shape, 9)
    _, hidden = Masking(MASK, ORDINARY, whole_words=True).mask_tokens(ids, may, begins, random_bits(seed + 1))
    for row, length in enumerate(lengths):
        words = np.cumsum(begins[row])[1 : length + 1]
        chosen = hidden[row, 1 : length + 1]
        whole = {word for word in words if chosen[words == word].any()}
        assert all(chosen[words == word].all() for word in whole)
        assert len(whole) >= 1
        assert len(whole) == 1 or chosen.sum() <= max(1, round(0.15 * length))
        assert not hidden[row, length + 1 :].any()


def test_sentences_end_where_marks_end_them():
    assert split_sentences('He left. "Why?" she asked. 3.14 is pi! yes. Z') == [
        "He left.", '"Why?" she asked.', "3.14 is pi! yes.", "Z",
    ]  # fmt: skip
    assert split_sentences("日本。東京！") == ["日本。", "東京！"]


def test_blank_lines_and_rows_end_documents(tmp_path):
    (tmp_path / "a.txt").write_text("One. Two.\nThree.\n \nFour.\n\n\nFive.", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"text": "Six.\\n\\nSeven."}\n{"text": "Eight."}\n', encoding="utf-8")
    found = list(numbered_sentences(Documents.of([tmp_path])))
    groups = {}
    for number, sentence in found:
        groups.setdefault(number, []).append(sentence)
    assert list(groups.values()) == [["One.", "Two.", "Three."], ["Four."], ["Five."], ["Six.", "Seven."], ["Eight."]]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    words = [f"w{index}" for index in range(40)]
    lines = []
    for document in range(60):
        for sentence in range(9):
            size = 2 + (document * 7 + sentence * 5) % 6
            # Every document has a word of its own, so that a pair shows where it is from.
            lines.append(f"D{document} " + " ".join(words[(document + sentence + i) % 40] for i in range(size)) + ".")
        lines.append("")
    (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    documents = Documents.of([folder / "text.txt"])
    tokenizer = train_tokenizer(
        documents.texts(), TokenizerConfig(kind="wordpiece", vocab_size=300, lowercase=True), masks=True
    )
    return prepare_sentences(documents, tokenizer, folder / "cache"), tokenizer


def layout(prepared, **changes):
    store, tokenizer = prepared
    ordinary = np.array([i for i in range(tokenizer.vocab_size) if i not in tokenizer.specials()])
    options = {"length": 40, "budget": 320, "pairs": True, "pad": tokenizer.pad, "segmented": True} | changes
    return MaskedLayout(store, InputTemplate.of(tokenizer), Masking(tokenizer.mask, ordinary), **options)


def document_of(store, token):
    sentence = int(np.searchsorted(store.offsets, token, "right")) - 1
    return int(np.searchsorted(store.documents, sentence, "right")) - 1


def test_half_of_the_pairs_go_on_and_half_are_from_another_document(prepared):
    store, _ = prepared
    rows = layout(prepared)
    found = np.concatenate([group[1:] for epoch in range(60) for group in rows.order(3, epoch)])
    assert len(found) > 8000  # so many that a coin with 0.48 would show
    elsewhere = int(found[:, 4].sum())
    assert chi_square([elsewhere, len(found) - elsewhere], [0.5, 0.5]) < 10.83  # p = 0.001, 1 degree
    found = found[:1000]
    for a, b, c, d, other in found.tolist():
        assert a < b
        assert c < d
        assert b - a + d - c <= 40 - 3
        assert (document_of(store, a) == document_of(store, c)) == (not other)
        assert other or b == c  # the second goes on where the first ends


@pytest.mark.parametrize("pairs", [True, False])
def test_a_batch_is_what_its_labels_say(prepared, pairs):
    store, tokenizer = prepared
    rows = layout(prepared, pairs=pairs)
    group = rows.order(3, 0)[0]
    batch, again = rows.batch(group), rows.batch(group)
    assert batch.inputs.ids.equal(again.inputs.ids)
    assert batch.count == int((batch.labels != IGNORE).sum())
    assert batch.share == batch.count / len(group[1:])
    restored = batch.inputs.ids.clone()
    for row in range(len(restored)):
        for place, label in zip(batch.places[row].tolist(), batch.labels[row].tolist(), strict=True):
            if label != IGNORE:
                restored[row, place] = label
    for number, (a, b, c, d, _) in enumerate(group[1:].tolist()):
        first, second = store.tokens[a:b].tolist(), store.tokens[c:d].tolist()
        wanted = rows.template.build(first, second if pairs else None)
        size = int(batch.inputs.tokens.lengths[number])
        assert restored[number, :size].tolist() == wanted.ids
        assert set(restored[number, size:].tolist()) <= {tokenizer.pad}
        assert batch.inputs.segments[number, :size].tolist() == wanted.segments
        assert not batch.inputs.segments[number, size:].any()
        hidden = batch.places[number][batch.labels[number] != IGNORE].tolist()
        assert all(wanted.sources[place] >= 0 for place in hidden)


def test_a_stream_goes_on_anywhere_with_the_same_words_hidden(prepared):
    rows = layout(prepared)
    with Loader(rows, seed=5, ahead=0) as stream:
        whole = [next(stream) for _ in range(len(rows.order(5, 0)) + 3)]
    with Loader(rows, seed=5, ahead=0) as stream:
        for _ in range(4):
            next(stream)
        place = stream.position
    with Loader(rows, seed=5, position=Position(place.epoch, place.index), ahead=0) as stream:
        for batch in whole[4:]:
            other = next(stream)
            assert batch.inputs.ids.equal(other.inputs.ids)
            assert batch.labels.equal(other.labels)
    first, later = rows.batch(rows.order(5, 0)[0]), rows.batch(rows.order(5, 1)[0])
    assert not first.inputs.ids.equal(later.inputs.ids)


def test_words_alone_need_no_pairs(prepared):
    rows = layout(prepared, pairs=False)
    group = rows.order(0, 0)[0]
    assert rows.batch(group).elsewhere is None
    total = sum(int((group[1:, 1] - group[1:, 0]).sum()) for group in rows.order(0, 0))
    assert total > 0.9 * len(prepared[0].tokens)
    with pytest.raises(DataError, match="raise it"):
        layout(prepared, length=6)


def of_single_tokens(*sizes):
    """Documents of so many sentences, of one token each."""
    total = sum(sizes)
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    counts = SentenceCounts(len(sizes), total, total)
    return SentenceStore(np.full(total, 9, np.uint16), np.ones(total, bool), np.arange(total + 1), bounds, counts)


@pytest.mark.parametrize("pairs", [True, False])
def test_nine_rows_of_ten_are_full_and_none_is_empty_or_overfull(prepared, pairs):
    rows = layout((of_single_tokens(8000, 8000), prepared[1]), pairs=pairs, length=16)
    found = np.concatenate([group[1:] for group in rows.order(1, 0)])
    sizes = found[:, 1] - found[:, 0] + found[:, 3] - found[:, 2]
    assert sizes.min() >= 2
    assert sizes.max() == rows.room
    assert abs((sizes < rows.room).mean() - 0.1 * (rows.room - 2) / (rows.room - 1)) < 0.02


def test_a_document_that_fills_its_rows_to_the_last_leaves_no_empty_one(prepared):
    rows = layout((of_single_tokens(4, 4, 1, 4), prepared[1]), pairs=False, length=4)
    assert rows.room == 2
    found = np.concatenate([group[1:] for group in rows.order(1, 0)])
    assert sorted((found[:, 1] - found[:, 0]).tolist()) == [1, 2, 2, 2, 2, 2, 2]
    even = layout((of_single_tokens(4, 4), prepared[1]), pairs=False, length=4)
    assert [even.batch(group).inputs.tokens.padded for group in even.order(1, 0)] == [False]
    assert rows.batch(rows.order(1, 0)[0]).inputs.tokens.padded


def test_two_documents_of_two_sentences_are_enough_and_fewer_are_not(prepared):
    assert layout((of_single_tokens(2, 1, 2), prepared[1])).usable.tolist() == [0, 2]
    with pytest.raises(DataError, match="at least two documents"):
        layout((of_single_tokens(2, 1, 1), prepared[1]))
    with pytest.raises(DataError, match="leaves room for 7 tokens"):
        layout((of_single_tokens(2, 2), prepared[1]), length=10)


def test_one_document_cannot_make_pairs(prepared, tmp_path):
    (tmp_path / "one.txt").write_text("A b. C d. E f.", encoding="utf-8")
    store = prepare_sentences(Documents.of([tmp_path / "one.txt"]), prepared[1], tmp_path / "cache")
    with pytest.raises(DataError, match="at least two documents"):
        layout((store, prepared[1]))


def test_a_pair_that_is_evaluated_weighs_the_same_in_whichever_batch_it_is(prepared):
    few = layout(prepared, budget=64)
    batches = list(few.evaluation())
    assert len({batch.count / len(batch.labels) for batch in batches}) > 1
    [share] = {batch.share for batch in batches}
    assert share == sum(batch.count for batch in batches) / sum(len(batch.labels) for batch in batches)
    assert [batch.labels.tolist() for batch in batches] == [few.batch(rows).labels.tolist() for rows in few.order(0, 0)]
