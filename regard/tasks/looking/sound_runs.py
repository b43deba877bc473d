"""What a model listened to in a sound when it wrote each piece."""

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from regard.config import Setting
from regard.data.audio.log_mel import log_mel
from regard.data.audio.sound import Sound, clock, part_of_sound, read_sound, write_wav
from regard.data.audio.transcripts import sound_frames
from regard.errors import DataError
from regard.look.document import Document, Feature, Sentence, Side, SoundTrack
from regard.look.packed_arrays import png_address
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.looking.steps import looked
from regard.tasks.looking.written_runs import given_targets, written_sentence
from regard.tasks.run import Run
from regard.tasks.verbs.transcribe import WrittenTranscript

STRETCHES = 600
"""Of a waveform, each shown as one line."""

Heard = tuple[Sound, np.ndarray, np.ndarray, WrittenTranscript]
"""A sound with its samples, its frames and what was heard in it, or is given."""


def sound_document(run: Run, sounds: Sequence[Any], options: LookOptions, **decode: Setting) -> Document:
    """Each sound with its transcript, written or given. Attention is read by teacher forcing, which sees the same."""
    transcriber = run.transcriber
    read = wanted_parts(transcriber.read(list(sounds)), options)
    targets = given_targets(options, len(read), "sound")
    config, found = run.decode_config(**decode), []
    for sound, target in zip(read, targets, strict=True):
        if sound.frames / sound.rate > transcriber.longest:
            raise too_long(sound, transcriber.longest)
        samples = read_sound(sound, transcriber.mel.rate)
        frames = sound_frames(samples, transcriber.mel)
        best = transcriber.decode([frames], config)[0][0] if target is None else transcriber.given(target)
        found.append((sound, samples, frames, best))

    def again(frames: np.ndarray) -> str:
        return transcriber.decode([frames], config)[0][0].text

    return looked(run, [_sound(run, one, options, again) for one in found])


def wanted_parts(sounds: Sequence[Sound], options: LookOptions) -> list[Sound]:
    """The part of each sound that is asked for."""
    if (options.start, options.end) == (None, None):
        return list(sounds)
    return [part_of_sound(sound, options.start or 0.0, options.end) for sound in sounds]


def too_long(sound: Sound, longest: float) -> DataError:
    """What is said of a sound of which a page cannot show all."""
    return DataError(
        f"{sound.name} is {clock(sound.frames / sound.rate)} long, and {clock(longest)} are read at a time: look at a "
        "part of it, from start to end in seconds"
    )


def _sound(run: Run, heard: Heard, options: LookOptions, again: Any) -> tuple[Sentence, str]:
    sound, samples, frames, best = heard
    transcriber = run.transcriber
    positions, what = -(-len(frames) // transcriber.shape.reduction), f"the text of {sound.name}"
    times = tuple(f"{place * transcriber.step:.2f}" for place in range(positions))
    source = Side(text=sound.name, pieces=times, names=True)
    each = transcriber.shape.reduction
    heard_at = tuple(float(frames[start : start + each].mean()) for start in range(0, len(frames), each))
    features = [Feature(name="loudness", side="source", values=heard_at)]
    sentence, left_out = written_sentence(
        run, transcriber, frames, best, source, options, lambda: again(frames), what=what, features=features
    )
    return replace(sentence, sound=_track(run, samples, frames, best)), left_out


def _track(run: Run, samples: np.ndarray, frames: np.ndarray, best: WrittenTranscript) -> SoundTrack:
    transcriber, ends = run.transcriber, [(0.0, 0.0)] * best.finished
    spans = transcriber.ctc_spans(frames, best.tokens) if transcriber.shape.ctc else []
    seconds = len(samples) / transcriber.mel.rate
    aligned = [
        (round(min(seconds, start * transcriber.step), 3), round(min(seconds, end * transcriber.step), 3))
        for start, end in spans
    ]
    return SoundTrack(
        audio="data:audio/wav;base64," + base64.b64encode(write_wav(samples, transcriber.mel.rate)).decode("ascii"),
        spectrogram=png_address(spectrogram_image(samples, run)),
        seconds=round(seconds, 4),
        step=transcriber.step,
        wave=tuple(waveform(samples)),
        words=tuple((word.start, min(seconds, word.end)) for word in transcriber.words(frames, best)),
        aligned=(*aligned, *ends) if aligned else (),
    )


def spectrogram_image(samples: np.ndarray, run: Run) -> np.ndarray:
    """The log-mel frames as grey pixels, low bands at the bottom, from 60 dB below the loudest."""
    found = log_mel(torch.from_numpy(samples), run.transcriber.mel).numpy().T[::-1]
    top = found.max()
    depth = 60 / 10 * np.log(10)
    return (255 * ((found - top) / depth + 1).clip(0, 1)).round().astype(np.uint8)[..., None]


def waveform(samples: np.ndarray) -> list[float]:
    """How loud each stretch of a sound is, the loudest 1."""
    parts = np.array_split(np.abs(samples), min(STRETCHES, len(samples)))
    peaks = np.array([part.max() for part in parts])
    return [round(float(one), 3) for one in peaks / max(1e-6, peaks.max())]
