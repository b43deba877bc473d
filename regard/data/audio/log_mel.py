"""Log-mel frames: how loud a sound is in bands that are as wide as the ear's, a hundred times per second."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ConfigError

MelScale = Literal["slaney", "htk"]
MelNorm = Literal["area", "none"]
MelLog = Literal["natural", "whisper"]

LEAST_POWER = 1e-10
"""Of a band, before the logarithm: silence has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MelConfig:
    """Windows of `window` samples every `hop` samples, and `bands` triangular filters between `low` and `high` hertz.

    The `slaney` scale is linear to 1,000 Hz and logarithmic above, `htk` is 2595 log10(1 + f / 700). With `norm="area"`
    all filters have one area. The logarithm is the natural one, or Whisper's: to base 10, at least 8 below the greatest
    of the sound, then (x + 4) / 4.
    """

    rate: int = 16000
    window: int = 400
    hop: int = 160
    bands: int = 80
    low: float = 0.0
    high: float | None = None
    scale: MelScale = "slaney"
    norm: MelNorm = "area"
    log: MelLog = "natural"

    def __post_init__(self) -> None:
        for name in ("rate", "window", "hop", "bands"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if self.hop > self.window:
            raise ConfigError(f"hop={self.hop} must be at most window={self.window}, or samples between are not read")
        if not 0 <= self.low < self.top <= self.rate / 2:
            raise ConfigError(f"low={self.low} and high={self.top} must lie in order between 0 and rate / 2")

    @property
    def top(self) -> float:
        """The end of the last filter, in hertz."""
        return self.rate / 2 if self.high is None else self.high

    @property
    def frames_per_second(self) -> float:
        return self.rate / self.hop


def log_mel(samples: Float[Tensor, "*B N"], config: MelConfig) -> Float[Tensor, "*B T M"]:
    """The log-mel frames of a sound: one for every `hop` samples, its window centred on them, edges reflected."""
    power = power_spectrum(samples, config)
    bands = power @ mel_filters(config).to(power)
    if config.log == "natural":
        return bands.clamp_min(LEAST_POWER).log()
    found = bands.clamp_min(LEAST_POWER).log10()
    return (found.maximum(found.amax((-2, -1), keepdim=True) - 8.0) + 4.0) / 4.0


def power_spectrum(samples: Float[Tensor, "*B N"], config: MelConfig) -> Float[Tensor, "*B T F"]:
    """The squared magnitudes of the Fourier transforms of all windows, each under a Hann window."""
    side, count = config.window // 2, max(1, samples.shape[-1] // config.hop)
    # Reflection needs more samples than it adds; a sound that is shorter than half a window is lengthened by silence.
    short = max(side + 1, (count - 1) * config.hop + 1) - samples.shape[-1]
    padded = torch.nn.functional.pad(samples, (0, short)) if short > 0 else samples
    whole = padded.shape
    padded = torch.nn.functional.pad(padded.reshape(-1, 1, whole[-1]), (side, side), mode="reflect")
    windows = padded.reshape(*whole[:-1], -1).unfold(-1, config.window, config.hop)[..., :count, :]
    hann = torch.hann_window(config.window, dtype=samples.dtype, device=samples.device)
    return torch.fft.rfft(windows * hann).abs() ** 2


@cache
def mel_filters(config: MelConfig) -> Float[Tensor, "F M"]:
    """How much of each frequency of a window's spectrum goes into each band."""
    frequencies = torch.linspace(0, config.rate / 2, config.window // 2 + 1, dtype=torch.float64)
    ends = torch.linspace(
        to_mel(config.low, config.scale), to_mel(config.top, config.scale), config.bands + 2, dtype=torch.float64
    )
    edges = torch.tensor([from_mel(float(one), config.scale) for one in ends], dtype=torch.float64)
    left, middle, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (frequencies[:, None] - left) / (middle - left)
    falling = (right - frequencies[:, None]) / (right - middle)
    filters = rising.minimum(falling).clamp_min(0)
    return (filters * 2 / (right - left) if config.norm == "area" else filters).float()


KNEE = 1000.0
"""Of Slaney's scale: 15 mel, in hertz. Below it a mel is 200 / 3 Hz, above it 27 mel are a factor of 6.4."""
KNEE_MEL, STEP = 15.0, math.log(6.4) / 27


def to_mel(hertz: float, scale: MelScale) -> float:
    if scale == "htk":
        return 2595 * math.log10(1 + hertz / 700)
    return hertz * 3 / 200 if hertz < KNEE else KNEE_MEL + math.log(hertz / KNEE) / STEP


def from_mel(mel: float, scale: MelScale) -> float:
    if scale == "htk":
        return 700 * (10 ** (mel / 2595) - 1)
    return mel * 200 / 3 if mel < KNEE_MEL else KNEE * math.exp((mel - KNEE_MEL) * STEP)
