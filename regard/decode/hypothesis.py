"""What decoding returns."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output, without the first token it was started from and without `eos`.

    `log_prob` is the sum of `token_log_probs`, which has one number for each choice made, `eos` with them when
    `finished`; an output that is not finished was cut short at its longest allowed length. `score` is `log_prob`
    divided for length. `rows[t]` is the row that choice `t` was read from in the stepper's t-th call, counted over
    this whole decoding: what a watched model saw there is what this output came from.
    """

    tokens: list[int]
    score: float
    log_prob: float
    finished: bool
    token_log_probs: list[float]
    rows: list[int]
