"""A look at data before anything is chosen for it: counts, an even sample, and what may be wrong with it, line by line.

Every row is read once and told from the others by a hash; only an even sample is kept and counted word by word. A
million pairs take seconds and some hundred megabytes.
"""

import random
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from regard.data.formats import Format, format_of, lines, objects, parquet_file, raw_rows
from regard.data.lexical_swaps import Group, find_swaps
from regard.data.readers import folded

Item = TypeVar("Item")

SAMPLE = 10_000
"""Rows that are counted word by word, at the least, where there are as many."""

PEEKED = 2000
"""Rows that tell what a file holds."""

CLOSED_WORDS = 2000
"""Distinct words above which a vocabulary is not taken for a closed one."""

FEW_PAIRS = 1000
LONG_RATIO = 5.0
"""Times as many words on one side as is usual, above which a pair is odd."""

_GARBLED = re.compile("[ÃÂ][\u0080-\u00bf]|â€|ï»¿|Ð[\u0080-\u00bf]|Ã[ŸŒœ¶¼¤©¨]")
_MARKUP = re.compile(r"(?!<unk>)</?[a-zA-Z][a-zA-Z0-9]*( [^<>]*)?/?>|&(?:amp|lt|gt|quot|nbsp|#\d+);")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)?")
_SCRIPTS = (
    ("LATIN", "Latin"),
    ("CYRILLIC", "Cyrillic"),
    ("GREEK", "Greek"),
    ("ARABIC", "Arabic"),
    ("HEBREW", "Hebrew"),
    ("DEVANAGARI", "Devanagari"),
    ("HANGUL", "Hangul"),
    ("HIRAGANA", "Japanese"),
    ("KATAKANA", "Japanese"),
    ("CJK", "Han"),
    ("THAI", "Thai"),
)


_FUNCTION_WORDS = {
    "Dutch": "het een niet ik zijn maar ook voor wij naar",
    "English": "the and that with you this from they would their",
    "French": "les est une pas vous dans pour avec cette nous",
    "German": "der und nicht ich mit ist auf eine wir auch",
    "Italian": "che di è della sono gli questo anche perché nel",
    "Portuguese": "não uma em você muito isso ele também seu pelo",
    "Spanish": "el los las pero muy está ella esto hay fue",
}
"""Frequent words, each of one of these languages alone: enough to tell that texts are in two of them."""
_LANGUAGE_OF = {word: language for language, words in _FUNCTION_WORDS.items() for word in words.split()}
OTHER_LANGUAGE = 0.05
"""The share of texts in another language above which that is said."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What may be wrong with data: a name for the kind, and a line for a person, with what to do."""

    kind: str
    line: str


class EvenSample(Generic[Item]):
    """Every k-th of as many items as come, k doubled whenever there are too many; each with its number, from 1."""

    def __init__(self, least: int = SAMPLE) -> None:
        self.items: list[tuple[int, Item]] = []
        self.count, self._least, self._every = 0, least, 1

    def add(self, item: Item) -> None:
        self.count += 1
        if (self.count - 1) % self._every == 0:
            self.items.append((self.count, item))
            if len(self.items) >= 2 * self._least:
                self.items = self.items[::2]
                self._every *= 2


@dataclass(frozen=True, kw_only=True, slots=True)
class SideStatistics:
    """The texts of one side of a sample."""

    texts: int
    words: int
    characters: int
    most_words: int
    most_characters: int
    distinct_words: int
    distinct_characters: int
    new_words: float
    """Of the words of one random half of the sample, the share that the other does not have."""
    single: float
    """The share of texts that are one word."""
    upper: float
    """The share of texts with a capital letter."""
    unknown: int
    """How often the word `<unk>` occurs."""
    scripts: dict[str, float]
    vocabulary: Counter[str] = field(repr=False)

    @property
    def mean_words(self) -> float:
        return self.words / max(1, self.texts)

    @property
    def mean_characters(self) -> float:
        return self.characters / max(1, self.texts)

    @property
    def closed(self) -> bool:
        """Whether the words are few and all known: a notation, not a language."""
        return self.distinct_words <= CLOSED_WORDS and self.new_words < 0.0005

    @property
    def script(self) -> str:
        return max(self.scripts, key=lambda name: self.scripts[name]) if self.scripts else "none"


