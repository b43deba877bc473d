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
    "mbr": (0, 10_000),
    "coverage_penalty": (0.0, 10.0),
    "diversity_penalty": (0.0, 1000.0),
}
"""The least and the greatest value of settings that a search computes with. Within them nothing overflows: a divisor of
at most a million choices to the power of 10, a length of at most a million times a source's."""


WITHOUT_BEAM = {"coverage_penalty": 0.0, "beam_groups": 1, "diversity_penalty": 0.0}
"""What a search without a beam has of the settings that only matter to one."""


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
    - Every output begins with the tokens of `prefix` (after `force_first`), which cost nothing. No output has one of
      `forbid_phrases`, and none ends before it has every phrase of `require`: a phrase is one or several sequences of
      tokens, of which one must occur. Required phrases need a beam.
    - `coverage_penalty` is beta of Wu et al. 2016: beta times the sum over source positions of the logarithm of the
      attention that all steps together paid to it, at most 1, is added to an output's score.
    - With `beam_groups` above 1 (`num_beam_groups` of Hugging Face) the beam is searched in so many groups, one after
      another in each step; a choice loses `diversity_penalty` for each time that an earlier group has made it in the
      same step (Vijayakumar et al. 2016). That decides what is kept; scores stay the model's own.
    - A `temperature` turns search into sampling: `samples` outputs per source, from the `top_k` likeliest choices, or
      the fewest likeliest that hold `top_p` of the probability, or those at least `min_p` times as likely as the
      likeliest, or several of these in that order. `seed` fixes the samples.
    - `shortlist` chooses among the words that a table beside the run (`regard shortlist`) has for those of a source, on
      a CPU; log-probabilities are then among these.
    - `mbr` samples so many outputs (at temperature 1 unless one is given) and returns the `top_beams` of least Bayes
      risk. That compares texts, so it is for what makes text of outputs, such as `run.translate`.
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
    prefix: tuple[int, ...] = ()
    forbid_phrases: tuple[tuple[int, ...], ...] = ()
    require: tuple[tuple[tuple[int, ...], ...], ...] = ()
    coverage_penalty: float = 0.0
    beam_groups: int = 1
    diversity_penalty: float = 0.0
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    samples: int = 1
    mbr: int = 0
    shortlist: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_search()
        self._check_phrases()
        self._check_beam()
        self._check_sampling()

    def _check_search(self) -> None:
        check_at_least(self, 1, "beam", "max_extra")
        found, most = ("mbr", self.mbr) if self.mbr else ("beam", self.beam)
        if not 1 <= self.top_beams <= most:
            raise ConfigError(f"top_beams={self.top_beams} must be from 1 to {found}={most}")
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

    def _check_phrases(self) -> None:
        if any(token < 0 for token in self.prefix):
            raise ConfigError(f"prefix={list(self.prefix)} must be tokens' numbers, 0 or more")
        for name, several in (("forbid_phrases", (self.forbid_phrases,)), ("require", self.require)):
            for ways in several:
                if not ways and name == "require":
                    raise ConfigError("require has a phrase without tokens; give each one or several sequences")
                for phrase in ways:
                    if not phrase or any(token < 0 for token in phrase):
                        raise ConfigError(f"{name} has {list(phrase)}; a phrase is one or more tokens' numbers")

    def _check_beam(self) -> None:
        check_at_least(self, 1, "beam_groups")
        for name in ("coverage_penalty", "diversity_penalty"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name}={getattr(self, name)} must be 0 or more")
        self._check_greatest("coverage_penalty", "diversity_penalty")
        if self.beam % self.beam_groups:
            raise ConfigError(f"beam={self.beam} must be a multiple of beam_groups={self.beam_groups}")
        if (self.beam_groups > 1) != (self.diversity_penalty > 0):
            raise ConfigError(
                f"beam_groups={self.beam_groups} and diversity_penalty={self.diversity_penalty} need each other: "
                "several groups, and a penalty above 0 that keeps them apart"
            )
        if self.beam_groups > 1 and self.require:
            raise ConfigError(f"beam_groups={self.beam_groups} cannot be searched with required phrases: give one")
        if self.beam > 1 and not self.sampled:
            return
        for name, said in (
            ("coverage_penalty", self.coverage_penalty),
            ("beam_groups", self.beam_groups - 1),
            ("require", self.require),
        ):
            if said:
                value = "..." if name == "require" else getattr(self, name)
                raise ConfigError(f"{name}={value} needs beam search: a beam of at least 2, and no sampling")

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
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ConfigError(f"min_p={self.min_p} must be from 0 to 1")
        if self.mbr < 0 or self.mbr == 1:
            raise ConfigError(f"mbr={self.mbr} must be 0, or at least 2 samples")
        if self.mbr and self.samples != 1:
            raise ConfigError(f"mbr={self.mbr} says how many are sampled: leave samples={self.samples} out")
        if self.seed < 0:
            raise ConfigError(f"seed={self.seed} must be 0 or more")
        self._check_greatest("temperature", "samples", "mbr")
        if not self.sampled:
            for name, unset in (("top_k", None), ("top_p", None), ("min_p", None), ("samples", 1)):
                if getattr(self, name) != unset:
                    raise ConfigError(f"{name}={getattr(self, name)} needs a temperature: it only matters to sampling")

    def _check_greatest(self, *names: str) -> None:
        for name in names:
            value, most = getattr(self, name), BOUNDS[name][1]
            if value is not None and value > most:
                raise ConfigError(f"{name}={value} must be at most {most:,.0f}")

    def greedy(self) -> "DecodeConfig":
        """The same, taking the likeliest choice each time, without what needs a beam or a sample."""
        searched = {"beam": 1, "top_beams": 1, "require": (), **WITHOUT_BEAM}
        return replace(self, temperature=None, top_k=None, top_p=None, min_p=None, samples=1, mbr=0, **searched)

    @property
    def sampled(self) -> bool:
        """Whether outputs are sampled rather than searched for."""
        return self.temperature is not None or self.mbr > 0

    @property
    def rows(self) -> int:
        """How many outputs of one source are under way at a time."""
        return (self.mbr or self.samples) if self.sampled else self.beam

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
