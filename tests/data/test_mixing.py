"""Corpora mixed by weight or temperature: exact shares, every row equally often, and the same order again."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import Loader, PairStore, Position
from regard.data.batches import PaddedLayout
from regard.data.mixing import CorpusMixture, Mix
from regard.data.sequence_packing import PackedLayout
from regard.data.sharing import Share
from regard.errors import ConfigError


def shares(mix, sizes):
    return [round(share, 4) for share in mix.of(sizes).shares]


def test_shares_are_weights_or_sizes_to_a_power():
    assert shares(Mix(("a", "b"), {"a": 3, "b": 1}), (10, 1000)) == [0.75, 0.25]
    assert shares(Mix(("a", "b"), {}), (100, 300)) == [0.25, 0.75]
    assert shares(Mix(("a", "b"), {}, temperature=2), (100, 900)) == [0.25, 0.75]
    assert shares(Mix(("a", "b"), {}, temperature=1e6), (1, 10**9)) == [0.5, 0.5]
    mixture = Mix(("a", "b"), {"a": 1, "b": 1}).of((100, 300))
    said = "an epoch mixes 400 pairs: a 200 (50 %, each 2 times), b 200 (50 %, each 0.667 times)"
    assert Mix(("a", "b"), {"a": 1, "b": 1}).describe(mixture, "pairs") == said


@pytest.mark.parametrize(
    ("weights", "temperature", "said"),
    [
        ({"a": 1}, 1, "no weight for the corpus 'b'"),
        ({"a": 1, "b": 1, "c": 1}, 1, "data.mix names 'c', which is not in data.corpora"),
        ({"a": 0, "b": 1}, 1, "data.mix.a=0 must be a number above 0"),
        ({"a": "much", "b": 1}, 1, "data.mix.a='much' must be a number above 0"),
        ({}, 0, "data.temperature=0 must be above 0"),
        ({"a": 1, "b": 1}, 2, "two ways to mix corpora; give one"),
    ],
)
def test_weights_that_cannot_be_are_refused(weights, temperature, said):
    with pytest.raises(ConfigError, match=said):
        Mix(("a", "b"), weights, temperature)


@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=4),
    weights=st.lists(st.floats(0.01, 10), min_size=4, max_size=4),
    seed=st.integers(0, 5),
)
def test_all_rows_of_a_corpus_come_equally_often_and_an_epoch_has_its_share_of_each(sizes, weights, seed):
    parts = weights[: len(sizes)]
    mixture = CorpusMixture(tuple(sizes), tuple(part / sum(parts) for part in parts))
    bounds = np.cumsum([0, *sizes])
    met = Counter(dict.fromkeys(range(bounds[-1]), 0))
    for epoch in range(4):
        rows = mixture.rows(seed, epoch)
        assert np.array_equal(rows, mixture.rows(seed, epoch))
        assert np.histogram(rows, bounds)[0].tolist() == list(mixture.counts)
        met.update(rows.tolist())
        for first, last in pairwise(bounds):
            often = [met[row] for row in range(first, last)]
            assert max(often) - min(often) <= 1
    assert sum(mixture.counts) >= sum(sizes)
    assert sum(mixture.counts) <= sum(sizes) + len(sizes)  # where a corpus has one row for less than half of one


def store() -> PairStore:
    rng = np.random.default_rng(0)
    rows = [([4 + n % 50] * int(rng.integers(2, 12)), [4 + n % 50] * int(rng.integers(3, 12))) for n in range(300)]
    return PairStore.of(rows)


@pytest.mark.parametrize("kind", [PaddedLayout, PackedLayout])
def test_a_mixed_stream_resumes_exactly_and_is_one_stream_for_any_number_of_processes(kind):
    mixture = Mix(("a", "b"), {"a": 3, "b": 1}).of((50, 250))
    layout = kind(store(), 120, mixture)
    order = [layout.order(1, epoch) for epoch in range(3)]
    for epoch, groups in enumerate(order):
        rows = np.concatenate([group if group.ndim == 1 else group[:, 0] for group in groups])
        assert sorted(rows) == sorted(mixture.rows(1, epoch))
    assert [g.tolist() for g in order[0]] != [g.tolist() for g in order[1]]

    def counts(position, share=None, batches=60):
        with Loader(layout, seed=1, position=position, ahead=0, share=share) as loader:
            return [(next(loader).count, loader.position) for _ in range(batches)]

    whole = counts(Position())
    assert any(position.epoch == 1 for _, position in whole)
    for cut in (7, 41):
        assert counts(whole[cut][1], batches=10) == whole[cut + 1 : cut + 11]
    two = [counts(Position(), Share(rank, 2, 2), 30) for rank in (0, 1)]
    assert [one[0] for pair in zip(*two, strict=True) for one in pair] == [count for count, _ in whole]
