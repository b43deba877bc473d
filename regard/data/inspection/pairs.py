"""A look at pairs of texts: what they are like, and what may be wrong with them."""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from regard.data.inspection.findings import (
    NUMBER,
    Finding,
    OddRows,
    names_column,
    other_distribution,
    share,
    text_findings,
    there_are,
)
from regard.data.inspection.texts import EvenSample, SideStatistics, side_statistics, words_of
from regard.data.lexical_swaps import Group, find_swaps
from regard.data.readers import folded

FIRST_ROWS = 2000
"""Rows at the beginning in which lines that are shifted are looked for."""

FEW_PAIRS = 1000
LONG_RATIO = 5.0
"""Times as many words on one side as is usual, above which a pair is odd."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairStatistics:
    """What pairs of texts are like, and what may be wrong with them."""

    rows: int
    source: SideStatistics
    target: SideStatistics
    ratio: float
    """Target words per source word."""
    sources: int
    """Distinct sources, case and spaces aside."""
    pairs: int = 0
    """Distinct pairs, likewise."""
    most_words: tuple[int, int] = (0, 0)
    """Of a source and of a target, of all rows; characters likewise."""
    most_characters: tuple[int, int] = (0, 0)
    valid_rows: int = 0
    findings: tuple[Finding, ...] = ()
    swaps: tuple[Group, ...] = ()
    """Of pairs that follow a rule, the words that can take each other's place."""

    @property
    def words(self) -> int:
        """Of both sides of all rows."""
        sample = max(1, self.source.texts)
        return round((self.source.words + self.target.words) / sample * self.rows)

    @property
    def rule(self) -> bool:
        """Whether targets follow from sources by a rule: both are closed notations, and a source has one target."""
        return self.source.closed and self.target.closed and self.pairs <= 1.001 * self.sources


class _Seen:
    """Which pairs and sources there were, by hash: eight bytes each, whatever the length of the texts."""

    def __init__(self) -> None:
        self._pairs, self._sources, self._rows = array("q"), array("q"), array("q")
        self._target: int | None = None
        self.one_target = True

    def add(self, number: int, source: str, target: str) -> None:
        source, target = folded(source), folded(target)
        ours, theirs = hash(source), hash(target)
        self._sources.append(ours)
        self._pairs.append(hash((ours, theirs)))
        self._rows.append(number)
        if self._target is None:
            self._target = theirs
        elif self.one_target and theirs != self._target:
            self.one_target = False

    @cached_property
    def pairs(self) -> np.ndarray:
        return np.unique(np.frombuffer(self._pairs, dtype=np.int64))

    @cached_property
    def sources(self) -> np.ndarray:
        return np.unique(np.frombuffer(self._sources, dtype=np.int64))

    @property
    def repeated(self) -> int:
        """How many rows are a pair that was there before."""
        return len(self._pairs) - len(self.pairs)

    def first_repeated(self) -> int:
        """The row of the first of them."""
        _, first = np.unique(np.frombuffer(self._pairs, dtype=np.int64), return_index=True)
        again = np.ones(len(self._pairs), dtype=bool)
        again[first] = False
        return self._rows[int(np.argmax(again))]


def _holds(known: np.ndarray, value: int) -> bool:
    place = int(np.searchsorted(known, value))
    return place < len(known) and int(known[place]) == value


def inspect_pairs(train: Iterable[tuple[str, str]], valid: Iterable[tuple[str, str]] | None = None) -> PairStatistics:
    """One look at all pairs, with an even sample of them counted word by word."""
    sample, seen, tally = EvenSample[tuple[str, str]](), _Seen(), OddRows()
    most, long, first = (0, 0), (0, 0), list[tuple[str, str]]()
    for source, target in train:
        sample.add((source, target))
        number = sample.count
        if number <= FIRST_ROWS:
            first.append((source, target))
        if len(source) > long[0] or len(target) > long[1]:
            long = max(long[0], len(source)), max(long[1], len(target))
        spaces = source.count(" ") + source.count("\n"), target.count(" ") + target.count("\n")
        if spaces[0] >= most[0] or spaces[1] >= most[1]:
            most = max(most[0], spaces[0] + 1), max(most[1], spaces[1] + 1)
        if not source or source.isspace():
            tally.note("empty source", number, target)
        elif not target or target.isspace():
            tally.note("empty target", number, source)
        else:
            if source == target:
                tally.note("equal sides", number, source)
            seen.add(number, source, target)
    whole = [(number, pair) for number, pair in sample.items if pair[0].strip() and pair[1].strip()]
    sides = [side_statistics([pair[side] for _, pair in whole]) for side in (0, 1)]
    ratio = sides[1].words / max(1, sides[0].words)
    # Words of all rows are counted by their spaces; of texts without, no row has more than characters.
    counted = [
        letters if side.unspaced > 0.5 else max(words, side.most_words)
        for words, letters, side in zip(most, long, sides, strict=True)
    ]
    statistics = PairStatistics(
        rows=sample.count,
        source=sides[0],
        target=sides[1],
        ratio=ratio,
        sources=max(1, len(seen.sources)),
        pairs=len(seen.pairs),
        most_words=(counted[0], counted[1]),
        most_characters=long,
    )
    swaps = tuple(find_swaps(pair for _, pair in whole)) if statistics.rule else ()
    findings = [
        *_of_rows(tally, seen, sample.count),
        *text_findings(whole, statistics, ("source", "target")),
        *_of_pairs(whole, statistics, seen),
    ]
    if shift := _shifted(first):
        findings.append(Finding("shifted lines", shift))
    checked = 0
    if valid is not None:
        checked, more = _of_validation(valid, statistics, seen)
        findings += more
    return replace(statistics, valid_rows=checked, findings=tuple(findings), swaps=swaps)


