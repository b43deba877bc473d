from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.data import Loader, PairStore, Position
from regard.data.packing import Packing
from regard.nn.loss import IGNORE

pair = st.tuples(st.integers(1, 30), st.integers(1, 30))


def store(sizes):
    rows = [
        ([4 + i % 50] * source + [2], [1] + [5 + i % 50] * target + [2]) for i, (source, target) in enumerate(sizes)
    ]
    return PairStore.of(rows)


@given(sizes=st.lists(pair, min_size=1, max_size=60), budget=st.integers(80, 400), epoch=st.integers(0, 3))
def test_every_pair_is_packed_once_and_fits(sizes, budget, epoch):
    packing = Packing(store(sizes), budget)
    groups = packing.order(7, epoch)
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(sizes)))
    for again, group in zip(Packing(store(sizes), budget).order(7, epoch), groups, strict=True):
        assert (again == group).all()
    for rows in groups:
        batch = packing.batch(rows)
        assert batch.source.ids.shape == (1, packing.room[0])
        assert batch.inputs.ids.shape == batch.labels.shape == (1, packing.room[1])
        assert batch.source.bounds.shape == batch.inputs.bounds.shape
        assert int((batch.labels != IGNORE).sum()) == batch.count


@given(sizes=st.lists(pair, min_size=1, max_size=20))
def test_bounds_hold_each_sequence_whole_and_padding_apart(sizes):
    pairs = store(sizes)
    packing = Packing(pairs, 1600)
    (rows,) = packing.order(0, 0)
    batch = packing.batch(rows)
    for side, packed, cut in ((pairs.source, batch.source, 0), (pairs.target, batch.inputs, 1)):
        bounds = packed.bounds.tolist()
        assert bounds[0] == 0
        assert bounds[-1] == packed.ids.shape[1]
        assert all(0 <= b - a <= packed.longest for a, b in pairwise(bounds))
        for index, row in enumerate(rows):
            piece = slice(bounds[index], bounds[index + 1])
            whole = side[int(row)].tolist()
            assert packed.ids[0, piece].tolist() == whole[: len(whole) - cut]
            assert packed.places[0, piece].tolist() == list(range(len(whole) - cut))
        assert int(packed.places.max()) < packed.longest
    starts = batch.inputs.bounds.tolist()
    for index, row in enumerate(rows):
        assert batch.labels[0, starts[index] : starts[index + 1]].tolist() == pairs.target[int(row)].tolist()[1:]


def test_rows_are_well_filled_and_resume_anywhere():
    generator = np.random.default_rng(0)
    sizes = [(int(n), max(1, int(n * 1.1))) for n in np.clip(generator.lognormal(2.6, 0.4, 20_000), 2, 80)]
    pairs = store(sizes)
    packing = Packing(pairs, 16_384)
    batches = [packing.batch(rows) for rows in packing.order(1, 0)[:-1]]
    room = sum(packing.room) * len(batches)
    assert 1 - sum(batch.tokens for batch in batches) / room < 0.03
    with Loader(pairs, budget=16_384, seed=1, pack=True) as loader:
        first = [next(loader) for _ in range(3)]
        middle = loader.position
        following = next(loader)
    assert first[0].source.ids.equal(batches[0].source.ids)
    assert middle == Position(0, 3)
    with Loader(pairs, budget=16_384, seed=1, pack=True, position=middle) as loader:
        assert next(loader).source.ids.equal(following.source.ids)
