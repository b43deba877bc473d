"""Every option of a search against all outputs there are, written down: a tiny vocabulary, a beam that prunes nothing.

And the same result whatever batch a source was in.
"""

import functools
import itertools
import json
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from decode_toys import EOS, Historical, ToyState, one_at_a_time
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import from_mapping, to_mapping
from regard.decode.bayes_risk import least_risk
from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.decode.ensemble import EnsembleStepper
from regard.decode.greedy import greedy
from regard.decode.sample import sample
from regard.decode.score import forced_log_probs
from regard.decode.search import search
from regard.errors import ConfigError

CHOICES, LONGEST, WIDE, FIRST = 4, 4, 128, 0
OTHERS = [token for token in range(CHOICES) if token != EOS]
repeatable = settings(deadline=None, derandomize=True, max_examples=8)
seeds = st.integers(0, 10_000)


@dataclass
class LookingState(ToyState):
    """A state that tells where its rows attended: a function of their past."""

    looked: torch.Tensor | None = None

    def select(self, rows, sources=None):
        return LookingState(**vars(super().select(rows, sources)))

    def attention(self):
        return self.looked

    def readable(self):
        return torch.arange(3) < (self.memory % 2 + 2)[:, None]


class Looking(Historical):
    """Attends to two or three source positions, an odd number of a source having three."""

    def start(self, batch):
        return LookingState(**vars(super().start(batch)))

    def step(self, choices, state):
        log_probs, after = super().step(choices, state)
        memory = state.memory.repeat_interleave(state.group, 0)
        looked = [attended(source, past) for source, past in zip(memory.tolist(), after.past.tolist(), strict=True)]
        return log_probs, LookingState(after.memory, after.past, torch.tensor(looked))


def attended(source, past):
    """Where the step after `past` attends: sums to one over the source's own positions."""
    length = source % 2 + 2
    scores = np.random.default_rng([source, *past]).random(length) ** 3
    return [*(scores / scores.sum()), *[0.0] * (3 - length)]


def coverage(source, choices):
    """The sum over positions of log(min(attention, 1)), the end's step counted."""
    past = [FIRST, *choices]
    rows = [attended(source, past[: step + 1]) for step in range(len(choices))]
    paid = np.minimum(np.sum(rows, 0)[: source % 2 + 2], 1.0)
    return float(np.log(paid).sum())


def outputs(toys, source, max_len=LONGEST):
    """(tokens, log-probability of each choice, finished) of every output, by the mean of the models' probabilities."""

    @functools.cache
    def following(prefix):
        found = [one_at_a_time(toy, source, prefix, FIRST).astype(np.float64) for toy in toys]
        return np.log(np.mean(np.exp(found), 0))

    for length in range(max_len + 1):
        for tokens in itertools.product(OTHERS, repeat=length):
            paid = [following(tokens[:place])[token] for place, token in enumerate(tokens)]
            if length < max_len:
                yield tokens, [*paid, following(tokens)[EOS]], True
            else:
                yield tokens, paid, False


def has(tokens, phrase):
    return any(tokens[start : start + len(phrase)] == phrase for start in range(len(tokens) - len(phrase) + 1))


def wanted(toys, source, config, count):
    """What the settings ask for, by their definitions: [(tokens, score, finished)]."""
    found = []
    forced = [*([] if config.force_first is None else [config.force_first]), *config.prefix]
    for tokens, paid, finished in outputs(toys, source, config.max_len):
        if list(tokens[: len(forced)]) != forced[: len(tokens)] or (finished and len(tokens) < len(forced)):
            continue
        grams = [tokens[start : start + config.no_repeat] for start in range(len(tokens) - config.no_repeat + 1)]
        if config.no_repeat and len(set(grams)) < len(grams):
            continue
        if set(tokens) & set(config.forbid) or any(has(tokens, phrase) for phrase in config.forbid_phrases):
            continue
        if finished and len(tokens) < config.min_len:
            continue
        if finished and not all(any(has(tokens, way) for way in ways) for ways in config.require):
            continue
        if config.force_end:
            if not finished:
                continue
            paid[-1] = 0.0 if len(paid) == config.max_len else paid[-1]  # there was no choice
        total = sum(paid[len(forced) :])
        score = config.score(total, len(paid))
        if config.coverage_penalty:
            score += config.coverage_penalty * coverage(source, [*tokens, EOS][: len(paid)])
        found.append((tokens, score, finished))
    return sorted(found, key=lambda one: (not one[2], -one[1]))[:count]


