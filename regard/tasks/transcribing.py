"""Transcribing: sounds with texts, to a model that writes what is said."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from regard.config import JsonObject, Setting
from regard.data.audio.sound import Sound, SoundSamples, open_sounds, read_sound
from regard.data.audio.transcripts import (
    Part,
    SoundFiles,
    SoundLayout,
    SoundSource,
    SoundStore,
    SpecAugment,
    check_lengths,
    open_transcribed,
    positions_of,
    prepare_sounds,
    sound_batches,
    sound_frames,
    sound_paths,
    too_long_note,
)
from regard.data.batches import random_of, shuffled
from regard.data.formats import Header, lines
from regard.data.pair_store import Rows
from regard.data.synthetic.speech import Lexicon, SpokenSounds, speak
from regard.decode.config import DecodeConfig
from regard.decode.constraints import unwanted
from regard.decode.search import search
from regard.decode.stepper import Hypothesis, Stepper
from regard.errors import ConfigError, DataError, check_fractions
from regard.look.document import Document
from regard.look.watch import attentions, watch
from regard.metrics.text import bootstrap_signature, error_rate
from regard.nn.attention import ACROSS
from regard.nn.batch import Points, Tokens, TranscribedSounds
from regard.tasks.config import RunConfig
from regard.tasks.corpora import FIRST_TOKEN, PreparedData, cache_directory, full_rows, train_shared_tokenizer
from regard.tasks.cross_attention import piece_spans
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.probes import HELD_OUT_BUDGET, HeldOutData
from regard.tasks.run import Run, prepared_vocabularies
from regard.tasks.spec import (
    MEASURING,
    OF_PAIRS,
    Files,
    Measuring,
    Progress,
    Report,
    Say,
    Task,
    check_columns,
    check_length,
)
from regard.tasks.verbs.transcribe import STANDARD_INPUT, TimedWord, WrittenTranscript, sent_sound
from regard.text import Vocabularies
from regard.training.objectives import Objective, Transcription

PARTS: tuple[Part, ...] = ("train", "valid", "test")
BATCH = 32
"""Pieces of sound in one batch while texts are searched for greedily; fewer by the width of a beam."""
SPEECH_HELD_OUT = 500
"""How many held-out utterances of the bundled synthesiser serve for validation, and how many for test."""
HEAD_SOUNDS = 100
"""Validation sounds on which a head is chosen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribingData(Files):
    """Sounds and texts in a table or a folder, or bundled speech.

    A table (`.tsv`, `.csv`, `.jsonl`, `.parquet`) has a sound file, named from the table's folder, in its column
    `sound` and what is said in its column `text`. A folder has such tables, or a `.txt` beside each sound. `speech` is
    how many bundled utterances to train on, of `digits` or of all `words`; utterances of voices that were not heard
    then serve for validation and test. `overlong` says what becomes of texts of more than `max_len` tokens and of
    sounds of more than `max_seconds`. `held_out` is the share that is validated on where no validation data is given.

    In training, `band_masks` stretches of up to `band_width` bands and `time_masks` of up to `time_share` of the frames
    are blotted out (SpecAugment); `warp` moves all bands up or down by up to this share, `stretch` makes a sound longer
    or shorter.
    """

    speech: int = 0
    speech_seed: int = 1
    lexicon: Lexicon = "digits"
    sound: str | int = "sound"
    text: str | int = "text"
    header: Header = "auto"
    max_len: int = 256
    max_seconds: float = 20.0
    overlong: Literal["skip", "refuse"] = "skip"
    held_out: float = 0.05
    split_seed: int = 1
    band_masks: int = 0
    band_width: int = 8
    time_masks: int = 0
    time_share: float = 0.1
    warp: float = 0.0
    stretch: float = 0.0

    def __post_init__(self) -> None:
        if self.speech and self.train:
            raise ConfigError("data.train and data.speech are two sources of training sounds; give one")
        for name in ("speech", "speech_seed", "split_seed"):
            if getattr(self, name) < 0:
                raise ConfigError(f"data.{name}={getattr(self, name)} must not be negative")
        if not self.max_seconds > 0:
            raise ConfigError(f"data.max_seconds={self.max_seconds} must be above 0")
        check_fractions(self, "held_out", where="data.")
        check_length(self.max_len)
        check_columns(sound=self.sound, text=self.text)
        self.augment()
        for name in PARTS:
            if len(getattr(self, name)) > 1:
                raise ConfigError(f"data.{name} takes one table or one folder")

    def augment(self) -> SpecAugment:
        return SpecAugment(
            band_masks=self.band_masks,
            band_width=self.band_width,
            time_masks=self.time_masks,
            time_share=self.time_share,
            warp=self.warp,
            stretch=self.stretch,
        )


