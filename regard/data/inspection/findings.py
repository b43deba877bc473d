"""What may be wrong with data, line by line, and what of it any texts can have: encoding, markup, spaces, two scripts
or languages, another kind of text than is trained on."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from regard.data.inspection.texts import SideStatistics, side_statistics

_GARBLED = re.compile("[ÃÂ][\u0080-\u00bf]|â€|ï»¿|Ð[\u0080-\u00bf]|Ã[ŸŒœ¶¼¤©¨]")
_MARKUP = re.compile(r"(?!<unk>)</?[a-zA-Z][a-zA-Z0-9]*( [^<>]*)?/?>|&(?:amp|lt|gt|quot|nbsp|#\d+);")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)?")

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


class OddRows:
    """How many rows have something odd about them, and which was the first."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.first: dict[str, tuple[int, str]] = {}
        self._last: dict[str, int] = {}

    def note(self, kind: str, number: int, text: str) -> None:
        """Count a row, once if both its sides have it."""
        self.count[kind] += self._last.get(kind) != number
        self._last[kind] = number
        if kind not in self.first:
            self.first[kind] = number, text

    def where(self, kind: str) -> str:
        number, text = self.first[kind]
        shown = text if len(text) <= 40 else text[:37] + "..."
        return f"first in row {number:,}: {shown!r}"


def share(count: int, total: int) -> str:
    return f"{count:,} of {counted(total, 'row')} ({100 * count / max(1, total):.3g} %)"


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}" + "s" * (count != 1)


def there_are(count: int, what: str) -> str:
    return f"there {'is' if count == 1 else 'are'} {counted(count, what)}"


def text_findings(rows: Sequence[tuple[int, Any]], statistics: Any, names: Sequence[str]) -> Iterator[Finding]:
    """What may be wrong with the texts of any rows, each a tuple of texts as the names say."""
    total, tally = len(rows), OddRows()
    breaks = "target" in names
    writes = "text" not in names  # labelled texts are only read
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
            if len(text) > 2 and text[0] == text[-1] == '"' and '"' not in text[1:-1]:
                tally.note("quoted texts", number, text)
            if "\n" in text and breaks:
                tally.note("line breaks", number, text)
            if "\t" in text or "  " in text or "\u00a0" in text or text != text.strip():
                tally.note("spaces", number, text)
    lines_of = {
        "replacement characters": (0, "hold the character � that stands for bytes that could not be read"),
        "wrong encoding": (0, "look like UTF-8 that was read as Latin-1, as Ã© for é: convert the file again"),
        "control characters": (0, "hold control characters, which a text has not: remove them"),
        "markup": (
            0.01,
            "hold markup such as <br> or &amp;" + ": the model will write it too" * writes + "; remove it unless that "
            "is meant",
        ),
        "decomposed characters": (
            0,
            "write letters and their accents as two characters: the same word then has two spellings; normalise to NFC",
        ),
        "quoted texts": (
            0.5,
            "stand in quotation marks, which a TSV or plain file keeps as part of its texts: remove them, or name a "
            "file with commas between its columns .csv",
        ),
        "spaces": (0.05, "have spaces at an end, double, or of a special kind"),
        "line breaks": (
            0.01,
            "have line breaks inside: the model will write them too, while commands read and write a text per line",
        ),
    }
    for kind, (least, what) in lines_of.items():
        if tally.count[kind] > least * total:
            yield Finding(kind, f"{share(tally.count[kind], total)} of a sample {what}; {tally.where(kind)}")
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
    tally = OddRows()
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


def names_column(cell: str, side: SideStatistics) -> bool:
    """Whether a first cell seems to name its column: a word or a few that never come again, where texts are longer, or
    where no others are of letters alone, as of numbers and dates."""
    words = cell.split()
    if not 1 <= len(words) <= 3 or not all(word.isidentifier() and side.vocabulary[word] == 1 for word in words):
        return False
    written = sum(count for word, count in side.vocabulary.items() if word.isidentifier())
    return side.mean_words > 2 * len(words) or written == len(words) < side.words


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
        return (
            f"a row of the {what} has {here.mean_words:.1f} words in the mean, one to train on {train.mean_words:.1f}: "
            f"are they of the same kind?"
        )
    return ""
