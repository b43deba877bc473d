"""Tokenizers trained on a corpus: the parts of each kind, and training that gives the same corpus the same bytes."""

import json
import random
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from regard.errors import ConfigError, DataError
from regard.text.config import MASK, SPECIALS, Kind, TokenizerConfig
from regard.text.tokenizer import JOINER, SPACE, WORD_START, Tokenizer, panics
from regard.text.vocabularies import Vocabularies

Item = TypeVar("Item")

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


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig, *, masks: bool = False) -> Tokenizer:
    """A tokenizer for texts like these. Holds the distinct words in memory, not the corpus.

    With `masks` it is one for an encoder: it has a mask token, and puts `bos` and `eos` around a text or two.
    """
    if masks:
        return with_masks(train_tokenizer(texts, replace(config, vocab_size=config.vocab_size - 1)), config.kind)
    inner = pipeline(config.kind, lowercase=config.lowercase)
    texts = sampled(texts, config.sample) if config.sample else texts
    corpus = _Corpus(texts if config.kind != "spaced" else map(_without_specials, texts))
    if config.kind == "wordpiece":
        inner = _train_wordpiece(inner, corpus, config)
    else:
        _train(inner, corpus, _trainer(config))
    if config.kind == "unigram":
        inner = _settled(inner)
    tokenizer = Tokenizer(inner)
    if tokenizer.vocab_size > config.vocab_size:
        raise ConfigError(
            f"vocab_size={config.vocab_size} is too small for kind='{config.kind}': "
            f"single characters and special tokens alone take {tokenizer.vocab_size}"
        )
    return tokenizer


def with_masks(tokenizer: Tokenizer, kind: Kind) -> Tokenizer:
    """The same with one more token, the mask, and with special tokens around texts."""
    inner = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    # The space before a word is part of the word's first piece in a BPE of bytes; elsewhere spaces are between words.
    beside = {"lstrip": kind != "character", "rstrip": kind not in ("character", "bpe")}
    inner.add_special_tokens([tokenizers.AddedToken(MASK, special=True, normalized=False, **beside)])
    _, first, last, _ = SPECIALS
    inner.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(first, tokenizer.bos), (last, tokenizer.eos)],
    )
    return Tokenizer(inner)


def train_vocabularies(pairs: Iterable[tuple[str, str]], config: TokenizerConfig) -> Vocabularies:
    """One tokenizer for both sides of the pairs, or one for each, as `config.joint` says.

    Separate vocabularies read the pairs twice, so `pairs` must then be something that can be iterated twice.
    """
    if config.sample:
        pairs, config = sampled(pairs, config.sample), replace(config, sample=0)
    if config.joint:
        shared = train_tokenizer((text for pair in pairs for text in pair), config)
        return Vocabularies(shared, shared)
    if isinstance(pairs, Iterator):
        raise DataError("separate vocabularies read the pairs twice: give a list or files, not an iterator")
    source_kind, target_kind = config.kinds
    return Vocabularies(
        train_tokenizer((source for source, _ in pairs), config.side(source_kind)),
        train_tokenizer((target for _, target in pairs), config.side(target_kind)),
    )


def sampled(items: Iterable[Item], most: int) -> list[Item]:
    """So many of the items at random, in their order: reservoir sampling, in memory for those alone."""
    chance = random.Random(0)
    kept: list[tuple[int, Item]] = []
    for number, item in enumerate(items):
        if number < most:
            kept.append((number, item))
        elif (place := int(chance.random() * (number + 1))) < most:
            kept[place] = number, item
    return [item for _, item in sorted(kept, key=lambda one: one[0])]


def _without_specials(text: str) -> str:
    """The text without words that spell special tokens: those have entries already, and must not get others."""
    return re.sub(rf"(?<!\S)(?:{'|'.join(SPECIALS)})(?!\S)", "", text, flags=re.IGNORECASE)


class _Corpus:
    """The texts, seen once: knows afterwards whether there were any."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = texts
        self.empty = True

    def __iter__(self) -> Iterator[str]:
        for text in self._texts:
            if self.empty and text.strip():
                self.empty = False
            yield text


def _trainer(config: TokenizerConfig) -> Any:
    specials = list(SPECIALS)
    if config.kind == "unigram":
        return trainers.UnigramTrainer(
            vocab_size=config.vocab_size, special_tokens=specials, unk_token=SPECIALS[3], show_progress=False
        )
    if config.kind == "bpe":
        return trainers.BpeTrainer(
            vocab_size=config.vocab_size,
            min_frequency=config.min_count,
            special_tokens=specials,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
    return trainers.WordLevelTrainer(
        vocab_size=config.vocab_size, min_frequency=config.min_count, special_tokens=specials, show_progress=False
    )


def _train(inner: tokenizers.Tokenizer, corpus: _Corpus, trainer: Any) -> None:
    try:
        with panics("cannot be trained on these texts"):
            inner.train_from_iterator(iter(corpus), trainer)
    except Exception as error:
        if "not large enough" not in str(error):  # all that the library says of it
            raise
        raise ConfigError(f"vocab_size={trainer.vocab_size} is too small: single characters alone take more") from None
    if corpus.empty:
        raise DataError("no text to train a tokenizer on")


def _train_wordpiece(inner: tokenizers.Tokenizer, corpus: _Corpus, config: TokenizerConfig) -> tokenizers.Tokenizer:
    """Train with every `##character` numbered beforehand.

    The library numbers them in the order of a randomly keyed hash, and breaks ties between merges by number.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        characters: set[str] = set()
        for text in corpus:
            spool.write(json.dumps(text) + "\n")
            characters.update(text.lower() if config.lowercase else text)
        splitter = pre_tokenizers.BertPreTokenizer()
        inside = sorted(c for c in characters if len(splitter.pre_tokenize_str("a" + c)) == 1)
        trainer = trainers.WordPieceTrainer(
            vocab_size=config.vocab_size,
            min_frequency=config.min_count,
            special_tokens=[*SPECIALS, *("##" + character for character in inside)],
            show_progress=False,
        )
        spool.seek(0)
        with panics("cannot be trained on these texts"):
            inner.train_from_iterator((json.loads(line) for line in spool), trainer)
    if corpus.empty:
        raise DataError("no text to train a tokenizer on")
    state = json.loads(inner.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] in SPECIALS]
    return tokenizers.Tokenizer.from_str(json.dumps(state))


