"""Speech to text by Whisper: recordings of any length in windows, with times of segments and of words.

Such a run is imported, not trained.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import Setting
from regard.data.audio import MelConfig, Sound, SoundSamples, open_sound
from regard.data.audio.windows import SoundWindows
from regard.decode.config import DecodeConfig
from regard.decode.constraints import Constraint, never, unwanted
from regard.decode.search import search
from regard.decode.stepper import Hypothesis, Stepper
from regard.decode.timestamps import not_first, timestamp_rules
from regard.errors import ConfigError, DataError
from regard.look.alignment import words_of_pieces
from regard.look.document import Document
from regard.look.time_warping import step_starts
from regard.look.watch import attentions, watch
from regard.models.whisper import STRIDE, WhisperConfig
from regard.nn.attention import ACROSS
from regard.nn.batch import SpokenWindows, Tokens
from regard.tasks.config import RunConfig
from regard.tasks.cross_attention import piece_spans
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.run import Run
from regard.tasks.spec import OF_PAIRS, Progress, Task
from regard.text import Vocabularies
from regard.text.whisper_tokens import HOP, RATE, SECONDS, WINDOW, WhisperTokens, whisper_tokens

BATCH = 8
"""Windows of different recordings that are decoded together while one output of each is kept; fewer by a beam."""
UNSPACED = ("zh", "ja", "th", "lo", "my", "yue")
"""Languages that are written without spaces: their characters are timed one by one."""


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word, when it was said, in seconds, and the mean probability of its tokens."""

    text: str
    start: float
    end: float
    probability: float


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a recording, in seconds, and what is said in it."""

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    words: tuple[SpokenWord, ...] | None = None


@dataclass(frozen=True, slots=True)
class Transcript:
    """What is said in a recording of so many seconds. `language` is None where the model knows but one.

    One that is not `finished` has a window whose text was cut at the greatest length that the settings allow.
    """

    text: str
    seconds: float
    segments: tuple[Segment, ...]
    language: str | None = None
    log_prob: float = 0.0
    finished: bool = True

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for segment in self.segments for token in segment.tokens)

    @property
    def words(self) -> tuple[SpokenWord, ...]:
        return tuple(word for segment in self.segments for word in segment.words or ())


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What to write of recordings: in which language they are (found out where it is not said), their own words or an
    English translation, and whether segments and words are timed."""

    language: str | None = None
    translate: bool = False
    timestamps: bool = False
    words: bool = False


@dataclass(slots=True)
class _Recording:
    """A recording under way: the frame that its next window begins at, and what was found before it."""

    windows: SoundWindows
    number: int
    seek: int = 0
    language: str | None = None
    segments: list[Segment] = field(default_factory=list)
    log_prob: float = 0.0
    finished: bool = True

    @property
    def left(self) -> int:
        """Frames of sound in the next window."""
        return min(self.windows.frames, self.windows.length - self.seek)


def split_at_timestamps(
    tokens: Sequence[int], known: WhisperTokens, frames: int
) -> tuple[list[tuple[float, float, list[int]]], int]:
    """The segments of a window's output, with their times in it, and by how many frames to go on.

    Two timestamps side by side end one segment and begin the next. Where an output goes on after the last such pair,
    its window may have cut somebody short: what follows is read again, in a window that begins there.
    """
    stamped = [known.is_timestamp(token) for token in tokens]
    cuts = [place + 1 for place in range(len(tokens) - 1) if stamped[place] and stamped[place + 1]]
    whole = frames * HOP / RATE
    if not cuts:
        times = [known.seconds(token) for token, stamp in zip(tokens, stamped, strict=True) if stamp]
        end = times[-1] if times and times[-1] > 0 else whole
        return [(times[0] if times and times[0] < end else 0.0, end, list(tokens))], frames
    closed = stamped[-2:] == [False, True]
    ends = [*cuts, len(tokens)] if closed else cuts
    found, begin = [], 0
    for end in ends:
        part = list(tokens[begin:end])
        found.append((known.seconds(part[0]), known.seconds(part[-1]), part))
        begin = end
    if closed:
        return found, frames
    # A pair at the very beginning would not move the window: then all of it is done.
    return found, round(found[-1][1] / SECONDS) * STRIDE or frames


