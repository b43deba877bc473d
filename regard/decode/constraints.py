"""Constraints on decoding: a minimum length, forbidden or forced tokens and phrases, no repeated n-grams, repetition
penalties."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.config import DecodeConfig
from regard.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Prefix:
    """Where each row stands: the choices it made in the `step` steps before this one, and the source it belongs to.

    `sources` counts sources as the caller gave them, though some may have been dropped since.
    """

    step: int
    tokens: Int[Tensor, "R T"]
    sources: Int[Tensor, " R"]


@runtime_checkable
class Constraint(Protocol):
    """A rule over choices, told the rows' pasts. It must not raise a log-probability above 0."""

    def __call__(self, log_probs: Float[Tensor, "R C"], prefix: Prefix) -> Float[Tensor, "R C"]:
        """The log-probabilities to choose by: `log_probs` itself, changed in place, or others of its shape."""
        ...


@dataclass(frozen=True, slots=True)
class WordLimits:
    """The fewest and the most words of an output, words being what spaces separate; None is no limit."""

    fewest: int | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        if self.fewest is not None and self.fewest < 0:
            raise ConfigError(f"min_words={self.fewest} must be 0 or more")
        if self.most is not None and self.most < 1:
            raise ConfigError(f"max_words={self.most} must be at least 1")
        if self.fewest is not None and self.most is not None and self.fewest > self.most:
            raise ConfigError(f"min_words={self.fewest} must be at most max_words={self.most}")

    def __bool__(self) -> bool:
        return self.fewest is not None or self.most is not None


def words_within(
    limits: WordLimits, text_of: Callable[[int, Sequence[int]], str], begins: Bool[Tensor, " V"], eos: int
) -> Constraint:
    """A rule that no output ends before it has the fewest words, and that none begins a word beyond the most.

    `text_of` makes text of the tokens of an output for a source; `begins` says which tokens of the vocabulary begin a
    word. Choices beyond the vocabulary are words to copy. With `eos` an output may end whenever no more may follow.
    """

    def constraint(log_probs: Float[Tensor, "R C"], prefix: Prefix) -> Float[Tensor, "R C"]:
        rows = zip(prefix.sources.tolist(), prefix.tokens.tolist(), strict=True)
        words = torch.tensor([len(text_of(*row).split()) for row in rows], device=log_probs.device)
        if limits.fewest is not None:
            log_probs[words < limits.fewest, eos] = -torch.inf
        if limits.most is not None:
            opens = torch.ones(log_probs.shape[1], dtype=torch.bool, device=log_probs.device)
            opens[: len(begins)] = begins.to(log_probs.device)
            opens[eos] = False
            log_probs = log_probs.masked_fill((words >= limits.most)[:, None] & opens, -torch.inf)
        return log_probs

    return constraint


def never(tokens: Sequence[int]) -> Constraint:
    """A rule that these tokens are not chosen."""

    def constraint(log_probs: Float[Tensor, "R C"], prefix: Prefix) -> Float[Tensor, "R C"]:
        # What is not among a step's choices is not chosen anyway.
        log_probs[:, [token for token in tokens if token < log_probs.shape[1]]] = -torch.inf
        return log_probs

    return constraint


def at_first(token: int) -> Constraint:
    """A rule that every output begins with this token; it costs nothing, since there was no choice."""

    def constraint(log_probs: Float[Tensor, "R C"], prefix: Prefix) -> Float[Tensor, "R C"]:
        if prefix.step == 0 and token >= log_probs.shape[1]:
            raise ConfigError(f"force_first={token} is not among the {log_probs.shape[1]} choices, counted from 0")
        return _certain(log_probs, token) if prefix.step == 0 else log_probs

    return constraint


def at_last(eos: int, ends: Int[np.ndarray, " B"]) -> Constraint:
    """A rule that an output whose source allows it `ends` choices makes `eos` the last of them."""
    last = torch.from_numpy(np.asarray(ends))

    def constraint(log_probs: Float[Tensor, "R C"], prefix: Prefix) -> Float[Tensor, "R C"]:
        now = last.to(log_probs.device)[prefix.sources] == prefix.step + 1
        return torch.where(now[:, None], _certain(log_probs, eos), log_probs)

    return constraint


def _certain(log_probs: Float[Tensor, "R C"], token: int) -> Float[Tensor, "R C"]:
    certain = torch.full_like(log_probs, -torch.inf)
    certain[:, token] = 0.0
    return certain


def no_repeats(size: int, before: Int[Tensor, "B T"] | None = None) -> Constraint:
    """A rule that no n-gram of `size` tokens occurs twice in an output; `before` are the tokens that precede it."""

    def constraint(log_probs: Float[Tensor, "R C"], prefix: Prefix) -> Float[Tensor, "R C"]:
        tokens = prefix.tokens if before is None else torch.cat([before[prefix.sources], prefix.tokens], 1)
        if tokens.shape[1] < size:
            return log_probs
        runs = tokens.unfold(1, size, 1)
        beginning = tokens[:, tokens.shape[1] - size + 1 :]
        rows, places = (runs[:, :, :-1] == beginning[:, None]).all(-1).nonzero(as_tuple=True)
        log_probs[rows, runs[rows, places, -1]] = -torch.inf
        return log_probs

    return constraint


