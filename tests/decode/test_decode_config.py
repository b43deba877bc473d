import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import from_mapping, to_mapping
from regard.decode.beam import Candidates, Pool, survivors
from regard.decode.config import DecodeConfig
from regard.decode.search import batches, in_batches
from regard.decode.stepper import unfinished
from regard.errors import ConfigError

repeatable = settings(deadline=None, derandomize=True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beam": 0}, "beam=0 must be at least 1"),
        ({"beam": 2, "top_beams": 3}, "top_beams=3 must be from 1 to beam=2"),
        ({"top_beams": 0}, "top_beams=0"),
        ({"length_penalty": -0.1}, "length_penalty=-0.1 must be 0 or more"),
        ({"length_penalty": float("nan")}, "length_penalty=nan"),
        ({"min_len": 9, "max_len": 9}, "min_len=9 must be from 0 to below max_len=9"),
        ({"min_len": -1}, "min_len=-1"),
        ({"max_len": 0}, "max_len=0"),
        ({"max_ratio": -1.0}, "max_ratio=-1.0"),
        ({"max_extra": 0}, "max_extra=0"),
        ({"temperature": 0.0}, "temperature=0.0 must be above 0, at least 1e-06; beam=1 without a temperature takes"),
        ({"temperature": -1.0}, "temperature=-1.0 must be above 0"),
        ({"temperature": 1e-300}, "temperature=1e-300 must be above 0, at least 1e-06"),
        ({"temperature": float("nan")}, "temperature=nan must be above 0"),
        ({"temperature": float("inf")}, "temperature=inf must be at most 1,000,000"),
        ({"length_penalty": 8.8e15}, r"length_penalty=8800000000000000.0 must be at most 10"),
        ({"max_ratio": 1e308}, "max_ratio=1e.308 must be at most 1,000,000"),
        ({"max_ratio": float("nan")}, "max_ratio=nan"),
        ({"max_extra": 10**12}, "max_extra=1000000000000 must be at most 1,000,000"),
        ({"max_len": 10**12}, "max_len=1000000000000 must be at most 1,000,000"),
        ({"beam": 10**9}, "beam=1000000000 must be at most 10,000"),
        ({"temperature": 1.0, "samples": 10**9}, "samples=1000000000 must be at most 10,000"),
        ({"temperature": 1.0, "top_k": 0}, "top_k=0"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p=0.0"),
        ({"temperature": 1.0, "top_p": 1.1}, "top_p=1.1"),
        ({"temperature": 1.0, "samples": 0}, "samples=0"),
        ({"seed": -1}, "seed=-1"),
        ({"top_k": 5}, "top_k=5 needs a temperature"),
        ({"top_p": 0.5}, "top_p=0.5 needs a temperature"),
        ({"samples": 2}, "samples=2 needs a temperature"),
    ],
)
def test_a_setting_that_cannot_be_is_named(wrong, message):
    with pytest.raises(ConfigError, match=message):
        DecodeConfig(**wrong)


def test_settings_survive_being_written_down():
    config = DecodeConfig(beam=4, length_form="power", temperature=0.7, top_k=40, samples=3)
    assert from_mapping(DecodeConfig, to_mapping(config)) == config


def test_lengths_weigh_as_the_papers_say():
    assert DecodeConfig(length_penalty=0.6).score(-3.0, 7) == pytest.approx(-3.0 / 2**0.6)
    assert DecodeConfig(length_penalty=0.6).score(-3.0, 1) == -3.0
    assert DecodeConfig(length_penalty=2.0, length_form="power").score(-3.0, 4) == -3.0 / 16
    assert DecodeConfig(length_penalty=0.0, length_form="power").score(-3.0, 9) == -3.0


def test_an_output_may_grow_with_its_source():
    assert DecodeConfig(max_len=100).limits([1, 20, 80]) == [51, 70, 100]
    assert DecodeConfig(max_len=100, max_ratio=1.5, max_extra=5).limits([1, 20, 80]) == [6, 35, 100]
    assert DecodeConfig(max_len=100, max_ratio=None).limits([1, 20]) == [100, 100]
    assert DecodeConfig(max_len=100, max_extra=None).limits([1, 20]) == [100, 100]
    assert DecodeConfig(max_len=10**6, max_ratio=1e6, max_extra=10**6).limits([10**6]) == [10**6]


@pytest.mark.parametrize("form", ["gnmt", "power"])
@pytest.mark.parametrize("exact", [False, True])
def test_at_the_greatest_settings_nothing_overflows(form, exact):
    config = DecodeConfig(beam=2, length_penalty=10.0, length_form=form, exact=exact, max_len=10**6)
    assert np.isfinite(config.score(-1.0, 10**6))
    pool = Pool(np.array([10**6]), config)
    live = np.array([[0, 1]])
    candidates = Candidates(
        np.array([0]), live, live, np.float32([[-1.0, -2.0]]), np.zeros((1, 2), dtype=bool), np.array([[0, 1]])
    )
    assert pool.add(survivors(candidates, eos=5, width=2, total=1), candidates).tolist() == [True]


def test_none_can_be_written_where_there_is_no_null():
    assert from_mapping(DecodeConfig, {"max_ratio": "none", "max_extra": "none"}).max_ratio is None
    with pytest.raises(ConfigError, match="max_len='none' must be a whole number"):
        from_mapping(DecodeConfig, {"max_len": "none"})


@repeatable
@given(lengths=st.lists(st.integers(0, 30), max_size=40), budget=st.integers(1, 120))
def test_results_come_in_the_order_asked_from_batches_within_budget(lengths, budget):
    seen = []

    def double(items):
        seen.append(items)
        return [2 * item for item in items]

    items = list(range(len(lengths)))
    assert in_batches(double, items, lengths, budget=budget) == [2 * item for item in items]
    for batch in seen:
        assert len(batch) == 1 or len(batch) * max(lengths[item] for item in batch) <= budget
    longest = [max(lengths[item] for item in batch) for batch in seen]
    assert longest == sorted(longest, reverse=True)
    for batch, following in itertools.pairwise(seen):  # each is as full as it can be
        assert (len(batch) + 1) * max(1, *(lengths[item] for item in batch)) > budget
        assert min(lengths[item] for item in batch) >= lengths[following[0]]


def test_batches_are_filled_to_the_budget_and_nothing_counts_as_one():
    assert list(batches([2, 2, 2, 2], 6)) == [[0, 1, 2], [3]]
    assert list(batches([0, 0, 0, 0], 3)) == [[0, 1, 2], [3]]
    assert list(batches([1, 5, 3], 4)) == [[1], [2], [0]]


def test_rows_are_left_out_once_enough_have_ended():
    running = np.ones(64, dtype=bool)
    assert unfinished(running) is None
    running[5] = False
    assert unfinished(running) is None
    running[9] = False
    assert unfinished(running).tolist() == [place for place in range(64) if place not in (5, 9)]
    assert unfinished(np.array([True, False, True])).tolist() == [0, 2]


def test_the_least_that_can_be_is_taken():
    DecodeConfig(max_ratio=0.0, forbid=(0,), force_first=0, length_penalty=0.0, min_len=0, max_len=1, seed=0)


def test_a_budget_below_one_is_refused():
    with pytest.raises(ConfigError, match="budget=0"):
        list(batches([1], 0))
