"""Rules that the settings of a search ask for: never, first, last, and nothing twice."""

import numpy as np
import pytest
import torch

from regard.decode.config import DecodeConfig
from regard.decode.constraints import Prefix, no_repeats, repetition, rules
from regard.decode.search import search
from regard.errors import ConfigError

EOS, CHOICES = 0, 7


class Favourites:
    """Prefers 5, then 4 and so on, whatever came before; would hardly ever end."""

    def start(self, batch):
        return self

    def select(self, rows, sources=None):
        return self

    def step(self, choices, state):
        scores = torch.arange(float(CHOICES)).expand(len(choices), CHOICES).clone()
        return scores.log_softmax(-1), state


def outputs(**settings):
    config = DecodeConfig(max_len=6, max_ratio=None, **settings)
    found = search(Favourites(), Favourites(), torch.zeros(2, dtype=torch.long), eos=EOS, config=config)
    return [one for hypotheses in found for one in hypotheses]


@pytest.mark.parametrize("how", [{"beam": 1}, {"beam": 3}, {"beam": 1, "temperature": 0.1, "samples": 2}])
def test_each_rule_holds_however_outputs_are_searched_for(how):
    assert all(6 in one.tokens for one in outputs(**how))
    assert not any({5, 6} & {*one.tokens} for one in outputs(**how, forbid=(5, 6)))
    assert all(one.tokens[0] == 2 for one in outputs(**how, force_first=2))
    for one in outputs(**how, force_end=True):
        assert one.finished
        assert len(one.tokens) <= 5
    for one in outputs(**how, no_repeat=1):
        assert len({*one.tokens}) == len(one.tokens)
    for one in outputs(**how, no_repeat=2):
        pairs = list(zip(one.tokens, one.tokens[1:], strict=False))
        assert len({*pairs}) == len(pairs)


def test_an_end_that_is_forced_costs_nothing():
    [one, _] = outputs(beam=1, force_end=True)
    assert one.tokens == [6] * 5
    assert one.token_log_probs[-1] == 0


def test_only_what_would_repeat_a_run_is_ruled_out():
    tokens = torch.tensor([[1, 2, 3, 1, 2], [1, 2, 1, 3, 3]])
    prefix = Prefix(5, tokens, torch.arange(2))
    changed = no_repeats(3)(torch.zeros(2, CHOICES), prefix)
    assert changed.isinf().nonzero().tolist() == [[0, 3]]
    changed = no_repeats(2)(torch.zeros(2, CHOICES), prefix)
    assert changed.isinf().nonzero().tolist() == [[0, 3], [1, 3]]


def test_nothing_asked_for_is_no_rule():
    assert rules(DecodeConfig(), EOS, np.array([3])) == []
    for name, value in (("forbid", (-1,)), ("force_first", -1), ("no_repeat", -1)):
        with pytest.raises(ConfigError, match=f"{name}="):
            DecodeConfig(**{name: value})


def test_what_a_row_or_its_prompt_has_had_is_made_less_likely():
    rule = repetition(2.0, [[4, 5], [6]])
    log_probs = torch.full((3, CHOICES), -1.0)
    tokens, sources = torch.tensor([[1], [1], [4]]), torch.tensor([0, 0, 1])
    found = rule(log_probs, Prefix(1, tokens, sources))
    assert [set((row == -2.0).nonzero()[:, 0].tolist()) for row in found] == [{1, 4, 5}, {1, 4, 5}, {4, 6}]
    assert set(found.unique().tolist()) == {-2.0, -1.0}


@pytest.mark.parametrize("how", [{"beam": 1}, {"beam": 3}, {"beam": 1, "temperature": 0.1, "samples": 2}])
def test_a_token_that_is_not_there_is_never_chosen_and_cannot_be_first(how):
    assert outputs(**how, forbid=(CHOICES, 5)) == outputs(**how, forbid=(5,))
    with pytest.raises(ConfigError, match=f"force_first={CHOICES} is not among the {CHOICES} choices"):
        outputs(**how, force_first=CHOICES)
