"""Words that can take each other's place: which are found, which are not, and what is made of a corpus with them."""

import random
from collections.abc import Iterator

import pytest

from regard.data.lexical_swaps import LEAST_SEEN, Partners, SwappedCorpus, describe_swaps, find_swaps
from regard.data.synthetic.commands import commands


class Listed:
    def __init__(self, *pairs: tuple[str, str]) -> None:
        self.pairs = pairs

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def digest(self) -> str:
        return str(hash(self.pairs))


def colours(meaning=None, count: int = 400) -> list[tuple[str, str]]:
    """`red box twice` is `RED RED`, of three colours; `meaning` may tell one of them otherwise."""
    random_ = random.Random(1)
    found: dict[str, str] = {}
    for _ in range(count):
        words, actions = [], []
        for _ in range(random_.randint(1, 3)):
            colour, times = random_.choice(("red", "blue", "green")), random_.choice((1, 2))
            words += [colour, "box"] + ["twice"] * (times == 2)
            actions += [colour.upper()] * times
        source = " ".join(words)
        found[source] = meaning(source, actions) if meaning else " ".join(actions)
    return list(found.items())


def test_words_that_differ_by_name_alone_are_found():
    (group,) = find_swaps(colours())
    assert group == (Partners("blue", "BLUE"), Partners("green", "GREEN"), Partners("red", "RED"))
    assert describe_swaps([group]) == "blue (BLUE), green (GREEN), red (RED)"


def test_a_word_that_means_something_else_anywhere_is_not_exchanged():
    def green_counts_more(source: str, actions: list[str]) -> str:
        return " ".join(action for action in actions for _ in range(2 if action == "GREEN" else 1))

    (group,) = find_swaps(colours(green_counts_more))
    assert [one.source for one in group] == ["blue", "red"]


def test_a_word_whose_partner_also_comes_otherwise_is_not_exchanged():
    (group,) = find_swaps([*colours(), ("a crimson one", "RED"), ("a crimson pair", "RED RED")])
    assert [one.source for one in group] == ["blue", "green"]


def test_few_pairs_that_agree_are_not_enough():
    few = [(f"{colour} {word}", f"{colour.upper()} {word}") for colour in ("red", "blue") for word in "abcdefgh"]
    assert len(few) < LEAST_SEEN * 2
    assert find_swaps(few) == []


@pytest.mark.parametrize(
    "pairs",
    [
        [*colours(), ("red box", "SOMETHING ELSE")],  # two targets: no rule
        [(f"w{number} here", f"W{number} HERE") for number in range(3000)],  # no closed notation
        [],
    ],
)
def test_nothing_is_found_where_there_is_no_rule(pairs):
    assert find_swaps(pairs) == []


def test_of_the_bundled_commands_the_verbs_are_found():
    pairs = [(source, target) for _, source, target in commands({"train": 4000})]
    (group,) = find_swaps(pairs)
    assert [one.source for one in group] == ["dig", "hop", "rest", "sing", "walk", "wave"]


def test_exchanged_pairs_keep_the_rule_and_are_the_same_each_time():
    pairs = colours(count=60)
    groups = tuple(find_swaps(colours()))
    whole, first = (SwappedCorpus(Listed(*pairs), groups, way) for way in (0, 1))
    assert list(whole) == pairs
    assert whole.digest() == Listed(*pairs).digest()
    exchanged = list(first)
    assert exchanged == list(first)
    assert exchanged != pairs
    assert first.digest() not in (whole.digest(), SwappedCorpus(Listed(*pairs), groups, 2).digest())
    known = dict(colours(count=20_000))
    for (source, target), (before, _) in zip(exchanged, pairs, strict=True):
        assert [word in ("box", "twice") for word in source.split()] == [w in ("box", "twice") for w in before.split()]
        assert known[source] == target
