"""A recording in windows of log-mel frames, as Whisper reads it, with a few of them in memory at a time."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.audio.log_mel import LEAST_POWER, MelConfig, log_mel, mel_filters, power_spectrum
from regard.data.audio.sound import Sound, read_sound

MARGIN = 4
"""Frames that are worked out on either side of those wanted, so that edges are as in the whole recording."""


class SoundWindows:
    """Windows of `frames` log-mel frames from anywhere in a recording.

    A recording that fits one window is first filled up with silence. Of a longer one, `length` frames, what lies beyond
    its end is zeros, and the greatest number of all of it decides what counts as silence, so it is read twice.
    """

    def __init__(self, sound: Sound, config: MelConfig, frames: int) -> None:
        assert config.log == "whisper", "windows are for Whisper's logarithm"
        self.sound, self.config, self.frames = sound, config, frames
        self.samples = max(1, round(sound.frames * config.rate / sound.rate))
        self.long = self.samples > frames * config.hop
        self.length = self.samples // config.hop if self.long else -(-self.samples // config.hop)
        self._greatest: float | None = None

    @property
    def seconds(self) -> float:
        return self.samples / self.config.rate

    def window(self, start: int) -> Float[Tensor, "N M"]:
        """The frames from `start` on."""
        if not self.long:
            whole = self._whole()
            return torch.nn.functional.pad(whole[start:], (0, 0, 0, start))
        found = self._logarithms(start, min(start + self.frames, self.length))
        frames = (found.clamp_min(self._loudest() - 8.0) + 4.0) / 4.0
        return torch.nn.functional.pad(frames, (0, 0, 0, self.frames - len(frames)))

    def _whole(self) -> Float[Tensor, "N M"]:
        samples = torch.from_numpy(read_sound(self.sound, self.config.rate))
        wanted = self.frames * self.config.hop
        return log_mel(torch.nn.functional.pad(samples[:wanted], (0, max(0, wanted - len(samples)))), self.config)

    def _loudest(self) -> float:
        if self._greatest is None:
            starts = range(0, self.length, self.frames)
            found = (self._logarithms(start, min(start + self.frames, self.length)) for start in starts)
            self._greatest = max(float(part.max()) for part in found)
        return self._greatest

    def _logarithms(self, start: int, stop: int) -> Float[Tensor, "N M"]:
        """Logarithms to base 10 of the bands of these frames, as in the whole recording."""
        hop, rate = self.config.hop, self.config.rate
        first, last = max(0, start - MARGIN), stop + MARGIN
        begin, end = first * hop, min(self.samples, last * hop)
        samples = torch.from_numpy(read_sound(self.sound, rate, start=begin / rate, seconds=(end - begin) / rate))
        power = power_spectrum(samples, self.config)[start - first : stop - first]
        return (power @ mel_filters(self.config).to(power)).clamp_min(LEAST_POWER).log10()
