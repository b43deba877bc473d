"""Telegrams: sentences of the bundled grammar without their articles, adjectives and adverbs, for models that copy.

Half of the nouns are held out. In training a made-up word stands wherever one of them would, a new one each time and
the same in sentence and telegram, so that only what is copied can be right. Held-out sentences have the nouns.
"""

import hashlib
import re
from collections.abc import Iterator

from regard.data.world import Split, sentences
from regard.data.world.dice import Dice
from regard.data.world.sentence import text_of

LEFT_OUT = frozenset(("DT", "PRP$", "JJ", "RB", ",", "."))
_LEAF = re.compile(r"\((\S+) ([^()\s]+)\)")
_ONSETS, _VOWELS = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z"], ["a", "e", "i", "o", "u"]


def telegrams(count: int, *, seed: int = 0, split: Split = "train", most: int = 20) -> Iterator[tuple[str, str]]:
    """`count` sentences of at most `most` words, each with its telegram; the same for the same seed and split."""
    dice = Dice(f"telegrams {seed} {split}")
    for sentence in sentences(count, seed=seed, split=split, lengths=(4, most)):
        tags = [tag for tag, _ in _LEAF.findall(sentence.tree)]
        words = list(sentence.english_words)
        if split == "train":
            names = {word: _made_up(dice) for word, tag in zip(words, tags, strict=True) if is_held_out(word, tag)}
            words = [names.get(word, word) for word in words]
        kept = [word for word, tag in zip(words, tags, strict=True) if tag not in LEFT_OUT]
        yield text_of(words), " ".join(kept)


def is_held_out(word: str, tag: str) -> bool:
    """Whether it is a noun of the half that training never shows."""
    return tag.startswith("NN") and hashlib.sha256(word.encode()).digest()[0] % 2 == 1


def _made_up(dice: Dice) -> str:
    return "".join(dice.pick(_ONSETS) + dice.pick(_VOWELS) for _ in range(4))
