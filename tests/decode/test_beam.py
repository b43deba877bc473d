import functools
import itertools

import numpy as np
import pytest
import torch
from decode_toys import EOS, Historical, Markov, Pointer, Toy, one_at_a_time
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_beam import every_output, reference_beam

import regard.decode.stepper as stepper_module
from regard.decode.beam import Candidates, beam_search
from regard.decode.config import DecodeConfig
from regard.decode.greedy import greedy
from regard.errors import RegardError

FIRST = 0
BATCH = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26]
repeatable = settings(deadline=None, derandomize=True, max_examples=20)


def search(toy, batch, **arguments):
    config = arguments.pop("config", None) or DecodeConfig(**arguments.pop("settings", {}))
    first = torch.full((len(batch),), FIRST)
    return beam_search(toy, toy.start(batch), first, eos=EOS, config=config, **arguments)


def plain(hypotheses):
    """What must not depend on how sources were batched: all but the rows."""
    return [(one.tokens, one.score, one.log_prob, one.finished, one.token_log_probs) for one in hypotheses]


def scores_of_pointers(lengths, seed=0):
    scores = torch.randn(len(lengths), max(lengths), generator=torch.Generator().manual_seed(seed))
    return scores.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], -torch.inf)


configs = st.builds(
    lambda beam, top, **rest: {"beam": beam, "top_beams": min(beam, top), **rest},
    beam=st.integers(1, 5),
    top=st.integers(1, 5),
    length_penalty=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    length_form=st.sampled_from(["gnmt", "power"]),
    exact=st.booleans(),
    min_len=st.integers(0, 4),
    max_len=st.integers(5, 12),
)


@repeatable
@given(config=configs, seed=st.integers(0, 10_000), choices=st.integers(2, 9), source=st.integers(0, 210))
def test_a_beam_finds_what_the_plain_search_finds(config, seed, choices, source):
    config = DecodeConfig(**config)
    toy = Historical(choices, seed)
    [found] = search(toy, [source], config=config)
    wanted = reference_beam(lambda prefix: one_at_a_time(toy, source, prefix, FIRST), EOS, config, config.max_len)
    assert [(tuple(one.tokens), one.score, one.finished) for one in found] == wanted


@repeatable
@given(
    seed=st.integers(0, 10_000),
    penalty=st.sampled_from([0.0, 0.6, 1.0, 1.5]),
    form=st.sampled_from(["gnmt", "power"]),
    exact=st.booleans(),
    min_len=st.integers(0, 2),
    max_len=st.integers(3, 4),
)
def test_a_beam_as_wide_as_the_search_finds_the_best_there_is(seed, penalty, form, exact, min_len, max_len):
    config = DecodeConfig(
        beam=27, top_beams=4, length_penalty=penalty, length_form=form, exact=exact, min_len=min_len, max_len=max_len
    )
    toy = Historical(choices=3, seed=seed, sharpness=1.0)
    found = search(toy, [5, 8], config=config)
    for source, hypotheses in zip([5, 8], found, strict=True):
        following = functools.cache(functools.partial(one_at_a_time, toy, source, first=FIRST))
        wanted = every_output(following, EOS, config, max_len, choices=3)[:4]
        assert [(tuple(one.tokens), one.finished) for one in hypotheses] == [(one[0], one[2]) for one in wanted]
        assert [one.score for one in hypotheses] == pytest.approx([one[1] for one in wanted], rel=1e-5)


@pytest.mark.parametrize("exact", [False, True])
def test_a_source_finds_the_same_alone_and_in_any_batch(exact):
    toy = Historical(choices=9)
    settings = {"beam": 4, "top_beams": 3, "max_len": 20, "exact": exact}
    alone = [plain(search(toy, [source], settings=settings)[0]) for source in BATCH]
    assert [plain(found) for found in search(toy, BATCH, settings=settings)] == alone
    assert [plain(found) for found in search(toy, BATCH[::-1], settings=settings)] == alone[::-1]
    assert len({len(found[0][0]) for found in alone}) > 2  # or no source was ever dropped before another


