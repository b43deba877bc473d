"""Which tokenizer to train, and how large."""

from dataclasses import dataclass
from typing import Literal, get_args

from regard.errors import ConfigError, nearest

Kind = Literal["word", "character", "bpe", "wordpiece", "unigram"]

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
BYTES = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerConfig:
    """Settings of a tokenizer to be trained.

    `bpe` works on bytes, so it knows every text and gives it back exactly. `word`, `character` and `unigram` give
    back every text whose words or characters they know, but `word` takes the marks ￭ and ␣ for its own, and `unigram`
    the mark ▁. `wordpiece` forgets how words were spaced.
    `vocab_size` counts the four special tokens too; a small corpus may fill less of it. `joint` shares one
    vocabulary between source and target. `min_count` is how often a word, or a pair of pieces, must occur to get
    a token of its own; `unigram` weighs pieces by likelihood and ignores it.
    """

    kind: Kind = "bpe"
    vocab_size: int = 8000
    joint: bool = True
    lowercase: bool = False
    min_count: int = 1

    def __post_init__(self) -> None:
        kinds = get_args(Kind)
        if self.kind not in kinds:
            raise ConfigError(f"kind={self.kind!r} must be one of {', '.join(kinds)}{nearest(str(self.kind), kinds)}")
        if self.kind == "bpe" and self.vocab_size < BYTES + len(SPECIALS):
            raise ConfigError(
                f"vocab_size={self.vocab_size} must be at least {BYTES + len(SPECIALS)} for kind='bpe': "
                f"{BYTES} bytes and {len(SPECIALS)} special tokens"
            )
        if self.vocab_size <= len(SPECIALS):
            raise ConfigError(f"vocab_size={self.vocab_size} must exceed the {len(SPECIALS)} special tokens")
        if self.min_count < 1:
            raise ConfigError(f"min_count={self.min_count} must be at least 1")
