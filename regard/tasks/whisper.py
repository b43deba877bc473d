"""Speech to text by Whisper: such a run is imported, not trained."""

import re
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from regard.config import JsonObject, Setting
from regard.data.audio.transcripts import SoundSource, check_lengths, open_transcribed, sounds_of
from regard.errors import ConfigError, DataError
from regard.look.document import Document
from regard.look.roles import by_position
from regard.metrics.text import error_rate
from regard.models.whisper import STRIDE
from regard.nn.batch import TranscribedSounds
from regard.tasks.config import RunConfig
from regard.tasks.corpora import FIRST_TOKEN, full_rows
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.probes import HeldOutData, Probe, written_probe
from regard.tasks.run import Run
from regard.tasks.spec import MEASURING, OF_PAIRS, Measuring, Say, Task
from regard.tasks.transcriber import Sounds, check_several, error_rates, sent_sounds, several_sounds
from regard.tasks.verbs.transcribe import WrittenTranscript
from regard.tasks.whisper_transcriber import BATCH, WhisperTranscriber, whole_windows
from regard.text.whisper_tokens import RATE
from regard.training.objectives import Transcription


def short_places(run: Run, given: SoundSource, limit: int) -> list[int]:
    """The places of the first `limit` sounds that are no longer than a window."""
    longest = run.transcriber.longest
    if not (found := check_lengths(given, longest)[:limit]):
        raise DataError(f"none of the sounds is as short as a window, {longest:g} seconds")
    return found


def text_row(run: Run, text: str) -> list[int]:
    """A text as the decoder reads it, without timestamps; of a multilingual model, as English."""
    target, transcriber = run.vocabularies.target, run.transcriber
    prompt = transcriber.prompt("en" if transcriber.shape.multilingual else None)
    return [*prompt, *target.encode(f" {text.strip()}"), target.eos]


class HeldOutWindows(HeldOutData):
    """Sounds of one window each, with their texts: how many words greedy transcripts have right."""

    name = "word accuracy"

    def __init__(self, run: Run, given: SoundSource, limit: int) -> None:
        transcriber, texts = run.transcriber, given.texts
        places = short_places(run, given, limit)
        self.texts = [texts[place] for place in places]
        self.sounds = list(sounds_of(given, places, RATE))
        rows = [text_row(run, one) for one in self.texts]
        batches = [
            transcriber.batch(
                torch.stack([transcriber.windows(one).window(0) for one in self.sounds[start : start + BATCH]]),
                rows[start : start + BATCH],
            )
            for start in range(0, len(rows), BATCH)
        ]
        super().__init__(run, Transcription(), batches, len(rows))

    def score(self, run: Run) -> float:
        found = run.transcriber.transcribe(self.sounds, run.config.decode.greedy())
        said = [plain_words(best[0].text) for best in found]
        return 100 * (1 - error_rate(said, [plain_words(one) for one in self.texts]).rate)


@dataclass(frozen=True, kw_only=True, slots=True)
class WhisperOptions:
    """How transcripts are measured: on the first `limit` sounds, with or without case."""

    limit: int | None = None
    lowercase: bool = False


def transcriber_of(run: Run) -> WhisperTranscriber:
    """Recordings in, texts out."""
    return WhisperTranscriber(run.model, run.vocabularies, run.config)


def transcribe(run: Run, sounds: Sounds, **options: Any) -> list[str]:
    """What is said in each recording, a file or an array of 16,000 samples per second; options as in `transcripts`."""
    return [best[0].text for best in transcripts(run, sounds, **options)]


