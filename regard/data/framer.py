"""Texts to the rows that an encoder reads: a text or a pair, words to be tagged, a question and a stretch of text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from regard.errors import DataError
from regard.text import Tokenizer
from regard.text.framing import Framed, Framing

Overlong = Literal["skip", "truncate", "refuse"]
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A row with a part of a text, and for each of its tokens the characters of the text that it covers; None of those
    that are not of the text."""

    row: Framed
    spans: tuple[Span | None, ...]


class Framer:
    """Frames texts with a tokenizer, in rows of at most `length` tokens."""

    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        self.tokenizer, self.length = tokenizer, length
        self.framing = Framing.of(tokenizer)

    def texts(self, first: str, second: str | None = None, overlong: Overlong = "truncate") -> Framed | None:
        """The row of one text or two. Of texts too long together the longer loses its end first; None to be skipped."""
        encode = self.tokenizer.encode
        return self.ids(encode(first), None if second is None else encode(second), overlong)

    def ids(
        self, first: Sequence[int], second: Sequence[int] | None = None, overlong: Overlong = "truncate"
    ) -> Framed | None:
        """The same of texts that are ids already."""
        room = self.framing.room(self.length, second is not None)
        one, other = fit_pair(len(first), None if second is None else len(second), room)
        size = len(first) + len(second or ())
        if one + other < size and overlong == "refuse":
            raise DataError(f"a text of {size} tokens is longer than the {room} that the model reads")
        if one + other < size and overlong == "skip":
            return None
        return self.framing.frame(first[:one], None if second is None else second[:other])

    def words(self, words: Sequence[str]) -> list[tuple[Framed, dict[int, int]]]:
        """The words of a sentence in as many rows as they need, and where in its row each word's first token stands.

        A word that the tokenizer makes nothing of, and one that fills a row alone, may be in none.
        """
        text = " ".join(words)
        ids, spans = self.tokenizer.encode(text), self.tokenizer.offsets(text)
        word_of = [place for place, word in enumerate(words) for _ in range(len(word) + 1)]
        of = [word_of[max(start, stop - 1)] for start, stop in spans]
        room, found = max(1, self.framing.room(self.length, pair=False)), []
        start = 0
        while start < len(ids):
            stop = cut = min(len(ids), start + room)
            while start < cut < len(ids) and of[cut] == of[cut - 1]:
                cut -= 1
            stop = cut if cut > start else stop  # a word is cut only where it fills the row alone
            before = len(self.framing.before)
            first = {}
            for place in range(start, stop):
                if place == 0 or of[place] != of[place - 1]:
                    first[of[place]] = before + place - start
            found.append((self.framing.frame(ids[start:stop]), first))
            start = stop
        return found

    def question(self, question: str, context: str) -> list[Stretch]:
        """A question with every stretch of the text that fits beside it; each begins halfway through the one before."""
        asked = self.tokenizer.encode(question)[: self.length // 2]
        ids, spans = self.tokenizer.encode(context), self.tokenizer.offsets(context)
        room = self.framing.room(self.length, pair=True) - len(asked)
        if room < 1:
            raise DataError(f"a row of {self.length} tokens has no room for a text beside the question")
        found: list[Stretch] = []
        start = 0
        while True:
            row = self.framing.frame(asked, ids[start : start + room])
            inside = iter(spans[start : start + room])
            found.append(Stretch(row, tuple(next(inside) if source == 1 else None for source in row.sources)))
            if start + room >= len(ids):
                return found
            start += max(1, room // 2)


def fit_pair(first: int, second: int | None, room: int) -> tuple[int, int]:
    """How many tokens of each text fit into `room`: the longer one loses first, as in BERT."""
    if second is None:
        return max(0, min(first, room)), 0
    spare = max(0, first + second - room)
    if first > second:
        taken = min(spare, first - second)
        first, spare = first - taken, spare - taken
    else:
        taken = min(spare, second - first)
        second, spare = second - taken, spare - taken
    return max(0, first - spare // 2), max(0, second - (spare + 1) // 2)
