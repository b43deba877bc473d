"""What a tokenizer puts around a text, or around two: [CLS] first [SEP] second [SEP]."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import DataError
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Framed:
    """A row as an encoder reads it. `sources` says for each token which text it is of, and -1 of special ones."""

    ids: list[int]
    segments: list[int]
    sources: list[int]


@dataclass(frozen=True, slots=True)
class Framing:
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
    def of(cls, tokenizer: Tokenizer) -> "Framing":
        """As the tokenizer does it itself; one that adds nothing is given `bos` and `eos`."""
        pair, one = tokenizer.framed("a", "a"), tokenizer.framed("a")
        if pair is None or one is None:
            return cls((tokenizer.bos,), (tokenizer.eos,), (tokenizer.eos,), (tokenizer.eos,), (0, 0, 0, 1, 1))
        ids, sources, segments = pair
        firsts = [place for place, source in enumerate(sources) if source == 0]
        seconds = [place for place, source in enumerate(sources) if source == 1]
        if not firsts or not seconds or firsts[-1] > seconds[0]:
            raise DataError("the tokenizer does not put one text after another, so it cannot frame pairs")
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

    def frame(self, first: Sequence[int], second: Sequence[int] | None = None) -> Framed:
        """The row of one text, or of two."""
        if second is None:
            parts = [(self.before, 0, -1), (first, 1, 0), (self.alone, 2, -1)]
        else:
            parts = [(self.before, 0, -1), (first, 1, 0), (self.between, 2, -1), (second, 3, 1), (self.after, 4, -1)]
        return Framed(
            [token for ids, _, _ in parts for token in ids],
            [self.segments[kind] for ids, kind, _ in parts for _ in ids],
            [source for ids, _, source in parts for _ in ids],
        )
