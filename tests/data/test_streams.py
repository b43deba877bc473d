"""Streams: every token in its place, each window where the one before ended."""

import itertools

import numpy as np
import pytest
import torch

from regard.data import Loader, Position, StreamLayout, TextStore, streamed_windows
from regard.data.text_windows import TextCounts
from regard.errors import ConfigError, DataError


def store(tokens):
    return TextStore(np.arange(tokens, dtype=np.uint32), 0, TextCounts(1, tokens, tokens, tokens))


def test_each_window_goes_on_where_the_one_before_ended():
    layout = StreamLayout(store(103), 7, budget=21)
    for epoch in range(3):
        batches = [layout.batch(rows) for rows in layout.order(5, epoch)]
        assert [batch.number for batch in batches] == list(range(len(batches))) == [0, 1, 2, 3]
        for before, after in itertools.pairwise(batches):
            assert torch.equal(before.labels[:, -1], after.inputs.ids[:, 0])
        for batch in batches:
            assert batch.inputs.ids.shape == (3, 7)
            assert not batch.inputs.padded
            assert torch.equal(batch.labels, batch.inputs.ids + 1)
            assert batch.count == batch.tokens == 21
    assert len({int(layout.order(5, epoch)[0][2]) for epoch in range(9)}) > 3  # epochs begin elsewhere


def test_a_loader_taken_up_anywhere_goes_on():
    layout = StreamLayout(store(60), 5, budget=10)
    with Loader(layout, seed=3, ahead=0) as whole:
        batches = [next(whole) for _ in range(9)]
    with Loader(layout, seed=3, position=Position(0, 4), ahead=0) as rest:
        for wanted in batches[4:]:
            found = next(rest)
            assert torch.equal(found.labels, wanted.labels)
            assert found.number == wanted.number


@pytest.mark.parametrize("tokens", [2, 9, 30, 31, 37])
@pytest.mark.parametrize("streams", [1, 4])
def test_every_token_but_the_first_is_predicted_once(tokens, streams):
    batches = list(streamed_windows(store(tokens), 4, streams=streams))
    labels = torch.cat([batch.labels.flatten() for batch in batches])
    assert sorted(labels.tolist()) == list(range(1, tokens))
    assert sum(batch.count for batch in batches) == tokens - 1
    if streams == 1:
        assert labels.tolist() == list(range(1, tokens))


def test_what_cannot_be_cut_is_refused():
    with pytest.raises(DataError, match="too few for 2 streams of at least 7"):
        StreamLayout(store(14), 7, budget=14)
    with pytest.raises(ConfigError, match="less than one window"):
        StreamLayout(store(100), 7, budget=6)
