"""Texts to what an encoder reads: special tokens around a text or a pair, as [CLS] first [SEP] second [SEP]."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from regard.errors import DataError
from regard.text.tokenizer import Tokenizer

Overlong = Literal["skip", "truncate", "refuse"]
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class EncoderInput:
    """A row as an encoder reads it. `sources` says for each token which text it is of, and -1 of special ones."""

    ids: list[int]
    segments: list[int]
    sources: list[int]


@dataclass(frozen=True, slots=True)
class InputTemplate:
    """Special tokens before, between and after the texts, and the segments of all. The tokenizer's own are found by
    asking it."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    alone: tuple[int, ...]
    """After one text without a second."""
    segments: tuple[int, int, int, int, int]
    """Of what stands before, the first text, between, the second text, after."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "InputTemplate":
        """As the tokenizer does it itself; one that adds nothing is given `bos` and `eos`."""
        pair, one = tokenizer.with_special_tokens("a", "a"), tokenizer.with_special_tokens("a")
        if pair is None or one is None:
            return cls((tokenizer.bos,), (tokenizer.eos,), (tokenizer.eos,), (tokenizer.eos,), (0, 0, 0, 1, 1))
        ids, sources, segments = pair
        firsts = [place for place, source in enumerate(sources) if source == 0]
        seconds = [place for place, source in enumerate(sources) if source == 1]
        if not firsts or not seconds or firsts[-1] > seconds[0]:
            raise DataError("the tokenizer does not put one text after another, so it cannot make inputs of pairs")
        begin, end = firsts[0], firsts[-1] + 1
        then, last = seconds[0], seconds[-1] + 1
        lone = one[0][max(place for place, source in enumerate(one[1]) if source == 0) + 1 :]
        kinds = (
            segments[0],
            segments[begin],
            segments[end] if then > end else segments[begin],
            segments[then],
            segments[-1],
        )
        return cls(tuple(ids[:begin]), tuple(ids[end:then]), tuple(ids[last:]), tuple(lone), kinds)

    def room(self, length: int, pair: bool) -> int:
        """Tokens of texts that a row of `length` holds beside the special ones."""
        taken = len(self.before) + (len(self.between) + len(self.after) if pair else len(self.alone))
        return length - taken

    def build(self, first: Sequence[int], second: Sequence[int] | None = None) -> EncoderInput:
        """The row of one text, or of two."""
        if second is None:
            parts = [(self.before, 0, -1), (first, 1, 0), (self.alone, 2, -1)]
        else:
            parts = [(self.before, 0, -1), (first, 1, 0), (self.between, 2, -1), (second, 3, 1), (self.after, 4, -1)]
        return EncoderInput(
            [token for ids, _, _ in parts for token in ids],
            [self.segments[kind] for ids, kind, _ in parts for _ in ids],
            [source for ids, _, source in parts for _ in ids],
        )


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """An input with a part of a text, and for each of its tokens the characters of the text that it covers; None of
    those that are not of the text."""

    row: EncoderInput
    spans: tuple[Span | None, ...]


class InputBuilder:
    """Encodes texts with a tokenizer, and builds inputs of at most `length` tokens of them."""

    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        self.tokenizer, self.length = tokenizer, length
        self.template = InputTemplate.of(tokenizer)
        self.truncated = 0
        """How many inputs lost tokens so far."""

    def texts(self, first: str, second: str | None = None, overlong: Overlong = "truncate") -> EncoderInput | None:
        """The row of one text or two. Of texts too long together the longer loses its end first; None to be skipped."""
        encode = self.tokenizer.encode
        return self.ids(encode(first), None if second is None else encode(second), overlong)

    def too_long(self, texts: str | Sequence[str]) -> bool:
        """Whether a text, or two together, lose tokens."""
        several = (texts,) if isinstance(texts, str) else texts
        return sum(len(self.tokenizer.encode(one)) for one in several) > self.template.room(
            self.length, len(several) > 1
        )

    def ids(
        self, first: Sequence[int], second: Sequence[int] | None = None, overlong: Overlong = "truncate"
    ) -> EncoderInput | None:
        """The same of texts that are ids already."""
        room = self.template.room(self.length, second is not None)
        one, other = truncate_pair(len(first), None if second is None else len(second), room)
        size = len(first) + len(second or ())
        if one + other < size and overlong == "refuse":
            raise DataError(f"a text of {size} tokens is longer than the {room} that the model reads")
        if one + other < size and overlong == "skip":
            return None
        self.truncated += one + other < size
        return self.template.build(first[:one], None if second is None else second[:other])

    def words(self, words: Sequence[str]) -> list[tuple[EncoderInput, dict[int, int]]]:
        """The words of a sentence in as many rows as they need, and where in its row each word's first token stands.

        A word that the tokenizer makes nothing of, and one that fills a row alone, may be in none.
        """
        text = " ".join(words)
        ids, spans = self.tokenizer.encode(text), self.tokenizer.offsets(text)
        word_of = [place for place, word in enumerate(words) for _ in range(len(word) + 1)]
        of = [word_of[max(start, stop - 1)] for start, stop in spans]
        room, found = max(1, self.template.room(self.length, pair=False)), []
        start = 0
        while start < len(ids):
            stop = cut = min(len(ids), start + room)
            while start < cut < len(ids) and of[cut] == of[cut - 1]:
                cut -= 1
            stop = cut if cut > start else stop  # a word is cut only where it fills the row alone
            before = len(self.template.before)
            first = {}
            for place in range(start, stop):
                if place == 0 or of[place] != of[place - 1]:
                    first[of[place]] = before + place - start
            found.append((self.template.build(ids[start:stop]), first))
            start = stop
        return found

    def question(self, question: str, context: str) -> list[ContextWindow]:
        """A question with every window of the text that fits beside it; each begins halfway through the one before."""
        asked = self.tokenizer.encode(question)[: self.length // 2]
        ids, spans = self.tokenizer.encode(context), self.tokenizer.offsets(context)
        room = self.template.room(self.length, pair=True) - len(asked)
        if room < 1:
            raise DataError(f"a row of {self.length} tokens has no room for a text beside the question")
        found: list[ContextWindow] = []
        start = 0
        while True:
            row = self.template.build(asked, ids[start : start + room])
            inside = iter(spans[start : start + room])
            found.append(ContextWindow(row, tuple(next(inside) if source == 1 else None for source in row.sources)))
            if start + room >= len(ids):
                return found
            start += max(1, room // 2)


def truncate_pair(first: int, second: int | None, room: int) -> tuple[int, int]:
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
