"""Recordings of any length in, texts out, by Whisper: window after window, with times of segments and of words."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.audio import MelConfig, Sound
from regard.data.audio.sound import open_sounds
from regard.data.audio.windows import SoundWindows
from regard.decode.config import DecodeConfig
from regard.decode.constraints import Constraint, never, unwanted
from regard.decode.fallback import NEVER, Fallback
from regard.decode.search import search
from regard.decode.stepper import Hypothesis, Stepper
from regard.decode.timestamps import not_first, timestamp_rules
from regard.errors import ConfigError, DataError
from regard.look.alignment import words_of_pieces
from regard.look.time_warping import step_starts
from regard.look.watch import attentions, watch
from regard.models.whisper import STRIDE, WhisperConfig
from regard.nn.attention import ACROSS
from regard.nn.batch import Points, Tokens, TranscribedSounds
from regard.tasks.config import RunConfig
from regard.tasks.cross_attention import piece_spans
from regard.tasks.spec import Progress
from regard.tasks.transcriber import sound_arguments
from regard.tasks.verbs.transcribe import TimedSegment, TimedWord, WrittenTranscript
from regard.text import Vocabularies
from regard.text.whisper_tokens import HOP, RATE, SECONDS, WINDOW, WhisperTokens, whisper_tokens

BATCH = 8
"""Windows of different recordings that are decoded together while one output of each is kept; fewer by a beam."""
UNSPACED = ("zh", "ja", "th", "lo", "my", "yue")
"""Languages that are written without spaces: their characters are timed one by one."""


@dataclass(frozen=True, slots=True)
class TokenSegment:
    """A stretch of a recording, in seconds, and the tokens of what is said in it."""

    start: float
    end: float
    tokens: tuple[int, ...]
    words: tuple[TimedWord, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What to write of recordings: in which language they are (found out where it is not said), their own words or an
    English translation, whether segments are timed, and when a text is taken for a failure."""

    language: str | None = None
    translate: bool = False
    timestamps: bool = False
    fallback: Fallback = NEVER


