"""`transcribe`: sounds in, what is said in them out."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from regard.errors import ConfigError, DataError, TooLarge
from regard.tasks.verbs.spec import (
    Asked,
    Between,
    Cost,
    RequestLimits,
    WrittenText,
    check_budget,
    check_constraints,
    check_count,
    option,
    read_each,
    said_if_given,
    search_rows,
)
from regard.tasks.verbs.writing import ScoresDisplay, ToWrite, WritingRequest, WritingVerb, sent_file

if TYPE_CHECKING:
    from pathlib import Path

    from regard.data.audio.sound import Sound
    from regard.decode.config import DecodeConfig
    from regard.tasks.run import Run

SERVED_SECONDS = 600.0
"""Of a sound that a server takes: a small body may claim to hold any number of them."""

SERVED_BODY = 26 << 20
"""Bytes of a request, unless said: as many seconds at 16,000 samples of 16 bits per second, in base64."""

SHORTEST_PIECE = 0.1
"""Seconds of a piece that a long sound is read in."""

STANDARD_INPUT = "-"

THRESHOLDS = ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold", "temperature_increment")
OPTIONS = ("piece", "overlap", "timestamps", "language", "translate", *THRESHOLDS)
"""Options of a request that say how sounds are read and written. Which of them apply is for the model to say."""


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word, and when it begins and ends in the recording, in seconds."""

    word: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class TimedSegment:
    """A stretch of the recording, in seconds, and what is said in it."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class WrittenTranscript(WrittenText):
    """What was heard.

    `words` say when each word was said. Of a recording that was read in pieces, scores are sums. `segments` are there
    where timestamps were asked for, and `language`, the one spoken, where the model tells languages apart. Where
    thresholds were given, `retried` counts the tries at a higher temperature, and `silences` are the stretches, in
    seconds, that were taken for silence.
    """

    words: tuple[TimedWord, ...] = ()
    segments: tuple[TimedSegment, ...] | None = said_if_given()
    language: str | None = said_if_given()
    retried: int | None = said_if_given()
    silences: tuple[tuple[float, float], ...] | None = said_if_given()


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeRequest(WritingRequest):
    """Sounds, and how to transcribe them."""

    sound: str | tuple[str, ...] = option(
        MISSING, "Sound files, folders of them, or - for a WAV on standard input; to a server, a sound file in base64."
    )
    max_len: Annotated[int | None, Between(1, "tokens")] = option(None, "Most tokens of a transcript, or of a piece's.")
    min_len: Annotated[int | None, Between(0, "tokens")] = option(None, "Fewest tokens of a transcript.")
    forbid: str | tuple[str, ...] = option((), "A phrase that no transcript has; may be repeated.", "TEXT")
    piece: Annotated[float | None, Between(SHORTEST_PIECE, 3600.0)] = option(
        None, "Longer sounds are read in pieces of so many seconds; by default data.max_seconds of the run."
    )
    overlap: Annotated[float | None, Between(0.0, 3600.0)] = option(
        None, "Seconds that neighbouring pieces share; by default a fifth of a piece."
    )
    timestamps: bool = option(False, "Whisper: one line per segment, with its start and end in seconds.")
    language: str | None = option(None, "Whisper: the language spoken, such as fr; by default it is found out.", "CODE")
    translate: bool = option(False, "Whisper: write an English translation, not what is said.")
    compression_ratio_threshold: Annotated[float | None, Between(0.0, 1000.0)] = option(
        None, "Whisper: write a text anew, at a higher temperature, that zlib makes so many times shorter; such as 2.4."
    )
    logprob_threshold: Annotated[float | None, Between(-1000.0, 0.0)] = option(
        None, "Whisper: the same for one whose tokens have a mean log-probability below this; such as -1."
    )
    no_speech_threshold: Annotated[float | None, Between(0.0, 1.0)] = option(
        None, "Whisper: a window that is likelier to be silence, and whose text is no likelier than said, has none."
    )
    temperature_increment: Annotated[float | None, Between(0.01, 1.0)] = option(
        None, "Whisper: by how much the temperature rises from try to try, up to 1; 0.2 unless said."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SoundTranscripts:
    """One sound, by its name, how long it is, and its transcripts, best first."""

    sound: str
    seconds: float
    transcripts: tuple[WrittenTranscript, ...]


@dataclass(frozen=True, slots=True)
class SoundToTranscribe(ToWrite):
    """A sound, opened, and how it is transcribed."""

    piece: float = 0.0
    overlap: float = 0.0
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribeDisplay(ScoresDisplay):
    times: bool = option(False, "Print one line per word: its start and end in seconds, and the word.")


class WriteTranscripts(WritingVerb[TranscribeRequest, SoundTranscripts]):
    """Sounds of many requests that are searched for alike go together."""

    def check(
        self, run: "Run", request: TranscribeRequest, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> list[SoundToTranscribe]:
        check_count(len(items), "sound", limits, "sounds")
        check_constraints(request, limits)
        config = self.config(run, request, limits)
        piece, overlap = checked_pieces(run, request.piece, request.overlap)
        options = _options(run, request)
        # A server reads no files of its own: what it is sent is the sound itself.
        named = (
            [sent_sound(item, number) for number, item in enumerate(items, 1)] if limits is not None else list(items)
        )
        sounds = run.transcriber.read(named)
        rows, pieces = search_rows(config) + _tries(request), 0
        for sound in sounds:
            seconds = sound.frames / sound.rate
            if limits is not None and seconds > SERVED_SECONDS:
                raise TooLarge(f"{sound.name} is {seconds:.0f} seconds long; this server takes {SERVED_SECONDS:.0f}")
            pieces += check_joined(run, sound, piece, overlap, config)
        said = f"{pieces} pieces of sound x {rows} hypotheses x {config.max_len} tokens"
        check_budget(limits, pieces * rows, config.max_len, said)
        return [SoundToTranscribe(sound, config, sound.name, piece, overlap, options) for sound in sounds]

    def key(self, run: "Run", request: TranscribeRequest) -> Hashable:
        pieces = checked_pieces(run, request.piece, request.overlap)
        return super().key(run, request), pieces, _options(run, request)

    def cost(self, run: "Run", asked: Asked) -> Cost:
        item = asked.item
        pieces = run.transcriber.pieces(item.given, item.piece, item.overlap)
        return Cost(
            pieces * run.transcriber.positions(item.piece),
            pieces * (search_rows(item.config) + _tries(asked.request)) * item.config.max_len,
        )

    def write(
        self, run: "Run", asked: Sequence[Asked], *, numbers: Sequence[int], gone: Callable[[int], bool]
    ) -> Sequence[Any]:
        first, sounds = asked[0].item, [one.item.given for one in asked]
        refused: dict[int, DataError] = {}
        how = {**dict(first.options), "numbers": numbers, "gone": gone, "refused": refused}
        found = run.transcriber.transcribe(sounds, first.config, **how)
        return [refused.get(place, best) for place, best in enumerate(found)]

    def result_of(self, asked: Asked, best: Sequence[WrittenTranscript]) -> SoundTranscripts:
        sound = asked.item.given
        return SoundTranscripts(sound=sound.name, seconds=round(sound.frames / sound.rate, 3), transcripts=tuple(best))

    def inputs(self, run: "Run", words: Iterable[str], file: "Path | None") -> Iterator[Any]:
        if file is None:
            return read_each(words, lambda word: run.transcriber.arguments([word]))
        from pathlib import Path

        from regard.data.audio.transcripts import sound_paths
        from regard.data.formats import lines

        return read_each(filter(str.strip, lines(file)), lambda name: sound_paths(Path(name)))

    def show(self, result: SoundTranscripts, display: TranscribeDisplay | None = None) -> str:
        lines = []
        for one in result.transcripts:
            if display and display.times:
                lines += [f"{result.sound}\t{word.start:.2f}\t{word.end:.2f}\t{word.word}" for word in one.words]
            elif one.segments is not None:
                lines += [f"{result.sound}\t{part.start:.2f}\t{part.end:.2f}\t{part.text}" for part in one.segments]
            else:
                score = [f"{one.score:.4f}"] if display and display.scores else []
                lines.append("\t".join([result.sound, *score, self.shown(one, display)]))
        return "\n".join(lines)


def sent_sound(item: object, number: int) -> tuple[str, bytes]:
    """The bytes of a sound that was sent in base64, plain or as a data: address."""
    return sent_file(item, f"sound {number}", "a sound")


def _tries(request: TranscribeRequest) -> int:
    """How many times a text may be written anew, at most."""
    if request.compression_ratio_threshold is None and request.logprob_threshold is None:
        return 0
    return int((1.0 - (request.temperature or 0.0)) / (request.temperature_increment or 0.2) + 1e-6)


def checked_pieces(run: "Run", piece: float | None, overlap: float | None) -> tuple[float, float]:
    """Seconds of a piece, and those that neighbours share: as asked for, or the run's own."""
    longest: float = run.transcriber.longest
    seconds: float = run.transcriber.piece if piece is None else piece
    shared = seconds / 5 if overlap is None else overlap
    if not seconds >= SHORTEST_PIECE:
        raise ConfigError(f"piece={seconds:g} must be at least {SHORTEST_PIECE:g} seconds")
    if seconds > longest:
        raise ConfigError(f"piece={seconds:g} is longer than the model reads at a time: {longest:g} seconds")
    if not 0 <= shared <= seconds / 2:
        raise ConfigError(f"overlap={shared:g} must be at most half of piece={seconds:g}, and not negative")
    return seconds, shared