def searched(toys, batch, config, **arguments):
    stepper = toys[0] if len(toys) == 1 else EnsembleStepper(toys)
    first = torch.full((len(batch),), FIRST)
    return beam_search(stepper, stepper.start(batch), first, eos=EOS, config=config, **arguments)


def check(found, asked):
    assert [(tuple(one.tokens), one.finished) for one in found] == [(one[0], one[2]) for one in asked]
    assert [one.score for one in found] == pytest.approx([one[1] for one in asked], rel=1e-4, abs=1e-5)


OPTIONS = {
    "plain": {},
    "length penalty": {"length_penalty": 1.5, "length_form": "power"},
    "no length penalty": {"length_penalty": 0.0},
    "min_len": {"min_len": 2},
    "max_len": {"max_len": 3},
    "n-gram blocking": {"no_repeat": 1},
    "bigram blocking": {"no_repeat": 2},
    "forbidden token": {"forbid": (2,)},
    "forbidden phrases": {"forbid_phrases": ((0, 2), (3,))},
    "prefix": {"prefix": (2, 0)},
    "prefix after a forced token": {"prefix": (2,), "force_first": 3},
    "required": {"require": (((2, 3),),)},
    "required twice": {"require": (((2, 3),), ((3, 0),))},
    "required one way or another": {"require": (((2, 3), (0,)),)},
    "required and forbidden": {"require": (((2,),),), "forbid_phrases": ((2, 2), (0,))},
    "required after a prefix": {"require": (((0, 0),),), "prefix": (3,)},
    "required from itself": {"require": (((2, 0, 2),), ((0, 2, 0), (3, 3)))},
    "required where ends are forced": {"require": (((2, 3),),), "force_end": True},
    "coverage": {"coverage_penalty": 0.7},
    "coverage and length penalty": {"coverage_penalty": 2.0, "length_penalty": 1.0, "min_len": 1},
    "coverage of required phrases": {"coverage_penalty": 0.3, "require": (((2,),),)},
}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_wide_beam_finds_the_best_of_all_outputs_in_order(options, exact):
    for seed in (1, 2):
        config = DecodeConfig(**{"beam": WIDE, "top_beams": 12, "max_len": LONGEST, "exact": exact, **options})
        toy, batch = Looking(CHOICES, seed, 1.0), [5, 8]
        for source, found in zip(batch, searched([toy], batch, config), strict=True):
            check(found, wanted([toy], source, config, 12))


@pytest.mark.parametrize("options", [{}, {"require": (((2, 3),),)}, {"no_repeat": 1, "prefix": (2,)}])
def test_an_ensemble_searches_by_the_mean_of_probabilities(options):
    config = DecodeConfig(beam=WIDE, top_beams=12, max_len=LONGEST, **options)
    toys, batch = [Historical(CHOICES, seed, 1.5) for seed in (1, 2, 3)], [5, 8]
    for source, found in zip(batch, searched(toys, batch, config), strict=True):
        check(found, wanted(toys, source, config, 12))
    alone = searched(toys[:1] * 3, batch, config)
    for found, one in zip(alone, searched(toys[:1], batch, config), strict=True):
        assert [each.tokens for each in found] == [each.tokens for each in one]


def test_an_ensemble_refuses_members_of_unequal_choices():
    toys = [Historical(4), Historical(5)]
    with pytest.raises(Exception, match="have 4, 5 choices"):
        searched(toys, [5], DecodeConfig())