def _of_rows(tally: OddRows, seen: _Seen, rows: int) -> Iterator[Finding]:
    said = {"empty source": "have no source and are left out", "empty target": "have no target and are left out"}
    for kind, what in said.items():
        if tally.count[kind]:
            yield Finding(kind, f"{share(tally.count[kind], rows)} {what}; {tally.where(kind)}")
    if seen.repeated > 0.001 * rows:
        yield Finding(
            "repeated pairs",
            f"{share(seen.repeated, rows)} are a pair that was there before, case and spaces aside: it is learnt as "
            f"often as it stands; first in row {seen.first_repeated():,}",
        )
    if tally.count["equal sides"] > max(5, 0.02 * rows):
        yield Finding(
            "equal sides",
            f"{share(tally.count['equal sides'], rows)} have a target that is their source: the model learns to copy; "
            f"remove them unless that is meant; {tally.where('equal sides')}",
        )
    if rows < FEW_PAIRS:
        yield Finding("few rows", f"{there_are(rows, 'row')}: too few to learn much from; some thousands are a start")


def _of_pairs(
    rows: Sequence[tuple[int, tuple[str, str]]], statistics: PairStatistics, seen: _Seen
) -> Iterator[Finding]:
    total = len(rows)
    if not total:
        return
    numbers = [0, 0]
    odd, swapped = OddRows(), OddRows()
    telling = _telling(statistics.source.vocabulary, statistics.target.vocabulary)
    for number, pair in rows:
        for side in (0, 1):
            numbers[side] += bool(NUMBER.fullmatch(pair[side].strip()))
        source, target = words_of(pair[0]), words_of(pair[1])
        ratio = len(target) / len(source) / statistics.ratio
        if max(len(source), len(target)) > 10 and not 1 / LONG_RATIO < ratio < LONG_RATIO:
            odd.note("length ratio", number, pair[0])
        if sum(telling.get(word, 0) for word in source) < 0 < sum(telling.get(word, 0) for word in target):
            swapped.note("swapped columns", number, pair[0])
    looked = total
    if not swapped.count and total >= 20:
        swapped = _swapped_often(few := rows[:: max(1, total // 2000)])
        looked = len(few)
    if odd.count["length ratio"] > max(3, 0.002 * total) and not statistics.target.closed:
        yield Finding(
            "length ratio",
            f"{share(odd.count['length ratio'], total)} of a sample are over {LONG_RATIO:g} times as long on one side "
            f"as is usual: are they pairs? {odd.where('length ratio')}",
        )
    if swapped.count["swapped columns"] > max(3, 0.01 * looked):
        yield Finding(
            "swapped columns",
            f"{share(swapped.count['swapped columns'], looked)} of a sample have source and target the other way "
            f"round; {swapped.where('swapped columns')}",
        )
    for side, name in enumerate(("source", "target")):
        if numbers[side] > 0.9 * total:
            yield Finding(
                "numbers", f"the {name}s are numbers: is it a column of ids or scores? data.{name} chooses it"
            )
    if seen.one_target and statistics.rows > 1:
        yield Finding("one target", "every target is the same: there is nothing to learn")
    if len(seen.pairs) - len(seen.sources) > 0.2 * len(seen.pairs):
        yield Finding(
            "several targets",
            f"{len(seen.pairs):,} pairs have {len(seen.sources):,} sources: many have several targets, of which the "
            f"model can write one; `regard evaluate --alternatives` takes any of them as right",
        )
    if header := _looks_like_header(rows[0], statistics):
        yield Finding("header", header)


def _swapped_often(rows: Sequence[tuple[int, tuple[str, str]]]) -> OddRows:
    """Rows with source and target the other way round where they are so many that no word tells by itself: rows are
    turned as most words of theirs stand in the others, until they stay."""
    texts = [(words_of(pair[0]), words_of(pair[1])) for _, pair in rows]
    turned = [False] * len(texts)
    sides = Counter[str](), Counter[str]()
    for _ in range(5):
        sides = Counter[str](), Counter[str]()
        for one, (source, target) in zip(turned, texts, strict=True):
            sides[one].update(source)
            sides[not one].update(target)
        odds = {
            word: math.log((sides[0][word] + 0.5) / (sides[1][word] + 0.5))
            for word in sides[0].keys() | sides[1].keys()
        }
        before, turned = (
            turned,
            [sum(odds[word] for word in source) < sum(odds[word] for word in target) for source, target in texts],
        )
        if turned == before:
            break
    telling = _telling(*sides)
    told = [sum(count for word, count in side.items() if word in telling) for side in sides]
    found = OddRows()
    # Texts of one language on both sides could be turned any way: then most words tell nothing.
    if all(count > 0.4 * side.total() for count, side in zip(told, sides, strict=True)):
        fewer = sum(turned) <= len(turned) / 2
        for one, (number, pair) in zip(turned, rows, strict=True):
            if one == fewer:
                found.note("swapped columns", number, pair[0])
    return found


def _telling(one: Counter[str], other: Counter[str]) -> dict[str, int]:
    """Words that are told to one side: 1 for the first, -1 for the second."""
    found: dict[str, int] = {}
    here_all, there_all = max(1, one.total()), max(1, other.total())
    for word in one.keys() | other.keys():
        if one[word] + other[word] >= 5:
            here, there = one[word] / here_all, other[word] / there_all
            if here > 8 * there:
                found[word] = 1
            elif there > 8 * here:
                found[word] = -1
    return found


def _looks_like_header(first: tuple[int, tuple[str, str]], statistics: PairStatistics) -> str:
    """What to say where the first row seems to name columns: words that never come again, where texts are long."""
    number, pair = first
    sides = (statistics.source, statistics.target)
    if number == 1 and all(names_column(cell, side) for cell, side in zip(pair, sides, strict=True)):
        return f"row 1 ({' | '.join(pair)}) looks like names of columns and is read as a pair: set data.header=true"
    return ""


def _shifted(rows: Sequence[tuple[str, str]]) -> str:
    """What to say where numbers of a source stand in a neighbour's target more often than in its own."""
    found = [(set(NUMBER.findall(source)), set(NUMBER.findall(target))) for source, target in rows]
    own = sum(bool(ours) and ours == theirs for ours, theirs in found)
    ways = {"next": pairwise(found), "last": pairwise(found[::-1])}
    for way, couples in ways.items():
        other = sum(bool(ours) and ours == later != theirs for (ours, theirs), (_, later) in couples)
        if other > 20 and other > 2 * own:
            return (
                f"numbers of a source stand in the {way} row's target ({other:,} times) more often than in its own "
                f"({own:,}): are the files shifted by a line?"
            )
    return ""


def _of_validation(
    valid: Iterable[tuple[str, str]], statistics: PairStatistics, seen: _Seen
) -> tuple[int, list[Finding]]:
    """How many validation pairs there are, and what may be wrong with them beside the training pairs."""
    rows = same = known = 0
    kept = EvenSample[tuple[str, str]](2000)
    for source, target in valid:
        rows += 1
        kept.add((source, target))
        ours, theirs = hash(folded(source)), hash(folded(target))
        if _holds(seen.pairs, hash((ours, theirs))):
            same += 1
        elif _holds(seen.sources, ours):
            known += 1
    found: list[Finding] = []
    if same:
        found.append(
            Finding(
                "validation pairs in training",
                f"{share(same, rows)} of validation are training pairs too: its scores are too good; remove them",
            )
        )
    if known > 0.01 * rows:
        found.append(
            Finding(
                "validation sources in training",
                f"{share(known, rows)} of validation have a source that is trained on with another target",
            )
        )
    telling = _telling(statistics.source.vocabulary, statistics.target.vocabulary)
    swapped = sum(
        sum(telling.get(word, 0) for word in words_of(source))
        < 0
        < sum(telling.get(word, 0) for word in words_of(target))
        for _, (source, target) in kept.items
    )
    if swapped > 0.5 * max(1, len(kept.items)):
        found.append(
            Finding(
                "swapped validation",
                "validation has source and target the other way round: give its two files in the other order; of a "
                "table write the columns in the order of the training data, or give both headers and name their "
                "columns with data.source and data.target",
            )
        )
    elif line := other_distribution([pair[0] for _, pair in kept.items], statistics.source, "validation sources"):
        found.append(Finding("another distribution", line))
    return rows, found