def side_statistics(texts: Sequence[str]) -> SideStatistics:
    """Counts of these texts, which are in the order of the data or at random."""
    # Halves by lot: data is often sorted, or has lines of two kinds by turns.
    lot = random.Random(1)
    first: Counter[str] = Counter()
    second: Counter[str] = Counter()
    letters: set[str] = set()
    scripts: Counter[str] = Counter()
    most_words = most_characters = single = upper = 0
    for text in texts:
        words = text.split()
        (second if lot.random() < 0.5 else first).update(words)
        letters.update(text)
        most_words, most_characters = max(most_words, len(words)), max(most_characters, len(text))
        single += len(words) == 1
        upper += text != text.lower()
        if name := _script(text):
            scripts[name] += 1
    unseen = sum(count for word, count in second.items() if word not in first)
    vocabulary = first + second
    written = max(1, sum(scripts.values()))
    return SideStatistics(
        texts=len(texts),
        words=sum(vocabulary.values()),
        characters=sum(map(len, texts)),
        most_words=most_words,
        most_characters=most_characters,
        distinct_words=len(vocabulary),
        distinct_characters=len(letters),
        new_words=unseen / max(1, sum(second.values())),
        single=single / max(1, len(texts)),
        upper=upper / max(1, len(texts)),
        unknown=vocabulary["<unk>"],
        scripts={name: count / written for name, count in scripts.items()},
        vocabulary=vocabulary,
    )


def _script(text: str) -> str | None:
    """The script of a text's first letter that has one; texts of two scripts are rare enough."""
    for character in text[:80]:
        if character.isascii():
            if character.isalpha():
                return "Latin"
        elif character.isalpha():
            name = unicodedata.name(character, "")
            return next((script for start, script in _SCRIPTS if name.startswith(start)), "another")
    return None


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


