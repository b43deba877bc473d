"""Guard rails: what the records of a training say that its owner should hear, each once, with what to do about it.

They are given the records of a log as they are written, so that `regard doctor` finds in a log what training said.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from regard.training.config import TrainConfig
from regard.training.selection import is_better, lower_is_better, reached

MOST, LEAST = 8, 3
"""How many logged losses on end are compared with the first ones, at most and at least: a fifth of all."""

NOT_FALLING = 0.99
"""The share of the first losses that later ones must be below."""

WORSE, RISES = 1.02, 3
"""How much worse than the best a validation is, and how many are on end, where a training overfits."""

FEW_LOSSES, FEW_OUTPUTS = 20, 50
"""Updates before which a model has learnt too little for its loss, and for the length of what it writes, to say
anything."""

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
    """Reads records of training and of validation in their order."""

    def __init__(self, options: TrainConfig) -> None:
        self._options = options
        self._losses: list[tuple[int, float]] = []
        self._waiting: list[float] = []
        self._padding: list[float] = []
        self._best: tuple[int, float] | None = None
        self._lowest = self._before = math.inf
        self._rises, self._epoch = 0, 0
        self._said: set[str] = set()

    def record(self, kind: str, step: int, values: Mapping[str, Any]) -> list[Caution]:
        """What is to be said after this record, if anything."""
        read = {"train": self._train, "validation": self._validation}.get(kind)
        found = [] if read is None else read(step, values)
        fresh = [one for one in found if one.kind not in self._said]
        self._said.update(one.kind for one in fresh)
        return fresh

    def lasts(self, options: TrainConfig) -> None:
        """The training is to have so many updates after all."""
        self._options = options

    @property
    def _window(self) -> int:
        """How many losses are compared: fewer where few are logged."""
        return max(LEAST, min(MOST, self._options.steps // self._options.log_every // 5))

    def _train(self, step: int, values: Mapping[str, Any]) -> list[Caution]:
        found: list[Caution] = []
        self._epoch = int(values.get("epoch", self._epoch))
        if self._losses:  # until the first, everything is started
            self._waiting.append(float(values.get("waiting", 0.0)))
            self._padding.append(float(values.get("padding", 0.0)))
        self._losses.append((step, float(values.get("nll", values["loss"]))))
        waiting, padding = self._of_late(self._waiting), self._of_late(self._padding)
        if waiting > WAITING:
            found.append(
                Caution(
                    "waiting",
                    f"{100 * waiting:.0f} % of the time goes to waiting for data: keep the files on a local disk, or "
                    f"give the machine more cores",
                )
            )
        if padding > PADDING:
            found.append(
                Caution(
                    "padding",
                    f"{100 * padding:.0f} % of a batch is padding: a few texts are far longer than the rest "
                    f"(data.max_len), or train.batch_tokens is too small for them; a GPU packs (train.pack)",
                )
            )
        begin = max(self._options.warmup_steps, 0.25 * self._options.steps)
        later = [loss for at, loss in self._losses if at > begin]
        if step >= FEW_LOSSES and len(self._losses) >= 2 * self._window and len(later) >= self._window:
            # Medians, which one loss that leaps does not move.
            first = median(loss for _, loss in self._losses[: self._window])
            last = median(later[-self._window :])
            if last > NOT_FALLING * first:
                found.append(
                    Caution(
                        "loss not falling",
                        f"at step {step} the loss is where it began ({last:.3f}, at first {first:.3f}): try a "
                        f"train.learning_rate a third or three times as high, a longer train.warmup, and see whether "
                        f"what is to be learnt follows from what is read",
                    )
                )
        return found

    def _of_late(self, values: list[float]) -> float:
        """The mean of the last values; 0 while there are too few of them."""
        recent = values[-self._window :]
        return sum(recent) / len(recent) if len(recent) == self._window else 0.0

    def _validation(self, step: int, values: Mapping[str, Any]) -> list[Caution]:
        found: list[Caution] = []
        loss = float(values.get("nll", values["loss"]))
        recent = [one for _, one in self._losses[-MOST:]]
        trained = sum(recent) / len(recent) if recent else loss
        if (overfits := self._overfits(step, loss, trained, values)) is not None:
            found.append(overfits)
        fresh = self._epoch < 1 and recent and step > self._options.warmup_steps
        if fresh and loss > APART * trained and loss > trained + 0.5:
            found.append(
                Caution(
                    "another distribution",
                    f"validation has a loss of {loss:.2f} where training has {trained:.2f} before any text was read "
                    f"twice: the two are texts of different kinds; validate on texts such as the model is for, and "
                    f"train on more of these, or split some off the training data instead (data.held_out)",
                )
            )
        written = int(values.get("outputs", self._options.validate_sentences))
        late = step >= FEW_OUTPUTS and step > 0.5 * self._options.steps
        if written and late and values.get("cut", 0) > CUT * written:
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

    def _overfits(self, step: int, loss: float, trained: float, values: Mapping[str, Any]) -> Caution | None:
        """Whether the loss rises and what the best weights are told by has got worse, at several validations on end.

        The loss alone does not say it: it rises while right answers become more, as a model that is surer pays more for
        what it gets wrong.
        """
        name = self._options.select_by if self._options.select_by in values else "loss"
        figure, lowest = reached(name, values), self._lowest
        at, best = self._best or (step, figure)
        worse = figure > best + (WORSE - 1) * abs(best) and not is_better(name, values, best)
        rises = loss > WORSE * lowest and loss >= self._before and loss > trained
        self._rises = self._rises + 1 if worse and rises else 0
        self._best = (step, figure) if figure < best or self._best is None else self._best
        self._lowest, self._before = min(lowest, loss), loss
        if self._rises < RISES:
            return None
        said = f"the validation loss is {loss:.3f}, was {lowest:.3f},"
        if name != "loss":
            now, then = (one if lower_is_better(name) else -one for one in (figure, best))
            said = f"{name} is {now:.4g}, was {then:.4g} at step {at}, {said}"
        kept = "" if self._options.choose == "best" else "train.choose=best keeps the best weights, "
        return Caution(
            "overfitting",
            f"at step {step} {said} and rises while the training loss is lower: more model.dropout, fewer train.steps, "
            f"a smaller model or more data; {kept}train.patience={RISES} stops where {name} does not get better",
        )