@pytest.mark.parametrize("members", [1, 3])
def test_given_outputs_have_the_probability_of_their_tokens(members):
    toys = [Historical(CHOICES, seed) for seed in range(members)]
    stepper, source = EnsembleStepper(toys) if members > 1 else toys[0], 8
    every = list(outputs(toys, source, 3))
    targets = [[*tokens, *[EOS] * finished] for tokens, _, finished in every]
    first = torch.full((len(targets),), FIRST)
    found = forced_log_probs(stepper, stepper.start([source] * len(targets)), first, targets)
    for scored, (_, paid, _) in zip(found, every, strict=True):
        assert scored == pytest.approx(paid, abs=1e-5)
    assert sum(math.exp(sum(scored)) for scored in found) == pytest.approx(1.0, abs=1e-5)


def test_the_score_of_what_was_found_is_what_it_was_found_with():
    toy, batch = Historical(6), [3, 14, 15, 92]
    best = [found[0] for found in searched([toy], batch, DecodeConfig(beam=3, max_len=12))]
    targets = [[*one.tokens, *[EOS] * one.finished] for one in best]
    again = forced_log_probs(toy, toy.start(batch), torch.full((4,), FIRST), targets)
    assert [sum(row) for row in again] == pytest.approx([one.log_prob for one in best], abs=1e-5)


@repeatable
@given(seed=seeds, beam=st.integers(2, 6), source=st.integers(0, 210), length=st.integers(1, 3))
def test_however_narrow_the_beam_a_finished_output_has_every_required_phrase(seed, beam, source, length):
    dice = np.random.default_rng(seed)
    phrases = tuple((tuple(dice.choice([0, 2, 3, 4, 5, 6], length).tolist()),) for _ in range(2))
    config = DecodeConfig(beam=beam, max_len=16, require=phrases)
    [best] = searched([Historical(7, seed)], [source], config)
    assert best[0].finished, "there was room for it"
    assert all(has(tuple(best[0].tokens), way) for (way,) in phrases)


def test_banks_find_likelier_outputs_than_writing_the_phrase_at_once():
    wins = 0
    for source in range(20):
        toy, phrase = Historical(7, 3), (4, 5)
        config = DecodeConfig(beam=6, max_len=12, require=((phrase,),), length_penalty=0.0)
        [[best]] = searched([toy], [source], config)
        [[at_once]] = searched([toy], [source], DecodeConfig(beam=6, max_len=12, length_penalty=0.0, prefix=phrase))
        paid = one_at_a_time(toy, source, (), FIRST)[4] + one_at_a_time(toy, source, (4,), FIRST)[5]
        assert best.log_prob >= at_once.log_prob + paid - 1e-4 or best.tokens[:2] != list(phrase)
        wins += best.log_prob > at_once.log_prob + paid + 1e-4
    assert wins > 5


def reference_groups(toy, source, config):
    """Diverse beam search by its definition, for one source: what each group finished and what it left live."""
    each = config.beam // config.beam_groups
    groups = [[((), 0.0, 0.0)] for _ in range(config.beam_groups)]
    finished = [[] for _ in groups]
    for length in range(1, config.max_len + 1):
        made = np.zeros(toy.table.shape[1])
        for number, live in enumerate(groups):
            candidates = []
            for prefix, total, lost in live:
                log_probs = one_at_a_time(toy, source, prefix, FIRST)
                candidates += [
                    ((*prefix, token), total + log_prob, lost + config.diversity_penalty * made[token])
                    for token, log_prob in enumerate(log_probs.tolist())
                ]
            candidates.sort(key=lambda one: -(one[1] - one[2]))
            for tokens, total, _ in candidates[:each]:
                if tokens[-1] == EOS:
                    finished[number].append((tokens[:-1], config.score(total, length)))
            groups[number] = [one for one in candidates[: 2 * each] if one[0][-1] != EOS][:each]
            for tokens, _, _ in groups[number]:
                made[tokens[-1]] += 1
    best = [one for found in finished for one in sorted(found, key=lambda one: -one[1])[:each]]
    return sorted(dict(sorted(best, key=lambda one: one[1])).items(), key=lambda one: -one[1])


