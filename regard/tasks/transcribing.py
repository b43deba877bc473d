"""Transcribing: sounds with texts, to a model that writes what is said."""

from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from regard.config import JsonObject, Setting
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
    sounds_of,
    too_long_note,
)
from regard.data.formats import Header
from regard.data.mixing import even_sample
from regard.data.pair_store import Rows
from regard.data.synthetic.speech import Lexicon, SpokenSounds
from regard.errors import ConfigError, DataError, check_fractions
from regard.look.document import Document
from regard.look.watch import attentions
from regard.metrics.text import error_rate
from regard.nn.attention import ACROSS
from regard.nn.batch import Points, TranscribedSounds
from regard.tasks.config import RunConfig
from regard.tasks.corpora import FIRST_TOKEN, full_rows
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.probes import HeldOutData, Probe
from regard.tasks.run import Run
from regard.tasks.sound_attention import AttentionPaths, sound_probes
from regard.tasks.spec import (
    MEASURING,
    Measuring,
    Report,
    check_columns,
    check_length,
    warn,
)
from regard.tasks.transcriber import (
    Sounds,
    Transcriber,
    check_several,
    ctc_positions,
    error_rates,
    sent_sounds,
    several_sounds,
)
from regard.tasks.verbs.transcribe import WrittenTranscript, check_joined, checked_pieces
from regard.tasks.writing import (
    UNUSED,
    AugmentedSounds,
    HeldOutTexts,
    TableTask,
    WritingRun,
    check_budget,
    check_bundled,
    check_single,
    search_settings,
    text_rows,
)
from regard.text import Vocabularies
from regard.training.objectives import Objective, Transcription

SPEECH_HELD_OUT = 500
"""How many held-out utterances of the bundled synthesiser serve for validation, and how many for test."""
HEAD_SOUNDS = 100
"""Validation sounds on which a head is chosen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribingData(AugmentedSounds):
    """Sounds and texts in a table or a folder, or bundled speech.

    A table (`.tsv`, `.csv`, `.jsonl`, `.parquet`) has a sound file, named from the table's folder, in its column
    `sound` and what is said in its column `text`. A folder has such tables, or a `.txt` beside each sound. `speech` is
    how many bundled utterances to train on, of `digits` or of all `words`; utterances of voices that were not heard
    then serve for validation and test. `overlong` says what becomes of texts of more than `max_len` tokens and of
    sounds of more than `max_seconds`. `held_out` is the share that is validated on where no validation data is given.
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

    def __post_init__(self) -> None:
        check_bundled(self, "speech", "sounds")
        if self.split_seed < 0:
            raise ConfigError(f"data.split_seed={self.split_seed} must not be negative")
        if not self.max_seconds > 0:
            raise ConfigError(f"data.max_seconds={self.max_seconds} must be above 0")
        check_fractions(self, "held_out", where="data.")
        check_length(self.max_len)
        check_columns(sound=self.sound, text=self.text)
        self.augment()
        check_single(self)


def speech_of(data: TranscribingData, part: Part) -> SpokenSounds:
    """The bundled utterances of a part."""
    if part == "train":
        return SpokenSounds.of(data.speech, seed=data.speech_seed, lexicon=data.lexicon)
    return SpokenSounds.of(SPEECH_HELD_OUT, seed=0, part=part, lexicon=data.lexicon)


