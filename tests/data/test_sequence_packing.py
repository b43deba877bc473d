import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.data import Loader, PairStore, Position
from regard.data.sequence_packing import PackedLayout
from regard.nn.losses.cross_entropy import IGNORE

pair = st.tuples(st.integers(1, 30), st.integers(1, 30))


def store(sizes):
    rows = []
    for index, (source, target) in enumerate(sizes):
        rows.append(([4 + index] * source + [2], [1] + [5 + index] * target + [2]))
    return PairStore.of(rows)


@given(sizes=st.lists(pair, min_size=1, max_size=60), budget=st.integers(80, 900), epoch=st.integers(0, 3))
def test_every_pair_is_packed_once_and_whole(sizes, budget, epoch):
    pairs = store(sizes)
    packing = PackedLayout(pairs, budget)
    groups = packing.order(7, epoch)
    assert sorted(np.concatenate(groups)[:, 0].tolist()) == list(range(len(sizes)))
    for again, group in zip(PackedLayout(pairs, budget).order(7, epoch), groups, strict=True):
        assert (again == group).all()
    for group in groups:
        batch = packing.batch(group)
        assert batch.source.ids.shape == (packing.rows, packing.widths[0])
        assert batch.inputs.ids.shape == batch.labels.shape == (packing.rows, packing.widths[1])
        assert int((batch.labels != IGNORE).sum()) == batch.count
        found = []
        for row in range(packing.rows):
            for number in range(1, int(batch.source.numbers[row].max()) + 1):
                found.append(pair_at(batch, row, number))
        expected = [(pairs.source[int(i)].tolist(), pairs.target[int(i)].tolist()) for i in group[:, 0]]
        assert sorted(found) == sorted(expected)


def pair_at(batch, row, number):
    """The pair read back from the batch: the source, and the target from its inputs and its labels."""
    there = batch.source.numbers[row] == number
    source = batch.source.ids[row, there].tolist()
    assert batch.source.places[row, there].tolist() == list(range(len(source)))
    here = batch.inputs.numbers[row] == number
    inputs, labels = batch.inputs.ids[row, here].tolist(), batch.labels[row, here].tolist()
    assert batch.inputs.places[row, here].tolist() == list(range(len(inputs)))
    assert inputs[1:] == labels[:-1]
    return source, [inputs[0], *labels]


def test_a_pair_as_long_as_the_only_row_is_packed():
    packing = PackedLayout(store([(5, 6), (207, 215), (3, 4)]), 430)
    assert packing.rows == 1
    groups = packing.order(7, 0)
    assert sorted(np.concatenate(groups)[:, 0].tolist()) == [0, 1, 2]
    assert all(len(group) for group in groups)


def test_rows_are_well_filled_and_resume_anywhere():
    generator = np.random.default_rng(0)
    sizes = [(int(n), max(1, int(n * 1.1))) for n in np.clip(generator.lognormal(2.6, 0.4, 20_000), 2, 80)]
    pairs = store(sizes)
    packing = PackedLayout(pairs, 16_384)
    batches = [packing.batch(group) for group in packing.order(1, 0)[:-1]]
    room = packing.rows * sum(packing.widths) * len(batches)
    assert 1 - sum(batch.tokens for batch in batches) / room < 0.06
    with Loader(pairs, budget=16_384, seed=1, pack=True) as loader:
        first = [next(loader) for _ in range(3)]
        middle = loader.position
        following = next(loader)
    assert first[0].source.ids.equal(batches[0].source.ids)
    assert middle == Position(0, 3)
    with Loader(pairs, budget=16_384, seed=1, pack=True, position=middle) as loader:
        assert next(loader).source.ids.equal(following.source.ids)