@repeatable
@given(seed=seeds, source=st.integers(0, 210), shape=st.sampled_from([(2, 2), (3, 1), (2, 3)]))
def test_groups_find_what_their_definition_finds(seed, source, shape):
    groups, each = shape
    config = DecodeConfig(
        beam=groups * each, top_beams=groups * each, beam_groups=groups, diversity_penalty=0.8, max_len=6, exact=True
    )
    toy = Historical(6, seed, 1.5)
    [found] = searched([toy], [source], config)
    asked = reference_groups(toy, source, config)[: config.beam]
    ended = [one for one in found if one.finished]
    assert [tuple(one.tokens) for one in ended] == [tokens for tokens, _ in asked]
    assert [one.score for one in ended] == pytest.approx([score for _, score in asked], abs=1e-4)
    for one in ended:
        assert one.score == pytest.approx(config.score(one.log_prob, len(one.tokens) + 1), abs=1e-5)


def test_a_great_penalty_lets_no_two_groups_choose_alike_and_the_first_is_a_beam_of_its_own():
    toy, batch = Historical(9, 4, 1.0), list(range(20))
    never = {"beam": 4, "top_beams": 4, "max_len": 5, "forbid": (EOS,)}
    config = DecodeConfig(**never, beam_groups=4, diversity_penalty=1000.0)
    greedily = greedy(toy, toy.start(batch), torch.full((20,), FIRST), eos=EOS, config=config.greedy())
    for found, one in zip(searched([toy], batch, config), greedily, strict=True):
        assert len(found) == 4
        for column in zip(*(each.tokens for each in found), strict=True):
            assert len(set(column)) == len(column)
        assert one.tokens in [each.tokens for each in found]
    plain = searched([toy], batch, DecodeConfig(**never))
    assert any(len({one.tokens[0] for one in found}) < 4 for found in plain)


EVERYWHERE = {
    **{name: options for name, options in OPTIONS.items() if name not in ("max_len", "plain")},
    "groups": {"beam": 6, "beam_groups": 3, "diversity_penalty": 0.7},
    "greedy": {"beam": 1, "no_repeat": 1},
    "sampled": {"temperature": 1.0, "samples": 3, "min_p": 0.05},
}


@pytest.mark.parametrize("options", EVERYWHERE.values(), ids=EVERYWHERE)
@settings(deadline=None, derandomize=True, max_examples=5)
@given(source=st.integers(0, 210), neighbours=st.lists(st.integers(0, 210), max_size=12), place=st.integers(0, 12))
def test_a_source_finds_the_same_whatever_it_is_batched_with(options, source, neighbours, place):
    config = DecodeConfig(**{"beam": 3, "max_len": 8, **options})
    if not config.sampled and config.beam > 1:
        config = replace(config, top_beams=config.beam)
    batch = [*neighbours[:place], source, *neighbours[place:]]

    def found(batch, ids):
        toy = Looking(CHOICES, 7, 1.5)
        first = torch.full((len(batch),), FIRST)
        best = search(toy, toy.start(batch), first, eos=EOS, config=config, ids=ids)
        return [[(one.tokens, one.score, one.log_prob, one.finished) for one in each] for each in best]

    where = min(place, len(neighbours))
    ids = [index + 100 for index in range(len(batch))]
    assert found(batch, ids)[where] == found([source], [ids[where]])[0]


