"""Speech by a small synthesiser of the project's own: digits and other words, in voices that differ, in noise.

A glottal pulse train and noise are filtered by the resonances of a vocal tract that moves from phone to phone, and
bursts and hisses are noise of their own colour. It is not natural, but it has what makes speech hard for a model: words
run into each other, and voices differ in pitch, rate and resonances. Everything is a function of (seed, part, number),
and when each word begins and ends is known.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float

RATE = 16000
SpeechPart = Literal["train", "valid", "test"]
Lexicon = Literal["digits", "words"]
_PARTS: tuple[SpeechPart, ...] = ("train", "valid", "test")

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PRONUNCIATIONS = {
    **{"zero": "z ih r ow", "one": "w ah n", "two": "t uw", "three": "th r iy", "four": "f ao r", "five": "f ay v"},
    **{"six": "s ih k s", "seven": "s eh v ax n", "eight": "ey t", "nine": "n ay n", "ten": "t eh n"},
    **{"yes": "y eh s", "no": "n ow", "up": "ah p", "down": "d aw n", "left": "l eh f t", "right": "r ay t"},
    **{"go": "g ow", "stop": "s t aa p", "on": "aa n", "off": "ao f", "open": "ow p ax n", "close": "k l ow z"},
    **{"red": "r eh d", "green": "g r iy n", "blue": "b l uw", "yellow": "y eh l ow", "black": "b l ae k"},
    **{"white": "w ay t", "house": "hh aw s", "tree": "t r iy", "dog": "d ao g", "cat": "k ae t", "bird": "b er d"},
    **{"fish": "f ih sh", "happy": "hh ae p iy", "water": "w ao t er", "fire": "f ay er", "moon": "m uw n"},
    **{"sun": "s ah n", "star": "s t aa r", "night": "n ay t", "day": "d ey", "music": "m y uw z ih k"},
    **{"light": "l ay t", "book": "b uh k", "paper": "p ey p er", "table": "t ey b ax l", "chair": "ch eh r"},
    **{"door": "d ao r", "window": "w ih n d ow", "garden": "g aa r d ax n", "river": "r ih v er"},
    **{"mountain": "m aw n t ax n", "morning": "m ao r n ih ng", "winter": "w ih n t er", "summer": "s ah m er"},
    **{"money": "m ah n iy", "button": "b ah t ax n", "visit": "v ih z ih t", "judge": "jh ah jh", "voice": "v oy s"},
    **{"measure": "m eh zh er", "small": "s m ao l", "large": "l aa r jh", "this": "dh ih s", "sing": "s ih ng"},
}
"""The phones of each word."""

LENGTHS: dict[Lexicon, tuple[int, int]] = {"digits": (3, 7), "words": (2, 6)}
"""The fewest and the most words of an utterance."""
LOUDEST_NOISE, LEAST_NOISE = 10.0, 30.0
"""By how many decibels speech is above the noise."""

HOP = 128
"""Samples between two settings of the filters: 8 ms."""
EMPHASIS = 0.6
"""How much of each sample is taken from the next: lips send out high tones better."""
SIZE = 512
"""Of a Fourier transform: a window of 2 HOP and room for what rings after it."""


@dataclass(frozen=True, slots=True)
class Voice:
    """A speaker: pitch in hertz and how far it moves, speed, size of the resonances, breath, and how dull it is."""

    pitch: float
    melody: float
    speed: float
    resonances: float
    breath: float
    tilt: float


def _voice(number: int) -> Voice:
    """Voices spread evenly over what differs between people, by sequences whose fractions do not repeat."""
    at = [(0.5 + (number + 1) * step) % 1.0 for step in (0.6180, 0.7549, 0.5698, 0.8567, 0.3247, 0.2360)]
    pitch = 80 * 3.1 ** at[0]
    # High voices come from shorter vocal tracts, mostly.
    resonances = 0.88 + 0.22 * at[0] + 0.10 * at[1]
    return Voice(pitch, 0.06 + 0.14 * at[2], 0.8 + 0.45 * at[3], resonances, 0.02 + 0.12 * at[4], 0.3 + 0.5 * at[5])


VOICES = tuple(map(_voice, range(30)))
VOICES_OF: dict[SpeechPart, tuple[int, ...]] = {
    "train": (0, 1, 3, 4, 5, 6, 8, 10, 11, 12, 13, 14, 15, 16, 18, 20, 21, 23, 24, 25, 26, 28),
    "valid": (2, 9, 22),
    "test": (7, 17, 19, 27, 29),
}
"""Which of the voices speak in which part: nobody is heard in two."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech: resonances in hertz, how loud the voice, the breath and the hiss are, and the hiss's colour.

    Of what has no resonances of its own (0), those of its neighbours go on.
    """

    seconds: float
    formants: tuple[float, float, float] = (0.0, 0.0, 0.0)
    voice: float = 0.0
    breath: float = 0.0
    hiss: float = 0.0
    centre: float = 4000.0
    spread: float = 2000.0


_VOWELS = {
    **{"iy": (280.0, 2250.0, 2950.0, 0.13), "ih": (400.0, 1950.0, 2550.0, 0.09), "eh": (550.0, 1770.0, 2500.0, 0.11)},
    **{"ae": (690.0, 1680.0, 2420.0, 0.14), "aa": (740.0, 1110.0, 2500.0, 0.15), "ao": (580.0, 860.0, 2450.0, 0.15)},
    **{"ah": (630.0, 1210.0, 2500.0, 0.10), "uh": (450.0, 1060.0, 2300.0, 0.10), "uw": (310.0, 900.0, 2250.0, 0.13)},
    **{"er": (480.0, 1320.0, 1680.0, 0.14), "ax": (500.0, 1450.0, 2500.0, 0.06)},
}
_DIPHTHONGS = {"ay": ("aa", "ih"), "ey": ("eh", "iy"), "ow": ("ao", "uw"), "aw": ("aa", "uw"), "oy": ("ao", "ih")}
_SONORANTS = {
    **{
        "w": (300.0, 650.0, 2200.0, 0.07, 0.6),
        "y": (270.0, 2250.0, 3000.0, 0.06, 0.6),
        "l": (350.0, 1050.0, 2850.0, 0.07, 0.6),
    },
    **{
        "r": (350.0, 1150.0, 1500.0, 0.07, 0.6),
        "m": (260.0, 1000.0, 2200.0, 0.08, 0.25),
        "n": (260.0, 1550.0, 2550.0, 0.08, 0.25),
    },
    **{"ng": (260.0, 2050.0, 2750.0, 0.09, 0.25)},
}
_HISSES = {  # seconds, hiss, centre, spread, voice
    **{
        "s": (0.11, 0.35, 5800.0, 1500.0, 0.0),
        "sh": (0.11, 0.4, 3000.0, 1100.0, 0.0),
        "f": (0.09, 0.16, 6500.0, 4000.0, 0.0),
    },
    **{
        "th": (0.09, 0.12, 5200.0, 5000.0, 0.0),
        "z": (0.08, 0.2, 5800.0, 1500.0, 0.25),
        "zh": (0.08, 0.25, 3000.0, 1100.0, 0.25),
    },
    **{"v": (0.06, 0.08, 6500.0, 4000.0, 0.3), "dh": (0.05, 0.07, 5200.0, 5000.0, 0.3)},
}
_STOPS = {  # the second resonance that it comes from, the burst's centre and spread, voiced
    **{"p": (900.0, 900.0, 900.0, False), "b": (900.0, 900.0, 900.0, True), "t": (1750.0, 4300.0, 1800.0, False)},
    **{"d": (1750.0, 4000.0, 1800.0, True), "k": (2000.0, 2000.0, 700.0, False), "g": (2000.0, 1900.0, 700.0, True)},
}
_AFFRICATES = {"ch": ("t", "sh"), "jh": ("d", "zh")}


def phone(name: str) -> list[Segment]:
    """What the synthesiser does for one phone."""
    if name in _VOWELS:
        *formants, seconds = _VOWELS[name]
        return [Segment(seconds, (formants[0], formants[1], formants[2]), voice=1.0)]
    if name in _DIPHTHONGS:
        return [replace(part, seconds=0.085) for half in _DIPHTHONGS[name] for part in phone(half)]
    if name in _SONORANTS:
        *formants, seconds, loud = _SONORANTS[name]
        return [Segment(seconds, (formants[0], formants[1], formants[2]), voice=loud)]
    if name in _HISSES:
        seconds, hiss, centre, spread, voice = _HISSES[name]
        return [Segment(seconds, voice=voice, hiss=hiss, centre=centre, spread=spread)]
    if name in _STOPS:
        second, centre, spread, voiced = _STOPS[name]
        locus = (300.0, second, 2500.0)
        closed = Segment(0.05, locus, voice=0.08 if voiced else 0.0)
        burst = Segment(0.016, locus, hiss=0.3 if voiced else 0.45, centre=centre, spread=spread)
        return [closed, burst, *([] if voiced else [Segment(0.035, breath=0.35)])]
    if name in _AFFRICATES:
        return [part for half in _AFFRICATES[name] for part in phone(half)]
    assert name == "hh", f"no such phone: {name}"
    return [Segment(0.07, breath=0.4)]


@dataclass(frozen=True, slots=True)
class Utterance:
    """What is said, by which voice, how many decibels above the noise, and what its random bits are from."""

    words: tuple[str, ...]
    voice: int
    above_noise: float
    key: tuple[int, int]

    @property
    def text(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True, slots=True)
class Spoken:
    """The sound of an utterance, and when each word begins and ends, in seconds."""

    samples: Float[np.ndarray, " N"]
    times: tuple[tuple[float, float], ...]


def utterance(seed: int, part: SpeechPart, number: int, lexicon: Lexicon = "digits") -> Utterance:
    """Number `number` of a part. No seed has what another has, and no part the voices of another."""
    random = _Random((seed << 8) + _PARTS.index(part), number)
    known = DIGITS if lexicon == "digits" else tuple(PRONUNCIATIONS)
    fewest, most = LENGTHS[lexicon]
    words = tuple(known[random.below(len(known))] for _ in range(fewest + random.below(most - fewest + 1)))
    voices = VOICES_OF[part]
    noise = LOUDEST_NOISE + (LEAST_NOISE - LOUDEST_NOISE) * random.uniform()
    return Utterance(words, voices[random.below(len(voices))], noise, ((seed << 8) + _PARTS.index(part), number))


def speak(said: Utterance) -> Spoken:
    """The sound of an utterance, at `RATE` samples per second."""
    random = _Random(*said.key, stream=1)
    voice = _today(VOICES[said.voice], random)
    segments, ends = _plan(said.words, voice, random)
    frames = np.maximum(1, np.round([one.seconds * RATE / HOP for one in segments])).astype(np.int64)
    clean = _synthesised(segments, frames, voice, random)
    clean[1:] -= EMPHASIS * clean[:-1]
    clean *= 0.1 / max(1e-6, float(np.sqrt((clean**2).mean())))
    noise = _noise(len(clean), random)
    noise *= 0.1 * 10 ** (-said.above_noise / 20) / float(np.sqrt((noise**2).mean()))
    sound = clean + noise
    starts = np.concatenate(([0], np.cumsum(frames))) * HOP / RATE
    times = tuple((float(starts[first]), float(starts[last])) for first, last in ends)
    return Spoken((sound * (0.7 / max(0.7, float(np.abs(sound).max())))).astype(np.float32), times)


def _today(voice: Voice, random: "_Random") -> Voice:
    """Nobody speaks alike twice: a little higher or lower, slower or faster."""
    shift = [2 * random.uniform() - 1 for _ in range(3)]
    return replace(
        voice,
        pitch=voice.pitch * (1 + 0.08 * shift[0]),
        speed=voice.speed * (1 + 0.08 * shift[1]),
        resonances=voice.resonances * (1 + 0.03 * shift[2]),
    )


def _plan(words: Sequence[str], voice: Voice, random: "_Random") -> tuple[list[Segment], list[tuple[int, int]]]:
    """The segments of an utterance with silence around it, and of each word the first and the one after its last."""
    segments, ends = [Segment(0.05 + 0.15 * random.uniform())], []
    for number, word in enumerate(words):
        if number and random.uniform() < 0.7:
            segments.append(Segment(0.02 + 0.16 * random.uniform()))
        first = len(segments)
        hurry = 0.85 + 0.3 * random.uniform()
        for name in PRONUNCIATIONS[word].split():
            for part in phone(name):
                slack = 0.9 + 0.2 * random.uniform()
                spread = 0.97 + 0.06 * random.uniform()
                seconds = part.seconds * hurry * slack / voice.speed
                a, b, c = part.formants
                segments.append(replace(part, seconds=seconds, formants=(a * spread, b * spread, c)))
        ends.append((first, len(segments)))
    segments.append(Segment(0.05 + 0.15 * random.uniform()))
    return segments, ends


def _synthesised(segments: Sequence[Segment], frames: np.ndarray, voice: Voice, random: "_Random") -> np.ndarray:
    """Source and noise through filters that are set anew every `HOP` samples."""
    formants = _carried(np.array([one.formants for one in segments])) * voice.resonances
    tracks = np.repeat(formants, frames, axis=0)
    tracks = np.stack([_smoothed(track, 7) for track in tracks.T], axis=1)
    loud = np.repeat(np.array([(one.voice, one.breath, one.hiss) for one in segments]), frames, axis=0)
    voiced, breath, hiss = (_smoothed(track, 3) for track in loud.T)
    hissing = _hissing(np.array([(one.centre, one.spread) for one in segments]), voice.resonances)
    count = len(tracks) * HOP
    time, knots = np.arange(count), np.arange(len(tracks)) * HOP

    def spread(track: np.ndarray) -> np.ndarray:
        return np.interp(time, knots, track)

    pitch = _pitch(len(tracks), voice, random)
    source = _glottis(spread(pitch), voice.tilt) * spread(voiced)
    source += random.noise(count) * spread(breath * 0.25 + voiced * voice.breath * 0.2)
    made = _filtered(source, _tract(tracks, voice.resonances))
    return made + _filtered(random.noise(count) * spread(hiss), np.repeat(hissing, frames, axis=0))


def _carried(formants: np.ndarray) -> np.ndarray:
    """The resonances with each that is unknown (0) taken from the next that is known, or else from the one before."""
    found = formants.copy()
    for place in range(len(found) - 2, -1, -1):
        if not found[place, 0]:
            found[place] = found[place + 1]
    neutral = np.array([500.0, 1500.0, 2500.0])
    for place in range(len(found)):
        if not found[place, 0]:
            found[place] = found[place - 1] if place else neutral
    return found


def _smoothed(track: np.ndarray, width: int) -> np.ndarray:
    """The mean of each value and its neighbours: a tongue does not jump."""
    ends = np.pad(track, width // 2, mode="edge")
    return np.convolve(ends, np.full(width, 1 / width), mode="valid")


def _pitch(count: int, voice: Voice, random: "_Random") -> np.ndarray:
    """Falls from the first word to the last, with a movement of its own, and is never quite even."""
    falling = np.linspace(1 + voice.melody, 1 - voice.melody, count)
    wave = np.sin(2 * np.pi * (np.arange(count) / (40 + 30 * random.uniform()) + random.uniform()))
    return voice.pitch * (falling + 0.5 * voice.melody * wave) * (1 + 0.02 * random.noise(count))


def _glottis(pitch: np.ndarray, tilt: float) -> np.ndarray:
    """The air that the vocal folds let through: opening slowly, closing at once; a dull voice closes slower."""
    opened, closed = 0.4, 0.4 + 0.08 + 0.14 * tilt
    phase = np.arange(PHASES) / PHASES
    flow = np.where(
        phase < opened,
        0.5 - 0.5 * np.cos(np.pi * phase / opened),
        np.where(phase < closed, np.cos(0.5 * np.pi * (phase - opened) / (closed - opened)), 0.0),
    )
    passed = flow[(np.cumsum(pitch * (PHASES / RATE)) % PHASES).astype(np.int64)]
    return 4.0 * np.diff(passed, prepend=passed[0])


PHASES = 4096
"""Of a pulse of the vocal folds."""
_Z = np.exp(-2j * np.pi * np.arange(SIZE // 2 + 1) / SIZE).astype(np.complex64)
_Z2 = _Z * _Z
_WIDTHS = (70.0, 100.0, 150.0, 300.0)
_WINDOW = np.hanning(2 * HOP + 1)[:-1].astype(np.float32)


def _poles(centre: np.ndarray, width: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """The gain and the denominator of a resonator's response, of gain 1 at 0 Hz, for every frame."""
    radius = np.exp(-np.pi * np.asarray(width) / RATE)
    first = (2 * radius * np.cos(2 * np.pi * np.minimum(centre, 0.49 * RATE) / RATE)).astype(np.float32)[:, None]
    second = np.broadcast_to(radius**2, centre.shape).astype(np.float32)[:, None]
    return 1 - first + second, 1 - first * _Z + second * _Z2