class _Tally:
    """How many rows have something odd about them, and which was the first."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.first: dict[str, tuple[int, str]] = {}

    def note(self, kind: str, number: int, text: str) -> None:
        self.count[kind] += 1
        if kind not in self.first:
            self.first[kind] = number, text

    def where(self, kind: str) -> str:
        number, text = self.first[kind]
        shown = text if len(text) <= 40 else text[:37] + "..."
        return f"first in row {number:,}: {shown!r}"


def inspect_pairs(train: Iterable[tuple[str, str]], valid: Iterable[tuple[str, str]] | None = None) -> PairStatistics:
    """One look at all pairs, with an even sample of them counted word by word."""
    sample, seen, tally = EvenSample[tuple[str, str]](), _Seen(), _Tally()
    most, long, first = (0, 0), (0, 0), list[tuple[str, str]]()
    for source, target in train:
        sample.add((source, target))
        number = sample.count
        if number <= PEEKED:
            first.append((source, target))
        if len(source) > long[0] or len(target) > long[1]:
            long = max(long[0], len(source)), max(long[1], len(target))
        spaces = source.count(" "), target.count(" ")
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
    statistics = PairStatistics(
        rows=sample.count,
        source=sides[0],
        target=sides[1],
        ratio=ratio,
        sources=max(1, len(seen.sources)),
        pairs=len(seen.pairs),
        most_words=most,
        most_characters=long,
    )
    swaps = tuple(find_swaps(pair for _, pair in whole)) if statistics.rule else ()
    findings = [
        *_of_rows(tally, seen, sample.count),
        *_of_sample(whole, statistics, ("source", "target")),
        *_of_pairs(whole, statistics, seen),
    ]
    if shift := _shifted(first):
        findings.append(Finding("shifted lines", shift))
    checked = 0
    if valid is not None:
        checked, more = _of_validation(valid, statistics, seen)
        findings += more
    return replace(statistics, valid_rows=checked, findings=tuple(findings), swaps=swaps)


def _share(count: int, total: int) -> str:
    return f"{count:,} of {total:,} rows ({100 * count / max(1, total):.3g} %)"


def _of_rows(tally: _Tally, seen: _Seen, rows: int) -> Iterator[Finding]:
    said = {"empty source": "have no source and are left out", "empty target": "have no target and are left out"}
    for kind, what in said.items():
        if tally.count[kind]:
            yield Finding(kind, f"{_share(tally.count[kind], rows)} {what}; {tally.where(kind)}")
    if seen.repeated > 0.001 * rows:
        yield Finding(
            "repeated pairs",
            f"{_share(seen.repeated, rows)} are a pair that was there before, case and spaces aside: it is learnt as "
            f"often as it stands; first in row {seen.first_repeated():,}",
        )
    if tally.count["equal sides"] > max(5, 0.02 * rows):
        yield Finding(
            "equal sides",
            f"{_share(tally.count['equal sides'], rows)} have a target that is their source: the model learns to copy; "
            f"remove them unless that is meant; {tally.where('equal sides')}",
        )
    if rows < FEW_PAIRS:
        yield Finding("few rows", f"there are {rows:,} rows: too few to learn much from; some thousands are a start")


def _of_sample(rows: Sequence[tuple[int, Any]], statistics: Any, names: Sequence[str]) -> Iterator[Finding]:
    """What may be wrong with the texts of any rows, each a tuple of texts as the names say."""
    total, tally = len(rows), _Tally()
    for number, texts in rows:
        for text in texts[: len(names)]:
            if "\ufffd" in text:
                tally.note("replacement characters", number, text)
            if not text.isascii() and _GARBLED.search(text):
                tally.note("wrong encoding", number, text)
            if _CONTROL.search(text):
                tally.note("control characters", number, text)
            if ("<" in text or "&" in text) and _MARKUP.search(text):
                tally.note("markup", number, text)
            if not text.isascii() and unicodedata.normalize("NFC", text) != text:
                tally.note("decomposed characters", number, text)
            if "\t" in text or "  " in text or "\u00a0" in text or text != text.strip():
                tally.note("spaces", number, text)
    lines_of = {
        "replacement characters": (0, "hold the character � that stands for bytes that could not be read"),
        "wrong encoding": (0, "look like UTF-8 that was read as Latin-1, as Ã© for é: convert the file again"),
        "control characters": (0, "hold control characters, which a text has not: remove them"),
        "markup": (
            0.01,
            "hold markup such as <br> or &amp;: the model will write it too; remove it unless that is meant",
        ),
        "decomposed characters": (
            0,
            "write letters and their accents as two characters: the same word then has two spellings; normalise to NFC",
        ),
        "spaces": (0.05, "have spaces at an end, double, or of a special kind"),
    }
    for kind, (least, what) in lines_of.items():
        if tally.count[kind] > least * total:
            yield Finding(kind, f"{_share(tally.count[kind], total)} of a sample {what}; {tally.where(kind)}")
    for name in names:
        side: SideStatistics = getattr(statistics, name)
        others = {script: share for script, share in side.scripts.items() if script != side.script}
        if sum(others.values()) > 0.02:
            which = ", ".join(
                f"{100 * share:.0f} % {script}"
                for script, share in {side.script: side.scripts[side.script], **others}.items()
            )
            yield Finding(
                "mixed scripts", f"the {name}s are in more than one script ({which}): is it more than one language?"
            )
    for place, name in enumerate(names):
        if line := _languages([(number, texts[place]) for number, texts in rows], name):
            yield Finding("mixed languages", line)


def _languages(rows: Sequence[tuple[int, str]], name: str) -> str:
    """What to say where texts are in two languages, as far as their function words tell."""
    tally = _Tally()
    for number, text in rows:
        found = Counter(_LANGUAGE_OF[word] for word in text.lower().split() if word in _LANGUAGE_OF).most_common(2)
        if found and found[0][1] >= 2 and (len(found) == 1 or found[0][1] > 2 * found[1][1]):
            tally.note(found[0][0], number, text)
    told = tally.count.total()
    if told < 50 or len(tally.count) == 1:
        return ""
    (most, main), (other, count) = tally.count.most_common(2)
    if count <= OTHER_LANGUAGE * told:
        return ""
    return (
        f"the {name}s are in more than one language: of {told:,} that tell, {100 * main / told:.0f} % are in {most} "
        f"and {100 * count / told:.0f} % in {other}; a model learns one better; {tally.where(other)}"
    )


def _of_pairs(
    rows: Sequence[tuple[int, tuple[str, str]]], statistics: PairStatistics, seen: _Seen
) -> Iterator[Finding]:
    total = len(rows)
    if not total:
        return
    numbers = [0, 0]
    odd, swapped = _Tally(), _Tally()
    telling = _telling(statistics.source.vocabulary, statistics.target.vocabulary)
    for number, pair in rows:
        for side in (0, 1):
            numbers[side] += bool(_NUMBER.fullmatch(pair[side].strip()))
        source, target = pair[0].split(), pair[1].split()
        ratio = len(target) / len(source) / statistics.ratio
        if max(len(source), len(target)) > 10 and not 1 / LONG_RATIO < ratio < LONG_RATIO:
            odd.note("length ratio", number, pair[0])
        if sum(telling.get(word, 0) for word in source) < 0 < sum(telling.get(word, 0) for word in target):
            swapped.note("swapped columns", number, pair[0])
    if odd.count["length ratio"] > max(3, 0.002 * total) and not statistics.target.closed:
        yield Finding(
            "length ratio",
            f"{_share(odd.count['length ratio'], total)} of a sample are over {LONG_RATIO:g} times as long on one side "
            f"as is usual: are they pairs? {odd.where('length ratio')}",
        )
    if swapped.count["swapped columns"] > max(3, 0.01 * total):
        yield Finding(
            "swapped columns",
            f"{_share(swapped.count['swapped columns'], total)} of a sample have source and target the other way "
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
    alone = all(
        len(cell.split()) == 1 and cell.isidentifier() and side.vocabulary[cell] == 1 and side.mean_words > 2
        for cell, side in zip(pair, sides, strict=True)
    )
    if number == 1 and alone:
        return f"row 1 ({' | '.join(pair)}) looks like names of columns and is read as a pair: set data.header=true"
    return ""


def _shifted(rows: Sequence[tuple[str, str]]) -> str:
    """What to say where numbers of a source stand in a neighbour's target more often than in its own."""
    found = [(set(_NUMBER.findall(source)), set(_NUMBER.findall(target))) for source, target in rows]
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
                f"{_share(same, rows)} of validation are training pairs too: its scores are too good; remove them",
            )
        )
    if known > 0.01 * rows:
        found.append(
            Finding(
                "validation sources in training",
                f"{_share(known, rows)} of validation have a source that is trained on with another target",
            )
        )
    telling = _telling(statistics.source.vocabulary, statistics.target.vocabulary)
    swapped = sum(
        sum(telling.get(word, 0) for word in source.split()) < 0 < sum(telling.get(word, 0) for word in target.split())
        for _, (source, target) in kept.items
    )
    if swapped > 0.5 * max(1, len(kept.items)):
        found.append(
            Finding(
                "swapped validation",
                "validation has source and target the other way round: give its files in the other order",
            )
        )
    elif line := other_distribution([pair[0] for _, pair in kept.items], statistics.source, "validation sources"):
        found.append(Finding("another distribution", line))
    return rows, found


