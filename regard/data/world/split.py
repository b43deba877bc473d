"""Which sentences are for training and which are held out: decided by the English text and nothing else."""

from hashlib import blake2b
from typing import Literal

Split = Literal["train", "valid", "test"]

# The lectures' sentences are there to be asked of a trained model, so no model may train on them.
LECTURE_TEXTS = (
    "The animal didn't cross the street because it was too tired",
    "The animal didn't cross the street because it was too wide",
    "The agreement on the European Economic Area was signed in August 1992",
    "I am a student",
    "Thanks",
)
_HELD_OUT = frozenset(LECTURE_TEXTS)
_VALID = 0.02
_TEST = 0.02


def split_of(english: str) -> Split:
    """The split of a sentence: 2 % of all are `valid`, 2 % are `test`; the lectures' own are always `test`.

    The final period does not count, so a held-out sentence is held out with it and without it.
    """
    text = english.removesuffix(".")
    if text in _HELD_OUT:
        return "test"
    share = int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) / 2**64
    return "valid" if share < _VALID else "test" if share < _VALID + _TEST else "train"
