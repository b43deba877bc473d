"""Texts that failed, by the thresholds of Whisper's published decoder; they are written anew at higher temperatures."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from regard.decode.config import DecodeConfig
from regard.decode.stepper import Hypothesis
from regard.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Fallback:
    """When a window's text is taken for a failure and written anew at a higher temperature, as published (Radford et
    al. 2022, section 4.5); without thresholds, never.

    A text has failed whose bytes are more than `compression_ratio_threshold` times as many as zlib makes of them, since
    it repeats itself, or whose tokens, its end with them, have a mean log-probability below `logprob_threshold`. The
    temperature then rises by `temperature_increment`, up to 1. A window of which `<|nospeech|>` is likelier than
    `no_speech_threshold`, and whose text is not above `logprob_threshold`, is silence: it has no text.
    """

    compression_ratio_threshold: float | None = None
    logprob_threshold: float | None = None
    no_speech_threshold: float | None = None
    temperature_increment: float | None = None

    def __post_init__(self) -> None:
        retried = self.compression_ratio_threshold is not None or self.logprob_threshold is not None
        if self.temperature_increment is not None and not retried:
            raise ConfigError(
                f"temperature_increment={self.temperature_increment:g} is for texts that failed: give "
                "compression_ratio_threshold or logprob_threshold"
            )
        if self.temperature_increment is not None and not self.temperature_increment > 0:
            raise ConfigError(f"temperature_increment={self.temperature_increment:g} must be above 0")
        if self.no_speech_threshold is not None and not 0 <= self.no_speech_threshold <= 1:
            raise ConfigError(f"no_speech_threshold={self.no_speech_threshold:g} is a probability, from 0 to 1")

    def __bool__(self) -> bool:
        return self != NEVER

    def attempts(self, config: DecodeConfig) -> Iterator[DecodeConfig]:
        """How to search at first, and each time after that."""
        yield config
        if self.compression_ratio_threshold is None and self.logprob_threshold is None:
            return
        step, begin = self.temperature_increment or INCREMENT, config.temperature or 0.0
        for number in range(1, int((1.0 - begin) / step + 1e-6) + 1):
            hotter = replace(config.greedy(), temperature=begin + number * step, seed=config.seed + number)
            yield replace(hotter, top_k=config.top_k, top_p=config.top_p, min_p=config.min_p)

    def silent(self, found: Hypothesis, no_speech: float) -> bool:
        if self.no_speech_threshold is None or no_speech <= self.no_speech_threshold:
            return False
        return self.logprob_threshold is None or mean_log_prob(found) <= self.logprob_threshold

    def failed(self, found: Hypothesis, text: str) -> bool:
        if self.compression_ratio_threshold is not None and compression_ratio(text) > self.compression_ratio_threshold:
            return True
        return self.logprob_threshold is not None and mean_log_prob(found) < self.logprob_threshold


NEVER = Fallback()
"""No text is taken for a failure."""
INCREMENT = 0.2
"""By how much the temperature rises from try to try, unless something else is asked for."""


def compression_ratio(text: str) -> float:
    """How many times as many bytes a text has as zlib makes of it: above 2 or so, it repeats itself."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def mean_log_prob(found: Hypothesis) -> float:
    """Of a token of an output, the end counted."""
    return found.log_prob / (len(found.tokens) + 1)
