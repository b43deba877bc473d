"""How to decode: by beam search, greedily, or by sampling."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Int
from torch import Tensor

from regard.errors import ConfigError, check_at_least

LengthForm = Literal["gnmt", "power"]

BOUNDS: dict[str, tuple[float, float]] = {
    "beam": (1, 10_000),
    "length_penalty": (0.0, 10.0),
    "max_len": (1, 1_000_000),
    "max_ratio": (0.0, 1e6),
    "max_extra": (1, 1_000_000),
    "temperature": (1e-6, 1e6),
    "samples": (1, 10_000),
}
"""The least and the greatest value of settings that a search computes with. Within them nothing overflows: a divisor of
at most a million choices to the power of 10, a length of at most a million times a source's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeConfig:
    """The settings of a search. Defaults are those of the 2017 Transformer, with a beam of 5.

    - `beam` hypotheses are kept at each step and the best `top_beams` returned; `beam=1` is greedy.
    - Scores are log-probabilities divided by a growing function of length: see `length_penalty` and `length_form`
      in `regard.decode.config.divisor`; 0 compares plain log-probabilities.
    - `exact` searches on until no live hypothesis can still win, however long it grew; otherwise a source stops once
      `beam` hypotheses have finished and the best live one, scored at its present length, is no better than any.
    - An output has at least `min_len` tokens before `eos`, and at most `max_len` with it; with a source of length S
      at most `max_ratio` * S + `max_extra`, too (None for either lifts that). Training raises `max_len` and `max_extra`
      from their defaults to what its targets need.
    - The tokens in `forbid` are never chosen. `force_first` begins every output, `force_end` ends one that reaches its
      greatest length, and no n-gram of `no_repeat` tokens occurs twice in one.
    - A `temperature` turns search into sampling: `samples` outputs per source, from the `top_k` likeliest choices, or
      the fewest likeliest that hold `top_p` of the probability, or both in that order. `seed` fixes the samples.
    """

    beam: int = 5
    top_beams: int = 1
    length_penalty: float = 0.6
    length_form: LengthForm = "gnmt"
    exact: bool = False
    min_len: int = 0
    max_len: int = 256
    max_ratio: float | None = 1.0
    max_extra: int | None = 50
    forbid: tuple[int, ...] = ()
    force_first: int | None = None
    force_end: bool = False
    no_repeat: int = 0
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    samples: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_search()
        self._check_sampling()

    def _check_search(self) -> None:
        check_at_least(self, 1, "beam", "max_extra")
        if not 1 <= self.top_beams <= self.beam:
            raise ConfigError(f"top_beams={self.top_beams} must be from 1 to beam={self.beam}")
        if not 0 <= self.length_penalty < float("inf"):
            raise ConfigError(f"length_penalty={self.length_penalty} must be 0 or more")
        if self.length_form not in ("gnmt", "power"):
            raise ConfigError(f"length_form={self.length_form!r} must be 'gnmt' or 'power'")
        if not 0 <= self.min_len < self.max_len:
            raise ConfigError(f"min_len={self.min_len} must be from 0 to below max_len={self.max_len}")
        if self.max_ratio is not None and not 0 <= self.max_ratio < float("inf"):
            raise ConfigError(f"max_ratio={self.max_ratio} must be 0 or more")
        if self.force_first is not None and self.force_first < 0:
            raise ConfigError(f"force_first={self.force_first} must be a token's number, 0 or more")
        if any(token < 0 for token in self.forbid):
            raise ConfigError(f"forbid={list(self.forbid)} must be tokens' numbers, 0 or more")
        if self.no_repeat < 0:
            raise ConfigError(f"no_repeat={self.no_repeat} must be 0 or more")
        self._check_greatest("beam", "length_penalty", "max_len", "max_ratio", "max_extra")

    def _check_sampling(self) -> None:
        if self.temperature is not None and not self.temperature >= BOUNDS["temperature"][0]:
            least = f"{BOUNDS['temperature'][0]:g}"
            raise ConfigError(
                f"temperature={self.temperature} must be above 0, at least {least}; beam=1 without a temperature takes "
                f"the likeliest choice each time"
            )
        check_at_least(self, 1, "top_k", "samples")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p={self.top_p} must be above 0 and at most 1")
        if self.seed < 0:
            raise ConfigError(f"seed={self.seed} must be 0 or more")
        self._check_greatest("temperature", "samples")
        if self.temperature is None:
            for name, unset in (("top_k", None), ("top_p", None), ("samples", 1)):
                if getattr(self, name) != unset:
                    raise ConfigError(f"{name}={getattr(self, name)} needs a temperature: it only matters to sampling")

    def _check_greatest(self, *names: str) -> None:
        for name in names:
            value, most = getattr(self, name), BOUNDS[name][1]
            if value is not None and value > most:
                raise ConfigError(f"{name}={value} must be at most {most:,.0f}")

    def greedy(self) -> "DecodeConfig":
        """The same, taking the likeliest choice each time."""
        return replace(self, beam=1, top_beams=1, temperature=None, top_k=None, top_p=None, samples=1)

    def score(self, log_prob: float, length: int) -> float:
        """`log_prob` made comparable over lengths; `length` counts the choices made, `eos` with them."""
        return float(log_prob / divisor(length, self.length_penalty, self.length_form))

    def limits(self, lengths: Sequence[int]) -> list[int]:
        """The most choices to make, `eos` counted, for a source of each of these lengths."""
        if self.max_ratio is None or self.max_extra is None:
            return [self.max_len] * len(lengths)
        return [min(self.max_len, int(self.max_ratio * length) + self.max_extra) for length in lengths]


def divisor(length: int | np.ndarray, penalty: float, form: LengthForm) -> float | np.ndarray:
    """What a log-probability is divided by at `length` choices, `eos` counted; it never falls as length grows.

    "gnmt" is ((5 + length) / 6) ** penalty, as in Wu et al. 2016 and Vaswani et al. 2017; "power" is
    length ** penalty, as in Hugging Face.
    """
    return ((5 + length) / 6) ** penalty if form == "gnmt" else (length + 0.0) ** penalty


def limits(max_len: int | Int[Tensor, " B"], count: int) -> Int[np.ndarray, " B"]:
    """The most choices each of `count` rows may make, `eos` counted."""
    lengths = np.full(count, max_len) if isinstance(max_len, int) else max_len.cpu().numpy()
    if len(lengths) != count:
        raise ConfigError(f"max_len has {len(lengths)} lengths; it must have one for each of {count} rows")
    if count and lengths.min() < 1:
        raise ConfigError(f"max_len={lengths.min()} must be at least 1")
    return lengths