def test_pointing_at_sources_of_many_lengths_is_the_same_alone_and_together():
    lengths = [3, 9, 5, 2, 7, 7]
    scores = scores_of_pointers(lengths)
    settings = {"beam": 3, "top_beams": 2, "length_penalty": 1.0, "min_len": 1}
    together = search(Pointer(), scores, settings=settings)
    for source, length in enumerate(lengths):
        alone = search(Pointer(), scores[source : source + 1, :length], settings=settings)
        assert plain(alone[0]) == plain(together[source])
        for one in together[source]:
            assert len(set(one.tokens)) == len(one.tokens)
            assert max(one.tokens) < length


@pytest.mark.parametrize("share", [0.0, 0.5, 2.0])
def test_dropping_what_ended_saves_rows_and_changes_nothing(monkeypatch, share):
    settings = {"beam": 4, "top_beams": 2, "max_len": 20}
    usual, other = Historical(), Historical()
    wanted = search(usual, BATCH, settings=settings)
    monkeypatch.setattr(stepper_module, "ENDED_SHARE", share)
    found = search(other, BATCH, settings=settings)
    assert [plain(one) for one in found] == [plain(one) for one in wanted]
    if share == 2.0:  # nothing is ever dropped
        assert set(other.widths[1:]) == {len(BATCH) * 4}
        assert sum(usual.widths) < sum(other.widths)


def test_the_first_step_has_one_row_a_source_and_the_others_a_beam():
    toy = Historical()
    search(toy, BATCH, settings={"beam": 4, "max_len": 6, "min_len": 5})
    assert toy.widths == [len(BATCH)] + [4 * len(BATCH)] * 5


@repeatable
@given(seed=st.integers(0, 10_000), min_len=st.integers(0, 3), penalty=st.sampled_from([0.0, 0.6, 1.0]))
def test_a_beam_of_one_is_greedy(seed, min_len, penalty):
    config = DecodeConfig(beam=1, length_penalty=penalty, min_len=min_len, max_len=10)
    toy = Historical(choices=4, seed=seed)
    by_beam = search(toy, BATCH, config=config)
    by_choice = greedy(toy, toy.start(BATCH), torch.full((len(BATCH),), FIRST), eos=EOS, config=config)
    for [one], other in zip(by_beam, by_choice, strict=True):
        assert (one.tokens, one.finished) == (other.tokens, other.finished)
        assert one.score == pytest.approx(other.score, rel=1e-5)


@repeatable
@given(config=configs, seed=st.integers(0, 10_000))
def test_the_best_come_first_and_no_two_are_alike(config, seed):
    config = DecodeConfig(**config)
    for found in search(Historical(choices=5, seed=seed), BATCH[:4], config=config):
        assert len({(tuple(one.tokens), one.finished) for one in found}) == len(found) == config.top_beams
        assert found == sorted(found, key=lambda one: (not one.finished, -one.score))
        for one in found:
            length = len(one.tokens) + one.finished
            assert len(one.tokens) >= config.min_len
            assert length <= config.max_len
            assert one.finished or length == config.max_len
            assert one.score == config.score(one.log_prob, length)
            assert len(one.token_log_probs) == len(one.rows) == length
            assert sum(one.token_log_probs) == pytest.approx(one.log_prob, abs=1e-5)


def test_each_source_may_have_its_own_longest_length():
    settings = {"beam": 3, "top_beams": 3, "min_len": 3, "length_penalty": 2.0, "exact": True}
    longest = torch.tensor([4, 12, 7, 5])
    together = search(Historical(), BATCH[:4], settings=settings, max_len=longest)
    for source, length in enumerate(longest.tolist()):
        [alone] = search(Historical(), [BATCH[source]], settings=settings, max_len=length)
        assert plain(alone) == plain(together[source])
        assert max(len(one.tokens) + one.finished for one in alone) <= length


def test_outputs_that_never_end_come_back_cut_short():
    table = torch.tensor([[0.6, 0.0, 0.4]] * 3).log()[None]
    [found] = search(Markov(), table, settings={"beam": 2, "top_beams": 2, "max_len": 3})
    assert [one.tokens for one in found] == [[0, 0, 0], [0, 0, 2]]
    assert not any(one.finished for one in found)
    assert found[0].log_prob == pytest.approx(3 * np.log(0.6))


