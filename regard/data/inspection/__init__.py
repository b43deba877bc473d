"""A look at data before anything is chosen for it: counts, an even sample, and what may be wrong with it, line by line.

Every row is read once and told from the others by a hash; only an even sample is kept and counted word by word. A
million pairs take seconds and some hundred megabytes.
"""

from regard.data.inspection.findings import NUMBER, Finding, other_distribution
from regard.data.inspection.first_rows import Peek, peek
from regard.data.inspection.labelled import LabelledStatistics, inspect_labelled
from regard.data.inspection.pairs import PairStatistics, inspect_pairs
from regard.data.inspection.running_text import TextStatistics, inspect_text
from regard.data.inspection.texts import EvenSample, SideStatistics, side_statistics, without_spaces, words_of

__all__ = [
    "NUMBER",
    "EvenSample",
    "Finding",
    "LabelledStatistics",
    "PairStatistics",
    "Peek",
    "SideStatistics",
    "TextStatistics",
    "inspect_labelled",
    "inspect_pairs",
    "inspect_text",
    "other_distribution",
    "peek",
    "side_statistics",
    "without_spaces",
    "words_of",
]
