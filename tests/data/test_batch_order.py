"""Laws of the order: every row once, within the budget, a function of seed and epoch, little padding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from regard.data import epoch_order, evaluation_order
from regard.errors import ConfigError

LENGTHS = st.integers(1, 60).flatmap(
    lambda rows: st.tuples(*[arrays.arrays(np.int32, rows, elements=st.integers(1, 40))] * 2)
)


def real_lengths(rows, seed=0):
    """Lengths spread like those of real sentences, targets longer and loosely tied to sources."""
    draw = np.random.default_rng(seed)
    source = np.clip(draw.lognormal(2.7, 0.4, rows), 2, 100)
    target = np.clip(source * draw.lognormal(0.05, 0.2, rows) + 2, 3, 140)
    return source.astype(np.int32), target.astype(np.int32)


def padded(groups, source, target):
    return [len(rows) * (int(source[rows].max()) + int(target[rows].max())) for rows in groups]


@settings(deadline=None, derandomize=True)
@given(lengths=LENGTHS, slack=st.integers(0, 200), seed=st.integers(0, 2**63), epoch=st.integers(0, 1000))
def test_every_row_comes_once_and_no_batch_exceeds_the_budget(lengths, slack, seed, epoch):
    source, target = lengths
    budget = int((source + target).max()) + slack
    for groups in (
        epoch_order(source, target, budget=budget, seed=seed, epoch=epoch),
        evaluation_order(source, target, budget=budget),
    ):
        assert sorted(np.concatenate(groups).tolist()) == list(range(len(source)))
        assert max(padded(groups, source, target)) <= budget
        assert min(len(rows) for rows in groups) > 0


def test_the_order_is_a_function_of_seed_and_epoch_alone():
    source, target = real_lengths(3000)

    def order(seed, epoch):
        np.random.seed(epoch)  # whatever else draws random numbers changes nothing
        return [rows.tolist() for rows in epoch_order(source, target, budget=1000, seed=seed, epoch=epoch)]

    assert order(1, 2) == order(1, 2)
    orders = [order(seed, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert all(one != other for place, one in enumerate(orders) for other in orders[place + 1 :])
    # Not the same batches in another order: neighbours change too.
    batches = [{tuple(sorted(rows)) for rows in groups} for groups in orders]
    assert len(batches[0] & batches[1]) < len(batches[0]) / 10


def test_the_order_is_pinned():
    # A checkpoint's position means something only as long as these numbers stay.
    source, target = np.repeat(np.arange(4, 7), 4), np.tile([5, 6], 6)
    groups = epoch_order(source, target, budget=36, seed=7, epoch=3)
    assert [rows.tolist() for rows in groups] == [[10, 9, 11], [1, 3, 7], [0, 2, 8], [5, 4, 6]]


def test_padding_is_under_five_percent_and_sources_mostly_of_one_length():
    source, target = real_lengths(30_000)
    groups = epoch_order(source, target, budget=4096, seed=0, epoch=0)
    total = sum(padded(groups, source, target))
    assert 1 - (source.sum() + target.sum()) / total < 0.05
    assert np.mean([source[rows].min() == source[rows].max() for rows in groups]) > 0.7
    assert total / len(groups) > 0.97 * 4096


def test_batches_of_an_epoch_do_not_come_by_length():
    source, target = real_lengths(30_000)
    groups = epoch_order(source, target, budget=4096, seed=0, epoch=0)
    means = [source[rows].mean() for rows in groups]
    assert abs(np.corrcoef(np.arange(len(means)), means)[0, 1]) < 0.2


def test_evaluation_goes_from_short_to_long():
    source, target = real_lengths(5000)
    means = [source[rows].mean() for rows in evaluation_order(source, target, budget=2000)]
    assert means == sorted(means)


def test_a_budget_below_the_longest_pair_is_refused():
    with pytest.raises(ConfigError, match="budget=9 tokens per batch is less than the longest pair, which has 10"):
        epoch_order(np.array([3, 4]), np.array([3, 6]), budget=9, seed=0, epoch=0)
    with pytest.raises(ConfigError, match="no pairs"):
        evaluation_order(np.array([], dtype=int), np.array([], dtype=int), budget=9)
