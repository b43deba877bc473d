"""Sound files to samples: WAV by the standard library, FLAC and others by `soundfile`; one channel, any rate.

A sound is opened, which reads its header alone, and its samples are read from where they are asked for, so that the
length of a recording costs no memory.
"""

import io
import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import DataError, TooLarge

SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".aiff", ".aif", ".opus")

SLOWEST, FASTEST = 1_000, 768_000
"""Samples per second that a file may have."""
CHANNELS = 64
"""Most channels of a file."""
LONGEST = 3600.0
"""Seconds that are read at a time: of more, pieces are asked for."""

Samples = Float[np.ndarray, " N"]

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
UNKNOWN_SIZE = 0xFFFFFFFF
"""What stands in the header of a WAV that was written to a pipe, where its length was not known."""


@runtime_checkable
class Sound(Protocol):
    """A recording: `frames` samples at `rate` per second, of one channel, read from where they are asked for."""

    @property
    def name(self) -> str: ...

    @property
    def rate(self) -> int: ...

    @property
    def frames(self) -> int: ...

    def read(self, start: int, stop: int) -> Samples:
        """The samples from `start` to before `stop`, the mean of all channels, between -1 and 1."""
        ...


@dataclass(frozen=True, slots=True)
class SoundSamples:
    """A recording that is an array already."""

    samples: Samples
    rate: int
    name: str = "samples"

    def __post_init__(self) -> None:
        check_sound(self)

    @property
    def frames(self) -> int:
        return len(self.samples)

    def read(self, start: int, stop: int) -> Samples:
        return self.samples[start:stop]


