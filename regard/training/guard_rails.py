"""Guard rails: what the records of a training say that its owner should hear, each once, with what to do about it.

They are given the records of a log as they are written, so that `regard doctor` finds in a log what training said.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FIRST = 8
"""Logged losses before anything is said of how they fall."""

NOT_FALLING = 0.99
"""The share of the first losses that later ones must be below."""

OVERFITTED, RISES = 1.02, 3
"""How far above the best a validation loss has risen, and at how many validations on end, where it overfits."""

CUT = 0.05
PADDING, WAITING = 0.5, 0.4
UNKNOWN = 0.03
APART = 1.4
"""How many times the training loss a validation loss is, before the data was read twice, where texts differ in kind."""


@dataclass(frozen=True, slots=True)
class Caution:
    """What went wrong, by a name, and a sentence with what to do."""

    kind: str
    line: str


class GuardRails:
    """Reads records of training and of validation in their order.

    `validated` is how many outputs a validation wrote, where its records do not say (`outputs`).
    """

    def __init__(self, total: int, warmup: int = 0, validated: int = 0) -> None:
        self._total, self._warmup, self._validated = total, warmup, validated
        self._losses: list[tuple[int, float]] = []
        self._best: float | None = None
        self._rises, self._epoch = 0, 0
        self._said: set[str] = set()

    def record(self, kind: str, step: int, values: Mapping[str, Any]) -> list[Caution]:
        """What is to be said after this record, if anything."""
        found = self._train(step, values) if kind == "train" else self._validation(step, values)
        fresh = [one for one in found if one.kind not in self._said]
        self._said.update(one.kind for one in fresh)
        return fresh

    def lasts(self, total: int, warmup: int) -> None:
        """The training is to have so many updates after all."""
        self._total, self._warmup = total, warmup

    def _train(self, step: int, values: Mapping[str, Any]) -> list[Caution]:
        found: list[Caution] = []
        self._epoch = int(values.get("epoch", self._epoch))
        self._losses.append((step, float(values.get("nll", values["loss"]))))
        waiting, padding = float(values.get("waiting", 0.0)), float(values.get("padding", 0.0))
        if len(self._losses) > 2 and waiting > WAITING:
            found.append(
                Caution(
                    "waiting",
                    f"{100 * waiting:.0f} % of the time goes to waiting for data: keep the files on a local disk, or "
                    f"give the machine more cores",
                )
            )
        if len(self._losses) > 2 and padding > PADDING:
            found.append(
                Caution(
                    "padding",
                    f"{100 * padding:.0f} % of a batch is padding: a few texts are far longer than the rest "
                    f"(data.max_len), or train.batch_tokens is too small for them; a GPU packs (train.pack)",
                )
            )
        later = [loss for at, loss in self._losses if at > max(self._warmup, 0.25 * self._total)]
        if len(self._losses) >= 2 * FIRST and len(later) >= FIRST:
            first = sum(loss for _, loss in self._losses[:FIRST]) / FIRST
            if sum(later[-FIRST:]) / FIRST > NOT_FALLING * first:
                found.append(
                    Caution(
                        "loss not falling",
                        f"at step {step} the loss is where it began ({later[-1]:.3f}): try a train.learning_rate a "
                        f"third or three times as high, a longer train.warmup, and see whether targets follow from "
                        f"sources",
                    )
                )
        return found

    def _validation(self, step: int, values: Mapping[str, Any]) -> list[Caution]:
        found: list[Caution] = []
        loss = float(values.get("nll", values["loss"]))
        recent = [one for _, one in self._losses[-FIRST:]]
        trained = sum(recent) / len(recent) if recent else loss
        if self._best is not None and loss > OVERFITTED * self._best and trained < loss:
            self._rises += 1
        elif self._best is None or loss <= self._best:
            self._best, self._rises = loss, 0
        if self._rises >= RISES:
            found.append(
                Caution(
                    "overfitting",
                    f"at step {step} the validation loss is {loss:.3f}, was {self._best:.3f}, and rises while the "
                    f"training loss falls: more model.dropout, fewer train.steps, a smaller model or more data; "
                    f"train.choose=best keeps the best weights, train.patience={RISES} stops there",
                )
            )
        if self._epoch < 1 and recent and step > self._warmup and loss > APART * trained and loss > trained + 0.5:
            found.append(
                Caution(
                    "another distribution",
                    f"validation has a loss of {loss:.2f} where training has {trained:.2f} before any text was read "
                    f"twice: the two are texts of different kinds",
                )
            )
        written = int(values.get("outputs", self._validated))
        if written and step > 0.5 * self._total and values.get("cut", 0) > CUT * written:
            found.append(
                Caution(
                    "outputs cut",
                    f"{values['cut']:.0f} of {written} outputs are cut at their greatest length late in "
                    f"training: raise decode.max_len (of translations, decode.max_extra), or see whether the model "
                    f"repeats itself",
                )
            )
        if values.get("unknown", 0.0) > UNKNOWN:
            found.append(
                Caution(
                    "unknown tokens",
                    f"{100 * values['unknown']:.1f} % of the validation tokens are unknown: a larger "
                    f"tokenizer.vocab_size, a lower tokenizer.min_count, or tokenizer.kind=bpe, which knows every text",
                )
            )
        return found