def _tract(tracks: np.ndarray, scale: float) -> np.ndarray:
    """The response of five resonances in a row; the upper two do not move."""
    gain, below = np.float32(1.0), np.complex64(1.0)
    for centre in np.array([[3500.0], [4500.0]]) * scale:
        own = _poles(centre, _WIDTHS[3])
        gain, below = gain * own[0], below * own[1]
    for centre, width in zip(tracks.T, _WIDTHS, strict=False):
        own = _poles(centre, width)
        gain, below = gain * own[0], own[1] * below
    return np.asarray(gain / below)


def _hissing(colour: np.ndarray, scale: float) -> np.ndarray:
    """The response that colours a hiss: a broad resonance, of gain 1 at its peak."""
    below = np.abs(_poles(colour[:, 0] * scale**0.5, colour[:, 1])[1])
    return below.min(1, keepdims=True) / below


def _filtered(source: np.ndarray, response: np.ndarray) -> np.ndarray:
    """Overlapping windows of the source, each under the response at its middle, added up again."""
    padded = np.pad(source.astype(np.float32), (HOP, HOP))
    pieces = np.lib.stride_tricks.sliding_window_view(padded, 2 * HOP)[::HOP][: len(response)] * _WINDOW
    shaped = np.fft.irfft(np.fft.rfft(pieces, SIZE, axis=1) * response, SIZE, axis=1)
    found = np.zeros(len(padded) + SIZE, dtype=np.float32)
    for part in range(SIZE // HOP):  # a window's ringing covers SIZE / HOP stretches
        stretch = shaped[:, part * HOP : (part + 1) * HOP].reshape(-1)
        found[part * HOP : part * HOP + len(stretch)] += stretch
    return found[HOP : HOP + len(source)]


def _noise(count: int, random: "_Random") -> np.ndarray:
    """A room: noise that is white, or dull, or has a hum in it."""
    kind = random.below(3)
    noise = random.noise(count)
    if kind == 1:
        return _smoothed(noise, 9) + 0.05 * noise
    if kind == 2:
        hum = np.sin(2 * np.pi * (100 + 20 * random.uniform()) * np.arange(count) / RATE)
        return _smoothed(noise, 3) + 0.3 * hum
    return noise


class _Random:
    """Random numbers by a key; from raw bits alone, which numpy promises never to change."""

    def __init__(self, seed: int, number: int, stream: int = 0) -> None:
        self.bits = np.random.Philox(key=np.array([seed, number], dtype=np.uint64), counter=stream << 128)

    def uniform(self) -> float:
        return float(self.bits.random_raw() / 2**64)

    def below(self, count: int) -> int:
        return int(self.bits.random_raw() % count)

    def noise(self, count: int) -> np.ndarray:
        """Uniform between -1 and 1."""
        found = self.bits.random_raw((count + 1) // 2).astype("<u8").view("<u4")[:count]
        return found * np.float32(2.0**-31) - np.float32(1.0)


@dataclass(frozen=True)
class SpokenSounds:
    """Utterances of the synthesiser as a source of sounds with texts."""

    rows: tuple[int, ...]
    seed: int = 1
    part: SpeechPart = "train"
    lexicon: Lexicon = "digits"

    @classmethod
    def of(
        cls, count: int, *, seed: int = 1, part: SpeechPart = "train", lexicon: Lexicon = "digits"
    ) -> "SpokenSounds":
        return cls(tuple(range(count)), seed, part, lexicon)

    def __len__(self) -> int:
        return len(self.rows)

    def utterance(self, place: int) -> Utterance:
        return utterance(self.seed, self.part, self.rows[place], self.lexicon)

    @property
    def names(self) -> list[str]:
        return [f"{self.part}-{row}" for row in self.rows]

    @property
    def texts(self) -> list[str]:
        return [self.utterance(place).text for place in range(len(self.rows))]

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def samples(self, place: int, rate: int) -> Float[np.ndarray, " N"]:
        return spoken_samples(self.utterance(place), rate)

    def select(self, rows: Sequence[int]) -> "SpokenSounds":
        return replace(self, rows=tuple(self.rows[row] for row in rows))

    def digest(self) -> str:
        return _digest(("speech", self.rows, self.seed, self.part, self.lexicon))


@dataclass(frozen=True)
class Utterances:
    """Any utterances as sounds, with what is said in them."""

    said: tuple[Utterance, ...]

    @property
    def names(self) -> list[str]:
        return [f"'{one.text}' by voice {one.voice}" for one in self.said]

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.said]

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def samples(self, place: int, rate: int) -> Float[np.ndarray, " N"]:
        return spoken_samples(self.said[place], rate)

    def select(self, rows: Sequence[int]) -> "Utterances":
        return Utterances(tuple(self.said[row] for row in rows))

    def digest(self) -> str:
        return _digest(self.said)


def spoken_samples(said: Utterance, rate: int) -> Float[np.ndarray, " N"]:
    """The sound of an utterance at any rate."""
    from regard.data.audio.sound import SoundSamples, read_sound

    return read_sound(SoundSamples(speak(said).samples, RATE), rate)


def _digest(what: object) -> str:
    """From this file's own text too, so that speech that changed is other speech."""
    digest = hashlib.sha256(repr(what).encode())
    digest.update(Path(__file__).read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()


def utterances(
    count: int, *, seed: int = 1, part: SpeechPart = "train", lexicon: Lexicon = "digits"
) -> Iterator[Utterance]:
    return (utterance(seed, part, number, lexicon) for number in range(count))
