"""Batches halved and doubled by rows."""

from dataclasses import dataclass

import pytest
import torch

from regard.nn.batch import LabelledTexts, Texts, Tokens, doubled, halves
from regard.nn.losses.cross_entropy import IGNORE


@dataclass(frozen=True)
class Unlabelled:
    rows: torch.Tensor


def texts(labels):
    tokens = Tokens.of([[5, 6, 7], [8, 9], [4]][: len(labels)])
    return LabelledTexts(Texts(tokens), torch.tensor(labels), sum(label != IGNORE for label in labels))


def test_halves_are_rows_with_their_own_counts_the_first_no_smaller():
    first, second = halves(texts([1, IGNORE, 2]))
    assert (first.labels.tolist(), first.count) == ([1, IGNORE], 1)
    assert (second.labels.tolist(), second.count) == ([2], 1)
    assert first.inputs.ids.tolist() == [[5, 6, 7], [8, 9, 0]]
    assert second.inputs.tokens.lengths.tolist() == [1]


@pytest.mark.parametrize("batch", [texts([1]), Unlabelled(torch.zeros(4, 2))])
def test_one_row_and_what_has_no_labels_stay_whole(batch):
    assert halves(batch) == [batch]


def test_a_doubled_batch_has_every_row_again_and_says_the_same_of_itself():
    found = doubled(texts([1, 2]))
    assert found.labels.tolist() == [1, 2, 1, 2]
    assert found.inputs.ids.tolist() == 2 * [[5, 6, 7], [8, 9, 0]]
    assert found.count == 2