def other_distribution(texts: Sequence[str], train: SideStatistics, what: str) -> str:
    """What to say where texts are of another kind than those to train on: many new words, or of another length."""
    here = side_statistics(texts)
    if not here.words:
        return ""
    unseen = sum(count for word, count in here.vocabulary.items() if word not in train.vocabulary) / here.words
    usual = max(train.new_words, 0.01)
    if unseen > 3 * usual and unseen > 0.1:
        return (
            f"{100 * unseen:.0f} % of the words of the {what} do not occur in a sample of the training text, where "
            f"{100 * usual:.1f} % is usual: they come from somewhere else, and scores will say little about either"
        )
    ratio = here.mean_words / max(0.1, train.mean_words)
    if not 0.4 < ratio < 2.5:
        return f"the {what} have {here.mean_words:.0f} words, those to train on {train.mean_words:.0f}"
    return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledStatistics:
    """What labelled texts are like."""

    rows: int
    text: SideStatistics
    labels: dict[str, int]
    pairs: bool
    valid_rows: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def words(self) -> int:
        return round(self.text.words / max(1, self.text.texts) * self.rows)


def inspect_labelled(
    train: Iterable[tuple[tuple[str, ...], str]],
    valid: Iterable[tuple[tuple[str, ...], str]] | None = None,
    *,
    classes: bool = True,
) -> LabelledStatistics:
    """One look at texts, or pairs, with the label of each; what labels are like matters where they are classes."""
    sample, labels, tally = EvenSample[tuple[str, ...]](), Counter[str](), _Tally()
    seen: dict[int, str] = {}
    for texts, label in train:
        text = "\n".join(texts)
        sample.add((text,))
        labels[label] += 1
        key = hash(folded(text))
        if not text.strip():
            tally.note("empty text", sample.count, label)
        elif key not in seen:
            seen[key] = label
        elif seen[key] == label:
            tally.note("repeated texts", sample.count, text)
        else:
            tally.note("contradicting labels", sample.count, text)
    rows = sample.count
    text = side_statistics([one[0] for _, one in sample.items])
    statistics = LabelledStatistics(rows=rows, text=text, labels=dict(labels.most_common()), pairs=False)
    said = {
        "empty text": "have no text",
        "repeated texts": "are a text with a label that were there before",
        "contradicting labels": "are a text that has another label elsewhere: one of the two is wrong",
    }
    findings = [
        Finding(kind, f"{_share(tally.count[kind], rows)} {what}; {tally.where(kind)}")
        for kind, what in said.items()
        if tally.count[kind] > {"repeated texts": 0.01, "contradicting labels": 0.0005}.get(kind, 0) * rows
    ]
    findings += _of_sample([(number, one) for number, one in sample.items if one[0].strip()], statistics, ("text",))
    findings += _of_labels(labels, rows) if classes else []
    checked = 0
    if valid is not None:
        checked, more = _of_labelled_validation(valid, labels, seen, text)
        findings += more
    return LabelledStatistics(
        rows=rows,
        text=text,
        labels=statistics.labels,
        pairs="\n" in sample.items[0][1][0],
        valid_rows=checked,
        findings=tuple(findings),
    )