def _settled(inner: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The unigram tokenizer with what depends on the library's randomly keyed hashes taken out of it.

    Those set the last digits of every score, and the order of characters too rare to be pieces, which the trainer
    appends within 0.0001 of each other from the lowest score up.
    """
    state = json.loads(inner.to_str())
    pieces = state["model"]["vocab"]
    specials, pieces = pieces[: len(SPECIALS)], pieces[len(SPECIALS) :]
    lowest = min((score for _, score in pieces), default=0.0)
    rare = lowest + 0.0001 * (1 + sum(len(piece) == 1 for piece, _ in pieces))
    settled = [[piece, round(lowest if len(piece) == 1 and score <= rare else score, 6)] for piece, score in pieces]
    state["model"]["vocab"] = specials + sorted(settled, key=lambda entry: (-entry[1], entry[0]))
    return tokenizers.Tokenizer.from_str(json.dumps(state))


def pipeline(kind: Kind, *, lowercase: bool) -> tokenizers.Tokenizer:
    """An untrained tokenizer of this kind; its JSON carries all that splits text and joins it again."""
    model, pre_tokenizer, decoder, *steps = _PARTS[kind]()
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoder
    steps = [normalizers.Lowercase(), *steps] if lowercase else steps
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    return tokenizer


def _word() -> tuple[Any, ...]:
    return (
        models.WordLevel(unk_token=_UNKNOWN),
        pre_tokenizers.CharDelimiterSplit(" "),
        decoders.Sequence(
            [
                decoders.WordPiece(prefix=JOINER, cleanup=False),
                decoders.Fuse(),
                decoders.Replace(JOINER + " ", ""),
                decoders.Replace(JOINER, ""),
                decoders.Replace(SPACE, " "),
            ]
        ),
        normalizers.Replace(Regex(r"(?<= ) |\A | \z"), SPACE),
        normalizers.Replace(Regex(_MARK_RIGHT), " " + JOINER),
        normalizers.Replace(Regex(_MARK_LEFT), JOINER + " "),
    )


def _spaced() -> tuple[Any, ...]:
    # The other special tokens mean nothing in a text, so that none can be typed.
    others = "|".join(SPECIALS[:3])
    return (
        models.WordLevel(unk_token=_UNKNOWN),
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Split(Regex(r"[^\S\n]+"), "removed")]
        ),
        decoders.Sequence(
            [
                decoders.WordPiece(prefix=JOINER, cleanup=False),  # a space before every word but the first
                decoders.Fuse(),
                decoders.Replace(" \n", "\n"),
                decoders.Replace("\n ", "\n"),
            ]
        ),
        normalizers.Replace(Regex(rf"(?<!\S)(?:{others})(?!\S)"), _UNKNOWN),
    )


def _character() -> tuple[Any, ...]:
    splitter = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    return models.WordLevel(unk_token=_UNKNOWN), splitter, decoders.Fuse()


def _bpe() -> tuple[Any, ...]:
    return models.BPE(), pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()


def _wordpiece() -> tuple[Any, ...]:
    decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return models.WordPiece(unk_token=_UNKNOWN), pre_tokenizers.BertPreTokenizer(), decoder


def _unigram() -> tuple[Any, ...]:
    return (
        models.Unigram(),
        # Punctuation stands apart, so that the text "<eos>" can never match the special token of that name.
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split(WORD_START, "merged_with_next"), pre_tokenizers.Punctuation("isolated")]
        ),
        decoders.Sequence([decoders.Replace(WORD_START, " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
        normalizers.Prepend(WORD_START),
        normalizers.Replace(" ", WORD_START),
    )


_PARTS = {
    "word": _word,
    "spaced": _spaced,
    "character": _character,
    "bpe": _bpe,
    "wordpiece": _wordpiece,
    "unigram": _unigram,
}
"""Of each kind the model, what splits a text, what joins it again, and what changes it beforehand."""