class WhisperTranscriber:
    """Recordings in, texts out."""

    def __init__(self, model: Any, vocabularies: Vocabularies, config: RunConfig) -> None:
        self.model, self.vocabularies, self.config = model, vocabularies, config.decode
        self.shape: WhisperConfig = config.model_config()
        self.max_len = self.shape.max_len
        self.mel = MelConfig(rate=RATE, window=WINDOW, hop=HOP, bands=self.shape.mels, log="whisper")
        self.known = whisper_tokens(vocabularies.target)
        self._stepper: Stepper[Any] = model

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def open(self, item: Any, name: str | None = None) -> Sound:
        """A recording: a file's name or bytes, a `Sound`, or an array of samples, 16,000 per second."""
        if isinstance(item, np.ndarray):
            if item.ndim != 1:
                raise DataError(f"samples of shape {item.shape}; a recording has one channel: an array of one axis")
            return SoundSamples(item.astype(np.float32), RATE, name or "samples")
        return item if isinstance(item, Sound) else open_sound(item, name)

    def windows(self, sound: Sound) -> SoundWindows:
        return SoundWindows(sound, self.mel, self.shape.frames)

    def check(self, wanted: Wanted) -> None:
        """Refuse what this model cannot be asked for."""
        if not self.shape.multilingual:
            if wanted.translate:
                raise ConfigError("translate needs a multilingual model, and this one knows English alone")
            if wanted.language is not None and self.known.language(wanted.language) != self.known.languages.get("en"):
                raise ConfigError(f"language='{wanted.language}' needs a multilingual model; this one knows English")
        elif wanted.language is not None:
            self.known.language(wanted.language)
        if wanted.words and wanted.translate:
            raise ConfigError("words of a translation have no times: the sound does not hold them; leave one out")

    def transcribe(
        self,
        sounds: Sequence[Any],
        config: DecodeConfig | None = None,
        wanted: Wanted | None = None,
        *,
        numbers: Sequence[int] | None = None,
        gone: Callable[[int], bool] | None = None,
        progress: Progress | None = None,
    ) -> list[Transcript]:
        """What is said in each recording.

        One that is longer than a window is read in several, each from where the last whole segment ended. What is
        sampled goes by a recording's number: its place here, or that in `numbers`. A recording that is `gone` is
        dropped between two steps; what comes back for it means nothing.
        """
        config, wanted = config or self.config, wanted or Wanted()
        self.check(wanted)
        made = [_Recording(self.windows(self.open(sound)), place) for place, sound in enumerate(sounds)]
        waiting, done, size = list(made), 0, max(1, BATCH // config.rows)
        while waiting:
            part = waiting[:size]
            names = [one.number if numbers is None else numbers[one.number] for one in part]
            self._next_window(part, config, wanted, names, gone)
            waiting = [one for one in waiting if one.seek < one.windows.length and not (gone and gone(one.number))]
            if progress is not None and len(made) - len(waiting) > done:
                done = len(made) - len(waiting)
                progress(done, len(made))
        return [self._transcript(one) for one in made]

    def _transcript(self, recording: _Recording) -> Transcript:
        tokens = [token for segment in recording.segments for token in segment.tokens]
        return Transcript(
            text=self._text(tokens),
            seconds=recording.windows.seconds,
            segments=tuple(recording.segments),
            language=recording.language,
            log_prob=recording.log_prob,
            finished=recording.finished,
        )

    def _text(self, tokens: Sequence[int]) -> str:
        return self.vocabularies.target.decode(self.known.text(list(tokens))).strip()

    @torch.inference_mode()
    def _next_window(
        self,
        recordings: Sequence[_Recording],
        config: DecodeConfig,
        wanted: Wanted,
        names: Sequence[int],
        gone: Callable[[int], bool] | None,
    ) -> None:
        """Read the next window of each recording, and move it on."""
        self.model.eval()
        frames = torch.stack([one.windows.window(one.seek) for one in recordings]).to(self.device)
        state = self._stepper.start(SpokenWindows(frames))
        self._find_languages(recordings, state, wanted)
        # Only by timestamps does a longer recording know where its next window begins; rows of a batch share a rule.
        timed = [wanted.timestamps or one.windows.long for one in recordings]
        for kind in dict.fromkeys(timed):
            rows = [row for row, own in enumerate(timed) if own == kind]
            places = torch.tensor(rows, device=self.device)
            chosen = [recordings[row] for row in rows]
            begun = state.select(places, places)
            prompts = [self.prompt(one.language, translate=wanted.translate, timed=kind) for one in chosen]
            found = self._search(begun, prompts, config, kind, [names[row] for row in rows], chosen, gone)
            for row, recording, best in zip(rows, chosen, found, strict=True):
                self._move_on(recording, best, frames[row], wanted, kind)

    def _find_languages(self, recordings: Sequence[_Recording], state: Any, wanted: Wanted) -> None:
        """Of a multilingual model, the language that was named or that the first window is likeliest in."""
        if not self.shape.multilingual:
            return
        unknown = [row for row, one in enumerate(recordings) if one.language is None]
        for row in unknown if wanted.language is not None else ():
            token = self.known.language(wanted.language or "")
            recordings[row].language = next(code for code, own in self.known.languages.items() if own == token)
        if not unknown or wanted.language is not None:
            return
        if not self.known.languages:
            raise DataError("the vocabulary names no languages, such as <|en|>")
        rows = torch.arange(len(recordings), device=self.device)
        first = torch.full((len(recordings),), self.known.start, device=self.device)
        log_probs, _ = self._stepper.step(first, state.select(rows))
        codes = list(self.known.languages)
        best = log_probs[:, list(self.known.languages.values())].argmax(-1).tolist()
        for row in unknown:
            recordings[row].language = codes[best[row]]

    def prompt(self, language: str | None, *, translate: bool = False, timed: bool = False) -> list[int]:
        """The tokens that a decoder is made to begin with."""
        known, tokens = self.known, [self.known.start]
        if self.shape.multilingual:
            asked = known.translate if translate else known.transcribe
            if asked is None or language is None:
                raise DataError(
                    "the vocabulary has no <|transcribe|> or <|translate|>, so it is not a multilingual one"
                )
            tokens += [known.languages[language], asked]
        return tokens if timed else [*tokens, known.no_timestamps]

    def limit(self, config: DecodeConfig, prompt: Sequence[int]) -> int:
        """The most tokens of a window's text."""
        return max(1, min(config.max_len, self.max_len - len(prompt)))

    def _search(
        self,
        state: Any,
        prompts: Sequence[Sequence[int]],
        config: DecodeConfig,
        timed: bool,
        names: Sequence[int],
        recordings: Sequence[_Recording],
        gone: Callable[[int], bool] | None,
    ) -> list[Hypothesis]:
        columns = torch.tensor(prompts, device=self.device).T
        for column in columns[:-1]:
            _, state = self._stepper.step(column, state)
        constraints: list[Constraint] = [never(config.forbid), not_first(list(self.shape.begin_suppress))]
        if timed:
            known, latest = self.known, self.shape.max_initial_timestamp
            constraints.append(timestamp_rules(known.first_timestamp, known.eos, known.no_timestamps, latest))
        if gone is not None:
            left = gone
            constraints.append(unwanted(self.known.eos, lambda row: left(recordings[row].number), len(recordings)))
        limit = self.limit(config, prompts[0])
        config = replace(config, min_len=min(config.min_len, limit - 1))
        found = search(
            self._stepper,
            state,
            columns[-1],
            eos=self.known.eos,
            config=config,
            max_len=limit,
            ids=names,
            constraints=constraints,
        )
        return [best[0] for best in found]

    @torch.inference_mode()
    def window_tokens(
        self,
        frames: Float[Tensor, "N M"],
        config: DecodeConfig | None = None,
        *,
        language: str | None = None,
        translate: bool = False,
        timed: bool = False,
    ) -> list[int]:
        """The tokens written of one window alone, timestamps included where it is `timed`."""
        state = self._stepper.start(SpokenWindows(frames[None].to(self.device)))
        prompt = self.prompt(language, translate=translate, timed=timed)
        return self._search(state, [prompt], config or self.config, timed, [0], [], None)[0].tokens

    def _move_on(
        self, recording: _Recording, best: Hypothesis, frames: Float[Tensor, "N M"], wanted: Wanted, timed: bool
    ) -> None:
        left, offset = recording.left, recording.seek * HOP / RATE
        found, step = [(0.0, left * HOP / RATE, best.tokens)], left
        if timed:
            found, step = split_at_timestamps(best.tokens, self.known, left)
        spoken = [(start, end, tokens) for start, end, tokens in found if self._text(tokens)]
        timings = self._timings(recording, spoken, frames, left) if wanted.words else [None] * len(spoken)
        for (start, end, tokens), words in zip(spoken, timings, strict=True):
            recording.segments.append(
                Segment(
                    start=round(offset + start, 3),
                    end=round(min(offset + end, recording.windows.seconds), 3),
                    text=self._text(tokens),
                    tokens=tuple(self.known.text(list(tokens))),
                    words=words,
                )
            )
        recording.log_prob += best.log_prob
        recording.finished &= best.finished
        recording.seek += min(step, left)

    def _timings(
        self, recording: _Recording, spoken: Sequence[tuple[float, float, Sequence[int]]], frames: Tensor, left: int
    ) -> list[tuple[SpokenWord, ...]]:
        """The words of each segment of a window, with their times."""
        parts = [self.known.text(list(tokens)) for _, _, tokens in spoken]
        tokens = [token for part in parts for token in part]
        starts, chances = self.token_times(frames, tokens, recording.language, left)
        offset, end, begin, found = recording.seek * HOP / RATE, recording.windows.seconds, 0, []
        for part in parts:
            words = self._words(part, recording.language)
            found.append(
                tuple(
                    SpokenWord(
                        text=text,
                        start=round(min(offset + starts[begin + own[0]], end), 3),
                        end=round(min(offset + starts[begin + own[-1] + 1], end), 3),
                        probability=round(float(np.mean([chances[begin + place] for place in own])), 4),
                    )
                    for text, own in words
                )
            )
            begin += len(part)
        return found

    def _words(self, tokens: Sequence[int], language: str | None) -> list[tuple[str, list[int]]]:
        """The words of a text, each with the places of its tokens."""
        text = self.vocabularies.target.decode(tokens)
        pattern = r"\S" if language in UNSPACED else r"\S+"
        spans = [match.span() for match in re.finditer(pattern, text)]
        owners = words_of_pieces(piece_spans(self.vocabularies.target, text, tokens), spans)
        # A token that is part of a character, or a mark alone, goes with the word before it.
        current, own = None, {word: [] for word in range(len(spans))}
        for place, owner in enumerate(owners):
            current = owner if owner is not None else current
            own[current or 0].append(place)
        return [(text[slice(*spans[word])], places) for word, places in own.items() if places]

    def aligning_heads(self) -> dict[str, list[int]]:
        """The heads of each attention to the sound that tell when words are said: those named, or all of the upper
        half. Where a layer has lost heads, its numbers mean others: all that are left are taken."""
        crossing = [name for name, one in attentions(self.model).items() if one.sides == ACROSS]
        layers = {int(name.split(".")[1]): name for name in crossing}
        known, chosen = attentions(self.model), {}
        pairs = self.shape.alignment_heads or [
            (layer, head)
            for layer in range(self.shape.decoder_layers // 2, self.shape.decoder_layers)
            for head in range(self.shape.heads)
        ]
        for layer, head in pairs:
            if (name := layers.get(layer)) is None:
                continue
            whole = known[name].heads == self.shape.heads
            chosen.setdefault(name, []).extend([head] if whole else [])
            if not whole:
                chosen[name] = list(range(known[name].heads))
        if not any(chosen.values()):
            raise ConfigError("words cannot be timed: the heads that attend to the sound have all been removed")
        return chosen

    @torch.inference_mode()
    def token_times(
        self, frames: Float[Tensor, "N M"], tokens: Sequence[int], language: str | None, left: int
    ) -> tuple[list[float], list[float]]:
        """When each token of a window's text begins, then when the text ends, in seconds; and how likely each is."""
        prompt = self.prompt(language)
        row = [*prompt, *tokens, self.known.eos]
        chosen = self.aligning_heads()
        batch = SpokenWindows(frames[None], Tokens.of([row])).to(self.device)
        with watch(self.model, list(chosen)) as trace:
            hidden = self.model(batch)
        positions = max(1, left // STRIDE)
        seen = [trace.weights(name)[0, heads, :, :positions].float() for name, heads in chosen.items()]
        weights = torch.cat(seen)[:, len(prompt) - 1 :]
        weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-10)
        log_probs = self.model.head.log_probs(hidden[0, len(prompt) - 1 : -1])
        chances = log_probs.gather(1, batch.inputs.ids[0, len(prompt) :, None])[:, 0].exp()
        return [float(place) * SECONDS for place in step_starts(weights)], chances.tolist()

    def cut_note(self, cut: int, total: int, config: DecodeConfig) -> str:
        """What to say of transcripts that are not finished; nothing where there are none."""
        if not cut:
            return ""
        limit = self.limit(config, self.prompt(next(iter(self.known.languages), None)))
        return f"{cut:,} of {total:,} transcripts were cut at {limit} tokens in a window (max_len)"


def transcriber_of(run: Run) -> WhisperTranscriber:
    """Recordings in, texts out."""
    return WhisperTranscriber(run.model, run.vocabularies, run.config)


def transcribe(run: Run, sounds: Sequence[Any], **decode: Setting) -> list[str]:
    """What is said in each recording, a file or an array; `decode` are settings of `DecodeConfig`, such as `beam=5`,
    and `language`, `translate`."""
    return [one.text for one in transcripts(run, sounds, **decode)]


def transcripts(
    run: Run,
    sounds: Sequence[Any],
    *,
    language: str | None = None,
    translate: bool = False,
    timestamps: bool = False,
    words: bool = False,
    **decode: Setting,
) -> list[Transcript]:
    """The same with times: `transcripts(["talk.wav"], words=True)[0].words`."""
    if isinstance(sounds, str | Path):
        raise DataError("give a list of recordings, not one: [recording]")
    wanted = Wanted(language=language, translate=translate, timestamps=timestamps, words=words)
    return run.transcriber.transcribe(list(sounds), run.decode_config(**decode), wanted)


class WhisperTask(Task):
    """Recordings to what is said in them, by a Whisper model."""

    name = "whisper"
    about = "what is said in a recording, by an imported Whisper"
    unused: ClassVar = (
        *(*OF_PAIRS, "images"),
        *("decode.max_ratio", "decode.max_extra", "decode.coverage_penalty", "decode.mbr"),
    )
    parts: ClassVar = {"transcriber": transcriber_of}
    methods: ClassVar = {"transcribe": transcribe, "transcripts": transcripts}
    trains = False
    searches = True
    lifts_limits = True
    sides = 2
    unit = "recordings"

    def look(self, run: Run, inputs: Sequence[Any], wanted: LookOptions, **decode: Setting) -> Document:
        from regard.tasks.looking.whisper_runs import whisper_document

        return whisper_document(run, inputs, wanted, **decode)

    def inputs(self, run: Run, words: Sequence[str], file: Path | None) -> list[Any]:
        return list(words) if file is None else [str(file)]

    def example(self, config: RunConfig, length: int, rows: int = 1) -> SpokenWindows:
        model = config.model_config()
        frames = torch.zeros(rows, model.frames, model.mels)
        return SpokenWindows(frames, Tokens.of([[0] * (length + 1)] * rows), rows * length)


TASK = WhisperTask()
