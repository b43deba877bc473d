import io
import math
import struct
import sys
import tracemalloc
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.audio import SoundSamples, open_sound, read_sound, resample, write_wav
from regard.data.audio import sound as sound_module
from regard.data.audio.sound import open_sounds
from regard.errors import DataError, TooLarge

RATE = 16000
PEAK = Path("/proc/self/clear_refs")
PIPED = b"RIFF\0\0\0\0WAVE"


def peak_memory():
    """The most memory, in bytes, since `PEAK` was told to forget it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def tone(rate=RATE, seconds=0.25, hertz=440.0):
    return (0.5 * np.sin(2 * math.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def wav(samples, rate, width=2, channels=1):
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        scaled = np.repeat(samples, channels)
        if width == 1:
            file.writeframes((scaled * 127 + 128).round().astype(np.uint8).tobytes())
        elif width == 3:
            whole = (scaled * (2**23 - 1)).round().astype("<i4")
            file.writeframes(whole.view(np.uint8).reshape(-1, 4)[:, :3].tobytes())
        else:
            file.writeframes((scaled * (2 ** (8 * width - 1) - 1)).round().astype(f"<i{width}").tobytes())
    return data.getvalue()


@pytest.mark.parametrize(("width", "close"), [(1, 2e-2), (2, 1e-4), (3, 1e-6), (4, 1e-6)])
@pytest.mark.parametrize("channels", [1, 2])
def test_wavs_of_every_width_are_read(width, close, channels):
    sound = open_sound(wav(tone(), RATE, width, channels))
    assert (sound.rate, sound.frames) == (RATE, len(tone()))
    assert np.abs(sound.read(0, sound.frames) - tone()).max() < close


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x80000000, 0x7FFFF000], ids=["ffmpeg", "arecord", "SoX"])
def test_a_wav_from_a_pipe_does_not_know_its_length_and_is_read_to_its_end(length):
    data = bytearray(wav(tone(), RATE))
    data[40:44] = struct.pack("<I", length)
    np.testing.assert_array_equal(read_sound(bytes(data), RATE), read_sound(wav(tone(), RATE), RATE))


def test_channels_are_mixed_some_frames_at_a_time(monkeypatch):
    whole = read_sound(wav(tone(), RATE, channels=3), RATE)
    monkeypatch.setattr("regard.data.audio.sound.BLOCK", 700)
    np.testing.assert_array_equal(read_sound(wav(tone(), RATE, channels=3), RATE), whole)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e30, -32768.0])
def test_samples_that_are_no_numbers_or_far_beyond_full_scale_are_refused(wrong):
    samples = tone()
    samples[7] = wrong
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 3, 1, RATE, 4 * RATE, 4, 32)
    data = PIPED + form + struct.pack("<4sI", b"data", 4 * len(samples)) + samples.tobytes()
    said = r"^a\.wav has samples (that are not finite numbers|from \S+ to \S+); full scale is from -1 to 1$"
    with pytest.raises(DataError, match=said):
        read_sound(open_sound(data, "a.wav"), RATE)
    with pytest.raises(DataError, match="sound 1 has samples"):
        read_sound(open_sounds([samples], RATE)[0], 8000)


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.uint8, np.float64])
def test_arrays_of_whole_numbers_have_the_full_scale_of_their_bits(kind):
    half = 1 if kind is np.float64 else 2 ** (8 * np.dtype(kind).itemsize - 1)
    given = tone().astype(np.float64) * (half - 1 if half > 1 else 1) + (half if kind is np.uint8 else 0)
    given = given if half == 1 else given.round()
    (found,) = open_sounds([given.astype(kind)], RATE)
    assert np.abs(read_sound(found, RATE) - tone()).max() < (2 / half if half > 1 else 1e-6)
    with pytest.raises(DataError, match="sound 1 is an array of int64"):
        open_sounds([np.zeros(9, np.int64)], RATE)


def test_two_channels_become_their_mean():
    both = np.stack((tone(), -tone()), axis=1).reshape(-1)
    assert np.abs(open_sound(wav(both, RATE, channels=1)).read(0, 9)).max() > 0
    data = wav(np.zeros(len(tone()), np.float32), RATE, channels=2)
    samples = (both * 32767).astype("<i2").tobytes()
    assert np.abs(read_sound(data[: -len(samples)] + samples, RATE)).max() < 1e-4


def test_floats_and_the_extensible_form_are_read():
    data = tone().astype("<f4").tobytes()
    guid = struct.pack("<HHIH", 22, 32, 0, 3) + b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"
    form = struct.pack("<4sIHHIIHH", b"fmt ", 40, 0xFFFE, 1, RATE, 4 * RATE, 4, 32) + guid
    whole = struct.pack("<4sI4s", b"RIFF", 0, b"WAVE") + b"LIST\x03\x00\x00\x00abc\x00" + form
    whole += struct.pack("<4sI", b"data", 0xFFFFFFFF) + data  # as written to a pipe
    np.testing.assert_array_equal(read_sound(whole, RATE), tone())


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 44101, 48000, 192_000])
def test_any_rate_becomes_the_wanted_one(rate):
    found = read_sound(wav(tone(rate), rate), RATE)
    assert abs(len(found) - RATE / 4) <= 1
    middle = slice(400, 3600)  # beyond the ends, the filter reads silence
    assert np.abs(found[middle] - tone()[middle]).max() < 2e-3


def test_what_the_lower_rate_cannot_hold_is_filtered_out():
    found = resample(torch.from_numpy(tone(48000, hertz=9000.0)), 48000, RATE)
    assert found[400:-400].abs().max() < 1e-3


@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_a_piece_is_that_part_of_the_whole(rate):
    noise = np.random.default_rng(0).normal(0, 0.1, rate).astype(np.float32)
    whole = read_sound(SoundSamples(noise, rate), RATE)
    piece = read_sound(SoundSamples(noise, rate), RATE, start=0.4, seconds=0.2)
    assert len(piece) == 3200
    np.testing.assert_allclose(piece, whole[6400:9600], atol=1e-5)


@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_a_long_sound_is_resampled_in_stretches_and_is_the_same(rate, monkeypatch):
    noise = SoundSamples(np.random.default_rng(0).normal(0, 0.1, rate).astype(np.float32), rate)
    whole = read_sound(noise, RATE)
    monkeypatch.setattr("regard.data.audio.sound.STRETCH", 0.3)
    found = read_sound(noise, RATE)
    assert len(found) == len(whole) == RATE
    np.testing.assert_allclose(found, whole, atol=1e-5)


@pytest.mark.skipif(not PEAK.exists(), reason="the peak of memory is told by Linux alone")
@pytest.mark.parametrize(("rate", "seconds"), [(192_000, 30), (767_999, 1)])
def test_resampling_takes_little_memory_whatever_the_rate(rate, seconds):
    """30 s of 192 kHz used to take 1.6 GB, and rates without a common divisor a filter of 0.4 GB that stayed."""
    sound = open_sound(wav(np.zeros(rate * seconds, np.float32), rate))
    PEAK.write_text("5")
    before = peak_memory()
    assert len(read_sound(sound, RATE)) == RATE * seconds
    assert peak_memory() - before < 250e6
    assert sound_module._phases.cache_info().maxsize <= 8


def test_what_is_written_is_read():
    np.testing.assert_allclose(read_sound(write_wav(tone(), RATE), RATE), tone(), atol=1e-4)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (wav(np.zeros(0, np.float32), RATE), "0 seconds"),
        (wav(tone(), RATE)[:-100], "is cut"),
        (wav(tone(), RATE)[:30], "broken WAV"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt \x04\x00\x00\x00abcd", "broken WAV"),
        (b"RIFF", "broken WAV"),
        (wav(np.repeat(tone(), 65), RATE, channels=1).replace(b"\1\0\1\0", b"\1\0\x41\0"), "65 channels of 16 bits in"),
        (wav(tone(), RATE, channels=65), "has 65 channels; must be at most 64"),
        (wav(tone(), RATE)[:34] + b"\x0c\x00" + wav(tone(), RATE)[36:], "12 bits"),
        (wav(tone(), 10), "10 samples per second"),
    ],
    ids=[
        *("empty", "no seconds", "cut", "header cut", "short format"),
        *("four bytes", "wrong blocks", "65 channels", "12 bits", "10 Hz"),
    ],
)
def test_broken_sound_is_refused_in_one_line(data, said):
    with pytest.raises(DataError, match=said) as error:
        open_sound(data, "talk.wav")
    assert str(error.value).startswith("talk.wav")
    assert "\n" not in str(error.value)


MU_LAW = PIPED + struct.pack("<4sIHHIIHH4sI", b"fmt ", 16, 7, 1, 8000, 8000, 1, 8, b"data", 800) + b"\0" * 800


def test_a_wav_of_another_kind_is_read_by_soundfile(monkeypatch):
    pytest.importorskip("soundfile")
    assert read_sound(MU_LAW, 8000).tolist() == pytest.approx([-32124 / 32768] * 800)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(DataError, match=r"a\.wav is a WAV of kind 7, neither .* pip install 'regard\[audio\]'"):
        open_sound(MU_LAW, "a.wav")


def test_other_sound_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(DataError, match=r"a\.flac is no WAV; .* pip install 'regard\[audio\]'"):
        open_sound(b"fLaC" + b"\0" * 60, "a.flac")


def test_other_sound_is_read_by_soundfile():
    soundfile = pytest.importorskip("soundfile")
    data = io.BytesIO()
    soundfile.write(data, np.stack((tone(), tone()), 1), RATE, format="FLAC")
    np.testing.assert_allclose(read_sound(data.getvalue(), RATE), tone(), atol=1e-4)
    piece = read_sound(data.getvalue(), RATE, start=0.1, seconds=0.1)
    np.testing.assert_allclose(piece, tone()[1600:3200], atol=1e-4)
    for broken in (data.getvalue()[:200], b"neither this nor that"):
        with pytest.raises(DataError, match=r"^a (is no sound that can be read: |cannot be read: |is cut)") as error:
            read_sound(open_sound(broken, "a"), RATE)
        assert "BytesIO" not in str(error.value)


def test_a_file_that_is_no_sound_is_refused(tmp_path):
    (tmp_path / "a.wav").write_bytes(b"<html>" * 9)
    with pytest.raises(DataError, match="is no WAV"):
        open_sound(tmp_path / "a.wav")
    with pytest.raises(DataError, match="no such file"):
        open_sound(tmp_path / "b.wav")


def test_three_hours_cost_the_memory_of_what_is_read(tmp_path):
    path, seconds = tmp_path / "long.wav", 3 * 3600
    head = bytearray(wav(np.zeros(0, np.float32), 8000, 1))
    head[40:44] = struct.pack("<I", seconds * 8000)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + seconds * 8000)  # a hole, which takes no room
    with pytest.raises(TooLarge, match=r"is 3:00:00 long; at most 1:00:00"):
        read_sound(path, RATE)
    tracemalloc.start()
    assert len(read_sound(path, RATE, start=9000.0, seconds=2.0)) == 2 * RATE
    assert tracemalloc.get_traced_memory()[1] < 4e6
    tracemalloc.stop()
