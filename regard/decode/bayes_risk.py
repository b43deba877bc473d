"""Minimum Bayes risk: of sampled outputs, the one that the others, as samples of what is right, agree with most."""

from collections import Counter
from collections.abc import Callable, Sequence


def least_risk(texts: Sequence[str], utility: Callable[[str, str], float]) -> list[tuple[int, float]]:
    """Each distinct text once, by its first place, with its mean utility over all samples; best first.

    `utility(text, reference)` is greater the better the text is if the reference is right. It is asked of every pair of
    distinct texts, so the cost grows with the square of the samples. Equal ones keep the order of `texts`.
    """
    counts = Counter(texts)
    expected = {
        text: sum(count * utility(text, reference) for reference, count in counts.items()) / len(texts)
        for text in counts
    }
    ranked = sorted(counts, key=lambda text: -expected[text])
    return [(texts.index(text), expected[text]) for text in ranked]
