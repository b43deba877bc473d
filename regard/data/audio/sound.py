"""Sound files to samples: WAV by the standard library, FLAC and others by `soundfile`; one channel, any rate.

A sound is opened, which reads its header alone, and its samples are read from where they are asked for, so that the
length of a recording costs no memory.
"""

import io
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
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
LOUDEST = 1000.0
"""Of a sample, where 1 is full scale: floats may go beyond that, but what goes so far beyond it is no sound."""
BLOCK = 1 << 20
"""Numbers that are read from a file at a time, before the mean of its channels is taken."""

Samples = Float[np.ndarray, " N"]

RIFF = (b"RIFF", b"RF64")
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
UNKNOWN_SIZES = (0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x7FFFF000)
"""What stands in the header of a WAV that was written to a pipe, where its length was not known: by ffmpeg, by arecord,
by others, by SoX."""


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
        with _stream(self.source) as stream:
            stream.seek(self.begin + start * size)

            def block(frames: int) -> Float[np.ndarray, "N C"]:
                data = stream.read(frames * size)
                whole = data[: len(data) // size * size]
                return _numbers(whole, self.width, self.floats).reshape(-1, self.channels)

            return _mixed(self, min(stop, self.frames) - start, self.channels, block)


@dataclass(frozen=True, slots=True)
class OtherSound:
    """The samples of a file that libsndfile reads."""

    name: str
    rate: int
    frames: int
    channels: int
    source: Path | bytes

    def read(self, start: int, stop: int) -> Samples:
        soundfile = _soundfile(self.name)
        try:
            with _stream(self.source) as stream, soundfile.SoundFile(stream) as file:
                file.seek(start)
                read = partial(file.read, dtype="float32", always_2d=True)
                return _mixed(self, min(stop, self.frames) - start, self.channels, read)
        except soundfile.LibsndfileError as error:
            raise DataError(f"{self.name} cannot be read: {error.error_string}") from None


@dataclass(frozen=True, slots=True)
class PartOfSound:
    """The stretch of a recording that has `frames` samples from the one numbered `first` on."""

    sound: Sound
    first: int
    frames: int

    @property
    def name(self) -> str:
        begin, end = (place / self.rate for place in (self.first, self.first + self.frames))
        return f"{self.sound.name} from {clock(begin)} to {clock(end)}"

    @property
    def rate(self) -> int:
        return self.sound.rate

    def read(self, start: int, stop: int) -> Samples:
        return self.sound.read(self.first + start, self.first + min(stop, self.frames))


def part_of_sound(sound: Sound, start: int | float = 0.0, end: int | float | None = None) -> PartOfSound:
    """The stretch from `start` to `end`, in seconds, or to where the recording ends."""
    first, last = round(start * sound.rate), sound.frames if end is None else round(end * sound.rate)
    if first >= sound.frames:
        raise DataError(f"{sound.name} is {clock(sound.frames / sound.rate)} long and has nothing from {start:g} s on")
    return PartOfSound(sound, first, max(1, min(last, sound.frames) - first))


def _mixed(
    sound: "WavSound | OtherSound", frames: int, channels: int, block: Callable[[int], Float[np.ndarray, "N C"]]
) -> Samples:
    """The mean of all channels, read a `block` of so many frames at a time, so that many channels take no room."""
    found, done = np.empty(max(0, frames), np.float32), 0
    while done < frames:
        part = block(min(frames - done, max(1, BLOCK // channels)))
        if not len(part):
            raise DataError(f"{sound.name} is cut: its samples end before those that its header tells of")
        found[done : done + len(part)] = part.mean(1, dtype=np.float32)
        done += len(part)
    return found


def open_sound(source: str | Path | bytes, name: str | None = None) -> Sound:
    """The recording in a file, or in a file's bytes. Only the header is read."""
    source = Path(source) if isinstance(source, str) else source
    name = name or (str(source) if isinstance(source, Path) else "sound")
    if isinstance(source, Path) and not source.is_file():
        raise DataError(f"{source} is a folder, not a sound" if source.is_dir() else f"no such file: {source}")
    with _stream(source) as stream:
        head = stream.read(12)
        if not head:
            raise DataError(f"{name} is empty")
        if head[:4] in RIFF and b"WAVE".startswith(head[8:12]):
            sound = _wav(stream, source, name)
        elif isinstance(source, Path) and source.suffix.lower() == ".wav":
            raise DataError(f"{name} is no WAV: it begins with {head[:4]!r}, not RIFF")
        else:
            sound = _other(source, name, "is no WAV")
    check_sound(sound)
    return sound


def open_sounds(items: Sequence[Any], rate: int) -> list[Sound]:
    """The sounds, opened: paths, a file's bytes, arrays or tensors at this `rate`, a name with a file's bytes, or
    sounds already.

    Whole numbers in an array are those of a file of as many bits.
    """
    return [_opened(item, f"sound {number}", rate) for number, item in enumerate(items, 1)]


def _opened(item: Any, name: str, rate: int) -> Sound:
    if isinstance(item, torch.Tensor):
        item = item.detach().cpu().numpy()
    if isinstance(item, np.ndarray):
        if item.ndim != 1:
            raise DataError(f"{name} has shape {item.shape}; an array must have one channel")
        return SoundSamples(_between_ones(item, name), rate, name)
    if isinstance(item, Sound):
        return item
    if isinstance(item, bytes):
        return open_sound(item, name)
    if isinstance(item, str | Path):
        return open_sound(item)
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], bytes | Path):
        return open_sound(item[1], item[0])
    raise DataError(
        f"{name} is of the type {type(item).__name__}; must be a path, a file's bytes, an array of {rate:,} samples "
        "per second, or regard.data.audio.SoundSamples(array, rate)"
    )


def read_sound(
    source: "str | Path | bytes | Sound",
    rate: int,
    *,
    start: float = 0.0,
    seconds: float | None = None,
    longest: float = LONGEST,
) -> Samples:
    """The samples at `rate` per second: of the whole, or `seconds` of it from `start`.

    More than `longest` seconds are refused, since all of them are in memory, and so are samples that are no numbers.
    What is resampled reads a little more on both sides, so that pieces that are read one by one are the same as the
    whole.
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
        return _checked(sound, begin, min(sound.frames, begin + round(wanted * rate)))
    if wanted <= STRETCH:
        return _resampled(sound, rate, start, wanted)
    # Of the file's own rate, which may be many times as high, no more than a stretch is in memory.
    starts = [number * STRETCH for number in range(math.ceil(wanted / STRETCH))]
    return np.concatenate([_resampled(sound, rate, start + one, min(STRETCH, wanted - one)) for one in starts])


def _checked(sound: Sound, start: int, stop: int) -> Samples:
    """Samples from `start` to before `stop`, if all of them are numbers that a sound has."""
    found = np.ascontiguousarray(sound.read(start, stop))
    least, most = (float(found.min()), float(found.max())) if len(found) else (0.0, 0.0)
    if not -LOUDEST <= least <= most <= LOUDEST:  # also where they are not numbers
        what = "that are not finite numbers" if not np.isfinite(found).all() else f"from {least:g} to {most:g}"
        raise DataError(f"{sound.name} has samples {what}; full scale is from -1 to 1")
    return found


def _resampled(sound: Sound, rate: int, start: float, wanted: float) -> Samples:
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
    found = resample(torch.from_numpy(_checked(sound, begin, stop)), sound.rate, rate).numpy()
    offset += round(start * rate) - steps * new
    return np.ascontiguousarray(found[offset : offset + count])


def check_sound(sound: Sound) -> None:
    """Refuse what has no samples, or a rate that no sound has."""
    if isinstance(sound, WavSound | OtherSound) and sound.channels > CHANNELS:
        raise DataError(f"{sound.name} has {sound.channels:,} channels; must be at most {CHANNELS}")
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


STRETCH = 30.0
"""Seconds that are resampled at a time."""
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
    reach = _reach(old, new)
    taps = 2 * reach + 1
    count = -(-samples.shape[-1] * new // old)
    padded = torch.nn.functional.pad(samples, (reach, taps + old))
    found = samples.new_empty((*samples.shape[:-1], count))
    block, room = max(1, FILTERS // taps), max(1, WINDOWS // taps)
    for first in range(0, min(new, count), block):
        filters = _phases(old, new, first, min(first + block, new)).to(samples)
        for phase in range(first, min(first + block, new, count)):
            windows = padded[..., phase * old // new :].unfold(-1, taps, old)
            wanted = found[..., phase::new]
            for start in range(0, wanted.shape[-1], room):  # a product copies its windows, which overlap
                part = slice(start, min(start + room, wanted.shape[-1]))
                wanted[..., part] = windows[..., part, :] @ filters[phase - first]
    return found


FILTERS, WINDOWS = 1 << 18, 1 << 21
"""Numbers of the filters that are worked out at a time, for rates without a common divisor have a filter for each
sample; and of the windows that they are multiplied with at a time."""


def _reach(old: int, new: int) -> int:
    """How far a filter reaches to either side, in samples of the input."""
    return math.ceil(ZEROS / _cut(old, new))


def _cut(old: int, new: int) -> float:
    return ROLL_OFF * min(1.0, new / old)


@lru_cache(8)  # rates are a file's own, and any number of them may come
def _phases(old: int, new: int, first: int, last: int) -> Float[Tensor, "P K"]:
    """The filter of each phase from `first` to before `last`."""
    cut, reach = _cut(old, new), _reach(old, new)
    offsets = torch.arange(-reach, reach + 1, dtype=torch.float64)
    fractions = torch.arange(first, last, dtype=torch.float64) * old / new % 1.0
    t = (offsets - fractions[:, None]) * cut
    window = torch.special.i0(KAISER * (1 - (t / ZEROS).clamp(-1, 1) ** 2).sqrt())
    return cut * torch.sinc(t) * window / _bessel(KAISER) * (t.abs() <= ZEROS)


def _bessel(x: float) -> float:
    return float(torch.special.i0(torch.tensor(x, dtype=torch.float64)))


def _wav(stream: io.BufferedIOBase, source: Path | bytes, name: str) -> "WavSound | OtherSound":
    """What the chunks of a WAV say of its samples. Packed ones, such as mu-law's, libsndfile reads."""
    size = source.stat().st_size if isinstance(source, Path) else len(source)
    form: tuple[int, ...] | None = None
    while len(head := stream.read(8)) == 8:
        chunk, length = head[:4], struct.unpack("<I", head[4:])[0]
        if chunk == b"data":
            if form is None:
                break
            if form[0] not in (PCM, FLOAT):
                return _other(source, name, f"is a WAV of kind {form[0]}, neither PCM nor float")
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
    if bits not in ((8, 16, 24, 32) if kind == PCM else (32, 64)):
        raise DataError(f"{name} has samples of {bits} bits; 8, 16, 24 and 32 are read, and floats of 32 and 64")
    if not channels or size != channels * bits // 8:
        raise DataError(f"{name} is a broken WAV: {channels} channels of {bits} bits in blocks of {size} bytes")
    if length > rest and length in UNKNOWN_SIZES:
        length = rest
    elif length > rest:
        raise DataError(f"{name} is cut: its header tells of {length:,} bytes of samples and {rest:,} are there")
    return WavSound(name, rate, length // size, channels, bits // 8, kind == FLOAT, begin, source)


def _numbers(data: bytes, width: int, floats: bool) -> Samples:
    if floats:
        with np.errstate(over="ignore"):  # what is too large for 32 bits is refused as infinite
            return np.frombuffer(data, f"<f{width}").astype(np.float32)
    if width == 1:
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    if width == 3:  # the low byte of a number of 32 bits is 0
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0].astype(np.float32) / 2**31
    return np.frombuffer(data, f"<i{width}").astype(np.float32) / 2 ** (8 * width - 1)


def _between_ones(samples: np.ndarray, name: str) -> Samples:
    """An array as samples of which 1 is full scale; whole numbers are divided by the greatest that they can be."""
    kind = samples.dtype
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            return samples.astype(np.float32)
    if kind.kind not in "iu" or kind.itemsize > 4:
        raise DataError(f"{name} is an array of {kind}; must be floats, or whole numbers of 8, 16 or 32 bits")
    half = 2.0 ** (8 * kind.itemsize - 1)
    return ((samples.astype(np.float64) - (half if kind.kind == "u" else 0.0)) / half).astype(np.float32)


def _other(source: Path | bytes, name: str, what: str) -> OtherSound:
    """A sound that libsndfile reads; `what` is said of it where `soundfile` is missing."""
    soundfile = _soundfile(name, what)
    try:
        with _stream(source) as stream, soundfile.SoundFile(stream) as file:
            return OtherSound(name, file.samplerate, file.frames, file.channels, source)
    except soundfile.LibsndfileError as error:
        raise DataError(f"{name} is no sound that can be read: {error.error_string}") from None


def _soundfile(name: str, what: str = "is no WAV") -> Any:
    try:
        import soundfile
    except (ImportError, OSError):
        raise DataError(f"{name} {what}; other sound needs soundfile: pip install 'regard[audio]'") from None
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
