"""The corpus that the grammar gives: sampled sentences by split, the lectures' own sentences, and telegrams."""

import re
from collections.abc import Iterator
from hashlib import blake2b, sha256
from typing import Literal, get_args

from regard.data.synthetic.world import english
from regard.data.synthetic.world.lexicon import adjective, noun, trade, verb
from regard.data.synthetic.world.sample_phrases import StableRandom
from regard.data.synthetic.world.sample_sentences import plain_statement, statement
from regard.data.synthetic.world.sentence import ParallelSentence, complete, realise, text_of
from regard.data.synthetic.world.syntax import (
    Action,
    Adjunct,
    Clause,
    Date,
    NounPhrase,
    Passive,
    PredicateAdjective,
    Profession,
    PronounPhrase,
    Statement,
    Thanks,
)
from regard.errors import DataError, nearest

Split = Literal["train", "valid", "test"]
Grammar = Literal["whole", "plain"]
_STATEMENTS = {"whole": statement, "plain": plain_statement}
_VALID = _TEST = 0.02

# Sampling that fails this often in a row asks for what the grammar does not say, or has said already.
_PATIENCE = 200_000


def sentences(
    count: int,
    *,
    seed: int = 0,
    split: Split = "train",
    lengths: tuple[int, int] = (4, 60),
    grammar: Grammar = "whole",
) -> Iterator[ParallelSentence]:
    """`count` sentences of the split, no English text twice, always the same for the same seed and split.

    `grammar` is the whole one, or the `plain` part of it: a few hundred words, no pronouns, and long sentences as
    common as short ones.

    `lengths` bounds the number of English words, both ends included; punctuation does not count.
    """
    if split not in get_args(Split):
        raise DataError(f"unknown split '{split}'{nearest(split, get_args(Split))}")
    rng = StableRandom(f"{seed} {split}")
    seen: set[str] = set()
    failures = 0
    while len(seen) < count:
        sampled = _STATEMENTS[grammar](rng)
        written = english.write(sampled)
        text = text_of(written.words)
        length = len(written.words) - written.words.count(",") - written.words.count(".")
        if not lengths[0] <= length <= lengths[1] or text in seen or split_of(text) != split:
            failures += 1
            if failures > _PATIENCE:
                raise DataError(f"only {len(seen)} sentences of {count} found with lengths={lengths}, split={split!r}")
            continue
        failures = 0
        seen.add(text)
        yield complete(sampled, written, text)


def _crossing(state: str, antecedent: str) -> Statement:
    """An animal that didn't cross, because one of the two nouns was too much of something."""
    animal, street = NounPhrase(noun("animal")), NounPhrase(noun("street"))
    reason = Clause(
        PronounPhrase("it", {"animal": animal, "street": street}[antecedent]),
        (PredicateAdjective((adjective(state),), "too"),),
    )
    return Statement((Clause(animal, (Action(verb("cross"), street, negation="not"),), "because", reason),))


def _agreement() -> Statement:
    area = NounPhrase(noun("Area"), adjectives=(adjective("European"), adjective("Economic")))
    agreement = NounPhrase(noun("agreement"), adjunct=Adjunct("on", area))
    signed = Passive(verb("sign"), adverbials=(Date(month="August", year="1992"),))
    return Statement((Clause(agreement, (signed,)),))


LECTURE: tuple[ParallelSentence, ...] = tuple(
    realise(one)
    for one in (
        _crossing("tired", "animal"),
        _crossing("wide", "street"),
        _agreement(),
        Statement((Clause(PronounPhrase("I"), (Profession(trade("student")),)),)),
        Statement((), thanks=Thanks()),
    )
)
"""The lectures' own sentences, realised by the same grammar as all the others."""

# They are there to be asked of a trained model, so no model may train on them.
_HELD_OUT = frozenset(sentence.english.removesuffix(".") for sentence in LECTURE)


def split_of(english: str) -> Split:
    """The split of a sentence: 2 % of all are `valid`, 2 % are `test`; the lectures' own are always `test`.

    The final period does not count, so a held-out sentence is held out with it and without it.
    """
    text = english.removesuffix(".")
    if text in _HELD_OUT:
        return "test"
    share = int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) / 2**64
    return "valid" if share < _VALID else "test" if share < _VALID + _TEST else "train"


LEFT_OUT = frozenset(("DT", "PRP$", "JJ", "RB", ",", "."))
_LEAF = re.compile(r"\((\S+) ([^()\s]+)\)")
_ONSETS, _VOWELS = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z"], ["a", "e", "i", "o", "u"]


def telegrams(count: int, *, seed: int = 0, split: Split = "train", most: int = 20) -> Iterator[tuple[str, str]]:
    """`count` sentences of at most `most` words, each with its telegram; the same for the same seed and split.

    A telegram is the sentence without its articles, adjectives and adverbs, for models that copy. Half of the nouns are
    held out. In training a made-up word stands wherever one of them would, a new one each time and the same in sentence
    and telegram, so that only what is copied can be right. Held-out sentences have the nouns.
    """
    rng = StableRandom(f"telegrams {seed} {split}")
    for sentence in sentences(count, seed=seed, split=split, lengths=(4, most)):
        tags = [tag for tag, _ in _LEAF.findall(sentence.tree)]
        words = list(sentence.english_words)
        if split == "train":
            names = {word: _made_up(rng) for word, tag in zip(words, tags, strict=True) if is_held_out(word, tag)}
            words = [names.get(word, word) for word in words]
        kept = [word for word, tag in zip(words, tags, strict=True) if tag not in LEFT_OUT]
        yield text_of(words), " ".join(kept)


def is_held_out(word: str, tag: str) -> bool:
    """Whether it is a noun of the half that training never shows."""
    return tag.startswith("NN") and sha256(word.encode()).digest()[0] % 2 == 1


def _made_up(rng: StableRandom) -> str:
    return "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(4))
