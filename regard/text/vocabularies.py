"""The source's and the target's tokenizer, kept together in one `tokenizer.json`; extended by words to be copied."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import decoders

from regard.config import bounded_text
from regard.errors import RegardError, RunError
from regard.text.tokenizer import Tokenizer, check_size

LARGEST_FILE = 256 << 20
"""Bytes of the largest `tokenizer.json` that is read: some times what a large vocabulary takes."""


@dataclass(frozen=True, slots=True)
class Vocabularies:
    """How each side of a pair becomes ids: one and the same tokenizer when the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source is self.target

    def source_row(self, ids: Sequence[int]) -> list[int]:
        """What an encoder reads for these pieces: with what the tokenizer puts before every text, and `eos`."""
        return [*self.source.opening, *ids, self.source.eos]

    def target_row(self, ids: Sequence[int]) -> list[int]:
        """What a decoder is to write for these pieces, after the `bos` that it begins with, `eos` and all."""
        return [self.target.bos, *self.target.opening, *ids, self.target.eos]

    def digest(self) -> str:
        """A name for exactly these vocabularies."""
        return self.source.digest() if self.joint else f"{self.source.digest()}-{self.target.digest()}"

    def save(self, path: Path) -> None:
        """Write them to one file. A joint vocabulary is the plain JSON of the `tokenizers` library."""
        text = self.source.to_json()
        if not self.joint:
            text = f'{{"source": {text}, "target": {self.target.to_json()}}}'
        aside = path.with_name(f".{path.name}.partial")
        try:
            with aside.open("w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except OSError as error:
            aside.unlink(missing_ok=True)
            raise RunError(f"cannot write {path}: {error.strerror}") from None

    @classmethod
    def load(cls, path: Path, eos: str | None = None, bos: str | None = None) -> "Vocabularies":
        """The vocabularies that `save` wrote, or a single tokenizer that any other tool saved, for both sides.

        `eos` names the token that ends a text in such a one, `bos` the one that a decoder begins with.
        """
        try:
            text = bounded_text(path, LARGEST_FILE, RunError, regular=True)
            state = json.loads(text)
        except FileNotFoundError:
            raise RunError(f"no such file: {path}") from None
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise RunError(f"{path} is not a tokenizer: {error}") from None
        try:
            if isinstance(state, dict) and state.keys() == {"source", "target"}:
                sides = state["source"], state["target"]
                for side in sides:
                    check_size(side)
                return cls(*(Tokenizer.from_json(json.dumps(side), eos, bos) for side in sides))
            check_size(state)
            shared = Tokenizer.from_json(text, eos, bos)
            return cls(shared, shared)
        except RegardError as error:
            raise RunError(f"{path}: {error}") from None


def extended(vocabularies: Vocabularies, source: str) -> Vocabularies:
    """The joint vocabulary, extended for copying by the words of `source` that it does not know, in order."""
    base = vocabularies.source
    ids, words = base.encode(source), base.split(source)
    unknown = dict.fromkeys(word for word, index in zip(words, ids, strict=True) if index == base.unk)
    if not unknown:
        return vocabularies
    tokenizer = ExtendedTokenizer(base, tuple(unknown))
    return Vocabularies(tokenizer, tokenizer)


class ExtendedTokenizer(Tokenizer):
    """A word tokenizer with `extra` words, numbered after its own."""

    def __init__(self, base: Tokenizer, words: tuple[str, ...]) -> None:
        super().__init__(base.inner)
        self.extra = words
        self._numbers = {word: base.vocab_size + number for number, word in enumerate(words)}

    def encode(self, text: str) -> list[int]:
        ids = super().encode(text)
        if self.unk not in ids:
            return ids
        return [
            self._numbers.get(word, index) if index == self.unk else index
            for word, index in zip(self.split(text), ids, strict=True)
        ]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        decoder = self.inner.decoder
        assert isinstance(decoder, decoders.Decoder)
        return decoder.decode([self._token(index) for index in ids if index not in (self.pad, self.bos, self.eos)])

    def _token(self, index: int) -> str:
        beyond = index - self.vocab_size
        return self.extra[beyond] if 0 <= beyond < len(self.extra) else super()._token(index)


def encode_with_copies(vocabularies: Vocabularies, source: str, target: str) -> tuple[list[int], list[int]]:
    """Both texts as ids; what only the source knows is numbered alike in both."""
    read = extended(vocabularies, source)
    return read.source.encode(source), read.target.encode(target)