class TranscribingRun(WritingRun):
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
        super().__init__(config, vocabularies, directory, report)
        model = config.model_config()
        self.reduction: int = model.reduction
        self.augment: SpecAugment = config.data.augment()
        report.say("reading the sounds")
        train = self._short(train, "sounds")
        self.train, self.rows, self.of = self._prepared(train, "reading the training sounds", model)
        self.valid: SoundSource | None = None
        if valid is not None:
            self.valid = self._short(valid, "validation sounds")
            self.valid_store, self.valid_rows, self.valid_of = self._prepared(
                self.valid, "reading the validation sounds", model
            )
        check_budget(config, self.bounds()[0], "the longest sound and its text")
        hours = self.train.lengths.sum() * model.hop / model.rate / 3600
        beside = "" if valid is None else f", {len(self.valid_of):,} to validate on"
        report.say(f"{len(self.of):,} sounds, {hours:.1f} hours{beside}; a position for {self.reduction} frames")

    def validation(self) -> Iterator[TranscribedSounds] | None:
        if self.valid is None:
            return None
        budget = self.config.train.batch_tokens
        return sound_batches(self.valid_store, self.valid_rows, self.valid_of, budget=budget, reduction=self.reduction)

    def writer(self, model: nn.Module) -> Transcriber:
        return Transcriber(model, self.vocabularies, self.config)

    def shown(self, count: int) -> tuple[Sequence[Any], Sequence[Any]]:
        if self.valid is None:
            return (), ()
        places, texts = even_sample(self.valid_of.tolist(), count), self.valid.texts
        return [self.valid_store[place] for place in places], [texts[place] for place in places]

    def scored(self, texts: list[str], references: Sequence[Any]) -> dict[str, float]:
        heard, said = ([one.split() for one in several] for several in (texts, references))
        return {"word_error_rate": error_rate(heard, said).rate}

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

    def _short(self, given: SoundSource, what: str) -> SoundSource:
        """The sounds that are short enough; how many are not is said, or refused."""
        data, short = self.config.data, check_lengths(given, self.config.data.max_seconds)
        if not (left := len(given.names) - len(short)):
            return given
        if data.overlong == "refuse":
            raise DataError(too_long_note(left, data.max_seconds, "too long", what))
        warn(self.report, too_long_note(left, data.max_seconds, "left out", what))
        if not short:
            raise DataError(f"none of the {what} is as short as data.max_seconds={data.max_seconds:g}")
        return given.select(short)

    def _prepared(self, given: SoundSource, what: str, model: Any) -> tuple[SoundStore, Rows, Int[np.ndarray, " N"]]:
        """The frames of the sounds, and of each text that is used its tokens and its sound."""
        data = self.config.data
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
        rows, of = text_rows(enumerate(given.texts), self.vocabularies, data, partial(warn, self.report), "text")
        positions = positions_of(store.lengths[of], self.reduction)
        crowded = sum(ctc_positions(rows[row][1:-1].tolist()) > positions[row] for row in range(len(of)) if model.ctc)
        if crowded:
            warn(
                self.report,
                f"{crowded:,} of {len(of):,} texts have more tokens than their sound has positions, so that CTC "
                "learns nothing from them: a smaller model.subsampling or longer tokens help",
            )
        return store, rows, of


def transcriber_of(run: Run) -> Transcriber:
    """Sounds in, texts out."""
    return Transcriber(run.model, run.vocabularies, run.config)


def transcribe(
    run: Run, sounds: Sounds, *, piece: float | None = None, overlap: float | None = None, **decode: Setting
) -> list[str]:
    """The best transcript of each sound, a path or an array; options as in `transcripts`."""
    return [best[0].text for best in transcripts(run, sounds, piece=piece, overlap=overlap, **decode)]


def transcripts(
    run: Run, sounds: Sounds, *, piece: float | None = None, overlap: float | None = None, **decode: Setting
) -> list[list[WrittenTranscript]]:
    """For each sound its best transcripts, with scores and the times of words: `transcripts(["a.wav"], beam=5)`.

    Sounds of more than `piece` seconds are read in pieces that share `overlap` seconds, as by the command; `decode` are
    settings of `DecodeConfig`.
    """
    check_several(sounds)
    transcriber, how = run.transcriber, run.decode_config(**decode)
    piece, overlap = checked_pieces(run, piece, overlap)
    read = transcriber.read(several_sounds(sounds))
    for sound in read:
        check_joined(run, sound, piece, overlap, how)
    return transcriber.transcribe(read, how, piece=piece, overlap=overlap)


class HeldOutSpeech(HeldOutTexts):
    """Held-out sounds: how much of the words greedy transcripts have right."""

    name = "word accuracy"

    def __init__(self, run: Run, given: SoundSource, limit: int) -> None:
        mel, chosen = run.transcriber.mel, check_lengths(given, run.config.data.max_seconds)[:limit]
        texts = given.texts
        self.texts = [texts[place] for place in chosen]
        frames = [sound_frames(given.samples(place, mel.rate), mel) for place in chosen]
        super().__init__(run, run.transcriber, Transcription(), frames, self.texts)

    def places(self, writer: Transcriber, config: RunConfig) -> int:
        return writer.positions(config.data.max_seconds)

    def score(self, run: Run) -> float:
        said = [one.split() for one in self.best(run.transcriber, run.config)]
        return 100 * (1 - error_rate(said, [one.split() for one in self.texts]).rate)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscribingOptions:
    """How transcripts are measured: on the first `limit` sounds, with or without case."""

    limit: int | None = None
    lowercase: bool = False


