"""Which of two validations is the better."""

import math
from collections.abc import Mapping
from typing import Any

from regard.errors import ConfigError

LOSSES = frozenset({"loss", "nll", "words", "next", "divergence", "coverage", "missed", "ctc", "cut", "seconds"})
"""What a validation says of which less is better, beside rates of errors; of its scores more is."""


def lower_is_better(name: str) -> bool:
    """Whether the better of two validations is the one with less of this."""
    return name in LOSSES or name.endswith("error_rate")


def likelihood(values: Mapping[str, Any]) -> float:
    """The loss of a validation, without what an objective adds to the likelihood."""
    return values.get("nll", values["loss"])


def reached(name: str, values: Mapping[str, Any]) -> float:
    """What validations are told apart by, less being better: the score that was asked for, turned round, or the
    likelihood where the objective says it, else the loss."""
    if name == "loss":
        return likelihood(values)
    if name not in values:
        raise ConfigError(f"train.select_by='{name}' is none of what a validation says: {', '.join(values)}")
    return values[name] if lower_is_better(name) else -values[name]


def is_better(name: str, values: Mapping[str, Any], best: float | None, best_loss: float | None) -> bool:
    """Whether a validation's weights take the place of those chosen so far.

    `best` is the best that was reached, `best_loss` the loss of the weights chosen so far, None of an older
    checkpoint. Of equal scores the later weights are taken, which had the lower rate. The share of exact matches is
    that of some of the validation texts: what differs by less than its standard error is decided by the loss, which
    is of all of them.
    """
    found, margin = reached(name, values), _standard_error(name, values)
    if best is None or found < best - margin:
        return True
    if found > best + margin:
        return False
    if margin and best_loss is not None:
        return likelihood(values) <= best_loss
    return found < best or name != "loss"


def _standard_error(name: str, values: Mapping[str, Any]) -> float:
    """Of a share of right outputs, with two right and two wrong ones more, so that all right has one too."""
    if name != "exact_match" or not values.get("outputs"):
        return 0.0
    count = values["outputs"] + 4
    share = (values[name] * values["outputs"] + 2) / count
    return math.sqrt(share * (1 - share) / count)
