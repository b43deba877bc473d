"""One vocabulary: text to ids, ids to text, and what each piece is."""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tokenizers
from tokenizers import decoders, models

from regard.errors import DataError
from regard.text.config import MASK

JOINER = "￭"  # on a piece: no space between it and its neighbour on that side
SPACE = "␣"  # a space that does not stand between two words: doubled, leading or trailing
LINE = "↵"  # how a line break is shown
WORD_START = "▁"  # unigram: the space before a word

# What each special token is called, ours first, then in vocabularies trained elsewhere.
_NAMES = {
    "pad": ("<pad>", "[PAD]"),
    "bos": ("<bos>", "<s>", "[CLS]", "<|endoftext|>"),
    "eos": ("<eos>", "</s>", "[SEP]", "<|endoftext|>"),
    "unk": ("<unk>", "[UNK]", "<|endoftext|>"),
    "mask": (MASK, "[MASK]"),
}
MASKS = _NAMES["mask"]
NOT_CUT = "\uffff"
"""Before a piece that has a number but that text is not cut into: no text has this character, for it stands for none.
Where an unknown run of characters is such a piece as a whole, it has the piece's number."""
UNNUMBERED = "\uffff\uffff"
"""The entry from which on pieces have no number: text is cut into them, and they count as unknown."""


