"""How an output came about, step by step: for the viewer's document, and from what a beam search recorded."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from regard import config
from regard.errors import DataError
from regard.look.packing import pack_floats, unpack_floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A way that a beam search considered going on: a piece after the branch `parent` of the step before, -1 the start.

    `log_prob` is of the whole so far. `best` ones lead to the output that was chosen.
    """

    piece: str
    parent: int
    log_prob: float
    fate: Literal["kept", "finished", "pruned"]
    best: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """How a step that may copy came to its piece: `writing` is the share that the vocabulary has in its prediction.

    That is p_gen of a pointer-generator and the sentinel's share of a pointer-sentinel; the rest copies words that
    were read. `written` and `copied` add up to the probability of the piece; None where no piece followed.
    """

    writing: float
    written: float | None = None
    copied: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Vectors of every step, as tensors, arrays, lists or packed, and the branches of every step of the search.

    `hidden` is what a step predicts from, `context` what it gathered from where it looked. `mixture` is of models that
    copy.
    """

    hidden: Any = None
    context: Any = None
    beam: tuple[tuple[Branch, ...], ...] = ()
    mixture: tuple[Mixture, ...] = ()

    def arrays(self) -> dict[str, np.ndarray]:
        """The vectors that there are, as arrays."""
        given = {"hidden": self.hidden, "context": self.context}
        return {name: unpack_floats(value) for name, value in given.items() if value is not None}

    def check(self, steps: int) -> None:
        """Refuse vectors of another number of steps, shares that are none, and branches from nowhere."""
        for name, array in self.arrays().items():
            if array.ndim != 2 or len(array) != steps:
                raise DataError(f"{name} vectors of shape {array.shape} for {steps} steps; must be one a step")
        if self.mixture and len(self.mixture) != steps:
            raise DataError(f"{len(self.mixture)} mixtures for {steps} steps; must be one a step")
        for one in self.mixture:
            # A NaN fails these comparisons too.
            if not all(share is None or 0 <= share <= 1 for share in (one.writing, one.written, one.copied)):
                raise DataError(f"{one} has a share outside 0 to 1")
        before = 0
        for number, branches in enumerate(self.beam, 1):
            for branch in branches:
                if not (branch.parent == -1 if number == 1 else 0 <= branch.parent < before):
                    raise DataError(f"a branch of step {number} comes from branch {branch.parent} of {before}")
            before = len(branches)

    def to_mapping(self, *, packed: bool = True) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        vectors = {name: pack_floats(array) if packed else array.tolist() for name, array in self.arrays().items()}
        mixture = {"mixture": [config.to_mapping(one) for one in self.mixture]} if self.mixture else {}
        return {**vectors, "beam": [[config.to_mapping(one) for one in step] for step in self.beam], **mixture}


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """What became of a sentence when one head was changed: what the model then says, and how it finds the old one.

    A head is `masked`, made to look `even`ly at all that it sees, or `swapped`: it looks where it looks on the sentence
    `other` of the document. `head` is its number in the model. `log_prob` is of all the old pieces together, and
    `probabilities` of each; where the sentence has answers, of the first answer, and of each.
    """

    attention: str
    head: int
    log_prob: float
    probabilities: tuple[float, ...]
    text: str | None = None
    edit: Literal["masked", "even", "swapped"] = "masked"
    other: int | None = None