def speech_of(data: TranscribingData, part: Part) -> SpokenSounds:
    """The bundled utterances of a part."""
    if part == "train":
        return SpokenSounds.of(data.speech, seed=data.speech_seed, lexicon=data.lexicon)
    return SpokenSounds.of(SPEECH_HELD_OUT, seed=0, part=part, lexicon=data.lexicon)


def sounds_of(data: TranscribingData, part: Part) -> SoundSource | None:
    """The sounds to train on, to validate on or to test on, as they are named; None where none are."""
    if names := getattr(data, part):
        return open_given(names[0], data, part) or open_given(names[0], data)
    if data.speech:
        return speech_of(data, part)
    return open_given(data.train[0], data, part) if data.train else None


def open_given(name: str | Path, data: TranscribingData, part: Part | None = None) -> SoundFiles | None:
    return open_transcribed(name, part, keys=(data.sound, data.text), header=data.header)


def training_sounds(data: TranscribingData) -> tuple[SoundSource, SoundSource | None]:
    """What to train on and to validate on: if no validation sounds are named, a share of the former is set aside."""
    train = sounds_of(data, "train")
    if train is None:
        raise ConfigError(
            "no training data: give --data with a table or a folder (data.train in a configuration), "
            "or set data.speech to a number of bundled utterances"
        )
    valid = sounds_of(data, "valid")
    if valid is not None or not data.held_out:
        return train, valid
    order = shuffled(len(train.names), random_of(data.split_seed, 0))
    aside = min(len(order) - 1, max(1, round(data.held_out * len(order))))
    if aside < 1:
        return train, None
    return train.select(sorted(order[aside:].tolist())), train.select(sorted(order[:aside].tolist()))