@contextmanager
def panics(what: str) -> Iterator[None]:
    """Turn a panic of the library into a DataError that says `what` the tokenizer could not do.

    Its panics are no `Exception`, so nothing else catches them: not the command line, nor a server's worker.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        before = f"the tokenizer {what}: " if what else ""
        raise DataError(f"{before}it failed with '{str(error).strip()[:200]}'") from None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}...")


LARGEST_VOCABULARY = 1 << 20
"""Entries of a vocabulary: the largest in use have 900,000."""


class Tokenizer:
    """Text to token ids and back.

    Neither direction deals in special tokens: `encode` adds none and takes text that spells one as plain text,
    `decode` leaves out padding, beginning and end. An unknown word decodes as `<unk>`.
    `eos` names the token that ends a text in a vocabulary from elsewhere; it then also stands for special tokens that
    are not there. `bos` names the one that a decoder begins with. `opening` is what such a tokenizer puts before every
    text.
    """

    def __init__(self, inner: tokenizers.Tokenizer, eos: str | None = None, bos: str | None = None) -> None:
        self._inner = inner
        self._end, self._begin = eos, bos
        # Not part of the JSON, so set here: "<eos>" typed by a user must not end a sentence.
        self._inner.encode_special_tokens = True
        self.pad = self._special("pad")
        self.bos = self._special("bos")
        self.eos = self._special("eos")
        self.unk = self._special("unk")
        self.mask = self._maybe("mask")
        """What stands for a masked word; None in a vocabulary without it."""
        self._numbered = self._inner.token_to_id(UNNUMBERED)
        self._marked = isinstance(self._inner.model, models.Unigram) and any(
            len(name) > 1 and name[0] == NOT_CUT for name in self._inner.get_vocab(with_added_tokens=False)
        )
        self.opening = self._opening()
        self._pieces: dict[int, str] = {}  # those looked at, since looking takes longer than a step of a small model
        self._silent = frozenset((self.pad, self.bos, self.eos, *self.opening))

    def _opening(self) -> tuple[int, ...]:
        """What a tokenizer from elsewhere puts before every text: `bos`, for some."""
        ids = self._inner.encode("", add_special_tokens=True).ids
        return tuple(ids[:-1] if ids[-1:] == [self.eos] else ids)

    @property
    def special_names(self) -> tuple[str | None, str | None]:
        """The names of `eos` and `bos` that `from_json` needs beside the JSON, in a vocabulary from elsewhere."""
        return self._end, self._begin

    @property
    def inner(self) -> tokenizers.Tokenizer:
        """The library's own."""
        return self._inner

    @property
    def vocab_size(self) -> int:
        return self._inner.get_vocab_size() if self._numbered is None else self._numbered

    def encode(self, text: str) -> list[int]:
        """The ids of the text's pieces."""
        return self._ids(self._checked(self._inner.encode, text))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, all cores at work."""
        # The fast one forgets what an unknown piece was.
        encode = self._inner.encode_batch if self._marked else self._inner.encode_batch_fast
        return [self._ids(encoding) for encoding in self._checked(encode, list(texts))]

    def decode(self, ids: Sequence[int]) -> str:
        """The text that the ids stand for."""
        # skip_special_tokens would silently drop unknown words as well.
        kept = [i for i in ids if i not in self._silent]
        with panics(f"cannot decode the tokens {kept[:20]}"):
            text = self._inner.decode(kept, skip_special_tokens=False)
        return text.replace(NOT_CUT, "") if self._marked else text

    def decode_batch(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of ids, all cores at work."""
        kept = [[i for i in ids if i not in self._silent] for ids in rows]
        with panics("cannot decode these tokens"):
            texts = self._inner.decode_batch(kept, skip_special_tokens=False)
        return [text.replace(NOT_CUT, "") for text in texts] if self._marked else texts

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """A readable text for each id, special tokens by name; bytes that are no whole character as `\\xe2`."""
        known = self._pieces
        for index in set(ids).difference(known):
            known[index] = self._readable(self._token(index))
        return [known[index] for index in ids]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """The span of characters of `text` that each piece covers; pieces of one character share its span."""
        spans: list[tuple[int, int]] = []
        end = 0
        for start, stop in self._checked(self._inner.encode, text).offsets:
            # A mark put before a piece counts as part of the character before it; the piece itself begins after.
            start = end if start < end < stop else start
            spans.append((start, stop))
            end = stop
        return spans

    def unknown_words(self, text: str) -> tuple[str, ...]:
        """What of a text is unknown and so read as one and the same, each once: words, or characters.

        Not the name of the unknown word itself, which a text may hold.
        """
        ids = self.encode(text)
        if self.unk not in ids:
            return ()
        spans, own = self.offsets(text), self._token(self.unk)
        found = [text[start:end].strip() for index, (start, end) in zip(ids, spans, strict=True) if index == self.unk]
        return tuple(dict.fromkeys(word for word in found if word and word != own))

    def words(self, texts: Sequence[str]) -> list[tuple[list[int], list[int]]]:
        """The ids of each text's pieces, and the number of the word that each piece is part of."""
        return [
            (self._ids(encoding), [-1 if word is None else word for word in encoding.word_ids])
            for encoding in self._checked(self._inner.encode_batch, list(texts))
        ]

    def split(self, text: str) -> list[str]:
        """The words that pieces are made of, each as the vocabulary writes it."""
        with panics(f"cannot read {_shown(text)}"):
            if self._inner.normalizer is not None:
                text = self._inner.normalizer.normalize_str(text)
            if self._inner.pre_tokenizer is None:
                return [text]
            return [word for word, _ in self._inner.pre_tokenizer.pre_tokenize_str(text)]

    def with_special_tokens(
        self, text: str, second: str | None = None
    ) -> tuple[list[int], list[int], list[int]] | None:
        """Ids, the text that each is of (-1: neither) and segments, as the tokenizer itself puts special tokens
        around texts; None where it adds none."""
        with panics(f"cannot read {_shown(text)}" + ("" if second is None else f" beside {_shown(second)}")):
            encoding = self._inner.encode(text, second, add_special_tokens=True)
        sources = [-1 if source is None else source for source in encoding.sequence_ids]
        return (self._ids(encoding), sources, encoding.type_ids) if -1 in sources else None

    def encode_masked(self, text: str) -> list[int]:
        """The ids of a text in which `[MASK]`, `<mask>` or the vocabulary's own name stands for a masked word."""
        if self.mask is None:
            raise DataError("the vocabulary has no mask token")
        token = self._inner.get_added_tokens_decoder().get(self.mask)
        names = {self._token(self.mask), *MASKS}
        parts = re.split("|".join(re.escape(name) for name in sorted(names)), text)
        ids: list[int] = []
        for index, part in enumerate(parts):
            # A mask may take the spaces beside it along: before a word they are part of its first piece.
            part = part.rstrip() if token is not None and token.lstrip and index + 1 < len(parts) else part
            part = part.lstrip() if token is not None and token.rstrip and index else part
            ids += [self.mask] * (index > 0) + self.encode(part)
        return ids

    def specials(self) -> frozenset[int]:
        """The ids of all special tokens."""
        added = {index for index, token in self._inner.get_added_tokens_decoder().items() if token.special}
        found = {self.pad, self.bos, self.eos, self.unk} | ({self.mask} if self.mask is not None else set())
        return frozenset(added | found)

    def to_json(self) -> str:
        """The whole tokenizer as JSON that `tokenizers.Tokenizer.from_str` reads as well."""
        return self._inner.to_str()

    @classmethod
    def from_json(cls, text: str, eos: str | None = None, bos: str | None = None) -> "Tokenizer":
        try:
            with panics(""):
                inner = tokenizers.Tokenizer.from_str(text)
                # Rows are cut and filled up by those who make them. A file could ask for any number of tokens more.
                inner.no_padding()
                inner.no_truncation()
                inner.encode("", "")  # only now does the library look for the special tokens that it puts around texts
                inner.encode("")
        except MemoryError:
            raise
        except Exception as error:  # the library raises plain Exception
            raise DataError(f"not a tokenizer: {error}") from None
        return cls(inner, eos, bos)

    def digest(self) -> str:
        """A name for exactly this tokenizer: the same for any two that give the same ids."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def _checked(self, encode: Callable[..., Any], given: str | list[str]) -> Any:
        """What the library's `encode` makes of the text, or a reason why it is not text."""
        texts = [given] if isinstance(given, str) else given
        try:
            with panics(""):
                return encode(given, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError):
            for text in texts if isinstance(texts, list) else [texts]:
                if not isinstance(text, str):
                    raise DataError(f"only text can be cut into tokens, not {text!r:.60}") from None
                if any("\ud800" <= character <= "\udfff" for character in text):
                    raise DataError(f"{text[:40]!r} is not Unicode text: it holds half of a surrogate pair") from None
            raise
        except DataError:
            for text in texts:  # which of them it is
                with panics(f"cannot read {_shown(text)}"):
                    self._inner.encode(text, add_special_tokens=False)
            raise

    def _ids(self, encoding: tokenizers.Encoding) -> list[int]:
        """The number of each piece, or that of an unknown one."""
        if not self._marked:
            return encoding.ids
        numbers = []
        for index, token in zip(encoding.ids, encoding.tokens, strict=True):
            if index == self.unk or index >= self.vocab_size:
                found = self._inner.token_to_id(NOT_CUT + token)
                index = self.unk if found is None else found
            numbers.append(index)
        return numbers

    def _token(self, index: int) -> str:
        token = self._inner.id_to_token(index)
        if token is None or index >= self.vocab_size:
            raise DataError(f"no token has id {index}; the vocabulary has {self.vocab_size}")
        return token

    def _readable(self, token: str) -> str:
        if self._inner.token_to_id(token) in (self.pad, self.bos, self.eos, self.unk, self.mask):
            return token
        if isinstance(self._inner.decoder, decoders.ByteLevel):
            return bytes(_BYTE_OF[character] for character in token).decode("utf-8", errors="backslashreplace")
        if isinstance(self._inner.model, models.Unigram):
            return (token.removeprefix(NOT_CUT) if self._marked else token).replace(WORD_START, " ")
        return {" ": SPACE, "\n": LINE}.get(token, token)

    def _maybe(self, role: str) -> int | None:
        found = (self._inner.token_to_id(name) for name in _NAMES[role])
        return next((index for index in found if index is not None), None)

    def _special(self, role: str) -> int:
        named = {"eos": self._end, "bos": self._begin}.get(role)
        names = (named,) if named else _NAMES[role] if self._end is None else (*_NAMES[role], self._end)
        for name in names:
            index = self._inner.token_to_id(name)
            if index is not None:
                return index
        raise DataError(f"the vocabulary has no {role} token; known names: {', '.join(_NAMES[role])}")


def check_size(state: object) -> None:
    """Refuse the JSON of a tokenizer with more entries than any vocabulary has, before the library makes one of it."""
    model = state.get("model") if isinstance(state, dict) else None
    if not isinstance(state, dict) or not isinstance(model, dict):
        return  # no tokenizer at all, which the library says
    for name, entries in (("vocabulary", model.get("vocab")), ("list of added tokens", state.get("added_tokens"))):
        if isinstance(entries, (dict, list)) and len(entries) > LARGEST_VOCABULARY:
            raise DataError(f"its {name} has {len(entries):,} entries; at most {LARGEST_VOCABULARY:,} are read")


def _byte_characters() -> dict[str, int]:
    """Byte-level vocabularies write each byte as a printable character: itself where it is one, else 256 and on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTE_OF = _byte_characters()
