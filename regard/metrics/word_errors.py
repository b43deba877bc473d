"""Words that a translation repeats, leaves out or says too often, counted with a gold word alignment.

The cheapest edits that turn the reference into the hypothesis say which words are missing, which are new and which
stand for another; the alignment says whose translation they are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

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

    def to_mapping(self) -> dict[str, Any]:
        """Counts and rates, ready for JSON: repeated words by words said, the others by source words."""
        said, sources = max(1, self.hypothesis_words), max(1, self.source_words)
        return {
            "repeated": self.repeated / said,
            "omitted": self.omitted / sources,
            "over_translated": self.over_translated / sources,
            "counts": {name: getattr(self, name) for name in self.__slots__},
        }


def differences(reference: Sequence[str], hypothesis: Sequence[str]) -> tuple[set[int], set[int]]:
    """(missing, new): words of the reference that the hypothesis lacks, and words of it that are too many.

    By the fewest insertions, deletions and substitutions; of equally few, those that keep the most words.
    """
    R, H = len(reference), len(hypothesis)
    # (edits, minus words kept) from each pair of places to the end.
    cost = [[(0, 0)] * (H + 1) for _ in range(R + 1)]
    for r in range(R, -1, -1):
        for h in range(H, -1, -1):
            if r == R or h == H:
                cost[r][h] = (R - r + H - h, 0)
                continue
            same = reference[r] == hypothesis[h]
            edits, kept = cost[r + 1][h + 1]
            choices = [(edits + (not same), kept - same)]
            choices += [(edits + 1, kept) for edits, kept in (cost[r + 1][h], cost[r][h + 1])]
            cost[r][h] = min(choices)
    missing, new = set(), set()
    r = h = 0
    while r < R or h < H:
        if r == R or h == H:
            missing |= set(range(r, R))
            new |= set(range(h, H))
            break
        same = reference[r] == hypothesis[h]
        edits, kept = cost[r + 1][h + 1]
        if cost[r][h] == (edits + (not same), kept - same):
            r, h = r + 1, h + 1
        elif cost[r][h] == (cost[r + 1][h][0] + 1, cost[r + 1][h][1]):
            missing.add(r)
            r += 1
        else:
            new.add(h)
            h += 1
    return missing, new


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