@dataclass(frozen=True, slots=True)
class WavSound:
    """The samples of a WAV: whole numbers of 8, 16, 24 or 32 bits, or floats of 32 or 64."""

    name: str
    rate: int
    frames: int
    channels: int
    width: int
    floats: bool
    begin: int
    source: Path | bytes

    def read(self, start: int, stop: int) -> Samples:
        size = self.channels * self.width
        stop = min(stop, self.frames)
        with _stream(self.source) as stream:
            stream.seek(self.begin + start * size)
            data = stream.read(max(0, stop - start) * size)
        if len(data) < (stop - start) * size:
            raise DataError(f"{self.name} is cut: its samples end before those that its header tells of")
        return _numbers(data, self.width, self.floats).reshape(-1, self.channels).mean(1, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class OtherSound:
    """The samples of a file that libsndfile reads."""

    name: str
    rate: int
    frames: int
    source: Path | bytes

    def read(self, start: int, stop: int) -> Samples:
        soundfile = _soundfile(self.name)
        try:
            with _stream(self.source) as stream, soundfile.SoundFile(stream) as file:
                file.seek(start)
                found = file.read(max(0, stop - start), dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise DataError(f"{self.name} cannot be read: {error.error_string}") from None
        if len(found) < min(stop, self.frames) - start:
            raise DataError(f"{self.name} is cut: its samples end before those that its header tells of")
        return found.mean(1, dtype=np.float32)


def open_sound(source: str | Path | bytes, name: str | None = None) -> Sound:
    """The recording in a file, or in a file's bytes. Only the header is read."""
    source = Path(source) if isinstance(source, str) else source
    name = name or (str(source) if isinstance(source, Path) else "sound")
    if isinstance(source, Path) and not source.is_file():
        raise DataError(f"no such file: {source}")
    with _stream(source) as stream:
        head = stream.read(12)
        if not head:
            raise DataError(f"{name} is empty")
        if head[:4] in (b"RIFF", b"RF64") and head[8:12] == b"WAVE":
            sound: Sound = _wav(stream, source, name)
        else:
            sound = _other(source, name, head)
    check_sound(sound)
    return sound


def open_sounds(items: Sequence[Any], rate: int) -> list[Sound]:
    """The sounds, opened: paths, arrays at this `rate`, a name with a file's bytes, or sounds already."""
    found: list[Sound] = []
    for number, item in enumerate(items, 1):
        if isinstance(item, np.ndarray):
            if item.ndim != 1:
                raise DataError(f"sound {number} has shape {item.shape}; an array must have one channel")
            found.append(SoundSamples(item.astype(np.float32), rate, f"sound {number}"))
        elif isinstance(item, tuple):
            found.append(open_sound(item[1], item[0]))
        else:
            found.append(item if isinstance(item, Sound) else open_sound(item))
    return found


def read_sound(
    source: "str | Path | bytes | Sound",
    rate: int,
    *,
    start: float = 0.0,
    seconds: float | None = None,
    longest: float = LONGEST,
) -> Samples:
    """The samples at `rate` per second: of the whole, or `seconds` of it from `start`.

    More than `longest` seconds are refused, since all of them are in memory. What is resampled reads a little more on
    both sides, so that pieces that are read one by one are the same as the whole.
    """
    sound = source if isinstance(source, Sound) else open_sound(source)
    length = sound.frames / sound.rate
    wanted = length - start if seconds is None else min(seconds, length - start)
    if wanted > longest:
        raise TooLarge(f"{sound.name} is {clock(length)} long; at most {clock(longest)} are read at a time")
    if wanted <= 0:
        raise DataError(f"{sound.name} is {clock(length)} long and has nothing from {clock(start)} on")
    if sound.rate == rate:
        begin = round(start * rate)
        return np.ascontiguousarray(sound.read(begin, min(sound.frames, begin + round(wanted * rate))))
    # The piece begins at a sample that both rates have, and its margins are cut off again after it was resampled.
    divisor = math.gcd(sound.rate, rate)
    old, new = sound.rate // divisor, rate // divisor
    margin = -(-2 * ZEROS * max(old, new) // (new * old)) + 1  # in steps of `old` samples
    steps = int(start * sound.rate) // old
    before = min(steps, margin)
    begin = (steps - before) * old
    offset, count = before * new, round(wanted * rate)
    after = -(-(count + new) * old // new) + margin * old
    stop = min(sound.frames, steps * old + after)
    found = resample(torch.from_numpy(np.ascontiguousarray(sound.read(begin, stop))), sound.rate, rate).numpy()
    offset += round(start * rate) - steps * new
    return np.ascontiguousarray(found[offset : offset + count])


def check_sound(sound: Sound) -> None:
    """Refuse what has no samples, or a rate that no sound has."""
    if not SLOWEST <= sound.rate <= FASTEST:
        raise DataError(f"{sound.name} has {sound.rate:,} samples per second; must be {SLOWEST:,} to {FASTEST:,}")
    if not sound.frames:
        raise DataError(f"{sound.name} has no sound: it is 0 seconds long")


def clock(seconds: float) -> str:
    """A time as people read it: `0:07.5`, `3:00:00`."""
    whole, part = divmod(round(seconds * 10), 10)
    minutes, rest = divmod(whole, 60)
    tenth = f".{part}" if part else ""
    if minutes < 60:
        return f"{minutes}:{rest:02}{tenth}"
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}{tenth}"


def write_wav(samples: Samples, rate: int) -> bytes:
    """A WAV file of 16 bits and one channel; what is louder than 1 is clipped."""
    data = (np.clip(samples, -1, 1) * 32767).round().astype("<i2").tobytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, PCM, 1, rate, 2 * rate, 2, 16)
    return (
        struct.pack("<4sI4s", b"RIFF", 36 + len(data), b"WAVE") + form + struct.pack("<4sI", b"data", len(data)) + data
    )


ZEROS = 32
"""Zero crossings of the sinc on either side, at the lower of the two rates."""
ROLL_OFF = 0.94
"""Where the filter cuts, as a share of the lower rate's half: the rest is its slope."""
KAISER = 9.0


def resample(samples: Float[Tensor, "*B N"], old: int, new: int) -> Float[Tensor, "*B M"]:
    """The same sound with `new` samples per second: by a Kaiser-windowed sinc, one filter for each phase.

    Output `i` lies at `i * old / new` of the input: as the rates have a common divisor, just `new / divisor` fractions
    occur, the phases, and the outputs of a phase are a product of one filter with windows at equal distances.
    """
    if old == new:
        return samples
    divisor = math.gcd(old, new)
    old, new = old // divisor, new // divisor
    filters, reach = _phases(old, new)
    count = -(-samples.shape[-1] * new // old)
    taps = filters.shape[1]
    padded = torch.nn.functional.pad(samples, (reach, taps + old))
    found = samples.new_empty((*samples.shape[:-1], count))
    for phase in range(min(new, count)):
        windows = padded[..., phase * old // new :].unfold(-1, taps, old)
        amount = len(range(phase, count, new))
        found[..., phase::new] = windows[..., :amount, :] @ filters[phase].to(samples)
    return found


@cache
def _phases(old: int, new: int) -> tuple[Float[Tensor, "P K"], int]:
    """A filter for each phase, and how far it reaches back."""
    cut = ROLL_OFF * min(1.0, new / old)
    reach = math.ceil(ZEROS / cut)
    offsets = torch.arange(-reach, reach + 1, dtype=torch.float64)
    fractions = torch.arange(new, dtype=torch.float64) * old / new % 1.0
    t = (offsets - fractions[:, None]) * cut
    window = torch.special.i0(KAISER * (1 - (t / ZEROS).clamp(-1, 1) ** 2).sqrt())
    filters = cut * torch.sinc(t) * window / _bessel(KAISER) * (t.abs() <= ZEROS)
    return filters, reach


def _bessel(x: float) -> float:
    return float(torch.special.i0(torch.tensor(x, dtype=torch.float64)))


def _wav(stream: io.BufferedIOBase, source: Path | bytes, name: str) -> WavSound:
    """What the chunks of a WAV say of its samples."""
    size = source.stat().st_size if isinstance(source, Path) else len(source)
    form: tuple[int, ...] | None = None
    while len(head := stream.read(8)) == 8:
        chunk, length = head[:4], struct.unpack("<I", head[4:])[0]
        if chunk == b"data":
            if form is None:
                break
            return _described(form, name, source, stream.tell(), length, size - stream.tell())
        if chunk == b"fmt ":
            data = stream.read(length) if 16 <= length <= 64 else b""
            if len(data) < 16:
                break
            form = struct.unpack("<HHIIHH", data[:16])
            if form[0] == EXTENSIBLE and len(data) >= 26:
                form = (struct.unpack("<H", data[24:26])[0], *form[1:])
            stream.seek(length % 2, io.SEEK_CUR)
        else:
            stream.seek(length + length % 2, io.SEEK_CUR)
    raise DataError(f"{name} is a broken WAV: its header has no description of the samples, or no samples")


def _described(form: tuple[int, ...], name: str, source: Path | bytes, begin: int, length: int, rest: int) -> WavSound:
    kind, channels, rate, _, size, bits = form
    if kind not in (PCM, FLOAT):
        raise DataError(f"{name} is a WAV of kind {kind}; only PCM and float are read: convert it to one of these")
    if bits not in ((8, 16, 24, 32) if kind == PCM else (32, 64)):
        raise DataError(f"{name} has samples of {bits} bits; 8, 16, 24 and 32 are read, and floats of 32 and 64")
    if not 1 <= channels <= CHANNELS or size != channels * bits // 8:
        raise DataError(f"{name} is a broken WAV: {channels} channels of {bits} bits in blocks of {size} bytes")
    if length == UNKNOWN_SIZE:
        length = rest
    elif length > rest:
        raise DataError(f"{name} is cut: its header tells of {length:,} bytes of samples and {rest:,} are there")
    return WavSound(name, rate, length // size, channels, bits // 8, kind == FLOAT, begin, source)


def _numbers(data: bytes, width: int, floats: bool) -> Samples:
    if floats:
        found = np.frombuffer(data, f"<f{width}").astype(np.float32)
        return np.nan_to_num(found, nan=0.0, posinf=1.0, neginf=-1.0)
    if width == 1:
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    if width == 3:  # the low byte of a number of 32 bits is 0
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0].astype(np.float32) / 2**31
    return np.frombuffer(data, f"<i{width}").astype(np.float32) / 2 ** (8 * width - 1)


def _other(source: Path | bytes, name: str, head: bytes) -> OtherSound:
    if isinstance(source, Path) and source.suffix.lower() == ".wav":
        raise DataError(f"{name} is no WAV: it begins with {head[:4]!r}, not RIFF")
    soundfile = _soundfile(name)
    try:
        with _stream(source) as stream, soundfile.SoundFile(stream) as file:
            return OtherSound(name, file.samplerate, file.frames, source)
    except soundfile.LibsndfileError as error:
        raise DataError(f"{name} is no sound that can be read: {error.error_string}") from None


def _soundfile(name: str) -> Any:
    try:
        import soundfile
    except (ImportError, OSError):
        raise DataError(f"{name} is no WAV; other sound needs soundfile: pip install 'regard[audio]'") from None
    return soundfile


@contextmanager
def _stream(source: Path | bytes) -> Iterator[io.BufferedIOBase]:
    if isinstance(source, bytes):
        yield io.BytesIO(source)
        return
    try:
        stream = source.open("rb")
    except OSError as error:
        raise DataError(f"{source} cannot be read: {error.strerror}") from None
    with stream:
        yield stream
