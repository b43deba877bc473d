"""Words that can take each other's place: pairs of a rule, told anew with other words.

Where `walk` becomes `WALK` and `hop` becomes `HOP`, and nothing else tells the two apart, `hop left and walk` is as
much a pair as `walk left and hop`. Such symmetries of a rule are found in its pairs, and pairs with words exchanged
teach what does not depend on the word (lexical symmetry: Akyürek and Andreas 2023).
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

from regard.data.readers import Corpus

MOST_WORDS = 2000
"""Of each side: what has more is no closed notation."""
MOST_PARTNERS = 64
"""Words with a partner that are compared with one another at the most, the most frequent ones."""
LEAST_SEEN = 20
"""How many pairs must be there with both words exchanged, and agree, for two words to be taken for alike."""
MOST_READ = 100_000
"""Pairs that are looked at."""
MOST_COMPARED = 2000
"""Of them those with a word that are looked for with another in its place."""


@dataclass(frozen=True, slots=True)
class Partners:
    """A word of the source and the one of the target that is there exactly when it is."""

    source: str
    target: str


Group = tuple[Partners, ...]
"""Partners any two of which can be exchanged, in both texts of any pair."""


def find_swaps(pairs: Iterable[tuple[str, str]]) -> list[Group]:
    """The groups of words that can be exchanged, as far as the pairs show it.

    A word has a partner where no pair has the one without the other. Two words with partners can be exchanged where
    pairs are there both ways, `LEAST_SEEN` of them, and none disagrees: an exchanged source that is in the data has the
    exchanged target.
    """
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    for number, (source, target) in enumerate(pairs):
        if number == MOST_READ:
            break
        words, others = tuple(source.split()), tuple(target.split())
        if known.setdefault(words, others) != others:
            return []  # no rule: a source has several targets
    partners = _partners(known)
    rows_with = _rows_with({one.source for one in partners}, known)
    seen = {frozenset(two): _agreeing(*two, known, rows_with[two[0].source]) for two in combinations(partners, 2)}
    groups = [{one} for one in partners]
    for first, second in combinations(partners, 2):
        ours, theirs = (next(group for group in groups if one in group) for one in (first, second))
        if ours is theirs or (seen[frozenset((first, second))] or 0) < LEAST_SEEN:
            continue
        # Whoever can be exchanged with one of a group can be with all of it, unless some pair says otherwise.
        if all(seen[frozenset((one, other))] is not None for one in ours for other in theirs):
            groups.remove(theirs)
            ours |= theirs
    return [tuple(sorted(group, key=lambda one: one.source)) for group in groups if len(group) > 1]


def _rows_with(
    wanted: set[str], known: Mapping[tuple[str, ...], tuple[str, ...]]
) -> Mapping[str, Sequence[tuple[str, ...]]]:
    """The sources that have each of these words: the shortest, which are the likeliest to be there exchanged too."""
    found: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for words in sorted(known, key=len):
        for word in wanted.intersection(words):
            if len(found[word]) < MOST_COMPARED:
                found[word].append(words)
    return found


def _partners(known: Mapping[tuple[str, ...], tuple[str, ...]]) -> list[Partners]:
    """The words that come with one word of the other side alone, the most frequent first."""
    ours, theirs, both = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for words, others in known.items():
        here, there = set(words), set(others)
        ours.update(here)
        theirs.update(there)
        if max(len(ours), len(theirs)) > MOST_WORDS:
            return []
        both.update((word, other) for word in here for other in there)
    found = [pair for pair, count in both.items() if count == ours[pair[0]] == theirs[pair[1]]]
    # Two words that always come together have two candidates each, and none can be told to be the partner.
    times = Counter(word for pair in found for word in (("source", pair[0]), ("target", pair[1])))
    alone = [pair for pair in found if times["source", pair[0]] == times["target", pair[1]] == 1]
    alone.sort(key=lambda pair: (-ours[pair[0]], pair[0]))
    return [Partners(*pair) for pair in alone[:MOST_PARTNERS]]


def _agreeing(
    first: Partners,
    second: Partners,
    known: Mapping[tuple[str, ...], tuple[str, ...]],
    rows: Sequence[tuple[str, ...]],
) -> int | None:
    """How many of these sources are also there with the two words exchanged; None where a target disagrees."""
    sources, targets = _exchange([first, second], [second, first])
    agreeing = 0
    for words in rows:
        found = known.get(tuple(sources.get(word, word) for word in words))
        if found is None:
            continue
        if found != tuple(targets.get(word, word) for word in known[words]):
            return None
        agreeing += 1
    return agreeing


def _exchange(group: Sequence[Partners], order: Sequence[Partners]) -> tuple[dict[str, str], dict[str, str]]:
    """What each word becomes, of the source and of the target."""
    both = list(zip(group, order, strict=True))
    return {one.source: other.source for one, other in both}, {one.target: other.target for one, other in both}


@dataclass(frozen=True)
class SwappedCorpus:
    """A corpus with the words of each group exchanged in every pair, in an order that its number and `variant` give.

    Variant 0 is the corpus as it is.
    """

    corpus: Corpus
    groups: tuple[Group, ...]
    variant: int

    def __iter__(self) -> Iterator[tuple[str, str]]:
        if not self.variant:
            yield from self.corpus
            return
        for number, (source, target) in enumerate(self.corpus):
            random = Random(self.variant * 1_000_003 + number)
            sources, targets = dict[str, str](), dict[str, str]()
            for group in self.groups:
                ours, theirs = _exchange(group, random.sample(group, len(group)))
                sources |= ours
                targets |= theirs
            yield (
                " ".join(sources.get(word, word) for word in source.split()),
                " ".join(targets.get(word, word) for word in target.split()),
            )

    def digest(self) -> str:
        if not self.variant:
            return self.corpus.digest()
        told = repr((self.corpus.digest(), self.groups, self.variant))
        return hashlib.sha256(told.encode()).hexdigest()


def describe_swaps(groups: Sequence[Group]) -> str:
    """One line for a person: which words are exchanged."""
    parts = []
    for group in groups:
        shown = [f"{one.source} ({one.target})" for one in group[:8]]
        parts.append(", ".join(shown) + (f" and {len(group) - 8:,} more" if len(group) > 8 else ""))
    return "; ".join(parts)
