import math

import pytest
import torch
from decode_toys import EOS, Historical, Markov, Pointer, Toy

import regard.decode.stepper as stepper_module
from regard.decode.config import DecodeConfig, limits
from regard.decode.greedy import collect, decode, greedy
from regard.decode.search import search
from regard.errors import ConfigError, RegardError

FIRST = 0
BATCH = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26]
CONFIG = DecodeConfig(beam=1, max_len=20)


def stream(toy, batch, **arguments):
    first = torch.full((len(batch),), FIRST)
    return decode(toy, toy.start(batch), first, eos=EOS, **{"max_len": 20, **arguments})


def outputs(toy, batch, **arguments):
    found = collect(stream(toy, batch, **arguments), eos=EOS, config=CONFIG)
    return [(one.tokens, one.log_prob, one.finished) for one in found]


def test_each_choice_is_the_likeliest_and_an_ended_row_goes_on_with_eos():
    toy = Historical()
    ended = [False] * len(BATCH)
    for step, column in enumerate(stream(toy, BATCH)):
        for row in range(len(BATCH)):
            if ended[row]:
                assert (column.tokens[row], column.log_probs[row], column.rows[row]) == (EOS, 0.0, -1)
            else:
                answer = toy.answers[step][column.rows[row]]
                assert column.tokens[row] == answer.argmax()
                assert column.log_probs[row] == answer.max()
            ended[row] |= column.tokens[row].item() == EOS
    assert any(ended)


def test_the_stream_stops_once_every_row_has_ended():
    [first, second] = outputs(Historical(), BATCH[:2])
    assert first[2]
    assert second[2]
    assert len(list(stream(Historical(), BATCH[:2]))) == max(len(first[0]), len(second[0])) + 1 < 20


def test_columns_come_as_they_are_computed():
    toy = Historical()
    columns = stream(toy, BATCH)
    assert not toy.widths
    next(columns)
    next(columns)
    assert len(toy.widths) == 2


def test_a_row_is_the_same_alone_and_in_any_batch():
    toy = Historical()
    alone = [outputs(toy, [source])[0] for source in BATCH]
    assert outputs(toy, BATCH) == alone
    assert outputs(toy, BATCH[::-1]) == alone[::-1]


@pytest.mark.parametrize("share", [0.0, 0.5, 2.0])
def test_dropping_rows_that_ended_changes_nothing(monkeypatch, share):
    usual, other = Historical(), Historical()
    wanted = outputs(usual, BATCH)
    monkeypatch.setattr(stepper_module, "ENDED_SHARE", share)
    assert outputs(other, BATCH) == wanted
    assert usual.widths[-1] < len(BATCH)
    if share == 2.0:
        assert set(other.widths) == {len(BATCH)}
    if share == 0.0:
        going = [sum(len(tokens) >= step for tokens, _, _ in wanted) for step in range(len(other.widths))]
        assert other.widths == going


def test_rows_of_one_source_stay_together_until_all_have_ended():
    toy = Historical()
    state = toy.start([3, 14, 15]).select(torch.arange(3).repeat_interleave(2))
    first = torch.tensor([0, 2, 3, 4, 5, 6])
    together = collect(decode(toy, state, first, eos=EOS, max_len=20, per_source=2), eos=EOS, config=CONFIG)
    assert set(toy.widths) > {6}
    assert all(width % 2 == 0 for width in toy.widths)
    for row, source in enumerate([3, 3, 14, 14, 15, 15]):
        [alone] = greedy(toy, toy.start([source]), first[row : row + 1], eos=EOS, config=CONFIG)
        assert (alone.tokens, alone.log_prob) == (together[row].tokens, together[row].log_prob)


def test_rows_say_where_each_choice_was_read():
    toy = Historical()
    for one in collect(stream(toy, BATCH), eos=EOS, config=CONFIG):
        chosen = one.tokens + [EOS] * one.finished
        assert len(one.rows) == len(chosen)
        for step, (row, token) in enumerate(zip(one.rows, chosen, strict=True)):
            assert toy.pasts[step][row].tolist() == [FIRST, *one.tokens[:step]]
            assert toy.answers[step][row, token].item() == one.token_log_probs[step]


def test_an_output_is_no_shorter_and_no_longer_than_asked():
    shortest = {source: len(tokens) for source, (tokens, _, _) in zip(BATCH, outputs(Historical(), BATCH), strict=True)}
    assert min(shortest.values()) < 4
    found = outputs(Historical(), BATCH, min_len=4, max_len=torch.arange(5, 5 + len(BATCH)))
    for index, (tokens, _, finished) in enumerate(found):
        assert 4 <= len(tokens) <= 5 + index - finished
        assert finished or len(tokens) == 5 + index
    assert {finished for _, _, finished in found} == {True, False}


