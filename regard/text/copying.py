"""Tokenizers that number the unknown words of one source after the vocabulary, so that they can be copied."""

from collections.abc import Sequence
from dataclasses import replace

from tokenizers import decoders

from regard.text.tokenizer import Tokenizer, panics
from regard.text.vocabularies import Vocabularies


def reading(vocabularies: Vocabularies, source: str) -> Vocabularies:
    """The joint vocabulary, extended by the words of `source` that it does not know, in order."""
    base = vocabularies.source
    ids, words = base.encode(source), surface(base, source)
    unknown = dict.fromkeys(word for word, index in zip(words, ids, strict=True) if index == base.unk)
    if not unknown:
        return vocabularies
    extended = ExtendedTokenizer(base, tuple(unknown))
    return replace(vocabularies, source=extended, target=extended)


def surface(tokenizer: Tokenizer, text: str) -> list[str]:
    """The words of the text as a word tokenizer cuts it, known or not, one for each id."""
    inner = tokenizer.inner
    with panics(f"cannot read {text[:60]!r}"):
        normal = text if inner.normalizer is None else inner.normalizer.normalize_str(text)
        return [word for word, _ in inner.pre_tokenizer.pre_tokenize_str(normal)]


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
            for word, index in zip(surface(self, text), ids, strict=True)
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
    read = reading(vocabularies, source)
    return read.source.encode(source), read.target.encode(target)
