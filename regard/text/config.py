"""Which tokenizer to train, and how large."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from regard.errors import ConfigError, nearest

Kind = Literal["word", "spaced", "character", "bpe", "wordpiece", "unigram"]

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
MASK = "<mask>"
BYTES = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerConfig:
    """Settings of a tokenizer to be trained.

    `bpe` works on bytes, so it knows every text and gives it back exactly. `word`, `character` and `unigram` give
    back every text whose words or characters they know, but `word` takes the marks ￭ and ␣ for its own, and `unigram`
    the mark ▁. `wordpiece` forgets how words were spaced. `spaced` is for text that is prepared already: its tokens are
    what spaces separate, and line breaks; a word `<unk>` is the unknown word itself.
    `vocab_size` counts the four special tokens too; a small corpus may fill less of it. `joint` shares one
    vocabulary between source and target. `min_count` is how often a word, or a pair of pieces, must occur to get
    a token of its own; `unigram` weighs pieces by likelihood and ignores it. `source_kind` and `target_kind` give a
    side another kind than `kind`. `dropout` is BPE dropout in training, in `variants` ways. `sample` is how many texts
    or pairs, taken at random, a tokenizer is trained on, where there are more; 0 takes all.
    `eos` and `bos` are of imported tokenizers: the names of the tokens that end a text and that a decoder begins with.
    `taken_from` is a run whose tokenizer is taken instead of training one; the other settings are then that run's.
    With `retrain` a run that starts from another has a tokenizer of its own, trained on its own data in the other's
    way: pieces that both have keep what was learnt of them, others begin at random.
    """

    kind: Kind = "bpe"
    vocab_size: int = 8000
    joint: bool = True
    lowercase: bool = False
    min_count: int = 1
    eos: str | None = None
    bos: str | None = None
    source_kind: Kind | None = None
    target_kind: Kind | None = None
    dropout: float = 0.0
    variants: int = 8
    sample: int = 0
    taken_from: str | None = None
    retrain: bool = False

    def __post_init__(self) -> None:
        kinds = get_args(Kind)
        if self.kind not in kinds:
            raise ConfigError(f"kind={self.kind!r} must be one of {', '.join(kinds)}{nearest(str(self.kind), kinds)}")
        if self.joint and (self.source_kind or self.target_kind):
            raise ConfigError("source_kind and target_kind are for sides of their own: set joint=false")
        if "bpe" in self.kinds and self.vocab_size < BYTES + len(SPECIALS):
            raise ConfigError(
                f"vocab_size={self.vocab_size} must be at least {BYTES + len(SPECIALS)} for kind='bpe': "
                f"{BYTES} bytes and {len(SPECIALS)} special tokens"
            )
        if self.vocab_size <= len(SPECIALS):
            raise ConfigError(f"vocab_size={self.vocab_size} must exceed the {len(SPECIALS)} special tokens")
        if not 0.0 <= self.dropout < 1.0:
            raise ConfigError(f"dropout={self.dropout} must be at least 0 and below 1")
        if self.dropout and "bpe" not in self.kinds:
            raise ConfigError(f"dropout={self.dropout} leaves out merges, which only kind='bpe' has")
        if self.variants < 1:
            raise ConfigError(f"variants={self.variants} must be at least 1")
        if self.sample < 0:
            raise ConfigError(f"sample={self.sample} must not be negative; 0 trains the tokenizer on all texts")
        if self.min_count < 1:
            raise ConfigError(f"min_count={self.min_count} must be at least 1")

    @property
    def kinds(self) -> tuple[Kind, Kind]:
        """The source's kind and the target's."""
        return self.source_kind or self.kind, self.target_kind or self.kind

    def side(self, kind: Kind) -> "TokenizerConfig":
        """The settings of one side's tokenizer."""
        dropout = self.dropout if kind == "bpe" else 0.0
        return replace(self, kind=kind, source_kind=None, target_kind=None, dropout=dropout)