def test_without_attention_a_coverage_penalty_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"coverage_penalty=0.2 needs a model whose steps attend .* ToyState"):
        searched([Historical()], [5], DecodeConfig(coverage_penalty=0.2))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"min_p": 0.1}, "min_p=0.1 needs a temperature"),
        ({"min_p": 1.5, "temperature": 1.0}, "min_p=1.5 must be from 0 to 1"),
        ({"beam": 1, "coverage_penalty": 0.2}, "coverage_penalty=0.2 needs beam search"),
        ({"coverage_penalty": -0.2}, "coverage_penalty=-0.2 must be 0 or more"),
        ({"coverage_penalty": 11.0}, "coverage_penalty=11.0 must be at most 10"),
        ({"temperature": 1.0, "require": (((2,),),)}, "require=... needs beam search"),
        ({"beam": 1, "require": (((2,),),)}, "require=... needs beam search"),
        ({"require": ((),)}, "require has a phrase without tokens"),
        ({"require": (((),),)}, r"require has \[\]; a phrase is one or more"),
        ({"forbid_phrases": ((2, -1),)}, r"forbid_phrases has \[2, -1\]; a phrase"),
        ({"prefix": (-1,)}, r"prefix=\[-1\] must be tokens' numbers"),
        ({"beam_groups": 2, "diversity_penalty": 0.5}, "beam=5 must be a multiple of beam_groups=2"),
        ({"beam_groups": 5}, "beam_groups=5 and diversity_penalty=0.0 need each other"),
        ({"diversity_penalty": 0.5}, "beam_groups=1 and diversity_penalty=0.5 need each other"),
        ({"beam_groups": 0, "diversity_penalty": 0.5}, "beam_groups=0 must be at least 1"),
        ({"beam_groups": 5, "diversity_penalty": 1.0, "require": (((2,),),)}, "cannot be searched with required"),
        ({"mbr": 1}, "mbr=1 must be 0, or at least 2 samples"),
        ({"mbr": 8, "samples": 2}, "mbr=8 says how many are sampled"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options, said):
    with pytest.raises(ConfigError, match=said):
        DecodeConfig(**options)


def test_settings_are_written_and_read_again():
    config = DecodeConfig(require=(((2, 3), (4,)),), forbid_phrases=((1, 2), (3,)), prefix=(4, 5), coverage_penalty=0.2)
    again = from_mapping(DecodeConfig, json.loads(json.dumps(to_mapping(config))))
    assert again == config
    assert hash(again) == hash(config)


def test_a_search_over_tokens_has_no_texts_to_compare():
    toy = Historical()
    with pytest.raises(ConfigError, match="mbr=4 compares texts"):
        search(toy, toy.start([5]), torch.tensor([FIRST]), eos=EOS, config=DecodeConfig(mbr=4))


def test_the_least_risk_is_that_of_the_greatest_mean_utility():
    texts = ["a", "b", "a", "c", "b", "a"]
    values = {("a", "b"): 0.5, ("b", "a"): 0.4, ("c", "a"): 0.9, ("c", "b"): 0.8}
    ranked = least_risk(texts, lambda one, other: 1.0 if one == other else values.get((one, other), 0.0))
    assert [place for place, _ in ranked] == [3, 0, 1]
    assert [value for _, value in ranked] == pytest.approx([(2.7 + 1.6 + 1) / 6, (3 + 1) / 6, (1.2 + 2) / 6])


def test_a_prefix_costs_nothing_and_counts_in_the_length():
    toy = Historical(6)
    [[one]] = searched([toy], [5], DecodeConfig(beam=3, prefix=(4, 2), max_len=10))
    assert one.tokens[:2] == [4, 2]
    assert one.token_log_probs[:2] == [0.0, 0.0]
    assert one.score == pytest.approx(DecodeConfig().score(one.log_prob, len(one.tokens) + 1))
    for options in ({"beam": 1}, {"temperature": 1.0}):
        config = DecodeConfig(**options, prefix=(4, 2), forbid_phrases=((4, 2, 3), (5,)), max_len=10)
        [[one]] = search(toy, toy.start([5]), torch.tensor([FIRST]), eos=EOS, config=config)
        assert one.tokens[:2] == [4, 2]
        assert not has(tuple(one.tokens), (4, 2, 3))
        assert 5 not in one.tokens
    with pytest.raises(ConfigError, match="prefix has token 6, which is not among the 6 choices"):
        searched([toy], [5], DecodeConfig(prefix=(6,)))


def test_samples_under_rules_are_the_outputs_that_keep_them():
    toy = Historical(CHOICES, 1, 1.0)
    config = DecodeConfig(temperature=1.0, samples=50, max_len=LONGEST, forbid_phrases=((0, 2),), no_repeat=2)
    [found] = sample(toy, toy.start([5]), torch.tensor([FIRST]), eos=EOS, config=config)
    allowed = {(tokens, finished) for tokens, _, finished in wanted([toy], 5, config, None)}
    assert {(tuple(one.tokens), one.finished) for one in found} <= allowed
