"""What a model listened to in a sound when it wrote each piece."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from regard.config import Setting
from regard.data.audio.log_mel import log_mel
from regard.data.audio.sound import Sound, clock, read_sound, write_wav
from regard.data.audio.transcripts import sound_frames
from regard.errors import DataError
from regard.look.document import Document, Sentence, Side, SoundTrack
from regard.look.packed_arrays import png_address
from regard.look.watch import attentions, watch
from regard.nn.attention import ACROSS, WITHIN
from regard.tasks.cross_attention import piece_spans
from regard.tasks.looking.look_options import LookOptions, attention_maps, left_out_note, watched_parts
from regard.tasks.looking.steps import END, START, Judged, candidates, decoding, edited, looked, readable
from regard.tasks.run import Run
from regard.tasks.verbs.transcribe import WrittenTranscript

STRETCHES = 600
"""Of a waveform, each shown as one line."""

Heard = tuple[Sound, np.ndarray, np.ndarray, WrittenTranscript]
"""A sound with its samples, its frames and what was heard in it, or is given."""


def sound_document(run: Run, sounds: Sequence[Any], options: LookOptions, **decode: Setting) -> Document:
    """Each sound with its transcript, written or given. Attention is read by teacher forcing, which sees the same."""
    transcriber = run.transcriber
    read = transcriber.read(list(sounds))
    if not read:
        raise DataError("nothing to look at: no sound was given")
    targets = [None] * len(read) if options.targets is None else options.targets
    if len(targets) != len(read):
        raise DataError(f"{len(targets)} targets for {len(read)} sounds; give one each")
    config, found = run.decode_config(**decode), []
    for sound, target in zip(read, targets, strict=True):
        seconds = sound.frames / sound.rate
        if seconds > transcriber.longest:
            raise DataError(
                f"{sound.name} is {clock(seconds)} long, and {clock(transcriber.longest)} are read at a time: "
                "look at a part of it"
            )
        samples = read_sound(sound, transcriber.mel.rate)
        frames = sound_frames(samples, transcriber.mel)
        best = transcriber.decode([frames], config)[0][0] if target is None else transcriber.given(target)
        found.append((sound, samples, frames, best))

    def again(frames: np.ndarray) -> str:
        return transcriber.decode([frames], config)[0][0].text

    return looked(run, [_sound(run, found, number, options, again) for number in range(len(found))])


@torch.inference_mode()
def _sound(run: Run, found: Sequence[Heard], number: int, options: LookOptions, again: Any) -> tuple[Sentence, str]:
    sound, samples, frames, best = found[number]
    transcriber, target = run.transcriber, run.vocabularies.target
    row = [target.bos, *best.tokens, *([target.eos] if best.finished else [])]
    if len(row) - 1 > transcriber.max_len:
        raise DataError(f"the text of {sound.name} is longer than the model reads, so it cannot be shown")
    positions = -(-len(frames) // transcriber.shape.reduction)
    known = attentions(run.model)
    sizes = {"source": positions, "target": len(row) - 1, "prefix": len(row) - 1}
    names = options.fitting(run.model, lambda one: sizes[known[one].sides.queries] * sizes[known[one].sides.keys])
    batch = transcriber.batch([frames], [row])
    kept = watched_parts(run.model, names, max(sizes.values()), options)
    with watch(run.model, names, heads=options.heads, parts=kept) as trace:
        hidden = run.model(batch)
    log_probs = run.model.head(hidden).log_softmax(-1)[0].float().cpu()
    old = torch.tensor(row[1:])[:, None]

    def judge() -> Judged:
        return run.model.logits(batch).log_softmax(-1)[0].float().cpu().gather(1, old)[:, 0], again(frames)

    shown = {"log-probability": f"{float(log_probs.gather(1, old).sum()):.3f}"}
    if not best.finished:
        shown["cut"] = "at its greatest length"
    crossing = [one for one in names if known[one].sides == ACROSS]
    return Sentence(
        **_sides(run, sound.name, best, positions),
        attentions=attention_maps(run.model, trace, options),
        sound=_track(run, samples, frames, best),
        candidates=candidates(target, log_probs.exp(), row[1:]),
        scores=shown if options.targets is not None else {"score": f"{best.score:.3f}", **shown},
        decoding=decoding(hidden[0], trace, crossing),
        edited=edited(run.model, options, judge, other=None, swaps=lambda one: known[one].sides == WITHIN)
        if options.edits
        else (),
    ), left_out_note(run.model, names, options)


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


def _sides(run: Run, name: str, best: WrittenTranscript, positions: int) -> dict[str, Any]:
    step, target, nowhere = run.transcriber.step, run.vocabularies.target, (0, 0)
    pieces, spans = readable(target.pieces(best.tokens)), piece_spans(target, best.text, list(best.tokens))
    ends, steps = [END] * best.finished, len(pieces) + best.finished
    return {
        "source": Side(text=name, pieces=tuple(f"{place * step:.2f}" for place in range(positions)), names=True),
        "target": Side.of(best.text, [*pieces, *ends], [*spans, nowhere][:steps]),
        "prefix": Side.of(best.text, [START, *pieces][:steps], [nowhere, *spans][:steps]),
    }