def test_a_finished_output_comes_before_a_likelier_one_cut_short():
    table = torch.tensor([[0.80, 0.15, 0.05]] * 3).log()[None]
    [found] = search(Markov(), table, settings={"beam": 2, "top_beams": 2, "max_len": 2, "length_penalty": 0.0})
    assert [(one.tokens, one.finished) for one in found] == [([], True), ([0], True)]
    [found] = search(Markov(), table, settings={"beam": 2, "top_beams": 2, "max_len": 1, "length_penalty": 0.0})
    assert [(one.tokens, one.finished) for one in found] == [([], True), ([0], False)]
    assert found[0].score < found[1].score


def test_fewer_come_back_where_there_are_no_more():
    scores = scores_of_pointers([3])  # positions 0 and 2, each once, and the end: five outputs
    [found] = search(Pointer(), scores, settings={"beam": 8, "top_beams": 8, "exact": True})
    assert sorted(one.tokens for one in found) == [[], [0], [0, 2], [2], [2, 0]]
    assert all(one.finished for one in found)


def test_a_dead_end_comes_back_as_far_as_it_got():
    table = torch.tensor([[0.0, 0.0, 1.0], [1 / 3] * 3, [0.0, 0.0, 0.0]]).log()[None]
    [[one]] = search(Markov(), table, settings={"beam": 2})
    assert (one.tokens, one.finished, one.rows) == ([2], False, [0])


def test_ties_go_to_the_earlier_row_and_the_lower_choice():
    table = torch.full((1, 4, 4), 0.25).log()
    [found] = search(Markov(), table, settings={"beam": 3, "top_beams": 3, "max_len": 2, "length_penalty": 0.0})
    assert [one.tokens for one in found] == [[], [0], [0, 0]]


def chain():
    """Ends at once with probability 0.6, or else surely after 2 and 3: likelier for its length."""
    table = torch.eye(4)[[0, 1, 3, EOS]]
    table[0] = torch.tensor([0.0, 0.6, 0.4, 0.0])
    return table.log()


def test_a_source_stops_once_a_beam_has_finished_that_the_best_live_one_does_not_beat():
    settings = {"length_penalty": 1.0, "length_form": "power"}
    toy = Markov()
    [[one]] = search(toy, chain()[None], settings={**settings, "beam": 1})
    assert (one.tokens, len(toy.widths)) == ([], 1)
    [[one]] = search(Markov(), chain()[None], settings={**settings, "beam": 2})
    assert one.tokens == [2, 3]


def test_an_exact_search_goes_on_while_more_length_could_win_and_no_further():
    settings = {"length_penalty": 1.0, "length_form": "power", "exact": True}
    [[one]] = search(Markov(), chain()[None], settings={**settings, "beam": 1})
    assert one.tokens == [2, 3]
    toy = Markov()
    [[one]] = search(toy, chain()[None], settings={"length_penalty": 0.0, "exact": True, "beam": 3})
    assert (one.tokens, len(toy.widths)) == ([], 1)


def test_a_source_that_stopped_finds_no_more_while_it_waits_to_be_dropped(monkeypatch):
    monkeypatch.setattr(stepper_module, "ENDED_SHARE", 2.0)
    endless = torch.eye(4).log()
    settings = {"beam": 1, "length_penalty": 1.0, "length_form": "power", "max_len": 6}
    steps = []
    [[one], _] = search(Markov(), torch.stack([chain(), endless]), settings=settings, record=steps.append)
    assert one.tokens == []
    assert [step.sources.tolist() for step in steps] == [[0, 1]] + [[1]] * 5


@pytest.mark.parametrize("exact", [False, True])
def test_rows_say_where_each_choice_was_read(exact):
    toy = Historical(choices=9)
    found = search(toy, BATCH, settings={"beam": 4, "top_beams": 4, "max_len": 20, "exact": exact})
    assert len(set(toy.widths)) > 2  # sources were dropped on the way, so rows moved
    for one in itertools.chain(*found):
        chosen = one.tokens + [EOS] * one.finished
        read = [
            toy.answers[step][row, token].item() for step, (row, token) in enumerate(zip(one.rows, chosen, strict=True))
        ]
        assert read == pytest.approx(one.token_log_probs, abs=1e-5)
        for step, row in enumerate(one.rows):
            assert toy.pasts[step][row].tolist() == [FIRST, *one.tokens[:step]]