def test_a_score_is_divided_for_the_length_with_its_end():
    config = DecodeConfig(length_penalty=1.0, length_form="power")
    [one] = greedy(Historical(), Historical().start([3]), torch.tensor([0]), eos=EOS, config=config)
    assert one.finished
    assert one.score == pytest.approx(one.log_prob / (len(one.tokens) + 1))


@pytest.mark.parametrize("beam", [1, 2])
def test_an_output_of_nothing_but_its_end_is_of_length_one(beam):
    table = torch.tensor([[0.0, 0.7, 0.3], [1 / 3] * 3, [1 / 3] * 3]).log()[None]
    config = DecodeConfig(beam=beam, length_penalty=1.0, length_form="power", max_len=4)
    [[one]] = search(Markov(), Markov().start(table), torch.tensor([0]), eos=EOS, config=config)
    assert (one.tokens, one.finished, one.token_log_probs) == ([], True, [one.log_prob])
    assert one.score == one.log_prob == pytest.approx(math.log(0.7))


@pytest.mark.parametrize("beam", [1, 2])
def test_where_not_even_a_first_choice_is_possible_the_output_is_empty(beam):
    table = torch.tensor([[0.0] * 3, [1 / 3] * 3, [1 / 3] * 3]).log()[None]
    [[one]] = search(Markov(), Markov().start(table), torch.tensor([0]), eos=EOS, config=DecodeConfig(beam=beam))
    assert (one.tokens, one.score, one.log_prob, one.finished) == ([], 0.0, 0.0, False)
    assert one.token_log_probs == one.rows == []


def test_a_row_that_can_choose_nothing_ends_unfinished():
    table = torch.tensor([[0.0, 0.0, 1.0], [1 / 3] * 3, [0.0, 0.0, 0.0]]).log()[None]
    assert outputs(Markov(), table) == [([2], 0.0, False)]


def test_pointing_chooses_among_what_the_sources_left_have():
    scores = torch.tensor([[0.5, 0.0, -0.5, -torch.inf, -torch.inf], [0.1, -9.0, 0.3, 0.2, 0.4]])
    toy = Pointer()
    assert [tokens for tokens, _, _ in outputs(toy, scores)] == [[0], [4, 3, 2, 0]]
    assert {answer.shape[1] for answer in toy.answers} == {5}
    assert outputs(Pointer(), scores[:1, :3])[0] == outputs(Pointer(), scores)[0]


def test_rules_see_the_past_of_every_row_and_bind():
    toy = Historical(choices=6)
    seen = []

    def never_twice(log_probs, prefix):
        assert prefix.tokens.tolist() == toy.pasts[-1][:, 1:].tolist()
        seen.append(prefix.sources.tolist())
        return log_probs.scatter(1, prefix.tokens, -torch.inf)

    found = outputs(toy, BATCH, constraints=[never_twice])
    assert all(len(set(tokens)) == len(tokens) for tokens, _, _ in found)
    assert any(len(set(tokens)) < len(tokens) for tokens, _, _ in outputs(toy, BATCH))
    assert set(seen[-1]) < set(range(len(BATCH))) == set(seen[0])


def test_the_tokens_of_a_column_can_be_learned_from():
    embedding = torch.nn.Embedding(7, 2)
    column = next(stream(Historical(), BATCH))
    embedding(column.tokens).sum().backward()
    assert embedding.weight.grad is not None


def test_a_model_that_gives_no_number_is_refused():
    with pytest.raises(RegardError, match="not a number, at step 1"):
        outputs(Markov(), torch.full((1, 3, 3), torch.nan))


def test_a_longest_length_below_one_or_of_another_count_is_refused():
    with pytest.raises(ConfigError, match="max_len=0 must be at least 1"):
        outputs(Historical(), BATCH, max_len=0)
    with pytest.raises(ConfigError, match="one for each of 12 rows"):
        limits(torch.tensor([5, 5]), 12)


def test_no_rows_give_no_outputs():
    assert outputs(Toy(), torch.zeros(0)) == []


def test_a_row_ends_at_every_stop_token_and_at_none_before_its_least_length():
    batch, stops = list(range(40)), (4, 6)
    toy, first = Historical(), torch.zeros(40, dtype=torch.long)
    for least in (0, 3):
        columns = decode(toy, toy.start(batch), first, eos=EOS, max_len=12, min_len=least, stops=stops)
        found = collect(columns, eos=EOS, config=CONFIG)
        assert not any({EOS, *stops} & {*one.tokens} for one in found)
        assert sum(one.finished for one in found) > 20
        assert all(len(one.tokens) >= least for one in found)