def _of_labels(labels: Counter[str], rows: int) -> Iterator[Finding]:
    if len(labels) == 1:
        yield Finding("one label", f"every label is '{next(iter(labels))}': there is nothing to tell apart")
        return
    if len(labels) > 0.5 * rows and rows >= 20:
        yield Finding(
            "as many labels as rows",
            f"{len(labels):,} labels of {rows:,} rows: are they labels? data.label chooses the column",
        )
    alike: dict[str, list[str]] = {}
    for label in labels:
        alike.setdefault(folded(label), []).append(label)
    if twice := [names for names in alike.values() if len(names) > 1]:
        yield Finding(
            "labels that differ in case",
            f"labels that differ in case or spaces alone: {', '.join(map(repr, twice[0]))}",
        )
    rare = [label for label, count in labels.items() if count < 5]
    if rare and len(labels) <= 0.5 * rows:
        yield Finding(
            "rare labels",
            f"{len(rare)} of {len(labels)} labels have fewer than 5 texts, too few to learn: {', '.join(rare[:5])}",
        )
    most, count = labels.most_common(1)[0]
    if count > 0.9 * rows:
        yield Finding(
            "one label of most texts",
            f"{100 * count / rows:.0f} % of the texts have the label '{most}': look at macro F1, not at accuracy",
        )


def _of_labelled_validation(
    valid: Iterable[tuple[tuple[str, ...], str]], labels: Counter[str], seen: dict[int, str], text: SideStatistics
) -> tuple[int, list[Finding]]:
    rows = known = 0
    found: list[Finding] = []
    strange: Counter[str] = Counter()
    kept = EvenSample[str](2000)
    for texts, label in valid:
        rows += 1
        joined = "\n".join(texts)
        kept.add(joined)
        known += hash(folded(joined)) in seen
        if label not in labels:
            strange[label] += 1
    if known:
        line = f"{_share(known, rows)} of validation are training texts too: its scores are too good; remove them"
        found.append(Finding("validation texts in training", line))
    if strange:
        line = f"labels that only validation has, and nothing can learn: {', '.join(list(strange)[:5])}"
        found.append(Finding("labels of validation alone", line))
    if line := other_distribution([one for _, one in kept.items], text, "validation texts"):
        found.append(Finding("another distribution", line))
    return rows, found