class TranscribingRun(PreparedData):
    """Sounds with texts to train on and, where there are any, to validate on."""

    def __init__(
        self,
        config: RunConfig,
        train: SoundSource,
        valid: SoundSource | None,
        vocabularies: Vocabularies,
        directory: Path,
        report: Report,
    ) -> None:
        self.config, self.vocabularies, self.report = config, vocabularies, report
        self.cache = cache_directory(config, directory)
        model = config.model_config()
        self.objective: Objective = Transcription(config.train.smoothing, model.ctc)
        self.reduction: int = model.reduction
        self.augment: SpecAugment = config.data.augment()
        report.say("reading the sounds")
        self.train, self.rows, self.of = self._prepared(train, "reading the training sounds", model)
        self.valid: SoundSource | None = None
        if valid is not None:
            valid = valid.select(check_lengths(valid, config.data.max_seconds))
            self.valid = valid
            self.valid_store, self.valid_rows, self.valid_of = self._prepared(
                valid, "reading the validation sounds", model
            )
        self._check_budget()
        hours = self.train.lengths.sum() * model.hop / model.rate / 3600
        beside = "" if valid is None else f", {len(self.valid_of):,} to validate on"
        report.say(f"{len(self.of):,} sounds, {hours:.1f} hours{beside}; a position for {self.reduction} frames")

    def validation(self) -> Iterator[TranscribedSounds] | None:
        if self.valid is None:
            return None
        budget = self.config.train.batch_tokens
        return sound_batches(self.valid_store, self.valid_rows, self.valid_of, budget=budget, reduction=self.reduction)

    def scores(self, model: nn.Module) -> dict[str, float]:
        if self.valid is None:
            return {}
        count = min(self.config.train.validate_sentences, len(self.valid_of))
        if not count:
            return {}
        transcriber = Transcriber(model, self.vocabularies, self.config)
        places = self.valid_of[:count].tolist()
        found = transcriber.decode([self.valid_store[place] for place in places], self.config.decode.greedy())
        heard, said = [best[0].text.split() for best in found], self.valid.texts
        return {
            "word_error_rate": error_rate(heard, [str(said[place]).split() for place in places]).rate,
            "cut": float(sum(not best[0].finished for best in found)),
        }

    def bounds(self) -> tuple[int, int]:
        positions = positions_of(self.augment.frames_at_most(self.train.lengths[self.of]), self.reduction)
        sizes = positions + self.rows.lengths
        return int(sizes.max()), int(sizes.sum())

    def layout(self, budget: int, *, pack: bool = False) -> SoundLayout:
        """Sounds of like length go together."""
        return SoundLayout(
            self.train,
            self.rows,
            self.of,
            self.augment,
            budget=budget,
            seed=self.config.train.seed,
            reduction=self.reduction,
        )

    def _prepared(self, given: SoundSource, what: str, model: Any) -> tuple[SoundStore, Rows, Int[np.ndarray, " N"]]:
        """The frames of the sounds, and of each text that is used its tokens and its sound."""
        data = self.config.data
        short = check_lengths(given, data.max_seconds)
        if len(short) < len(given.names):
            left = len(given.names) - len(short)
            if data.overlong == "refuse":
                raise DataError(too_long_note(left, data.max_seconds, "too long"))
            self.report.say(too_long_note(left, data.max_seconds, "left out"))
            if not short:
                raise DataError(f"no sound is as short as data.max_seconds={data.max_seconds:g}")
            given = given.select(short)
        store = prepare_sounds(
            given,
            model.mel(),
            self.cache,
            progress=lambda done: self.report.progress(what, done),
            say=self.report.say,
        )
        longest = int(self.augment.frames_at_most(store.lengths).max())
        if longest > model.max_frames:
            raise ConfigError(f"a sound has {longest:,} frames; the model reads model.max_frames={model.max_frames:,}")
        kept, of, long, crowded = [], [], 0, 0
        target = self.vocabularies.target
        for place, text in enumerate(given.texts):
            row = self.vocabularies.target_row(target.encode(text))
            if len(row) > data.max_len:
                long += 1
                if data.overlong == "refuse":
                    raise DataError(f"a text has {len(row)} tokens, more than data.max_len={data.max_len}: {text[:60]}")
                continue
            crowded += bool(model.ctc) and ctc_positions(row[1:-1]) > -(-int(store.lengths[place]) // self.reduction)
            kept.append(row)
            of.append(place)
        if long:
            self.report.say(f"{long:,} texts of more than data.max_len={data.max_len} tokens are left out")
        if crowded:
            self.report.say(
                f"{crowded:,} of {len(kept):,} texts have more tokens than their sound has positions, so that CTC "
                "learns nothing from them: a smaller model.subsampling or longer tokens help"
            )
        if not kept:
            raise DataError(f"no text is as short as data.max_len={data.max_len} tokens")
        return store, Rows.of(kept, target.pad), np.array(of, dtype=np.int64)

    def _check_budget(self) -> None:
        budget, longest = self.config.train.batch_tokens, self.bounds()[0]
        if budget < longest:
            raise ConfigError(
                f"train.batch_tokens={budget} must hold the longest sound and its text: {longest} tokens at least"
            )


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
            yield ("standard input", sys.stdin.buffer.read())
        else:
            yield from sound_paths(Path(word))


class Transcriber:
    """Sounds in, texts out: `Stepper` is all it knows of its model when it searches."""

    options = ("piece", "overlap")
    """What of a request applies, beside how to search."""

    def check_options(self, piece: float, overlap: float) -> None:
        """Refuse what this model cannot be asked for."""

    def __init__(self, model: Any, vocabularies: Vocabularies, config: RunConfig) -> None:
        self.model, self.vocabularies, self.config = model, vocabularies, config.decode
        self.shape: Any = config.model_config()
        self.max_len, self.longest = self.shape.max_len, self.shape.seconds
        self.piece = min(config.data.max_seconds, self.longest)
        self.mel = self.shape.mel()
        self._stepper: Stepper[Any] = model

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

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

    def cut(self, sounds: Sequence[Sound], piece: float, overlap: float) -> Iterator[PieceOfSound]:
        """All sounds piece by piece, each read when it is asked for."""
        for number, sound in enumerate(sounds):
            count, length = self.pieces(sound, piece, overlap), sound.frames / sound.rate
            for place in range(count):
                start = place * (piece - overlap)
                seconds = min(piece, length - start)
                yield PieceOfSound(number, start, seconds, self.frames(sound, start, seconds))

    def batch(self, frames: Sequence[np.ndarray], texts: Sequence[Sequence[int]] | None = None) -> TranscribedSounds:
        """Frames, with rows of tokens where these are known, as the model reads them."""
        target = None if texts is None else Tokens.of(texts, self.vocabularies.target.pad)
        count = 0 if texts is None else sum(len(row) - 1 for row in texts)
        return TranscribedSounds(Points.of(frames), target, count, self.shape.reduction).to(self.device)

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
    ) -> list[list[WrittenTranscript]]:
        """The `top_beams` best transcripts (or `samples`) of each sound, best first, with the times of their words.

        A sound of more than `piece` seconds is read in pieces that overlap, and the best of each are joined. What is
        sampled goes by a sound's number: its place here, or that in `numbers`. A sound that is `gone` is dropped
        between two steps; what comes back for it means nothing.
        """
        config = config or self.config
        longest: float = self.piece if piece is None else piece
        shared = longest / 5 if overlap is None else overlap
        found: list[list[tuple[PieceOfSound, list[WrittenTranscript]]]] = [[] for _ in sounds]
        cut, done = self.cut(sounds, longest, shared), 0
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
        return [self._joined(sounds[number], several) for number, several in enumerate(found)]

    @torch.inference_mode()
    def decode(
        self,
        frames: Sequence[np.ndarray],
        config: DecodeConfig,
        *,
        names: Sequence[int] | None = None,
        gone: Callable[[int], bool] | None = None,
        timed: bool = False,
    ) -> list[list[WrittenTranscript]]:
        """The best transcripts of each of these sounds, which are read whole."""
        self.model.eval()
        found: list[list[WrittenTranscript]] = []
        size = max(1, BATCH // config.rows)
        for start in range(0, len(frames), size):
            part = frames[start : start + size]
            own = [start + row if names is None else names[start + row] for row in range(len(part))]
            left = None if gone is None else lambda row, start=start: gone(start + row)
            best = self._search(part, own, config, left)
            found += [self._timed(one, several) for one, several in zip(part, best, strict=True)] if timed else best
        return found

    def _search(
        self,
        frames: Sequence[np.ndarray],
        names: Sequence[int],
        config: DecodeConfig,
        gone: Callable[[int], bool] | None,
    ) -> list[list[WrittenTranscript]]:
        target = self.vocabularies.target
        first = torch.full((len(frames),), target.bos, device=self.device)
        limit = min(config.max_len, self.max_len)
        constraints = [] if gone is None else [unwanted(target.eos, gone, len(frames))]
        found = search(
            self._stepper,
            self._stepper.start(self.batch(frames)),
            first,
            eos=target.eos,
            config=config,
            max_len=limit,
            ids=names,
            constraints=constraints,
        )
        return [[self.text(one, limit if config.force_end else None) for one in best] for best in found]

    def text(self, hypothesis: Hypothesis, forced_at: int | None = None) -> WrittenTranscript:
        """What was decoded, as text. An output that has made `forced_at` choices was ended by force: not finished."""
        target = self.vocabularies.target
        return WrittenTranscript(
            text=target.decode(hypothesis.tokens),
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            tokens=tuple(hypothesis.tokens),
            pieces=tuple(target.pieces(hypothesis.tokens)),
            finished=hypothesis.finished and len(hypothesis.token_log_probs) != forced_at,
        )

    def given(self, text: str) -> WrittenTranscript:
        """A text as if it had been heard."""
        tokens = self.vocabularies.target.encode(text)
        pieces = tuple(self.vocabularies.target.pieces(tokens))
        return WrittenTranscript(text=text, score=0.0, log_prob=0.0, tokens=tuple(tokens), pieces=pieces)

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

    def _timed(self, frames: np.ndarray, several: list[WrittenTranscript]) -> list[WrittenTranscript]:
        return [replace(one, words=self.words(frames, one)) for one in several]

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

    def cut_note(self, cut: int, total: int, config: DecodeConfig) -> str:
        """What to say of transcripts that are not finished; nothing where there are none."""
        if not cut:
            return ""
        limit = min(config.max_len, self.max_len)
        return (
            f"{cut:,} of {total:,} transcripts were cut at {limit} tokens (max_len; the model's own is {self.max_len})"
        )


def transcriber_of(run: Run) -> Transcriber:
    """Sounds in, texts out."""
    return Transcriber(run.model, run.vocabularies, run.config)


def transcribe(run: Run, sounds: Sequence[Any], **decode: Setting) -> list[str]:
    """The best transcript of each sound, a path or an array; `decode` are settings of `DecodeConfig`, as `beam=5`."""
    return [best[0].text for best in transcripts(run, sounds, **decode)]


def transcripts(run: Run, sounds: Sequence[Any], **decode: Setting) -> list[list[WrittenTranscript]]:
    """For each sound its best transcripts, with scores and the times of words: `transcripts(["a.wav"], beam=5)`."""
    if isinstance(sounds, str | Path):
        raise DataError("give a list of sounds, not one: [sound]")
    return run.transcriber.transcribe(run.transcriber.read(list(sounds)), run.decode_config(**decode))


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
        target, chances = transcriber.vocabularies.target, []
        run.model.eval()
        for place in self.places:
            frames = sound_frames(self.sounds.samples(place, transcriber.mel.rate), transcriber.mel)
            text = self.sounds.texts[place]
            tokens = target.encode(text)
            with watch(run.model, names) as trace:
                run.model(transcriber.batch([frames], [transcriber.vocabularies.target_row(tokens)]))
            positions = transcriber.positions(len(frames) * transcriber.mel.hop / transcriber.mel.rate)
            gold = self._gold(place, text, len(tokens), positions)
            chances += [] if gold is None else [float(row.mean()) for row in gold if row.any()]
            opening = len(transcriber.vocabularies.target_row(tokens)) - 2 - len(tokens)
            for name, head in heads:
                weights = trace.weights(name)[0, head, opening : opening + len(tokens)].float().cpu().numpy()
                gathered[name, head].append(_path(weights, gold))
        found = {head: _together(paths) for head, paths in gathered.items()}
        return found, float(np.mean(chances)) if chances else None

    def _gold(self, place: int, text: str, tokens: int, positions: int) -> np.ndarray | None:
        """Of each token the positions at which its word was said; a row of False for what is in no word."""
        if not isinstance(self.sounds, SpokenSounds):
            return None
        transcriber = self.run.transcriber
        spans = piece_spans(transcriber.vocabularies.target, text, transcriber.vocabularies.target.encode(text))
        times = speak(self.sounds.utterance(place)).times
        gold = np.zeros((tokens, positions), dtype=bool)
        words = [match.span() for match in re.finditer(r"\S+", text)]
        for token, (begin, end) in enumerate(spans):
            for (first, last), (start, stop) in zip(words, times, strict=True):
                if begin < last and end > first:
                    gold[token, int(start / transcriber.step) : int(np.ceil(stop / transcriber.step))] = True
        return gold


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


class HeldOutSpeech(HeldOutData):
    """Held-out sounds: how much of the words greedy transcripts have right."""

    name = "word accuracy"

    def __init__(self, run: Run, given: SoundSource, limit: int) -> None:
        transcriber = run.transcriber
        places = check_lengths(given, run.config.data.max_seconds)[:limit]
        self.texts = [given.texts[place] for place in places]
        self.frames = [sound_frames(given.samples(place, transcriber.mel.rate), transcriber.mel) for place in places]
        rows = [transcriber.vocabularies.target_row(transcriber.vocabularies.target.encode(one)) for one in self.texts]
        size = max(1, HELD_OUT_BUDGET // transcriber.positions(run.config.data.max_seconds))
        batches = [
            transcriber.batch(self.frames[start : start + size], rows[start : start + size])
            for start in range(0, len(rows), size)
        ]
        super().__init__(run, Transcription(), batches, len(rows))

    def score(self, run: Run) -> float:
        found = run.transcriber.decode(self.frames, run.config.decode.greedy())
        said, right = [best[0].text.split() for best in found], [one.split() for one in self.texts]
        return 100 * (1 - error_rate(said, right).rate)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribingOptions:
    """How transcripts are measured: on the first `limit` sounds, with or without case."""

    limit: int | None = None
    lowercase: bool = False


class TranscribingTask(Task):
    """Sounds with texts to a model that writes what is said."""

    name = "transcribing"
    about = "what is said in each sound"
    data = TranscribingData
    sources = ("train", "speech")
    evaluation = TranscribingOptions
    unused: ClassVar = (
        *(*OF_PAIRS, "images"),
        *("train.vectors", "train.compile_loss", "train.r_drop", "train.pack"),
        *("decode.max_ratio", "decode.max_extra"),  # frames are no tokens that a text's length could go by
        *("decode.coverage_penalty", "decode.mbr"),
    )
    parts: ClassVar = {"transcriber": transcriber_of}
    methods: ClassVar = {"transcribe": transcribe, "transcripts": transcripts}
    searches = True
    lifts_limits = True
    keeps_decoding = True
    reads_text = False
    sides = 2
    unit = "sounds"

    def check(self, config: RunConfig) -> None:
        model = config.with_stand_ins().model_config()
        if config.data.max_seconds > model.seconds:
            raise ConfigError(
                f"data.max_seconds={config.data.max_seconds:g} must be at most {model.seconds:g}, which the model "
                f"reads at a time: model.max_frames={model.max_frames:,}"
            )

    def check_files(self, config: RunConfig, say: Say) -> None:
        for part in PARTS:
            if getattr(config.data, part) and isinstance(found := sounds_of(config.data, part), SoundFiles):
                for note in found.notes:
                    say(note)

    def prepare(
        self, config: RunConfig, directory: Path, report: Report, *, new: bool
    ) -> tuple[RunConfig, TranscribingRun]:
        """The sounds as frames and the texts as tokens; for a new run, with a tokenizer trained on them."""
        train, valid = training_sounds(config.data)

        def trained() -> Vocabularies:
            return train_shared_tokenizer(train.texts, config, report)

        config, vocabularies = prepared_vocabularies(config, directory, trained, new=new)
        return config, TranscribingRun(config, train, valid, vocabularies, directory, report)

    def evaluate(self, run: Run, data: Any = None, how: Measuring = MEASURING) -> JsonObject:
        """Word and character error rates with intervals, and how the attention went through the sounds.

        `data` is a table or a folder. `attention` is measured of the head that goes most steadily from left to right on
        validation sounds: the share of steps that do not go back, the rank correlation of steps and places and, of
        bundled speech, how often it looks into the word that it writes, with chance beside it.
        """
        options, transcriber = how.chosen(TranscribingOptions), run.transcriber
        given = self._given(run, data, how.say)
        count = len(given.names) if options.limit is None else min(options.limit, len(given.names))
        config, found = run.decode_config(**how.decode), []
        for start in range(0, count, 4 * BATCH):
            part = range(start, min(count, start + 4 * BATCH))
            sounds = [
                SoundSamples(given.samples(place, self._rate(run)), self._rate(run), given.names[place])
                for place in part
            ]
            found += [best[0] for best in transcriber.transcribe(sounds, config, numbers=part)]
            if how.progress is not None:
                how.progress(len(found), count)
        texts, references = [one.text for one in found], list(given.texts[:count])
        if how.out is not None:
            for text in texts:
                how.out(text)
        cut = sum(not one.finished for one in found)
        if how.say is not None and (note := transcriber.cut_note(cut, count, config)):
            how.say(note)
        if options.lowercase:
            texts, references = [one.lower() for one in texts], [one.lower() for one in references]
        words = error_rate([one.split() for one in texts], [one.split() for one in references])
        letters = error_rate([" ".join(one.split()) for one in texts], [" ".join(one.split()) for one in references])
        return {
            "sounds": count,
            "words": words.tokens,
            "cut": cut,
            "word_error_rate": words.rate,
            "word_error_rate_interval": list(words.interval),
            "character_error_rate": letters.rate,
            "character_error_rate_interval": list(letters.interval),
            "interval_signature": bootstrap_signature(),
            "exact_match": float(np.mean([said == right for said, right in zip(texts, references, strict=True)])),
            **self._attention(run, given, count),
            "decode": {"beam": config.beam, "length_penalty": config.length_penalty, "length_form": config.length_form},
        }

    def _attention(self, run: Run, given: SoundSource, count: int) -> JsonObject:
        if not any(one.sides == ACROSS and one.heads for one in attentions(run.model).values()):
            return {}
        valid = sounds_of(run.config.data, "valid") if run.config.data.speech or run.config.data.valid else None
        longest = run.transcriber.longest
        chosen_on = given if valid is None else valid
        known, _ = AttentionPaths(
            run, chosen_on, check_lengths(chosen_on, longest)[: min(count, HEAD_SOUNDS)]
        ).measured()
        attention, head = max(known, key=lambda one: known[one].correlation)
        places = [place for place in check_lengths(given, longest) if place < count]
        found, chance = AttentionPaths(run, given, places[: 2 * HEAD_SOUNDS]).measured()
        best = found[attention, head]
        return {
            "attention": {
                "attention": attention,
                "head": head,
                "chosen_on": "these sounds" if valid is None else "validation",
                "steps": best.steps,
                "forward": best.forward,
                "correlation": best.correlation,
                **({} if best.inside is None else {"in_word": best.inside, "chance_in_word": chance}),
            }
        }

    def _rate(self, run: Run) -> int:
        return run.transcriber.mel.rate

    def _given(self, run: Run, data: Any, say: Say | None) -> SoundSource:
        if isinstance(data, SoundSource):
            return data
        if data:
            if len(data) > 1:
                raise ConfigError("sounds with texts are in one table or one folder")
            given = open_given(data[0], run.config.data, "test") or open_given(data[0], run.config.data)
            assert given is not None
            if say is not None:
                for note in given.notes:
                    say(note)
            return given
        given = sounds_of(run.config.data, "test") or training_sounds(run.config.data)[1]
        if given is None:
            raise ConfigError("nothing to evaluate on: the run names no test or validation sounds; give some")
        return given

    def show(self, scores: Mapping[str, Any]) -> str:
        low, high = scores["word_error_rate_interval"]
        least, most = scores["character_error_rate_interval"]
        found = [
            f"sounds          {scores['sounds']:,}  of {scores['words']:,} words, beam {scores['decode']['beam']}",
            f"word errors     {100 * scores['word_error_rate']:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]",
            f"letter errors   {100 * scores['character_error_rate']:.2f} %  [{100 * least:.2f}, {100 * most:.2f}]",
            f"exact match     {100 * scores['exact_match']:.2f} %",
        ]
        if path := scores.get("attention"):
            found += [
                f"head {path['head']} of {path['attention']}, in {path['steps']:,} steps:",
                f"  does not go back    {100 * path['forward']:.2f} %",
                f"  rank correlation    {path['correlation']:.3f}",
            ]
            if "in_word" in path:
                inside, chance = 100 * path["in_word"], 100 * path["chance_in_word"]
                found.append(f"  looks into its word {inside:.2f} %  (chance {chance:.2f} %)")
        return "\n".join(found)

    def headline(self, scores: Mapping[str, Any]) -> dict[str, str]:
        return {
            "WER": f"{100 * scores['word_error_rate']:.2f} %",
            "CER": f"{100 * scores['character_error_rate']:.2f} %",
        }

    def compared(self, run: Run, limit: int | None, progress: Progress | None) -> JsonObject:
        how = Measuring(options=TranscribingOptions(limit=limit), decode={"beam": 1}, progress=progress)
        return self.evaluate(run, how=how)

    def look(self, run: Run, inputs: Sequence[Any], wanted: LookOptions, **decode: Setting) -> Document:
        from regard.tasks.looking.sound_runs import sound_document

        return sound_document(run, inputs, wanted, **decode)

    def inputs(self, run: Run, words: Sequence[str], file: Path | None) -> list[Any]:
        return list(run.transcriber.arguments(words, file))

    def looks(self, run: Run) -> bool:
        return True

    def requested(self, run: Run, given: Sequence[Any]) -> list[Any]:
        """Sounds that were sent in base64, as samples: no longer than the model reads at a time."""
        sent = [sent_sound(item, number) for number, item in enumerate(given, 1)]
        transcriber = run.transcriber
        return [
            read_sound(sound, transcriber.mel.rate, longest=transcriber.longest) for sound in transcriber.read(sent)
        ]

    def size(self, item: Sized) -> int:
        return 1  # a sound, no longer than the model reads at a time

    def held_out_data(self, run: Run, files: Sequence[str] | None, limit: int) -> HeldOutData:
        data = run.config.data
        given = open_given(files[0], data) if files else sounds_of(data, "valid")
        given = given or training_sounds(data)[1] or sounds_of(data, "test")
        if given is None:
            raise ConfigError("nothing to score heads by: the run names no validation or test sounds; give some")
        return HeldOutSpeech(run, given, limit)

    def example(self, config: RunConfig, length: int, rows: int = 1) -> TranscribedSounds:
        model = config.model_config()
        frames = min(model.max_frames, round(config.data.max_seconds * model.rate / model.hop))
        source = Points(torch.zeros(rows, frames, model.bands), torch.full((rows,), frames), padded=False)
        target = full_rows(torch.full((rows, length + 1), FIRST_TOKEN))
        return TranscribedSounds(source, target, rows * length, model.reduction)

    def random_batches(self, config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[TranscribedSounds]]:
        generator, config = torch.Generator().manual_seed(0), config.with_stand_ins()
        model = config.model_config()
        length = min(config.data.max_len, model.max_len)
        frames = min(model.max_frames, round(config.data.max_seconds * model.rate / model.hop))
        rows = max(1, config.train.batch_tokens // (-(-frames // model.reduction) + length))

        def batch() -> TranscribedSounds:
            values = torch.randn(rows, frames, model.bands, generator=generator)
            ids = torch.randint(FIRST_TOKEN, model.vocab_size, (rows, length), generator=generator)
            source = Points(values, torch.full((rows,), frames), padded=False)
            return TranscribedSounds(source, full_rows(ids), rows * (length - 1), model.reduction)

        return config, Transcription(config.train.smoothing, model.ctc), [batch() for _ in range(count)]


TASK = TranscribingTask()