def test_the_record_tells_the_whole_story():
    steps: list[Candidates] = []
    config = DecodeConfig(beam=3, top_beams=3, max_len=15)
    found = search(Historical(), BATCH, config=config, record=steps.append)
    prefixes = {source: [()] for source in range(len(BATCH))}
    finished = {source: set() for source in range(len(BATCH))}
    for step in steps:
        for place, source in enumerate(step.sources.tolist()):
            tokens, parents = step.tokens[place].tolist(), step.parents[place].tolist()
            grown = [(*prefixes[source][parent], token) for token, parent in zip(tokens, parents, strict=True)]
            finished[source] |= {grown[index] for index in np.flatnonzero(step.finished[place])}
            prefixes[source] = [grown[index] for index in step.live[place]]
            assert (np.diff(step.log_probs[place]) <= 0).all()
            assert not step.finished[place][step.live[place]].any()
    for source, hypotheses in enumerate(found):
        assert all((*one.tokens, EOS) in finished[source] for one in hypotheses if one.finished)
    assert len(steps[-1].sources) < len(BATCH)  # those that ended are told of no more


def test_rules_see_the_past_of_every_row_and_bind():
    toy = Historical(choices=6)
    seen = []

    def never_twice(log_probs, prefix):
        assert prefix.tokens.tolist() == toy.pasts[-1][:, 1:].tolist()
        assert prefix.step == prefix.tokens.shape[1]
        seen.append(prefix.sources.tolist())
        return log_probs.scatter(1, prefix.tokens, -torch.inf)

    found = search(toy, BATCH, settings={"beam": 3, "max_len": 10}, constraints=[never_twice])
    assert all(len(set(one.tokens)) == len(one.tokens) for [one] in found)
    assert any(
        len(set(one.tokens)) < len(one.tokens) for [one] in search(toy, BATCH, settings={"beam": 3, "max_len": 10})
    )
    assert seen[0] == list(range(len(BATCH)))
    assert set(seen[-1]) < set(seen[0])
    for source in seen[-1]:
        assert seen[-1].count(source) == 3


def test_a_model_that_gives_no_number_is_refused():
    class Broken(Markov):
        def log_probs(self, memory, past):
            return super().log_probs(memory, past) * (torch.nan if past.shape[1] == 3 else 1.0)

    table = torch.tensor([[0.6, 0.1, 0.3]] * 3).log()[None]
    with pytest.raises(RegardError, match="not a number, at step 3"):
        search(Broken(), table)


def test_no_sources_give_no_outputs():
    toy = Toy()
    assert beam_search(toy, toy.start(torch.zeros(0)), torch.zeros(0, dtype=torch.long), eos=EOS) == []


class OneEnd(Historical):
    """As `Historical`, with all ways to end made one, as likely as the likeliest of them."""

    def log_probs(self, memory, past):
        log_probs = super().log_probs(memory, past).clone()
        log_probs[:, EOS] = log_probs[:, [EOS, *STOPS]].amax(1)
        log_probs[:, STOPS] = -torch.inf
        return log_probs


STOPS = [4, 6]


@pytest.mark.parametrize("settings", [{}, {"min_len": 3}, {"beam": 1}, {"top_beams": 3}, {"exact": True}])
def test_an_output_ends_at_every_stop_token_once(settings):
    config, first = DecodeConfig(**{"beam": 3, "max_len": 12, **settings}), torch.zeros(40, dtype=torch.long)
    batch = list(range(40))
    toy, folded = Historical(), OneEnd()
    found = beam_search(toy, toy.start(batch), first, eos=EOS, config=config, stops=STOPS)
    wanted = beam_search(folded, folded.start(batch), first, eos=EOS, config=config)
    assert [[(one.tokens, one.log_prob, one.finished) for one in best] for best in found] == [
        [(one.tokens, one.log_prob, one.finished) for one in best] for best in wanted
    ]
    assert not any({EOS, *STOPS} & {*one.tokens} for best in found for one in best)
    assert all(len({tuple(one.tokens) for one in best}) == len(best) for best in found)
    plain = beam_search(toy, toy.start(batch), first, eos=EOS, config=config)
    assert any({*STOPS} & {*one.tokens} for best in plain for one in best)
