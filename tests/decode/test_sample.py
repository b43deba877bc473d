import pytest
import torch
from decode_toys import EOS, Historical, Markov

from regard.decode.config import DecodeConfig
from regard.decode.greedy import greedy
from regard.decode.sample import Sampler, invert, sample, uniform_numbers
from regard.decode.search import search

PROBS = torch.tensor([0.05, 0.30, 0.15, 0.30, 0.12, 0.08])
BATCH = [3, 14, 15, 92, 65, 35, 89]


def drawn(batch, ids=None, **settings):
    toy = Historical()
    config = DecodeConfig(**{"temperature": 1.0, "max_len": 15, **settings})
    return sample(toy, toy.start(batch), torch.zeros(len(batch), dtype=torch.long), eos=EOS, config=config, ids=ids)


def plain(samples):
    return [(one.tokens, one.log_prob, one.finished) for one in samples]


def counts(rows=4000, seed=1, **settings):
    sampler = Sampler(uniform_numbers(seed, range(rows), samples=1, steps=1), **settings)
    chosen = sampler(PROBS.log().expand(rows, 6), torch.arange(rows), 0)
    return torch.bincount(chosen, minlength=6)


def chi_square(observed, probs):
    expected = probs / probs.sum() * observed.sum()
    possible = expected > 0
    assert observed[~possible].sum() == 0
    return ((observed - expected)[possible] ** 2 / expected[possible]).sum().item()


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"temperature": 2.0}, [0, 1, 2, 3, 4, 5]),
        ({"temperature": 0.5}, [0, 1, 2, 3, 4, 5]),
        ({"top_k": 3}, [1, 2, 3]),
        ({"top_k": 1}, [1]),  # of two equals, the lower
        ({"top_k": 50}, [0, 1, 2, 3, 4, 5]),
        ({"top_p": 0.6}, [1, 3]),
        ({"top_p": 0.61}, [1, 2, 3]),
        ({"top_p": 0.01}, [1]),
        ({"top_p": 1.0}, [0, 1, 2, 3, 4, 5]),
        ({"top_p": 0.7}, [1, 2, 3]),
        ({"top_k": 3, "top_p": 0.7}, [1, 3]),  # 0.8 of the three
        ({"min_p": 0.0}, [0, 1, 2, 3, 4, 5]),
        ({"min_p": 0.38}, [1, 2, 3, 4]),
        ({"min_p": 1.0}, [1, 3]),  # both are the likeliest
        ({"min_p": 0.38, "temperature": 0.5}, [1, 3]),  # measured at the temperature
        ({"min_p": 0.38, "top_k": 3}, [1, 2, 3]),
        ({"min_p": 0.6, "top_p": 0.61}, [1, 3]),
    ],
)
def test_choices_are_drawn_as_often_as_they_are_likely(settings, kept):
    probs = PROBS.double() ** (1 / settings.get("temperature", 1.0))
    only = torch.zeros(6, dtype=torch.double)
    only[kept] = probs[kept]
    observed = counts(**settings)
    assert set(observed.nonzero().flatten().tolist()) == set(kept)
    assert chi_square(observed, only) < 20.5  # the 0.999 quantile for the five degrees of freedom there are at most


@pytest.mark.parametrize("temperature", [1e-3, 1e-38, 1e-45, 1e-300, 5e-324])
@pytest.mark.parametrize("settings", [{}, {"top_k": 2}, {"top_p": 0.9}, {"top_k": 3, "top_p": 1e-320}])
def test_however_low_the_temperature_the_likeliest_is_drawn(temperature, settings):
    log_probs = torch.tensor([[-0.5, -3.0, -1.2], [-30.0, -20.0, -21.0], [-torch.inf, -80.0, -torch.inf]])
    sampler = Sampler(uniform_numbers(1, range(3), samples=1, steps=1), temperature=temperature, **settings)
    assert sampler(log_probs, torch.arange(3), 0).tolist() == [0, 1, 1]


@pytest.mark.parametrize("settings", [{}, {"top_k": 2**70}, {"top_p": 1 - 1e-16}])
def test_however_high_the_temperature_only_the_possible_is_drawn_and_evenly(settings):
    log_probs = torch.tensor([[-90.0, -torch.inf, -1.0]]).expand(1000, 3)
    sampler = Sampler(uniform_numbers(1, range(1000), samples=1, steps=1), temperature=1e300, **settings)
    first, impossible, last = torch.bincount(sampler(log_probs, torch.arange(1000), 0), minlength=3).tolist()
    assert impossible == 0
    assert 430 < first < 570
    assert first + last == 1000


def test_a_draw_never_falls_on_the_impossible():
    probs = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]], dtype=torch.double)
    edges = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.double)
    assert invert(probs.expand(3, 5), edges).tolist() == [1, 3, 3]