def begins_with(tokens: Sequence[int], after: int = 0) -> Constraint:
    """A rule that every output, `after` so many tokens, begins with these; they cost nothing: there was no choice."""

    def constraint(log_probs: Float[Tensor, "R C"], prefix: Prefix) -> Float[Tensor, "R C"]:
        place = prefix.step - after
        if not 0 <= place < len(tokens):
            return log_probs
        if tokens[place] >= log_probs.shape[1]:
            raise ConfigError(f"prefix has token {tokens[place]}, which is not among the {log_probs.shape[1]} choices")
        return _certain(log_probs, tokens[place])

    return constraint


def without_phrases(phrases: Sequence[Sequence[int]], before: Int[Tensor, "B T"] | None = None) -> Constraint:
    """A rule that none of these sequences of tokens occurs in an output; `before` are the tokens that precede it."""

    def constraint(log_probs: Float[Tensor, "R C"], prefix: Prefix) -> Float[Tensor, "R C"]:
        tokens = prefix.tokens if before is None else torch.cat([before[prefix.sources], prefix.tokens], 1)
        for *begun, last in phrases:
            if last >= log_probs.shape[1] or len(begun) > tokens.shape[1]:
                continue
            tail = tokens[:, tokens.shape[1] - len(begun) :]
            now = (tail == torch.tensor(begun, dtype=torch.long, device=tail.device)).all(1)
            log_probs[now, last] = -torch.inf
        return log_probs

    return constraint


def unwanted(eos: int, gone: Callable[[int], bool], count: int) -> Constraint:
    """A rule that ends at once the outputs of every source whose client has left.

    `gone(source)` is asked at every step of each of `count` sources; what came out of one that is gone means nothing.
    """

    def constraint(log_probs: Float[Tensor, "R C"], prefix: Prefix) -> Float[Tensor, "R C"]:
        left = [gone(source) for source in range(count)]
        if not any(left):
            return log_probs
        now = torch.tensor(left, device=log_probs.device)[prefix.sources]
        return torch.where(now[:, None], _certain(log_probs, eos), log_probs)

    return constraint


def rules(config: DecodeConfig, eos: int, ends: Int[np.ndarray, " B"], stops: Sequence[int] = ()) -> list[Constraint]:
    """The rules that the settings of a search ask for; `ends` is the most choices that each source allows.

    `stops` are tokens that end an output as `eos` does.
    """
    asked: list[Constraint] = []
    if config.forbid:
        asked.append(never(config.forbid))
    if config.no_repeat:
        asked.append(no_repeats(config.no_repeat))
    if config.forbid_phrases:
        asked.append(without_phrases(config.forbid_phrases))
    if config.force_first is not None:
        asked.append(at_first(config.force_first))
    if config.prefix:
        asked.append(begins_with(config.prefix, 0 if config.force_first is None else 1))
    if config.force_end:
        asked.append(at_last(eos, ends))
    return asked


def repetition(penalty: float, pasts: Sequence[Sequence[int]], device: torch.device | str = "cpu") -> Constraint:
    """A rule that multiplies by `penalty` the log-probability of every token a row has had before.

    Above 1 that makes it less likely. `pasts` are the tokens before the first step, prompt and all, of each source.
    """
    longest = max(map(len, pasts), default=0)
    # Short pasts are filled up with a token of their own, which changes nothing.
    filled = torch.tensor([[*past, *[past[0]] * (longest - len(past))] for past in pasts], device=device)

    def constraint(log_probs: Float[Tensor, "R C"], prefix: Prefix) -> Float[Tensor, "R C"]:
        had = torch.cat([filled[prefix.sources], prefix.tokens], 1)
        seen = torch.zeros_like(log_probs, dtype=torch.bool).scatter_(1, had, True)
        return torch.where(seen, log_probs * penalty, log_probs)

    return constraint


class Past:
    """The prefixes of the rows of a search as they are chosen, reordered and dropped; built only if a rule asks."""

    def __init__(self, constraints: Sequence[Constraint], min_len: int, *ends: int) -> None:
        self.constraints, self.ends = list(constraints), ends
        self.min_len, self.step = min_len, 0
        self.tokens: Int[Tensor, "R T"] | None = None

    def constrain(
        self, log_probs: Float[Tensor, "R C"], sources: Callable[[], Int[Tensor, " R"]]
    ) -> Float[Tensor, "R C"]:
        """`log_probs` under every rule, in the order they were given; `sources` is asked only where there is one."""
        if self.step < self.min_len:  # needs to know of no row
            for end in self.ends:
                log_probs[:, end] = -torch.inf
        if not self.constraints:
            return log_probs
        of_rows = sources()
        if self.tokens is None:
            self.tokens = of_rows.new_empty(len(of_rows), 0)
        prefix = Prefix(self.tokens.shape[1], self.tokens, of_rows)
        for constraint in self.constraints:
            log_probs = constraint(log_probs, prefix)
        return log_probs

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Go on with these rows, which may repeat, reorder or drop the old ones."""
        if self.tokens is not None:
            self.tokens = self.tokens[rows]

    def extend(self, choices: Int[Tensor, " R"]) -> None:
        """Let each row make its choice."""
        self.step += 1
        if self.tokens is not None:
            self.tokens = torch.cat([self.tokens, choices[:, None]], 1)