def check_joined(run: "Run", sound: "Sound", piece: float, overlap: float, config: "DecodeConfig") -> int:
    """In how many pieces a sound is read; of several there is one transcript alone."""
    count = run.transcriber.pieces(sound, piece, overlap)
    if count > 1 and (config.samples > 1 or config.top_beams > 1):
        raise ConfigError(
            f"{sound.name} is read in {count} pieces, of which the best transcripts are joined: "
            "give no top_beams or samples"
        )
    return count


def _options(run: "Run", request: TranscribeRequest) -> tuple[tuple[str, Any], ...]:
    """What is said of how sounds are read and written; what does not apply to this run's model is refused."""
    applying = run.transcriber.options
    for name in OPTIONS:
        if getattr(request, name) not in (None, False) and name not in applying:
            raise ConfigError(f"{name} does not apply to {run.directory}, a run for {run.task.name}")
    said = {name: getattr(request, name) for name in applying}
    if "piece" in applying:
        said["piece"], said["overlap"] = checked_pieces(run, request.piece, request.overlap)
    run.transcriber.check_options(**said)
    return tuple(sorted(said.items()))


TRANSCRIBE = WriteTranscripts(
    name="transcribe",
    help="""Write what is said in sounds: the sound's name and its text, one line each.

    WAV of any rate and width is read by itself, FLAC and others with soundfile. Long recordings are read in pieces that
    overlap, and what was heard twice is joined. A server is sent sound files in base64.

    \b
    Examples:
      regard transcribe runs/digits call.wav
      regard transcribe runs/digits folder --beam 5 --scores
      arecord -d 5 | regard transcribe runs/digits - --times
      regard transcribe runs/digits --input sounds.txt --output texts.jsonl --json
      regard transcribe runs/whisper talk.wav --timestamps
    """,
    request=TranscribeRequest,
    items="sound",
    result=SoundTranscripts,
    display=TranscribeDisplay,
    engine="transcriber",
    outputs="transcripts",
    apart=OPTIONS,
    unit="sounds",
    body=SERVED_BODY,
    reads_files=True,
    reads_standard_input=False,
)
