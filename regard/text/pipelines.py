"""The parts of each kind of tokenizer, all carried by its JSON: what splits text, and what joins it again."""

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from regard.text.config import SPECIALS, Kind

JOINER = "￭"  # on a piece: no space between it and its neighbour on that side
SPACE = "␣"  # a space that does not stand between two words: doubled, leading or trailing
LINE = "↵"  # how a line break is shown
WORD_START = "▁"  # unigram: the space before a word

_UNKNOWN = SPECIALS[3]
_WORD = r"\p{L}\p{M}\p{N}_"
_INNER = r"['’\-]"  # didn't, well-known: part of the word they stand inside
_OPENING = r"(\[{«“‘¿¡"
_ELIDED = ("c", "d", "j", "l", "m", "n", "s", "t", "qu", "jusqu", "lorsqu", "puisqu", "quoiqu")


def _after_elision(word: str) -> str:
    """Matches between `l'` and `animal`, but not inside `didn't` or `aujourd'hui`."""
    elided = "".join(f"[{letter}{letter.upper()}]" for letter in word) + "['’]"
    return rf"(?<={elided})(?<![{_WORD}'’\-]{elided})(?=[{_WORD}])"


# A boundary between two characters that no space separates is marked on exactly one side, so that a word is the same
# type wherever it stands: marks lie on punctuation and on elided words (l', qu'), never on the word beside them.
_MARK_RIGHT = (
    rf"(?<=[^ ])(?<![{_OPENING}])(?=[^ {_WORD}])"  # before punctuation, unless an opening mark stands there already
    rf"(?!(?<=[{_WORD}]){_INNER}[{_WORD}])(?!(?<=\p{{N}})[.,]\p{{N}})"  # and not before the ' of didn't, the . of 3.14
)
_MARK_LEFT = "|".join(
    (
        rf"(?<=[^ {_WORD}])(?<![{_WORD}]{_INNER})(?:(?<!\p{{N}}[.,])(?=\p{{N}})|(?=[\p{{L}}\p{{M}}_]))",
        rf"(?<=[{_OPENING}])(?=[^ {_WORD}])",
        *map(_after_elision, _ELIDED),
    )
)


def pipeline(kind: Kind, *, lowercase: bool) -> tokenizers.Tokenizer:
    """An untrained tokenizer of this kind."""
    tokenizer, steps = _PARTS[kind]()
    if lowercase:
        steps = [normalizers.Lowercase(), *steps]
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    return tokenizer


def _word() -> tuple[tokenizers.Tokenizer, list]:
    tokenizer = tokenizers.Tokenizer(models.WordLevel(unk_token=_UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix=JOINER, cleanup=False),
            decoders.Fuse(),
            decoders.Replace(JOINER + " ", ""),
            decoders.Replace(JOINER, ""),
            decoders.Replace(SPACE, " "),
        ]
    )
    return tokenizer, [
        normalizers.Replace(Regex(r"(?<= ) |\A | \z"), SPACE),
        normalizers.Replace(Regex(_MARK_RIGHT), " " + JOINER),
        normalizers.Replace(Regex(_MARK_LEFT), JOINER + " "),
    ]


def _spaced() -> tuple[tokenizers.Tokenizer, list]:
    tokenizer = tokenizers.Tokenizer(models.WordLevel(unk_token=_UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Split(Regex(r"[^\S\n]+"), "removed")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix=JOINER, cleanup=False),  # a space before every word but the first
            decoders.Fuse(),
            decoders.Replace(" \n", "\n"),
            decoders.Replace("\n ", "\n"),
        ]
    )
    # The other special tokens mean nothing in a text, so that none can be typed.
    others = "|".join(SPECIALS[:3])
    return tokenizer, [normalizers.Replace(Regex(rf"(?<!\S)(?:{others})(?!\S)"), _UNKNOWN)]


def _character() -> tuple[tokenizers.Tokenizer, list]:
    tokenizer = tokenizers.Tokenizer(models.WordLevel(unk_token=_UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer, []


def _bpe() -> tuple[tokenizers.Tokenizer, list]:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, []


def _wordpiece() -> tuple[tokenizers.Tokenizer, list]:
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token=_UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return tokenizer, []


def _unigram() -> tuple[tokenizers.Tokenizer, list]:
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    # Punctuation stands apart, so that the text "<eos>" can never match the special token of that name.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(WORD_START, "merged_with_next"), pre_tokenizers.Punctuation("isolated")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(WORD_START, " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer, [normalizers.Prepend(WORD_START), normalizers.Replace(" ", WORD_START)]


_PARTS = {
    "word": _word,
    "spaced": _spaced,
    "character": _character,
    "bpe": _bpe,
    "wordpiece": _wordpiece,
    "unigram": _unigram,
}
