"""How the heads of a speech model go through sounds, from left to right and into the word that is written; and what
they do."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool

from regard.data.audio.transcripts import SoundSource, check_lengths, sound_frames
from regard.data.synthetic.speech import SpokenSounds, speak
from regard.look.roles import RoleQuestion, by_position
from regard.look.watch import attentions, watch
from regard.nn.attention import ACROSS
from regard.tasks.cross_attention import piece_spans
from regard.tasks.probes import Probe, written_probe
from regard.tasks.run import Run


@dataclass(frozen=True, slots=True)
class HeadPath:
    """How one head goes through sounds: of its steps the share that does not go back, the rank correlation of steps and
    places, and, where it is known when each word was said, the share of steps that look into their word."""

    forward: float
    correlation: float
    inside: float | None
    steps: int


class AttentionPaths:
    """Where heads look in the step that writes each piece; texts are read by teacher forcing."""

    def __init__(self, run: Run, sounds: SoundSource, places: Sequence[int]) -> None:
        self.run, self.sounds, self.places = run, sounds, places

    @torch.inference_mode()
    def measured(self) -> tuple[dict[tuple[str, int], HeadPath], float | None]:
        """Of every head, and what looking anywhere would find inside: chance."""
        run, transcriber = self.run, self.run.transcriber
        known = attentions(run.model)
        heads = [(name, head) for name, one in known.items() if one.sides == ACROSS for head in range(one.heads)]
        names, gathered = list(dict.fromkeys(name for name, _ in heads)), {head: [] for head in heads}
        target, chances, texts = transcriber.vocabularies.target, [], self.sounds.texts
        run.model.eval()
        for place in self.places:
            frames = sound_frames(self.sounds.samples(place, transcriber.mel.rate), transcriber.mel)
            text = texts[place]
            tokens = target.encode(text)
            with watch(run.model, names) as trace:
                run.model(transcriber.batch([frames], [transcriber.vocabularies.target_row(tokens)]))
            positions = transcriber.positions(len(frames) * transcriber.mel.hop / transcriber.mel.rate)
            gold = spoken_at(run, self.sounds, place, positions)
            chances += [] if gold is None else [float(row.mean()) for row in gold if row.any()]
            opening = len(transcriber.vocabularies.target_row(tokens)) - 2 - len(tokens)
            for name, head in heads:
                weights = trace.weights(name)[0, head, opening : opening + len(tokens)].float().cpu().numpy()
                gathered[name, head].append(_path(weights, gold))
        found = {head: _together(paths) for head, paths in gathered.items()}
        return found, float(np.mean(chances)) if chances else None


def spoken_at(run: Run, sounds: SoundSource, place: int, positions: int) -> Bool[np.ndarray, "T S"] | None:
    """Of bundled speech, at which positions the word of each token was said; a row of False for what is in no word."""
    if not isinstance(sounds, SpokenSounds):
        return None
    transcriber, utterance = run.transcriber, sounds.utterance(place)
    target, text = transcriber.vocabularies.target, utterance.text
    spans = piece_spans(target, text, target.encode(text))
    gold = np.zeros((len(spans), positions), dtype=bool)
    words, times = [match.span() for match in re.finditer(r"\S+", text)], speak(utterance).times
    for token, (begin, end) in enumerate(spans):
        for (first, last), (start, stop) in zip(words, times, strict=True):
            if begin < last and end > first:
                gold[token, int(start / transcriber.step) : int(np.ceil(stop / transcriber.step))] = True
    return gold


def sound_probes(run: Run, sounds: SoundSource, limit: int) -> list[Probe]:
    """Sounds with texts, and what can be asked of heads: neighbours in the sound and in the text, words said before.

    Of bundled speech the step that writes a piece is also asked when its word was said (`alignment`).
    """
    transcriber, texts, found = run.transcriber, sounds.texts, []
    for place in check_lengths(sounds, run.config.data.max_seconds)[:limit]:
        frames = sound_frames(sounds.samples(place, transcriber.mel.rate), transcriber.mel)
        positions = -(-len(frames) // transcriber.shape.reduction)
        tokens = transcriber.vocabularies.target.encode(texts[place])
        row = list(transcriber.vocabularies.target_row(tokens))
        if len(row) - 1 > transcriber.max_len:
            continue
        gold, opening = spoken_at(run, sounds, place, positions), len(row) - 2 - len(tokens)
        said = None if gold is None else [
            RoleQuestion("alignment", opening + token, frozenset(np.flatnonzero(own).tolist()), positions)
            for token, own in enumerate(gold)
            if own.any()
        ]  # fmt: skip
        found.append(written_probe(frames, row, positions, by_position(positions), said))
    return found


def _path(weights: np.ndarray, gold: np.ndarray | None) -> tuple[int, int, float, list[bool]]:
    peaks = weights.argmax(1)
    moves = np.diff(peaks)
    inside = [] if gold is None else [bool(row[peak]) for row, peak in zip(gold, peaks, strict=True) if row.any()]
    return int((moves >= 0).sum()), len(moves), _correlation(peaks), inside


def _correlation(peaks: np.ndarray) -> float:
    """Spearman's, of steps and places; 0 where all places are one."""
    if len(peaks) < 2 or (peaks == peaks[0]).all():
        return 0.0
    _, place_of = np.unique(peaks, return_inverse=True)
    sizes = np.bincount(place_of)
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[place_of]  # equal places share the mean of their ranks
    return float(np.corrcoef(ranks, np.arange(len(peaks)))[0, 1])


def _together(paths: Sequence[tuple[int, int, float, list[bool]]]) -> HeadPath:
    moves = sum(path[1] for path in paths)
    inside = [one for path in paths for one in path[3]]
    return HeadPath(
        forward=sum(path[0] for path in paths) / max(1, moves),
        correlation=float(np.mean([path[2] for path in paths])),
        inside=float(np.mean(inside)) if inside else None,
        steps=moves,
    )
