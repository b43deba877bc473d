"""What Whisper listened to in a sound when it wrote each piece, against time."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.config import Setting
from regard.data.audio.sound import Sound, read_sound, write_wav
from regard.errors import DataError
from regard.look.document import AttentionMap, Document, Sentence, Side, SoundTrack
from regard.look.packed_arrays import png_address
from regard.look.watch import Trace, attention_map, attentions, watch
from regard.models.whisper import STRIDE
from regard.nn.attention import ACROSS, WITHIN
from regard.tasks.cross_attention import piece_spans
from regard.tasks.looking.look_options import LookOptions, left_out_note
from regard.tasks.looking.sound_runs import too_long, wanted_parts, waveform
from regard.tasks.looking.steps import Judged, candidates, decoding, edited, looked, piece_names
from regard.tasks.run import Run
from regard.text.whisper_tokens import HOP, RATE, SECONDS

PIECES = 300
"""Most pieces of a sound on a page: neighbouring positions of a longer one are shown as one."""


def whisper_document(run: Run, sounds: Sequence[Any], options: LookOptions, **decode: Setting) -> Document:
    """Each sound with its transcript, written or given. Attention is read by teacher forcing, which sees the same."""
    transcriber = run.transcriber
    read = wanted_parts(transcriber.read(list(sounds)), options)
    if not read:
        raise DataError("nothing to look at: no sound was given")
    targets = [None] * len(read) if options.targets is None else options.targets
    if len(targets) != len(read):
        raise DataError(f"{len(targets)} targets for {len(read)} sounds; give one each")
    for sound in read:
        if transcriber.windows(sound).long:
            raise too_long(sound, transcriber.longest)
    pairs = zip(read, targets, strict=True)
    return looked(run, [_sound(run, sound, target, options, decode) for sound, target in pairs])


@torch.inference_mode()
def _sound(
    run: Run, sound: Sound, text: str | None, options: LookOptions, decode: dict[str, Setting]
) -> tuple[Sentence, str]:
    transcriber, target, model = run.transcriber, run.vocabularies.target, run.model
    config = run.decode_config(**decode)
    best = transcriber.transcribe([sound], config)[0][0]
    tokens = list(best.tokens) if text is None else target.encode(f" {text.strip()}")
    prompt, windows = transcriber.prompt(best.language), transcriber.windows(sound)
    row = [*prompt, *tokens, target.eos]
    if len(row) - 1 > transcriber.max_len:
        raise DataError(f"the text of {sound.name} is longer than the model reads, so it cannot be shown")
    frames, known = windows.window(0), attentions(model)
    batch = transcriber.batch(frames[None], [row])
    sizes = {"source": transcriber.shape.places, "target": len(row) - 1, "prefix": len(row) - 1}
    names = options.fitting(model, lambda one: sizes[known[one].sides.queries] * sizes[known[one].sides.keys])
    with watch(model, names, heads=options.heads) as trace:
        hidden = model(batch)
    log_probs = model.head.log_probs(hidden)[0].float().cpu()
    old = torch.tensor(row[1:])[:, None]

    def judge() -> Judged:
        again = model.logits(batch).log_softmax(-1)[0].float().cpu().gather(1, old)[:, 0]
        return again, transcriber.transcribe([sound], config)[0][0].text

    heard = min(transcriber.shape.places, -(-windows.length // STRIDE))
    width = -(-heard // PIECES)
    crossing = [one for one in names if known[one].sides == ACROSS]
    shown = {"log-probability": f"{float(log_probs.gather(1, old)[len(prompt) - 1 :].sum()):.3f}"}
    if crossing:
        beyond = np.mean([float(trace.weights(one)[..., heard:].sum(-1).mean()) for one in crossing])
        shown["attention after the end"] = f"{beyond:.1%}"
    if best.language is not None:
        shown["language"] = best.language
    sides = _sides(run, sound.name, prompt, tokens, -(-heard // width), width * SECONDS)
    spoken = transcriber.timed_words(model.encode(batch.source.values)[0], tokens, best.language, windows.length)
    return Sentence(
        **sides,
        attentions=_maps(run, trace, names, heard, width, options),
        sound=_track(sound, frames, windows.length, width * SECONDS, spoken, sides["target"]),
        candidates=candidates(target, log_probs.exp(), row[1:]),
        scores=shown,
        decoding=decoding(hidden[0], trace, crossing),
        edited=edited(model, options, judge, swaps=lambda one: known[one].sides == WITHIN) if options.edits else (),
    ), left_out_note(model, names, options)


def _maps(
    run: Run, trace: Trace, names: Sequence[str], heard: int, width: int, options: LookOptions
) -> tuple[AttentionMap, ...]:
    """The attentions, of the sound those positions alone that hold some, `width` of them as one."""
    known, found = attentions(run.model), []
    for name in names:
        weights, sides = trace.weights(name)[0].float().cpu(), known[name].sides
        if sides.keys == "source":
            weights = _pooled(weights[..., :heard], width)
        if sides.queries == "source":
            weights = _pooled(weights[:, :heard].mT, width).mT
            weights = weights / width
        found.append(attention_map(name, sides, weights, None, options.heads))
    return tuple(found)


def _pooled(weights: Tensor, width: int) -> Tensor:
    """Sums over so many neighbours along the last axis."""
    filled = torch.nn.functional.pad(weights, (0, -weights.shape[-1] % width))
    return filled.unflatten(-1, (-1, width)).sum(-1)


def _sides(
    run: Run, name: str, prompt: Sequence[int], tokens: Sequence[int], pieces: int, step: float
) -> dict[str, Any]:
    """The sound by times; the text with the tokens that the decoder was made to begin with, which are no words."""
    target, nowhere = run.vocabularies.target, (0, 0)
    text = target.decode(tokens)
    spans = [*[nowhere] * (len(prompt) - 1), *piece_spans(target, text, list(tokens))]
    names = [*_special_names(run, prompt), *piece_names(target, list(tokens))]
    return {
        "source": Side(text=name, pieces=tuple(f"{place * step:.2f}" for place in range(pieces)), names=True),
        "target": Side.of(text, [*names[1:], *piece_names(target, [target.eos])], [*spans, nowhere]),
        "prefix": Side.of(text, names, [nowhere, *spans]),
    }


def _special_names(run: Run, tokens: Sequence[int]) -> list[str]:
    return [str(run.vocabularies.target.inner.id_to_token(token)) for token in tokens]


def _track(sound: Sound, frames: Tensor, length: int, step: float, words: Sequence[Any], target: Side) -> SoundTrack:
    samples = read_sound(sound, RATE)
    seconds = len(samples) / RATE
    heard = frames[:length].numpy().T[::-1]
    low, high = float(heard.min()), float(heard.max())
    grey = (255 * (heard - low) / max(1e-6, high - low)).round().astype(np.uint8)[..., None]
    times = tuple((min(one.start, seconds), min(one.end, seconds)) for one in words)
    return SoundTrack(
        audio="data:audio/wav;base64," + base64.b64encode(write_wav(samples, RATE)).decode("ascii"),
        spectrogram=png_address(grey),
        seconds=round(max(seconds, HOP / RATE), 4),
        step=step,
        wave=tuple(waveform(samples)),
        words=times if len(times) == len(target.words or ()) else (),
    )