def transcripts(
    run: Run,
    sounds: Sounds,
    *,
    timestamps: bool = False,
    language: str | None = None,
    translate: bool = False,
    compression_ratio_threshold: float | None = None,
    logprob_threshold: float | None = None,
    no_speech_threshold: float | None = None,
    temperature_increment: float | None = None,
    **decode: Setting,
) -> list[list[WrittenTranscript]]:
    """For each recording its best transcripts, with times: `transcripts(["talk.wav"])[0][0].words`.

    The thresholds say which texts have failed and are written anew at a higher temperature: see `Fallback`. `decode`
    are settings of `DecodeConfig`, such as `beam=5`.
    """
    check_several(sounds)
    how = run.decode_config(**decode)
    return run.transcriber.transcribe(
        several_sounds(sounds),
        how,
        timestamps=timestamps,
        language=language,
        translate=translate,
        compression_ratio_threshold=compression_ratio_threshold,
        logprob_threshold=logprob_threshold,
        no_speech_threshold=no_speech_threshold,
        temperature_increment=temperature_increment,
    )


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
    evaluation = WhisperOptions
    hears = True
    reads_text = False
    unit = "sounds"

    def looks(self, run: Run) -> bool:
        return True

    def requested(self, run: Run, given: Sequence[Any]) -> list[Any]:
        return sent_sounds(run, given)

    def size(self, item: Sized) -> int:
        return 1  # a sound, no longer than a window

    def look(self, run: Run, inputs: Sequence[Any], wanted: LookOptions, **decode: Setting) -> Document:
        from regard.tasks.looking.whisper_runs import whisper_document

        return whisper_document(run, inputs, wanted, **decode)

    def inputs(self, run: Run, words: Sequence[str], file: Path | None) -> list[Any]:
        return list(run.transcriber.arguments(words, file))

    def several(self, inputs: Any) -> list[Any]:
        return several_sounds(inputs)

    def evaluate(self, run: Run, data: Any = None, how: Measuring = MEASURING) -> JsonObject:
        """Word and character error rates with intervals on a table or a folder of sounds and texts.

        `plain` ones are those of words in lower case and without punctuation.
        """
        options, transcriber = how.chosen(WhisperOptions), run.transcriber
        given = _given(data, how.say)
        count = len(given.names) if options.limit is None else min(options.limit, len(given.names))
        config, found = run.decode_config(**how.decode), []
        for start in range(0, count, BATCH):
            part = range(start, min(count, start + BATCH))
            sounds = list(sounds_of(given, part, RATE))
            found += [best[0] for best in transcriber.transcribe(sounds, config, numbers=part)]
            if how.progress is not None:
                how.progress(len(found), count)
        texts, references = [one.text for one in found], list(given.texts[:count])
        for text in texts if how.out is not None else ():
            how.out(text)  # type: ignore[misc]
        cut = sum(not one.finished for one in found)
        if how.say is not None and (note := transcriber.cut_note(cut, count, config)):
            how.say(note)
        if options.lowercase:
            texts, references = [one.lower() for one in texts], [one.lower() for one in references]
        plain = error_rate([plain_words(one) for one in texts], [plain_words(one) for one in references])
        return {
            "sounds": count,
            "cut": cut,
            **error_rates(texts, references),
            "plain_word_error_rate": plain.rate,
            "plain_word_error_rate_interval": list(plain.interval),
            "decode": {"beam": config.beam, "length_penalty": config.length_penalty, "length_form": config.length_form},
        }

    def show(self, scores: Mapping[str, Any]) -> str:
        lines = [
            f"sounds           {scores['sounds']:,}  of {scores['words']:,} words, beam {scores['decode']['beam']}"
        ]
        for label, name in (("words, plain", "plain_word"), ("words as written", "word"), ("letters", "character")):
            low, high = scores[f"{name}_error_rate_interval"]
            rate = scores[f"{name}_error_rate"]
            lines.append(f"{label:<17}{100 * rate:.2f} % errors  [{100 * low:.2f}, {100 * high:.2f}]")
        return "\n".join([*lines, "plain is in lower case, without punctuation"])

    def headline(self, scores: Mapping[str, Any]) -> dict[str, str]:
        return {"WER": f"{100 * scores['plain_word_error_rate']:.2f} %"}

    def probes(self, run: Run, data: Any, limit: int) -> list[Probe]:
        """Windows with texts, and what can be asked of heads: neighbours where sound is, and words said before."""
        given, transcriber, places, found = _given(data, None), run.transcriber, run.transcriber.shape.places, []
        texts, chosen = given.texts, short_places(run, given, limit)
        for place, sound in zip(chosen, sounds_of(given, chosen, RATE), strict=True):
            windows, row = transcriber.windows(sound), text_row(run, texts[place])
            if len(row) - 1 > transcriber.max_len:
                continue
            heard = min(places, -(-windows.length // STRIDE))
            questions = (replace(one, visible=places) for one in by_position(heard))
            found.append(written_probe(windows.window(0).numpy(), row, places, questions))
        return found

    def probe_batch(self, run: Run, items: Sequence[Probe]) -> TranscribedSounds:
        frames = [torch.from_numpy(item.given) for item in items if item.given is not None]
        return run.transcriber.batch(torch.stack(frames), [item.rows[1] for item in items])

    def held_out_data(self, run: Run, files: Sequence[str] | None, limit: int) -> HeldOutData:
        return HeldOutWindows(run, _given(files, None), limit)

    def example(self, config: RunConfig, length: int, rows: int = 1) -> TranscribedSounds:
        model = config.model_config()
        target = full_rows(torch.full((rows, length + 1), FIRST_TOKEN))
        frames = torch.zeros(rows, model.frames, model.bands)
        return TranscribedSounds(whole_windows(frames), target, rows * length, STRIDE)


def _given(data: Any, say: Say | None) -> SoundSource:
    if isinstance(data, SoundSource):
        return data
    if not data:
        raise ConfigError("a Whisper run has no data of its own: give a table or a folder of sounds and texts")
    if len(data) > 1:
        raise ConfigError("sounds with texts are in one table or one folder")
    given = open_transcribed(data[0], "test") or open_transcribed(data[0])
    assert given is not None
    for note in given.notes if say is not None else ():
        say(note)  # type: ignore[misc]
    return given


def plain_words(text: str) -> list[str]:
    """The words in lower case and without punctuation, apostrophes within them kept."""
    return re.findall(r"[^\W_]+(?:['\u2019][^\W_]+)*", text.lower())


TASK = WhisperTask()