class TranscribingTask(TableTask):
    """Sounds with texts to a model that writes what is said."""

    name = "transcribing"
    about = "what is said in each sound"
    data = TranscribingData
    sources = ("train", "speech")
    evaluation = TranscribingOptions
    unused: ClassVar = (*UNUSED, "images")
    parts: ClassVar = {"transcriber": transcriber_of}
    methods: ClassVar = {"transcribe": transcribe, "transcripts": transcripts}
    hears = True
    reads_text = False
    unit = inputs_named = "sounds"
    rows_named = "sounds with texts"
    prepared = TranscribingRun
    otherwise = "data.speech to a number of bundled utterances"

    def opened(self, name: str | Path, data: TranscribingData, part: Part | None = None) -> SoundFiles | None:
        return open_transcribed(name, part, keys=(data.sound, data.text), header=data.header)

    def bundled(self, config: RunConfig, part: Part) -> SpokenSounds | None:
        return speech_of(config.data, part) if config.data.speech else None

    def held_out(self, config: RunConfig) -> tuple[float, int]:
        return config.data.held_out, config.data.split_seed

    def count(self, given: SoundSource) -> int:
        return len(given.names)

    def texts(self, given: SoundSource) -> Sequence[str]:
        return given.texts

    def objective(self, config: RunConfig) -> Objective:
        return Transcription(config.train.smoothing, config.model_config().ctc)

    def check(self, config: RunConfig) -> None:
        model = config.with_stand_ins().model_config()
        if config.data.max_seconds > model.seconds:
            raise ConfigError(
                f"data.max_seconds={config.data.max_seconds:g} must be at most {model.seconds:g}, which the model "
                f"reads at a time: model.max_frames={model.max_frames:,}"
            )

    def evaluate(self, run: Run, data: Any = None, how: Measuring = MEASURING) -> JsonObject:
        """Word and character error rates with intervals, and how the attention went through the sounds.

        `data` is a table or a folder. `attention` is measured of the head that goes most steadily from left to right on
        validation sounds: the share of steps that do not go back, the rank correlation of steps and places and, of
        bundled speech, how often it looks into the word that it writes, with chance beside it.
        """
        options, transcriber = how.chosen(TranscribingOptions), run.transcriber
        given = self.measured_on(run, data, how.say)
        count = len(given.names) if options.limit is None else min(options.limit, len(given.names))
        config, rate = run.decode_config(**how.decode), transcriber.mel.rate
        read = sounds_of(given, range(count), rate)
        found = self.best_outputs(transcriber, read, count, config, how, transcriber.transcribe)
        texts, references = [one.text for one in found], list(given.texts[:count])
        if options.lowercase:
            texts, references = [one.lower() for one in texts], [one.lower() for one in references]
        return {
            "sounds": count,
            "cut": sum(not one.finished for one in found),
            **error_rates(texts, references),
            "exact_match": float(np.mean([said == right for said, right in zip(texts, references, strict=True)])),
            **self._attention(run, given, count),
            "decode": search_settings(config),
        }

    def _attention(self, run: Run, given: SoundSource, count: int) -> JsonObject:
        if not any(one.sides == ACROSS and one.heads for one in attentions(run.model).values()):
            return {}
        valid = self.part_of(run.config, "valid") if run.config.data.speech or run.config.data.valid else None
        longest = run.transcriber.longest
        chosen_on = given if valid is None else valid
        choosing = check_lengths(chosen_on, longest)[: min(count, HEAD_SOUNDS)]
        places = [place for place in check_lengths(given, longest) if place < count][: 2 * HEAD_SOUNDS]
        if not (choosing and places):  # all are longer than the model reads at a time
            return {}
        known, _ = AttentionPaths(run, chosen_on, choosing).measured()
        attention, head = max(known, key=lambda one: known[one].correlation)
        found, chance = AttentionPaths(run, given, places).measured()
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

    def look(self, run: Run, inputs: Sequence[Any], wanted: LookOptions, **decode: Setting) -> Document:
        from regard.tasks.looking.sound_runs import sound_document

        return sound_document(run, inputs, wanted, **decode)

    def inputs(self, run: Run, words: Sequence[str], file: Path | None) -> list[Any]:
        return list(run.transcriber.arguments(words, file))

    def several(self, inputs: Any) -> list[Any]:
        return several_sounds(inputs)

    def requested(self, run: Run, given: Sequence[Any]) -> list[Any]:
        return sent_sounds(run, given)

    def size(self, item: Sized) -> int:
        return 1  # a sound, no longer than the model reads at a time

    def probes(self, run: Run, data: Any, limit: int) -> list[Probe]:
        return sound_probes(run, self.measured_on(run, data, None), limit)

    def probe_batch(self, run: Run, items: Sequence[Probe]) -> TranscribedSounds:
        frames = [item.given for item in items if item.given is not None]
        return run.transcriber.batch(frames, [item.rows[1] for item in items])

    def held_out_data(self, run: Run, files: Sequence[str] | None, limit: int) -> HeldOutData:
        return HeldOutSpeech(run, self.held_out_rows(run, files), limit)

    def example(self, config: RunConfig, length: int, rows: int = 1) -> TranscribedSounds:
        model = config.model_config()
        frames = min(model.max_frames, round(config.data.max_seconds * model.rate / model.hop))
        source = Points(torch.zeros(rows, frames, model.bands), torch.full((rows,), frames), padded=False)
        target = full_rows(torch.full((rows, length + 1), FIRST_TOKEN))
        return TranscribedSounds(source, target, rows * length, model.reduction)


TASK = TranscribingTask()
