import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from regard.errors import DataError
from regard.look.alignment import (
    AlignmentCounts,
    align,
    alignment_error_rate,
    best_head,
    merge,
    words_of_pieces,
)


def spans(text, pieces):
    """Where each piece lies in `text`, searched from left to right; an empty piece is special."""
    found, at = [], 0
    for piece in pieces:
        at = text.index(piece, at) if piece else 0
        found.append((at, at + len(piece)))
        at += len(piece)
    return found


def test_pieces_belong_to_the_word_they_share_most_characters_with():
    text = "l'animal fatigué."
    words = spans(text, ["l'", "animal", "fatigué", "."])
    pieces = spans(text, ["l", "'anim", "al", " fati", "gué", ".", ""])
    assert words_of_pieces(pieces, words) == [0, 1, 1, 2, 2, 3, None]


def test_pieces_between_words_belong_to_none():
    assert words_of_pieces([(0, 0), (2, 3), (3, 5)], [(0, 2), (3, 5)]) == [None, None, 1]
    assert words_of_pieces([(0, 1)], []) == [None]
    assert words_of_pieces([], [(0, 1)]) == []


def test_merging_sums_source_pieces_and_averages_target_pieces():
    weights = torch.tensor([[[0.1, 0.2, 0.3, 0.4], [0.3, 0.4, 0.1, 0.2], [0.0, 0.0, 0.0, 1.0]]])
    merged = merge(weights, [0, 0, 1, None], [0, 0, None], sources=3, targets=2)
    assert_close(merged, torch.tensor([[[0.5, 0.2, 0.0], [0.0, 0.0, 0.0]]]))


@settings(deadline=None, derandomize=True)
@given(st.data())
def test_merging_keeps_the_weight_on_words(data):
    T, S, targets, sources = (data.draw(st.integers(1, 5)) for _ in range(4))
    weights = torch.rand(2, 3, T, S, dtype=torch.float64).softmax(-1)
    target_words = [data.draw(st.integers(0, targets - 1)) for _ in range(T)]
    source_words = [data.draw(st.integers(0, sources - 1)) for _ in range(S)]
    merged = merge(weights, source_words, target_words, sources=sources, targets=targets)
    covered = torch.tensor([float(word in target_words) for word in range(targets)], dtype=torch.float64)
    assert_close(merged.sum(-1), covered.expand(2, 3, targets))


def test_each_target_word_aligns_to_its_heaviest_source_word():
    weights = torch.tensor([[0.1, 0.7], [0.6, 0.2], [0.0, 0.0], [0.5, 0.5]])
    assert align(weights) == {(1, 0), (0, 1), (0, 3)}
    assert align(torch.zeros(0, 3)) == align(torch.zeros(3, 0)) == set()


def test_the_error_rate_follows_its_definition():
    assert alignment_error_rate({(0, 0), (1, 1)}, {(0, 0), (1, 1)}) == 0
    assert alignment_error_rate({(0, 1)}, {(0, 0)}) == 1
    # |A|=3, |S|=2, one sure pair found, two of the three possible: 1 - (1 + 2) / 5
    predicted, sure, possible = {(0, 0), (1, 2), (2, 2)}, {(0, 0), (1, 1)}, {(2, 2)}
    assert alignment_error_rate(predicted, sure, possible) == pytest.approx(0.4)
    assert alignment_error_rate(set(), set()) == 0
    assert alignment_error_rate(set(), {(0, 0)}) == 1


def test_a_corpus_counts_as_one_long_sentence():
    generator = torch.Generator().manual_seed(0)
    counts = AlignmentCounts()
    pairs: dict[tuple[int, int], tuple[set, set, set]] = {}
    for number, (targets, sources) in enumerate([(3, 5), (7, 2), (4, 4)]):
        weights = torch.rand(2, 3, targets, sources, generator=generator)
        sure = {(int(torch.randint(sources, (), generator=generator)), target) for target in range(targets)}
        possible = {(0, 0), (1, 2)}
        counts.add(weights, sure, possible)
        for layer in range(2):
            for head in range(3):
                seen = pairs.setdefault((layer, head), (set(), set(), set()))
                for into, add in zip(seen, (align(weights[layer, head]), sure, possible), strict=True):
                    into.update((source + 10 * number, target + 10 * number) for source, target in add)
    scores = counts.scores()
    assert scores.error_rate.shape == (2, 3)
    for index, (predicted, sure, possible) in pairs.items():
        assert float(scores.error_rate[index]) == pytest.approx(alignment_error_rate(predicted, sure, possible))
        assert float(scores.precision[index]) == pytest.approx(len(predicted & (sure | possible)) / len(predicted))
        assert float(scores.recall[index]) == pytest.approx(len(predicted & sure) / len(sure))


def test_the_best_head_is_the_one_that_aligns():
    counts = AlignmentCounts()
    weights = torch.full((2, 4, 5, 5), 0.1)
    weights[1, 2] += torch.eye(5).flip(0)
    counts.add(weights, {(4 - target, target) for target in range(5)})
    assert best_head(counts.scores()) == (1, 2)
    assert counts.scores().to_mapping()["error_rate"][1][2] == 0


def test_nothing_predicted_and_nothing_to_find_is_no_error():
    counts = AlignmentCounts()
    counts.add(torch.zeros(2, 3, 3), set())
    assert counts.scores().error_rate.tolist() == [0, 0]


class Operations(TorchDispatchMode):
    """Counts what torch is asked to do."""

    count = 0

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        self.count += 1
        return operation(*arguments, **(keywords or {}))


@pytest.mark.parametrize("shape", [(1, 1), (3, 8)])
@pytest.mark.parametrize("size", [3, 15])
def test_all_heads_and_cells_of_a_sentence_are_scored_at_once(shape, size):
    weights = torch.rand(*shape, 2 * size, 2 * size, generator=torch.Generator().manual_seed(0))
    words = [piece // 2 for piece in range(2 * size)]
    counts = AlignmentCounts()
    with Operations() as operations:
        merged = merge(weights, words, words, sources=size, targets=size)
        counts.add(merged, {(word, word) for word in range(size)})
    assert operations.count < 60  # however many heads and cells: a loop over either takes far more
    assert counts.scores().error_rate.shape == shape


def test_half_precision_weights_align_too():
    weights = torch.eye(3, dtype=torch.bfloat16)
    assert align(weights) == {(0, 0), (1, 1), (2, 2)}
    assert merge(weights[None], [0, 0, 1], [0, 1, 1], sources=2, targets=2).tolist() == [[[1.0, 0.0], [0.5, 0.5]]]


def test_what_does_not_fit_is_refused():
    with pytest.raises(DataError, match="weights of 2 x 3 pieces, but words for 2 x 2"):
        merge(torch.rand(1, 2, 3), [0, 0], [0, 0], sources=1, targets=1)
    with pytest.raises(DataError, match="there are 1 words"):
        merge(torch.rand(1, 2, 2), [0, 1], [0, 0], sources=1, targets=1)
    counts = AlignmentCounts()
    with pytest.raises(DataError, match="no sentences"):
        counts.scores()
    with pytest.raises(DataError, match=r"gold pair \(2, 0\)"):
        counts.add(torch.rand(1, 2, 2), {(2, 0)})
    counts.add(torch.rand(3, 2, 2), {(0, 0)})
    with pytest.raises(DataError, match="must stay the same"):
        counts.add(torch.rand(4, 2, 2), {(0, 0)})
