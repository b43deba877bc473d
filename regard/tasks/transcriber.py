"""Sounds in, texts out: recordings of any length in pieces that overlap, with the times of words."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from regard.config import JsonObject
from regard.data.audio.sound import Samples, Sound, open_sounds, read_sound
from regard.data.audio.transcripts import sound_frames, sound_paths
from regard.data.formats import lines
from regard.decode.config import DecodeConfig
from regard.errors import DataError, TooLarge
from regard.look.watch import attentions, watch
from regard.metrics.text import bootstrap_signature, error_rate
from regard.nn.attention import ACROSS
from regard.nn.batch import Points, TranscribedSounds
from regard.tasks.config import RunConfig
from regard.tasks.cross_attention import piece_spans
from regard.tasks.run import Run
from regard.tasks.spec import Progress
from regard.tasks.verbs.transcribe import STANDARD_INPUT, TimedWord, WrittenTranscript, sent_sound
from regard.tasks.writing import Writer
from regard.text import Vocabularies

BATCH = 32
"""Pieces of sound in one batch while texts are searched for greedily; fewer by the width of a beam."""


PIPED = 1 << 29
"""Bytes of a sound on standard input, which has no places to read from and is in memory whole: four hours of 16,000
samples of 16 bits per second."""


def ctc_positions(tokens: Sequence[int]) -> int:
    """The fewest positions in which CTC can write these tokens: equal neighbours need a blank between them."""
    return len(tokens) + sum(one == other for one, other in pairwise(tokens))


def ctc_alignment(log_probs: Float[np.ndarray, "S V"], tokens: Sequence[int], blank: int = 0) -> list[tuple[int, int]]:
    """Of each token the first position and the one after the last, in the likeliest way that CTC can write them all.

    Empty where there are more tokens than positions can hold.
    """
    if not tokens or ctc_positions(tokens) > len(log_probs):
        return []
    states = [blank]
    for token in tokens:
        states += [token, blank]
    chosen = log_probs[:, states]
    skips = np.array(
        [place >= 2 and states[place] != blank and states[place] != states[place - 2] for place in range(len(states))]
    )
    best = np.full(len(states), -np.inf)
    best[:2] = chosen[0, :2]
    back = np.zeros(chosen.shape, dtype=np.int64)
    for position in range(1, len(chosen)):
        ways = np.stack((best, np.concatenate(([-np.inf], best[:-1])), np.concatenate(([-np.inf] * 2, best[:-2]))))
        ways[2, ~skips] = -np.inf
        back[position] = ways.argmax(0)
        best = ways.max(0) + chosen[position]
    place = len(states) - 1 if best[-1] >= best[-2] else len(states) - 2
    found: list[list[int]] = [[] for _ in tokens]
    for position in range(len(chosen) - 1, -1, -1):
        if place % 2:
            found[place // 2].append(position)
        place -= int(back[position, place])
    return [(min(positions), max(positions) + 1) for positions in found]


@dataclass(frozen=True, slots=True)
class PieceOfSound:
    """A stretch of one of the sounds: where it begins, and the frames of it."""

    sound: int
    start: float
    seconds: float
    frames: np.ndarray


def sound_arguments(words: Iterable[str], file: Path | None = None) -> Iterator[Any]:
    """The sounds that a command line names: files, those in folders, `-` for standard input, or those of a list."""
    for word in words if file is None else lines(file):
        if word == STANDARD_INPUT and file is None:
            data = sys.stdin.buffer.read(PIPED + 1)
            if len(data) > PIPED:
                raise TooLarge(f"standard input has more than {PIPED:,} bytes, all of them in memory: give a file")
            yield ("standard input", data)
        else:
            yield from sound_paths(Path(word))


Sounds = Sequence[Any] | np.ndarray | torch.Tensor
"""A list of sounds, or the samples of one."""


def several_sounds(sounds: Any) -> list[Any]:
    """A list of sounds: an array of samples is one, and what one of two dimensions would be is not guessed."""
    if isinstance(sounds, np.ndarray | torch.Tensor) and sounds.ndim > 1:
        raise DataError(
            f"an array of shape {tuple(sounds.shape)} may be channels or several sounds: give a list of sounds, each "
            "an array of samples"
        )
    texts = isinstance(sounds, np.ndarray) and sounds.dtype.kind in "UO"
    one = isinstance(sounds, str | Path | bytes | np.ndarray | torch.Tensor | Sound) and not texts
    return [sounds] if one or not isinstance(sounds, Iterable) else list(sounds)


def check_several(sounds: Any) -> None:
    """Refuse one sound where a list of them is asked for."""
    if isinstance(sounds, str | Path | bytes | Sound):
        raise DataError("give a list of sounds, not one: [sound]")


def sent_sounds(run: Run, given: Sequence[Any]) -> list[Samples]:
    """Sounds that were sent in base64, as samples: no longer than the model reads at a time."""
    transcriber = run.transcriber
    sounds = transcriber.read([sent_sound(item, number) for number, item in enumerate(given, 1)])
    return [read_sound(sound, transcriber.mel.rate, longest=transcriber.longest) for sound in sounds]


def error_rates(texts: Sequence[str], references: Sequence[str]) -> JsonObject:
    """Errors per word and per letter of the references, with intervals and how these were found."""
    words = error_rate([one.split() for one in texts], [one.split() for one in references])
    letters = error_rate([" ".join(one.split()) for one in texts], [" ".join(one.split()) for one in references])
    return {
        "words": words.tokens,
        "word_error_rate": words.rate,
        "word_error_rate_interval": list(words.interval),
        "character_error_rate": letters.rate,
        "character_error_rate_interval": list(letters.interval),
        "interval_signature": bootstrap_signature(),
    }


class Transcriber(Writer[WrittenTranscript]):
    """Sounds in, texts out; what is written of is their frames."""

    rows, outputs, written = BATCH, "transcripts", WrittenTranscript
    options = ("piece", "overlap")
    """What of a request applies, beside how to search."""

    def check_options(self, piece: float, overlap: float) -> None:
        """Refuse what this model cannot be asked for."""

    def __init__(self, model: Any, vocabularies: Vocabularies, config: RunConfig) -> None:
        super().__init__(model, vocabularies, config)
        self.longest: float = self.shape.seconds
        self.piece = min(config.data.max_seconds, self.longest)
        self.mel = self.shape.mel()

    @property
    def step(self) -> float:
        """Seconds of one position that the decoder attends to."""
        return self.shape.reduction * self.mel.hop / self.mel.rate

    def arguments(self, words: Iterable[str], file: Path | None = None) -> Iterator[Any]:
        """The sounds that a command line names: see `sound_arguments`."""
        return sound_arguments(words, file)

    def read(self, items: Sequence[Any]) -> list[Sound]:
        """The sounds, opened: see `open_sounds`; arrays have the model's rate."""
        return open_sounds(items, self.mel.rate)

    def pieces(self, sound: Sound, piece: float, overlap: float) -> int:
        """In how many pieces a sound is read."""
        seconds = sound.frames / sound.rate
        return 1 if seconds <= piece else 1 + int(np.ceil((seconds - piece) / (piece - overlap)))

    def positions(self, seconds: float) -> int:
        return int(np.ceil(seconds / self.step))

    def frames(self, sound: Sound, start: float = 0.0, seconds: float | None = None) -> np.ndarray:
        """What the model reads of a sound, or of a stretch of it."""
        return sound_frames(read_sound(sound, self.mel.rate, start=start, seconds=seconds), self.mel)

    def cut(
        self, sounds: Sequence[Sound], piece: float, overlap: float, refused: dict[int, DataError] | None = None
    ) -> Iterator[PieceOfSound]:
        """All sounds piece by piece, each read when it is asked for. Of one that cannot be read further, what comes
        after that is left out and the error `refused` under its number; without that it is raised."""
        for number, sound in enumerate(sounds):
            count, length = self.pieces(sound, piece, overlap), sound.frames / sound.rate
            try:
                for place in range(count):
                    start = place * (piece - overlap)
                    seconds = min(piece, length - start)
                    yield PieceOfSound(number, start, seconds, self.frames(sound, start, seconds))
            except DataError as error:
                if refused is None:
                    raise
                refused[number] = error

    def batch(self, items: Sequence[np.ndarray], texts: Sequence[Sequence[int]] | None = None) -> TranscribedSounds:
        """Frames, with rows of tokens where these are known, as the model reads them."""
        return TranscribedSounds(Points.of(items), *self.target(texts), self.shape.reduction).to(self.device)

    def transcribe(
        self,
        sounds: Sequence[Sound],
        config: DecodeConfig | None = None,
        *,
        piece: float | None = None,
        overlap: float | None = None,
        numbers: Sequence[int] | None = None,
        gone: Callable[[int], bool] | None = None,
        progress: Progress | None = None,
        refused: dict[int, DataError] | None = None,
    ) -> list[list[WrittenTranscript]]:
        """The `top_beams` best transcripts (or `samples`) of each sound, best first, with the times of their words.

        A sound of more than `piece` seconds is read in pieces that overlap, and the best of each are joined. What is
        sampled goes by a sound's number: its place here, or that in `numbers`. A sound that is `gone` is dropped
        between two steps; what comes back for it means nothing. Nor does it for one that cannot be read to its end,
        where `refused` is given: it has the error of each such sound then, which else is raised.
        """
        config = config or self.config
        longest: float = self.piece if piece is None else piece
        shared = longest / 5 if overlap is None else overlap
        found: list[list[tuple[PieceOfSound, list[WrittenTranscript]]]] = [[] for _ in sounds]
        cut, done = self.cut(sounds, longest, shared, refused), 0
        while part := list(islice(cut, max(1, BATCH // config.rows))):
            names = [one.sound if numbers is None else numbers[one.sound] for one in part]
            frames = [one.frames for one in part]
            leaves = None if gone is None else lambda row, part=part: gone(part[row].sound)
            for one, best in zip(part, self.decode(frames, config, names=names, gone=leaves, timed=True), strict=True):
                # Frames are large: what is kept of a piece is its place.
                found[one.sound].append((replace(one, frames=one.frames[:0]), best))
            done = part[-1].sound + 1
            if progress is not None:
                progress(done, len(sounds))
        return [
            [] if refused and number in refused else self._joined(sounds[number], several)
            for number, several in enumerate(found)
        ]

    def decode(
        self,
        frames: Sequence[np.ndarray],
        config: DecodeConfig,
        *,
        names: Sequence[int] | None = None,
        gone: Callable[[int], bool] | None = None,
        timed: bool = False,
    ) -> list[list[WrittenTranscript]]:
        """The best transcripts of each of these sounds, which are read whole; `timed`, with the times of words."""
        found = self.write(frames, config, numbers=names, gone=gone)
        if not timed:
            return found
        return [
            [replace(one, words=self.words(own, one)) for one in best] for own, best in zip(frames, found, strict=True)
        ]

    @torch.inference_mode()
    def token_times(self, frames: np.ndarray, tokens: Sequence[int]) -> list[tuple[float, float]]:
        """When each token of a transcript was said, in seconds: by CTC's alignment where the model has one, else by
        where its cross-attention looked."""
        if not tokens:
            return []
        if self.shape.ctc and (spans := self.ctc_spans(frames, tokens)):
            return [(start * self.step, end * self.step) for start, end in spans]
        weights = self.cross_attention(frames, tokens)
        if weights is None:
            return [(0.0, len(frames) * self.mel.hop / self.mel.rate)] * len(tokens)
        peaks = np.maximum.accumulate(weights[: len(tokens)].argmax(1))
        peaks = np.pad(peaks, (0, len(tokens) - len(peaks)), mode="edge")
        return [(float(peak) * self.step, float(peak + 1) * self.step) for peak in peaks]

    @torch.inference_mode()
    def ctc_spans(self, frames: np.ndarray, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """The positions of each token by CTC."""
        scores = self.model.by_position(self.batch([frames]).source)
        return ctc_alignment(scores.log_probs[0].cpu().double().numpy(), tokens)

    @torch.inference_mode()
    def cross_attention(self, frames: np.ndarray, tokens: Sequence[int]) -> Float[np.ndarray, "T S"] | None:
        """Where the heads of the last layer looked, on average, in the step of each token and in that of the end."""
        names = [name for name, one in attentions(self.model).items() if one.sides == ACROSS and one.heads]
        if not names:
            return None
        row = self.vocabularies.target_row(tokens)[: self.max_len + 1]  # of a text that was cut, the end is not read
        with watch(self.model, names[-1]) as trace:
            self.model(self.batch([frames], [row]))
        return trace.weights(names[-1])[0].float().mean(0).cpu().numpy()

    def words(self, frames: np.ndarray, written: WrittenTranscript) -> tuple[TimedWord, ...]:
        """The words of a transcript with their times."""
        times = self.token_times(frames, written.tokens)
        spans = piece_spans(self.vocabularies.target, written.text, list(written.tokens))
        found = []
        for match in re.finditer(r"\S+", written.text):
            own = [
                times[place] for place, (begin, end) in enumerate(spans) if begin < match.end() and end > match.start()
            ]
            if own:
                found.append(
                    TimedWord(match.group(), round(min(one[0] for one in own), 3), round(max(one[1] for one in own), 3))
                )
        return tuple(found)

    def _joined(
        self, sound: Sound, several: list[tuple[PieceOfSound, list[WrittenTranscript]]]
    ) -> list[WrittenTranscript]:
        """Of one piece its transcripts; of several, the words that the best of each heard on its side of the seams."""
        if len(several) == 1:
            return several[0][1]
        seams = [self._seam(sound, one, after) for (one, _), (after, _) in pairwise(several)]
        words: list[TimedWord] = []
        for number, (one, best) in enumerate(several):
            begin = seams[number - 1] if number else -1.0
            end = seams[number] if number < len(seams) else np.inf
            for word in best[0].words:
                start, stop = word.start + one.start, word.end + one.start
                if begin <= (start + stop) / 2 < end:
                    words.append(TimedWord(word.word, round(start, 3), round(stop, 3)))
        best = [found[0] for _, found in several]
        return [
            WrittenTranscript(
                text=" ".join(word.word for word in words),
                score=sum(one.score for one in best),
                log_prob=sum(one.log_prob for one in best),
                tokens=tuple(token for one in best for token in one.tokens),
                pieces=tuple(piece for one in best for piece in one.pieces),
                finished=all(one.finished for one in best),
                words=tuple(words),
            )
        ]

    def _seam(self, sound: Sound, one: PieceOfSound, after: PieceOfSound) -> float:
        """The quietest moment that two pieces share: no word is cut there."""
        start, shared = after.start, one.start + one.seconds - after.start
        samples = read_sound(sound, self.mel.rate, start=start, seconds=max(shared, 0.01))
        width = max(1, self.mel.rate // 20)
        loudness = np.convolve(samples**2, np.full(width, 1 / width), mode="same")
        margin = len(loudness) // 4  # near a piece's end its words were cut
        middle = loudness[margin : len(loudness) - margin]
        return start + (margin + int(middle.argmin())) / self.mel.rate if len(middle) else start + shared / 2
