"""Which of two validations is the better."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from regard.errors import ConfigError

LOSSES = frozenset({"loss", "nll", "words", "next", "divergence", "coverage", "missed", "ctc", "cut", "seconds"})
"""What a validation says of which less is better, beside rates of errors; of its scores more is."""


def lower_is_better(name: str) -> bool:
    """Whether the better of two validations is the one with less of this."""
    return name in LOSSES or name.endswith("error_rate")


def reached(name: str, values: Mapping[str, Any]) -> float:
    """What validations are told apart by, less being better: the score that was asked for, turned round, or the
    likelihood where the objective says it, else the loss."""
    if name == "loss":
        return values.get("nll", values["loss"])
    if name not in values:
        raise ConfigError(f"train.select_by='{name}' is none of what a validation says: {', '.join(values)}")
    return values[name] if lower_is_better(name) else -values[name]


NO_BLEU = 2.0
"""BLEU below which nothing is translated yet: it differs by which frequent words are repeated."""

OF_ALL = frozenset({"unknown", "word_accuracy"})
"""What a task's scores say of all validation rows."""


def score_of(name: str, values: Mapping[str, Any], scores: Collection[str], count: int, *, plain: bool = True) -> str:
    """The score and, where it is of a sample, which: only validations of which this is the same compare.

    `scores` are those of the task, which are of `count` rows from all over the validation rows, or of all where these
    are fewer. Earlier versions took the first rows, so what they reached compares where it is of all, and `plain`: told
    as now, which BLEU per character is not.
    """
    if name not in scores or name in OF_ALL or (values.get("outputs", count) < count and plain):
        return name
    return f"{name} of {count} rows from all over"


def is_better(name: str, values: Mapping[str, Any], best: float | None) -> bool:
    """Whether a validation's weights take the place of those chosen so far, `best` being the best that was reached.

    Of equal scores the later weights are taken, which had the lower rate, and so of shares of exact matches that
    differ by less than the standard error: they are of some of the validation texts. The loss does not decide there:
    it rises while exact matches become more, as a model that is surer pays more for what it gets wrong. While BLEU is
    below `NO_BLEU` the later weights are taken too.
    """
    found = reached(name, values)
    if best is None or name == "loss":
        return best is None or found < best
    if name == "bleu" and -best < NO_BLEU:
        return True
    return found <= best + _standard_error(name, values)


def _standard_error(name: str, values: Mapping[str, Any]) -> float:
    """Of a share of right outputs, with two right and two wrong ones more, so that all right has one too."""
    if name != "exact_match" or not values.get("outputs"):
        return 0.0
    count = values["outputs"] + 4
    share = (values[name] * values["outputs"] + 2) / count
    return math.sqrt(share * (1 - share) / count)
