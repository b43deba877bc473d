"""The special tokens of Whisper's vocabularies, by their names: languages, what is asked for, and timestamps."""

import re
from dataclasses import dataclass
from functools import cached_property

from regard.errors import ConfigError, DataError, nearest
from regard.text.tokenizer import Tokenizer

RATE, HOP, WINDOW = 16_000, 160, 400
"""Samples per second, and those of the step and of the window from which a log-mel frame is made."""
SECONDS = 0.02
"""From one timestamp to the next."""


def timestamp_names(count: int) -> list[str]:
    """What the timestamps are called: <|0.00|>, <|0.02|> and so on."""
    return [f"<|{index * SECONDS:.2f}|>" for index in range(count)]


@dataclass(frozen=True)
class WhisperTokens:
    """The numbers of special tokens. Timestamps are all tokens from `first_timestamp` on."""

    start: int
    eos: int
    no_timestamps: int
    transcribe: int | None
    translate: int | None
    previous: int | None
    languages: dict[str, int]
    special: frozenset[int]
    no_speech: int | None = None

    @cached_property
    def first_timestamp(self) -> int:
        return self.no_timestamps + 1

    def is_timestamp(self, token: int) -> bool:
        return token >= self.first_timestamp

    def seconds(self, token: int) -> float:
        """The time that a timestamp names, from the beginning of its window."""
        return (token - self.first_timestamp) * SECONDS

    def text(self, tokens: list[int]) -> list[int]:
        """The tokens that are part of a text."""
        return [token for token in tokens if token not in self.special and token < self.first_timestamp]

    def language(self, code: str) -> int:
        """The token of a language: `en`, or `<|en|>`."""
        plain = code.strip().lower().removeprefix("<|").removesuffix("|>")
        if plain not in self.languages:
            hint = nearest(plain, self.languages)
            raise ConfigError(f"language='{code}' is not one that this model knows{hint}")
        return self.languages[plain]


def whisper_tokens(tokenizer: Tokenizer) -> WhisperTokens:
    """The special tokens of a vocabulary."""
    inner, special = tokenizer.inner, tokenizer.specials()
    names = {name: inner.token_to_id(name) for name in ("<|notimestamps|>", "<|transcribe|>", "<|translate|>")}
    if (last := names["<|notimestamps|>"]) is None:
        raise DataError("the vocabulary has no <|notimestamps|>, so it is not one of Whisper's")
    # Languages are codes of two or three letters between the token that begins and those that say what to do.
    codes = {}
    for token in sorted(special):
        found = re.fullmatch(r"<\|([a-z]{2,3})\|>", inner.id_to_token(token) or "")
        if found and tokenizer.bos < token < last:
            codes[found[1]] = token
    return WhisperTokens(
        start=tokenizer.bos,
        eos=tokenizer.eos,
        no_timestamps=last,
        transcribe=names["<|transcribe|>"],
        translate=names["<|translate|>"],
        previous=inner.token_to_id("<|startofprev|>"),
        languages=codes,
        special=special,
        no_speech=inner.token_to_id("<|nospeech|>") or inner.token_to_id("<|nocaptions|>"),
    )