@dataclass(slots=True)
class _Recording:
    """A recording under way: the frame that its next window begins at, and what was found before it; `others` are
    further outputs of its only window, where several were asked for."""

    windows: SoundWindows
    number: int
    seek: int = 0
    language: str | None = None
    segments: list[TokenSegment] = field(default_factory=list)
    others: list[Hypothesis] = field(default_factory=list)
    score: float = 0.0
    log_prob: float = 0.0
    finished: bool = True
    retried: int = 0
    silences: list[tuple[float, float]] = field(default_factory=list)

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
        return [(0.0, end, list(tokens))], frames
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

    options = (
        *("timestamps", "language", "translate"),
        *("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold", "temperature_increment"),
    )
    """What of a request applies, beside how to search."""

    def __init__(self, model: Any, vocabularies: Vocabularies, config: RunConfig) -> None:
        self.model, self.vocabularies, self.config = model, vocabularies, config.decode
        self.shape: WhisperConfig = config.model_config()
        self.max_len = self.shape.max_len
        self.mel = MelConfig(rate=RATE, window=WINDOW, hop=HOP, bands=self.shape.bands, log="whisper")
        self.known = whisper_tokens(vocabularies.target)
        self._stepper: Stepper[Any] = model

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def longest(self) -> float:
        """Seconds of a window."""
        return self.shape.frames * HOP / RATE

    @property
    def piece(self) -> float:
        return self.longest

    def arguments(self, words: Iterable[str], file: Path | None = None) -> Iterator[Any]:
        """The sounds that a command line names: files, those in folders, `-` for standard input, or those of a list."""
        return sound_arguments(words, file)

    def read(self, items: Sequence[Any]) -> list[Sound]:
        """The sounds, opened: paths, arrays of 16,000 samples per second, a name with a file's bytes, or sounds."""
        return open_sounds(items, RATE)

    def pieces(self, sound: Sound, piece: float, overlap: float) -> int:
        """In how many windows a sound is read, if not a second of any is read twice."""
        return max(1, -(-sound.frames // round(self.longest * sound.rate)))

    def positions(self, seconds: float) -> int:
        return self.shape.places

    def batch(self, frames: Float[Tensor, "B N M"], texts: Sequence[Sequence[int]] | None = None) -> TranscribedSounds:
        """Windows, with rows of tokens where these are known, as the model reads them."""
        target = None if texts is None else Tokens.of(texts, self.vocabularies.target.pad)
        count = 0 if texts is None else sum(len(row) - 1 for row in texts)
        return TranscribedSounds(whole_windows(frames), target, count, STRIDE).to(self.device)

    def windows(self, sound: Sound) -> SoundWindows:
        return SoundWindows(sound, self.mel, self.shape.frames)

    def check_options(
        self,
        timestamps: bool = False,
        language: str | None = None,
        translate: bool = False,
        compression_ratio_threshold: float | None = None,
        logprob_threshold: float | None = None,
        no_speech_threshold: float | None = None,
        temperature_increment: float | None = None,
    ) -> Wanted:
        """What is asked for; what this model cannot do is refused."""
        if language is not None:
            token = self.known.language(language)
            if not self.shape.multilingual and token != self.known.languages.get("en"):
                raise ConfigError(f"language='{language}' needs a multilingual model, and this one knows English alone")
        if translate and not self.shape.multilingual:
            raise ConfigError("translate needs a multilingual model, and this one knows English alone")
        fallback = Fallback(
            compression_ratio_threshold=compression_ratio_threshold,
            logprob_threshold=logprob_threshold,
            no_speech_threshold=no_speech_threshold,
            temperature_increment=temperature_increment,
        )
        if fallback.no_speech_threshold is not None and self.known.no_speech is None:
            raise ConfigError("no_speech_threshold needs <|nospeech|>, which the vocabulary does not have")
        return Wanted(language=language, translate=translate, timestamps=timestamps, fallback=fallback)

    def transcribe(
        self,
        sounds: Sequence[Any],
        config: DecodeConfig | None = None,
        *,
        timestamps: bool = False,
        language: str | None = None,
        translate: bool = False,
        compression_ratio_threshold: float | None = None,
        logprob_threshold: float | None = None,
        no_speech_threshold: float | None = None,
        temperature_increment: float | None = None,
        numbers: Sequence[int] | None = None,
        gone: Callable[[int], bool] | None = None,
        progress: Progress | None = None,
        refused: dict[int, DataError] | None = None,
    ) -> list[list[WrittenTranscript]]:
        """The best transcripts of each recording, best first, with the times of their words.

        A recording that is longer than a window is read in several, each from where the last whole segment ended; of
        such a one, and of one with `timestamps`, there is one transcript. The `language` is found out where it is not
        said; `translate` writes English whatever is spoken, whose words have no times. Thresholds are those of
        `Fallback`. What is sampled goes by a
        recording's number: its place here, or that in `numbers`. A recording that is `gone` is dropped between two
        steps; what comes back for it means nothing. Nor does it for one that cannot be read to its end, where `refused`
        is given: it has the error of each such recording then, which else is raised.
        """
        config = config or self.config
        wanted = self.check_options(
            timestamps,
            language,
            translate,
            compression_ratio_threshold=compression_ratio_threshold,
            logprob_threshold=logprob_threshold,
            no_speech_threshold=no_speech_threshold,
            temperature_increment=temperature_increment,
        )
        made = [_Recording(self.windows(sound), place) for place, sound in enumerate(self.read(sounds))]
        alone = timestamps or wanted.fallback or any(one.windows.long for one in made)
        if max(config.top_beams, config.samples) > 1 and alone:
            raise ConfigError(
                "timestamps, thresholds of texts that failed, and recordings longer than a window, have one "
                "transcript: give no top_beams or samples"
            )
        waiting, done, size = list(made), 0, max(1, BATCH // config.rows)
        while waiting:
            part, windows = self._windows(waiting[:size], refused)
            names = [one.number if numbers is None else numbers[one.number] for one in part]
            if part:
                self._next_window(part, windows, config, wanted, names, gone)
            left = [one for one in waiting if not (refused and one.number in refused)]
            waiting = [one for one in left if one.seek < one.windows.length and not (gone and gone(one.number))]
            if progress is not None and len(made) - len(waiting) > done:
                done = len(made) - len(waiting)
                progress(done, len(made))
        return [self._transcripts(one, config, wanted) for one in made]

    def _windows(
        self, recordings: Sequence[_Recording], refused: dict[int, DataError] | None
    ) -> tuple[list[_Recording], list[Float[Tensor, "N M"]]]:
        """Of those that can be read further, the next window; the others are `refused`, where that is given."""
        read, windows = [], []
        for one in recordings:
            try:
                windows.append(one.windows.window(one.seek))
                read.append(one)
            except DataError as error:
                if refused is None:
                    raise
                refused[one.number] = error
        return read, windows

    def _transcripts(self, recording: _Recording, config: DecodeConfig, wanted: Wanted) -> list[WrittenTranscript]:
        tokens = [token for segment in recording.segments for token in segment.tokens]
        segments = [TimedSegment(one.start, one.end, self._text(one.tokens)) for one in recording.segments]
        best = self._written(tokens, recording.language)
        best = replace(
            best,
            score=recording.score,
            log_prob=recording.log_prob,
            finished=recording.finished,
            words=tuple(word for segment in recording.segments for word in segment.words),
            segments=tuple(segments) if wanted.timestamps else None,
            retried=recording.retried if wanted.fallback else None,
            silences=tuple(recording.silences) if wanted.fallback else None,
        )
        further = [
            replace(
                self._written(self.known.text(one.tokens), recording.language),
                score=one.score,
                log_prob=one.log_prob,
                finished=one.finished,
            )
            for one in recording.others
        ]
        return [best, *further]

    def _written(self, tokens: Sequence[int], language: str | None) -> WrittenTranscript:
        pieces = tuple(self.vocabularies.target.pieces(tokens))
        return WrittenTranscript(self._text(tokens), 0.0, 0.0, tuple(tokens), pieces, language=language)

    def _text(self, tokens: Sequence[int]) -> str:
        return self.vocabularies.target.decode(self.known.text(list(tokens))).strip()

    @torch.inference_mode()
    def _next_window(
        self,
        recordings: Sequence[_Recording],
        windows: Sequence[Float[Tensor, "N M"]],
        config: DecodeConfig,
        wanted: Wanted,
        names: Sequence[int],
        gone: Callable[[int], bool] | None,
    ) -> None:
        """Write of the next window of each recording, and move it on."""
        self.model.eval()
        frames = torch.stack(list(windows)).to(self.device)
        memory = self.model.encode(frames.to(self.model.target.tokens.weight.dtype))
        state = self.model.begin(memory)
        self._find_languages(recordings, state, wanted)
        # Only by timestamps does a longer recording know where its next window begins; rows of a batch share a rule.
        timed = [wanted.timestamps or one.windows.long for one in recordings]
        no_speech = self._no_speech(state, len(recordings)) if wanted.fallback.no_speech_threshold is not None else None
        for kind in dict.fromkeys(timed):
            rows = [row for row, own in enumerate(timed) if own == kind]
            found: dict[int, list[Hypothesis]] = {}
            silent: set[int] = set()
            for attempt in wanted.fallback.attempts(config):
                left = [row for row in rows if row not in found or self._failed(found[row][0], wanted)]
                left = [row for row in left if row not in silent]
                if not left:
                    break
                places = torch.tensor(left, device=self.device)
                chosen = [recordings[row] for row in left]
                for recording in chosen if found else ():
                    recording.retried += 1
                prompts = [self.prompt(one.language, translate=wanted.translate, timed=kind) for one in chosen]
                begun = state.select(places, places)
                tried = self._search(begun, prompts, attempt, kind, [names[row] for row in left], chosen, gone)
                found.update(zip(left, tried, strict=True))
                if no_speech is not None:
                    silent |= {row for row in left if wanted.fallback.silent(found[row][0], no_speech[row])}
            for row in rows:
                self._move_on(recordings[row], found[row], memory[row], wanted, kind, silent=row in silent)

    def _failed(self, found: Hypothesis, wanted: Wanted) -> bool:
        return wanted.fallback.failed(found, self._text(found.tokens))

    def _first_step(self, state: Any, count: int) -> Float[Tensor, "B V"]:
        """The log-probabilities of what follows <|startoftranscript|>; the state stays as it is."""
        rows = torch.arange(count, device=self.device)
        first = torch.full((count,), self.known.start, device=self.device)
        log_probs, _ = self._stepper.step(first, state.select(rows))
        return log_probs

    def _no_speech(self, state: Any, count: int) -> list[float]:
        """How likely the model thinks it that nothing is said in each window."""
        return self._first_step(state, count)[:, self.known.no_speech].exp().tolist()

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
        log_probs = self._first_step(state, len(recordings))
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
    ) -> list[list[Hypothesis]]:
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
        return search(
            self._stepper,
            state,
            columns[-1],
            eos=self.known.eos,
            config=config,
            max_len=limit,
            ids=names,
            constraints=constraints,
        )

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
        state = self._stepper.start(self.batch(frames[None]))
        prompt = self.prompt(language, translate=translate, timed=timed)
        return self._search(state, [prompt], config or self.config, timed, [0], [], None)[0][0].tokens

    def _move_on(
        self,
        recording: _Recording,
        several: Sequence[Hypothesis],
        memory: Float[Tensor, "S D"],
        wanted: Wanted,
        timed: bool,
        silent: bool = False,
    ) -> None:
        left, offset, best = recording.left, recording.seek * HOP / RATE, several[0]
        if silent:
            end = min(offset + left * HOP / RATE, recording.windows.seconds)
            recording.silences.append((round(offset, 3), round(end, 3)))
            recording.seek += left
            return
        found, step = [(0.0, left * HOP / RATE, best.tokens)], left
        if timed:
            found, step = split_at_timestamps(best.tokens, self.known, left)
        spoken = [(start, end, self.known.text(list(tokens))) for start, end, tokens in found if self._text(tokens)]
        # A translation's words are not those that were said.
        words = [()] * len(spoken) if wanted.translate else self._timings(recording, spoken, memory)
        end_of_all = recording.windows.seconds
        for (start, end, tokens), own in zip(spoken, words, strict=True):
            begin = round(min(offset + start, end_of_all), 3)
            recording.segments.append(TokenSegment(begin, round(min(offset + end, end_of_all), 3), tuple(tokens), own))
        recording.others += several[1:]
        recording.score += best.score
        recording.log_prob += best.log_prob
        recording.finished &= best.finished
        recording.seek += min(step, left)

    def _timings(
        self, recording: _Recording, spoken: Sequence[tuple[float, float, list[int]]], memory: Tensor
    ) -> list[tuple[TimedWord, ...]]:
        """The words of each segment of a window, with their times in the recording."""
        parts = [tokens for _, _, tokens in spoken]
        offset, end = recording.seek * HOP / RATE, recording.windows.seconds
        found = self._timed_parts(memory, parts, recording.language, recording.left)

        def at(time: float) -> float:
            return round(min(offset + time, end), 3)

        return [tuple(TimedWord(one.word, at(one.start), at(one.end)) for one in words) for words in found]

    def timed_words(
        self, memory: Float[Tensor, "S D"], tokens: Sequence[int], language: str | None, left: int
    ) -> tuple[TimedWord, ...]:
        """The words of a window's text, and when each was said, in seconds from the window's beginning."""
        return self._timed_parts(memory, [list(tokens)], language, left)[0]

    def _timed_parts(
        self, memory: Tensor, parts: Sequence[list[int]], language: str | None, left: int
    ) -> list[tuple[TimedWord, ...]]:
        tokens = [token for part in parts for token in part]
        starts = self.token_times(memory, tokens, language, left) if tokens else []
        if not starts:
            return [()] * len(parts)
        found, begin = [], 0
        for part in parts:
            words = self._words(part, language)
            own = starts[begin:]
            found.append(tuple(TimedWord(text, own[places[0]], own[places[-1] + 1]) for text, places in words))
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
        known = attentions(self.model)
        crossing = [name for name, one in known.items() if one.sides == ACROSS]
        layers = {int(name.split(".")[1]): name for name in crossing}
        chosen: dict[str, list[int]] = {}
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
        return {name: heads for name, heads in chosen.items() if heads}

    @torch.inference_mode()
    def token_times(
        self, memory: Float[Tensor, "S D"], tokens: Sequence[int], language: str | None, left: int
    ) -> list[float]:
        """When each token of a window's text begins, then when the text ends, in seconds from the window's beginning.

        `left` is how many frames of the window hold sound. Without a head that attends to the sound nothing is told.
        """
        prompt, chosen = self.prompt(language), self.aligning_heads()
        row = torch.tensor([[*prompt, *tokens][: self.max_len]], device=self.device)
        if not chosen:
            return []
        with watch(self.model, list(chosen)) as trace:
            self.model.decode(row, memory[None])
        positions = max(1, left // STRIDE)
        seen = [trace.weights(name)[0, heads, :, :positions].float() for name, heads in chosen.items()]
        weights = torch.cat(seen)[:, len(prompt) - 1 :]
        weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-10)
        return [float(place) * SECONDS for place in step_starts(weights)]

    def cut_note(self, cut: int, total: int, config: DecodeConfig) -> str:
        """What to say of transcripts that are not finished; nothing where there are none."""
        if not cut:
            return ""
        limit = self.limit(config, self.prompt(next(iter(self.known.languages), None)))
        return f"{cut:,} of {total:,} transcripts were cut at {limit} tokens in a window (max_len)"


def whole_windows(frames: Float[Tensor, "B N M"]) -> Points:
    """Windows, each of them whole."""
    lengths = torch.full((frames.shape[0],), frames.shape[1], device=frames.device)
    return Points(frames, lengths, padded=False)
