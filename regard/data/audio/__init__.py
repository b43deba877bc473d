"""Sound in, numbers out: files and bytes to samples of one rate, and these to log-mel frames."""

from regard.data.audio.log_mel import MelConfig, log_mel, mel_filters
from regard.data.audio.sound import Sound, SoundSamples, open_sound, read_sound, resample, write_wav

__all__ = [
    "MelConfig",
    "Sound",
    "SoundSamples",
    "log_mel",
    "mel_filters",
    "open_sound",
    "read_sound",
    "resample",
    "write_wav",
]