@dataclass(frozen=True, kw_only=True, slots=True)
class TextStatistics:
    """What running text is like."""

    documents: int
    characters: int
    line: SideStatistics
    valid_lines: int = 0
    findings: tuple[Finding, ...] = ()


def inspect_text(parts: Iterable[tuple[str, bool]], valid: Iterable[tuple[str, bool]] | None = None) -> TextStatistics:
    """One look at running text: parts of documents, and whether each is its document's last."""
    documents = characters = 0
    sample, tally = EvenSample[tuple[str, ...]](), _Tally()
    seen: set[int] = set()
    for text, last in parts:
        documents += last
        characters += len(text)
        for line in text.split("\n"):
            if line.strip():
                sample.add((line,))
                if len(line) > 20:
                    key = hash(line)
                    if key in seen:
                        tally.note("repeated lines", sample.count, line)
                    seen.add(key)
                if "\t" in line:
                    tally.note("tabs", sample.count, line)
    line = side_statistics([one[0] for _, one in sample.items])
    statistics = TextStatistics(documents=documents, characters=characters, line=line)
    findings = list(_of_sample(sample.items, statistics, ("line",)))
    rows = max(1, sample.count)
    if tally.count["repeated lines"] > 0.2 * rows:
        findings.append(
            Finding(
                "repeated lines",
                f"{_share(tally.count['repeated lines'], rows)} were there before: the model will learn them by heart; "
                f"{tally.where('repeated lines')}",
            )
        )
    if tally.count["tabs"] > 0.9 * rows:
        findings.append(Finding("a table as text", "nearly every line holds a tab: is it a table? name it .tsv"))
    if characters < 100_000:
        findings.append(Finding("little text", f"{characters:,} characters are too few to learn to write from"))
    kept = EvenSample[str](2000)
    if valid is not None:
        known = count = 0
        for text, _ in valid:
            for one in text.split("\n"):
                if one.strip():
                    kept.add(one)
                    if len(one) > 20:
                        count, known = count + 1, known + (hash(one) in seen)
        if known > max(3, 0.05 * count):
            findings.append(
                Finding(
                    "validation text in training",
                    f"{known:,} of {count:,} longer lines of validation stand in the training text too",
                )
            )
        if note := other_distribution([one for _, one in kept.items], line, "validation text"):
            findings.append(Finding("another distribution", note))
    return TextStatistics(
        documents=documents, characters=characters, line=line, valid_lines=kept.count, findings=tuple(findings)
    )


@dataclass(frozen=True, slots=True)
class Peek:
    """The first rows of a file: cells of a table, or values of records under `names`."""

    path: Path
    format: Format
    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def peek(path: Path, most: int = PEEKED) -> Peek:
    """The first rows of a file, to tell what it holds."""
    format = format_of(path)
    rows: list[tuple[Any, ...]] = []
    names: tuple[str, ...] = ()
    if format in ("tsv", "csv"):
        found: Iterator[Any] = (tuple(cells) for _, cells in raw_rows(path, format))
    elif format == "jsonl":
        records = [
            record for (_, record), _ in zip(objects(path, enumerate(lines(path), 1)), range(most), strict=False)
        ]
        names = tuple(dict.fromkeys(name for record in records for name in record))
        found = (tuple(record.get(name) for name in names) for record in records)
    elif format == "parquet":
        with parquet_file(path) as file:
            names = tuple(file.schema_arrow.names)
            first = next(file.iter_batches(batch_size=most), None)
            found = iter([] if first is None else [tuple(row[name] for name in names) for row in first.to_pylist()])
    else:
        found = ((line,) for line in lines(path))
    for row, _ in zip(found, range(most), strict=False):
        rows.append(row)
    return Peek(path, format, names, tuple(rows))
