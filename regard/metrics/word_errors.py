"""Words that a translation repeats, leaves out or says too often, counted with a gold word alignment.

The cheapest edits that turn the reference into the hypothesis say which words are missing, which are new and which
stand for another; the alignment says whose translation they are.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from regard.config import JsonObject

LONGEST = 8
"""Words of the longest phrase that counts as repeated when it is said twice in a row."""


@dataclass(slots=True)
class WordErrors:
    """Counts, added up sentence by sentence.

    - `repeated`: words of the hypothesis that are new, and part of a phrase said twice in a row.
    - `omitted`: source words of whose translation nothing is there. A wrong word in its place is not an omission.
    - `over_translated`: source words of whose translation some is said once more than it should be, wherever.
    """

    sentences: int = 0
    hypothesis_words: int = 0
    source_words: int = 0
    repeated: int = 0
    omitted: int = 0
    over_translated: int = 0

    def add(
        self, hypothesis: Sequence[str], reference: Sequence[str], alignment: Iterable[tuple[int, int]], sources: int
    ) -> None:
        """Count one sentence; `alignment` pairs source words, of which there are `sources`, with reference words."""
        missing, new = (set(), set()) if list(hypothesis) == list(reference) else differences(reference, hypothesis)
        twice = said_twice(hypothesis)
        translations: dict[int, set[int]] = {}
        for source, target in alignment:
            translations.setdefault(source, set()).add(target)
        self.sentences += 1
        self.hypothesis_words += len(hypothesis)
        self.source_words += sources
        self.repeated += len(new & twice)
        self.omitted += sum(targets <= missing for targets in translations.values())
        again = _charged([hypothesis[index] for index in sorted(new)], reference, translations)
        self.over_translated += len(again)

    def to_mapping(self) -> JsonObject:
        """Counts and rates, ready for JSON: repeated words by words said, the others by source words."""
        said, sources = max(1, self.hypothesis_words), max(1, self.source_words)
        return {
            "repeated": self.repeated / said,
            "omitted": self.omitted / sources,
            "over_translated": self.over_translated / sources,
            "counts": {name: getattr(self, name) for name in self.__slots__},
        }


def edit_distance(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """The fewest insertions, deletions and substitutions that turn `first` into `second`."""
    edit, costs = _edit_costs(first, second)
    return -(-costs[0][0] // edit)


def differences(reference: Sequence[str], hypothesis: Sequence[str]) -> tuple[set[int], set[int]]:
    """(missing, new): words of the reference that the hypothesis lacks, and words of it that are too many.

    By the fewest insertions, deletions and substitutions; of equally few, those that keep the most words.
    """
    edit, costs = _edit_costs(reference, hypothesis)
    missing, new = set(), set()
    r = h = 0
    while r < len(reference) and h < len(hypothesis):
        if costs[r][h] == costs[r + 1][h + 1] + (-1 if reference[r] == hypothesis[h] else edit):
            r, h = r + 1, h + 1
        elif costs[r][h] == costs[r + 1][h] + edit:
            missing.add(r)
            r += 1
        else:
            new.add(h)
            h += 1
    return missing | {*range(r, len(reference))}, new | {*range(h, len(hypothesis))}


def _edit_costs(first: Sequence[Hashable], second: Sequence[Hashable]) -> tuple[int, list[list[int]]]:
    """What an edit costs, and the least cost from each pair of places to both ends.

    Keeping a word costs -1 and an edit more than all words that can be kept, so fewer edits come first. (sacreBLEU's
    edit distance, made for TER, searches a beam and misses the least where words at the beginning are missing; of
    equally few edits, rapidfuzz's do not keep the most words.)
    """
    edit = min(len(first), len(second)) + 1
    costs = [[edit * count for count in range(len(second), -1, -1)]]
    for word in reversed(first):
        below = costs[-1]
        cost = below[-1] + edit
        row = [cost]
        for place in range(len(second) - 1, -1, -1):
            kept = below[place + 1] + (-1 if word == second[place] else edit)
            cost = min(kept, below[place] + edit, cost + edit)
            row.append(cost)
        costs.append(row[::-1])
    return edit, costs[::-1]


def said_twice(words: Sequence[str]) -> set[int]:
    """The places of phrases, of up to eight words, that stand twice in a row: of both."""
    found: set[int] = set()
    for size in range(1, min(LONGEST, len(words) // 2) + 1):
        for start in range(len(words) - 2 * size + 1):
            if words[start : start + size] == words[start + size : start + 2 * size]:
                found |= set(range(start, start + 2 * size))
    return found


def _charged(extra: Sequence[str], reference: Sequence[str], translations: dict[int, set[int]]) -> set[int]:
    """The source words that the extra words say again, one for each where there is one left."""
    said = {source: {reference[target] for target in targets} for source, targets in translations.items()}
    charged: set[int] = set()
    for word in extra:
        source = next((one for one, words in said.items() if word in words and one not in charged), None)
        if source is not None:
            charged.add(source)
    return charged
