"""The stream of batches: what is in one, where it goes on, and how its thread ends."""

import gc
import threading
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import Loader, PairStore, Position, collate, epoch_order, evaluation_batches
from regard.data import batches as batch_module
from regard.errors import ConfigError

PAD, BOS, EOS = 0, 1, 2
DRAW = np.random.default_rng(0)


def row(length):
    return DRAW.integers(4, 60_000, length).tolist()


STORE = PairStore.of(
    [
        ([*row(n), EOS], [BOS, *row(m), EOS])
        for n, m in zip(DRAW.integers(1, 12, 90), DRAW.integers(1, 12, 90), strict=True)
    ]
)
BUDGET = 120
PER_EPOCH = len(epoch_order(STORE.source.lengths, STORE.target.lengths, budget=BUDGET, seed=0, epoch=0))


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "regard-loader"]


def take(count, **settings):
    """The first batches and the position after each."""
    with Loader(STORE, budget=BUDGET, **settings) as batches:
        return [(batch, batches.position) for batch in islice(batches, count)]


def same(one, other):
    assert torch.equal(one.source.ids, other.source.ids)
    assert torch.equal(one.target.ids, other.target.ids)
    assert torch.equal(one.source.lengths, other.source.lengths)
    assert torch.equal(one.target.lengths, other.target.lengths)
    return (one.source.padded, one.target.padded, one.count) == (other.source.padded, other.target.padded, other.count)


def rows_of(tokens):
    return [tuple(ids[:length]) for ids, length in zip(tokens.ids.tolist(), tokens.lengths.tolist(), strict=True)]


@settings(deadline=None, derandomize=True, max_examples=50)
@given(rows=st.lists(st.integers(0, 89), min_size=1, max_size=8))
def test_a_batch_holds_its_rows_and_padding_and_nothing_else(rows):
    batch = collate(STORE, np.array(rows))
    for tokens, side in ((batch.source, STORE.source), (batch.target, STORE.target)):
        assert rows_of(tokens) == [tuple(side[index].tolist()) for index in rows]
        assert (tokens.ids[~tokens.mask()] == PAD).all()
        assert tokens.padded == bool((~tokens.mask()).any())
        assert tokens.ids.shape[1] == tokens.lengths.max()
        assert tokens.ids.dtype == tokens.lengths.dtype == torch.long
    assert batch.count == sum(len(STORE.target[index]) - 1 for index in rows)


def test_padding_is_the_vocabularys_own():
    store = PairStore.of([([5, 2], [1, 5, 2]), ([5, 5, 2], [1, 2])], pad=9)
    batch = collate(store, np.array([0, 1]))
    assert batch.source.ids.tolist() == [[5, 2, 9], [5, 5, 2]]
    assert batch.target is not None
    assert batch.target.ids.tolist() == [[1, 5, 2], [1, 2, 9]]


def test_an_epoch_holds_every_pair_once():
    everything = sorted((tuple(source.tolist()), tuple(target.tolist())) for source, target in STORE)
    taken = [batch for batch, _ in take(PER_EPOCH)]
    for batches in (taken, list(evaluation_batches(STORE, BUDGET))):
        pairs = [pair for batch in batches for pair in zip(rows_of(batch.source), rows_of(batch.target), strict=True)]
        assert sorted(pairs) == everything


@settings(deadline=None, derandomize=True, max_examples=30)
@given(stop=st.integers(0, 3 * PER_EPOCH), ahead=st.sampled_from([0, 1, 4]), seed=st.integers(0, 3))
def test_resuming_anywhere_gives_the_rest_of_the_unbroken_stream(stop, ahead, seed):
    unbroken = take(stop + PER_EPOCH, seed=seed, ahead=0)
    position = unbroken[stop - 1][1] if stop else Position()
    resumed = take(PER_EPOCH, seed=seed, ahead=ahead, position=position)
    for (batch, after), (expected, place) in zip(resumed, unbroken[stop:], strict=True):
        assert same(batch, expected)
        assert after == place