def test_draws_are_even_and_differ_by_seed_source_and_sample():
    numbers = uniform_numbers(5, range(100), samples=2, steps=50)
    assert numbers.shape == (200, 50)
    assert len(numbers.unique()) == numbers.numel()
    assert chi_square(torch.histc(numbers, 10, 0, 1), torch.ones(10)) < 27.9  # the 0.999 quantile of nine degrees
    assert not torch.isin(uniform_numbers(6, range(100), samples=2, steps=50), numbers).any()
    assert torch.equal(uniform_numbers(5, [7], samples=2, steps=50), numbers[14:16])


def test_a_source_keeps_its_luck_in_any_batch():
    together = [plain(samples) for samples in drawn(BATCH, samples=3)]
    assert len({tuple(tokens) for samples in together for tokens, _, _ in samples}) > len(BATCH)
    order = [4, 0, 6, 2]
    some = drawn([BATCH[index] for index in order], ids=order, samples=3)
    assert [plain(samples) for samples in some] == [together[index] for index in order]
    for index, source in enumerate(BATCH):
        assert plain(drawn([source], ids=[index], samples=3)[0]) == together[index]
        assert plain(drawn([source], ids=[index], samples=2)[0]) == together[index][:2]


def test_the_seed_decides():
    assert drawn(BATCH, seed=1) == drawn(BATCH, seed=1)
    assert drawn(BATCH, seed=1) != drawn(BATCH, seed=2)


def test_log_probabilities_are_the_models_own_whatever_was_drawn_from():
    toy = Historical()
    config = DecodeConfig(temperature=3.0, top_k=4, samples=2, max_len=15)
    first = torch.zeros(len(BATCH), dtype=torch.long)
    for samples in sample(toy, toy.start(BATCH), first, eos=EOS, config=config):
        for one in samples:
            chosen = one.tokens + [EOS] * one.finished
            read = [toy.answers[step][row, chosen[step]].item() for step, row in enumerate(one.rows)]
            assert one.token_log_probs == read
            assert one.log_prob == pytest.approx(sum(read))


def test_from_only_the_likeliest_a_draw_is_greedy():
    toy = Historical()
    wanted = greedy(toy, toy.start(BATCH), torch.zeros(len(BATCH), dtype=torch.long), eos=EOS, config=DecodeConfig())
    for settings in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-4}):
        assert [one.tokens for [one] in drawn(BATCH, max_len=256, **settings)] == [one.tokens for one in wanted]


def test_a_row_that_can_choose_nothing_ends_unfinished():
    table = torch.tensor([[0.0, 0.0, 1.0], [1 / 3] * 3, [0.0, 0.0, 0.0]]).log()[None]
    for settings in ({}, {"top_k": 2}, {"top_p": 0.5}):
        config = DecodeConfig(temperature=1.0, **settings)
        [[one]] = sample(Markov(), Markov().start(table), torch.tensor([0]), eos=EOS, config=config)
        assert (one.tokens, one.finished) == ([2], False)


def test_one_call_searches_as_its_settings_say():
    toy, first = Historical(), torch.zeros(len(BATCH), dtype=torch.long)

    def found(**settings):
        return search(toy, toy.start(BATCH), first, eos=EOS, config=DecodeConfig(max_len=15, **settings))

    assert [plain(samples) for samples in found(temperature=1.0, samples=2)] == [
        plain(samples) for samples in drawn(BATCH, samples=2)
    ]
    by_choice = greedy(toy, toy.start(BATCH), first, eos=EOS, config=DecodeConfig(max_len=15))
    assert [one.tokens for [one] in found(beam=1)] == [one.tokens for one in by_choice]
    assert all(len(hypotheses) == 3 for hypotheses in found(beam=4, top_beams=3))


def test_all_of_the_probability_is_no_rule():
    assert plain(one for [one] in drawn(BATCH, top_p=1.0)) == plain(one for [one] in drawn(BATCH))


def test_without_a_temperature_choices_are_drawn_as_they_are():
    assert [plain(of) for of in drawn(BATCH, temperature=None)] == [plain(of) for of in drawn(BATCH)]


def test_every_sample_of_a_source_is_held_to_that_sources_length():
    config = DecodeConfig(temperature=1.0, samples=3, max_len=9, min_len=3, force_end=True)
    first, lengths = torch.zeros(2, dtype=torch.long), torch.tensor([4, 9])
    short, long = sample(Historical(), Historical().start([3, 14]), first, eos=EOS, config=config, max_len=lengths)
    assert [(len(one.tokens), one.finished) for one in short] == [(3, True)] * 3
    assert all(one.finished and len(one.tokens) <= 8 for one in long)
    assert max(len(one.tokens) for one in long) > 3