def test_positions_count_batches_and_epochs():
    positions = [position for _, position in take(PER_EPOCH + 1)]
    assert positions[0] == Position(0, 1)
    assert positions[PER_EPOCH - 1] == Position(1, 0)
    assert positions[PER_EPOCH] == Position(1, 1)
    with Loader(STORE, budget=BUDGET, position=Position(1, 3)) as batches:
        assert batches.position == Position(1, 3)  # whatever the thread has made ahead


@settings(deadline=None, derandomize=True, max_examples=20)
@given(world=st.integers(1, 5), start=st.integers(0, 40))
def test_processes_together_take_the_one_stream(world, start):
    position = Position(0, start)
    steps = PER_EPOCH // world + 2
    whole = take(steps * world, ahead=0, position=position)
    for rank in range(world):
        mine = take(steps, rank=rank, world=world, position=position)
        for step, (batch, after) in enumerate(mine):
            assert same(batch, whole[step * world + rank][0])
            assert after == whole[step * world + world - 1][1]


def test_the_thread_ends_when_closed_and_when_forgotten():
    batches = Loader(STORE, budget=BUDGET, ahead=1)
    assert len(threads()) == 1
    batches.close()
    batches.close()
    assert not threads()
    with pytest.raises(StopIteration):
        next(batches)
    forgotten = Loader(STORE, budget=BUDGET, ahead=1)
    next(forgotten)
    del forgotten
    gc.collect()
    assert not threads()


def test_no_more_than_asked_is_made_ahead(monkeypatch):
    made = []
    enough = threading.Event()
    real = batch_module.collate

    def counted(store, rows):
        made.append(rows)
        if len(made) == 4:
            enough.set()
        return real(store, rows)

    monkeypatch.setattr(batch_module, "collate", counted)
    with Loader(STORE, budget=BUDGET, ahead=3) as batches:
        assert enough.wait(60)
        assert batches.position == Position()
        assert not threading.Event().wait(0.1)  # time for one too many; on a busy machine it only proves less
        assert len(made) == 4  # three that wait and one in hand


def test_an_error_in_the_thread_reaches_the_caller(monkeypatch):
    def broken(store, rows):
        raise OSError("the disk is gone")

    monkeypatch.setattr(batch_module, "collate", broken)
    with Loader(STORE, budget=BUDGET) as batches:
        with pytest.raises(OSError, match="the disk is gone"):
            next(batches)
        with pytest.raises(StopIteration):  # and not a wait for a thread that has ended
            next(batches)
    assert not threads()


def test_closing_while_the_thread_is_about_to_fail_does_not_hang(monkeypatch):
    real, calls, going = batch_module.collate, [], threading.Event()

    def failing(store, rows):
        calls.append(rows)
        if len(calls) == 3:
            going.set()
            raise OSError("the disk is gone")
        return real(store, rows)

    monkeypatch.setattr(batch_module, "collate", failing)
    batches = Loader(STORE, budget=BUDGET, ahead=1)
    next(batches)
    assert going.wait(5)  # one batch waits in the queue, and the failure waits for room behind it
    batches.close()
    assert not threads()


def test_settings_that_cannot_be_are_refused_at_once():
    with pytest.raises(ConfigError, match="budget=5 tokens per batch is less than the longest pair"):
        Loader(STORE, budget=5)
    with pytest.raises(ConfigError, match="rank=2 must be at least 0 and less than world=2"):
        Loader(STORE, budget=BUDGET, rank=2, world=2)
    with pytest.raises(ConfigError, match="seed=-1 must not be negative"):
        Loader(STORE, budget=BUDGET, seed=-1)
    assert not threads()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="page-locked memory needs CUDA")
def test_pinned_batches_are_the_same_batches():
    for (pinned, _), (plain, _) in zip(take(3, pin=True), take(3), strict=True):
        assert pinned.source.ids.is_pinned()
        assert pinned.target.lengths.is_pinned()
        assert same(pinned, plain)
