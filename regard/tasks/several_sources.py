"""Several sources: rows of texts, images and sounds, any of which may be missing, to a model that writes a text from
them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn

from regard.config import JsonObject, Setting
from regard.data.audio.sound import Sound, SoundSamples, clock, open_sounds, read_sound
from regard.data.audio.transcripts import (
    SoundFiles,
    SoundSource,
    check_lengths,
    prepare_sounds,
    sound_frames,
    too_long_note,
)
from regard.data.batches import epoch_order, evaluation_order
from regard.data.formats import Columns, Header, format_of, notes_on, rows
from regard.data.images.augmentation import ImageRandom
from regard.data.images.image_files import LARGEST, decode_image, read_image
from regard.data.images.image_store import resized
from regard.data.mixing import even_sample
from regard.data.pair_store import Rows
from regard.data.synthetic.several_sources import SOURCES, SourcedRow, SourcesKind, sourced_rows
from regard.data.synthetic.speech import RATE, Utterance, Utterances, speak
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError, DataError, TooLarge
from regard.look.document import Document
from regard.look.watch import attentions
from regard.metrics.text import bleu_tokenizer, corpus_bleu, exact_matches, mean_interval
from regard.nn.batch import SourcedTexts, Tokens
from regard.tasks.config import RunConfig
from regard.tasks.corpora import (
    FIRST_TOKEN,
    PARTS,
    Part,
    full_rows,
    train_shared_tokenizer,
)
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.run import Run, prepared_vocabularies
from regard.tasks.spec import (
    MEASURING,
    Measuring,
    Report,
    Say,
    check_columns,
    check_length,
    warn,
)
from regard.tasks.translation_metrics import per_character
from regard.tasks.verbs.spec import WrittenText
from regard.tasks.writing import (
    UNUSED,
    AugmentedSounds,
    Writer,
    WritingRun,
    WritingTask,
    check_budget,
    check_bundled,
    check_single,
    search_settings,
)
from regard.text import Vocabularies
from regard.training.objectives import Objective, SequenceToSequence

HELD_OUT = 1000
"""How many bundled rows serve for validation, and how many for test."""
ALIKE = 32
"""Rows whose lengths differ by less may share a batch: by exact length, each batch would be of rows of one kind, such
as those with a pronoun, and a model that meets one kind at a time learns far more slowly."""
PREFIXES = {"image": "image:", "sound": "sound:"}
"""What stands before the name of a source that is no text."""
OTHER_PREFIXES = ("audio:", "speech:", "picture:")
"""What one may try instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcesData(AugmentedSounds):
    """Rows of a table (`.tsv`, `.csv`, `.jsonl`, `.parquet`): a column for each source, and one for the text to write.

    `sources` names the columns: a text by its name, an image file, named from the table's folder, as `image:NAME`, a
    sound file as `sound:NAME`. An empty cell is a source that is missing. `output` is the column of the text to write.
    `bundled` and `examples` train on so many rows that come with regard: `paraphrases`, two smudged ones of one
    statement, `ambiguous`, a sentence with a scene that decides it, or `spoken`, a sentence of which one word is only
    heard; held-out ones then serve for validation and test. `overlong` says what becomes of rows with a text of more
    than `max_len` tokens; those with a sound of more than `max_seconds` are skipped or refused, and never cut.
    Sounds are changed in training as those of `transcribing` are.
    """

    sources: tuple[str, ...] = ()
    output: str | int = "output"
    bundled: Literal["none"] | SourcesKind = "none"
    examples: int = 0
    examples_seed: int = 1
    max_len: int = 256
    max_seconds: float = 20.0
    overlong: Literal["skip", "truncate", "refuse"] = "skip"
    header: Header = "auto"

    def __post_init__(self) -> None:
        check_bundled(self, "examples", "rows")
        if self.examples and self.bundled == "none":
            raise ConfigError(f"data.examples needs data.bundled: {', '.join(SOURCES)}")
        check_length(self.max_len)
        if not self.max_seconds > 0:
            raise ConfigError(f"data.max_seconds={self.max_seconds} must be above 0")
        check_columns(output=self.output)
        if len(set(self.sources)) < len(self.sources):
            raise ConfigError(f"data.sources={list(self.sources)} must be different columns")
        for name in self.sources:
            if not plain_name(name).strip():
                raise ConfigError(f"data.sources: '{name}' must name a column, {NAMING}")
            if name.startswith(OTHER_PREFIXES):
                raise ConfigError(f"data.sources: '{name}' is of no known kind; a text is named as COLUMN, {NAMING}")
        check_single(self, "one table")
        if self.augment().changes and self.names and "sound" not in self.kinds:
            raise ConfigError(
                "data.band_masks, data.time_masks, data.warp and data.stretch change sounds, and no source is one; "
                f"data.sources={list(self.names)}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The sources as they are named, or as those of the bundled rows are."""
        return self.sources or (() if self.bundled == "none" else SOURCES[self.bundled])

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind_of(name) for name in self.names)


NAMING = "an image as image:COLUMN, a sound as sound:COLUMN"


def kind_of(source: str) -> str:
    """What a source is, by its name."""
    return next((kind for kind, prefix in PREFIXES.items() if source.startswith(prefix)), "text")


def plain_name(source: str) -> str:
    """A source's name without what says of which kind it is."""
    return source.removeprefix(PREFIXES.get(kind_of(source), ""))


@dataclass(frozen=True)
class Table:
    """The rows of a table of sources."""

    path: Path
    data: SourcesData

    @cached_property
    def rows(self) -> list[SourcedRow]:
        found, columns = [], self._columns()
        for number, (*cells, output) in enumerate(rows(self.path, format_of(self.path), columns), 1):
            if not output.strip():
                continue
            found.append(
                SourcedRow(tuple(self._cell(*one, number) for one in zip(cells, self.data.kinds, strict=True)), output)
            )
        found = [row for row in found if any(one is not None for one in row.sources)]
        if not found:
            raise DataError(f"{self.path} has no row with a source and a text to write")
        return found

    def _cell(self, cell: str, kind: str, number: int) -> str | Path | None:
        if not cell.strip():
            return None
        if kind == "text":
            return cell
        path = self.path.parent / cell
        if not path.is_file():
            raise DataError(f"{self.path}, row {number} names {path}, which is no file")
        return path

    def _columns(self) -> Columns:
        if format_of(self.path) == "lines":
            raise DataError(f"{self.path}: rows of several sources are in a .tsv, .csv, .jsonl or .parquet file")
        names = (*map(plain_name, self.data.names), self.data.output)
        settings = (*(f"data.sources ({plain_name(name)})" for name in self.data.names), "data.output")
        return Columns(names, settings, self.data.header)

    def notes(self) -> tuple[str, ...]:
        return tuple(notes_on(self.path, format_of(self.path), self._columns()))


def rows_of(config: RunConfig, part: Part) -> list[SourcedRow] | None:
    """The rows to train on, to validate on or to test on; None where none are named."""
    data = config.data
    if names := getattr(data, part):
        return Table(Path(names[0]), data).rows
    if not data.examples:
        return None
    if part == "train":
        return list(sourced_rows(data.bundled, data.examples, seed=data.examples_seed))
    return list(sourced_rows(data.bundled, HELD_OUT, seed=0, part=part))


class SourceReader:
    """Rows as a run's model reads them: tokens, images at the model's size, and log-mel frames of sounds."""

    def __init__(self, vocabularies: Vocabularies, config: RunConfig) -> None:
        self.vocabularies, self.model = vocabularies, config.model_config()
        self.kinds: tuple[str, ...] = self.model.sources
        self.texts, self.images, self.sounds = (
            [place for place, own in enumerate(self.kinds) if own == kind] for kind in ("text", "image", "sound")
        )
        self.mel, self.longest = self.model.hearing().mel(), self.model.hearing().seconds

    def tokens(self, text: Any) -> list[int]:
        """The tokens of a source, its end with them; none where it is missing."""
        source = self.vocabularies.source
        return [] if text is None or not text.strip() else self.vocabularies.source_row(source.encode(text))

    def pixels(self, image: Any, largest: int = LARGEST) -> np.ndarray:
        """A file, a name with a file's bytes of at most `largest` pixels, or an array, at the model's size."""
        if isinstance(image, tuple):
            image = decode_image(image[1], image[0], self.model.channels, largest)
        elif not isinstance(image, np.ndarray):
            image = read_image(Path(image), self.model.channels)
        if image.ndim != 3 or image.shape[2] != self.model.channels:
            raise DataError(f"an image of shape {image.shape}; the model reads {self.model.channels} channels, last")
        return resized(image, self.model.image_size, "stretch")

    def frames(self, sound: Any) -> np.ndarray:
        """The frames of a sound that is no longer than the model reads: a file, a name with a file's bytes, samples at
        the model's rate, or the frames themselves. They are kept as halves, as those of training are."""
        if isinstance(sound, np.ndarray) and sound.ndim == 2:
            return sound
        if isinstance(sound, Utterance):
            sound = SoundSamples(speak(sound).samples, RATE, sound.text)
        (opened,) = open_sounds([sound], self.mel.rate)
        if (seconds := opened.frames / opened.rate) > self.longest:
            raise TooLarge(f"{opened.name} is {clock(seconds)} long; the model reads {clock(self.longest)} of a source")
        return sound_frames(read_sound(opened, self.mel.rate), self.mel).astype(np.float16)

    def places(self, row: Sequence[Any]) -> int:
        """How many tokens, places and positions the model reads of a row."""
        read = sum(len(self.tokens(row[place])) for place in self.texts)
        read += sum(self.model.places for place in self.images if row[place] is not None)
        heard = [len(self.frames(row[place])) for place in self.sounds if row[place] is not None]
        return read + sum(-(-frames // self.model.subsampling) for frames in heard)

    def batch(self, given: Sequence[Sequence[Any]], targets: Sequence[Sequence[int]] | None = None) -> SourcedTexts:
        """These rows of sources, with the tokens to write where they are known."""
        texts = [[self.tokens(row[place])[: self.model.max_len] for place in self.texts] for row in given]
        longest = max((len(one) for row in texts for one in row), default=0) or 1
        ids = torch.full((len(given), len(self.texts), longest), self.vocabularies.source.pad)
        for b, row in enumerate(texts):
            for k, one in enumerate(row):
                ids[b, k, : len(one)] = torch.tensor(one, dtype=torch.long)
        side = self.model.image_size
        pixels = torch.zeros(len(given), len(self.images), self.model.channels, side, side)
        pictured = torch.zeros(len(given), len(self.images), dtype=torch.bool)
        for b, row in enumerate(given):
            for p, place in enumerate(self.images):
                if row[place] is not None:
                    array = row[place] if _at_size(row[place], self.model) else self.pixels(row[place])
                    pixels[b, p] = torch.from_numpy(array.transpose(2, 0, 1).copy())
                    pictured[b, p] = True
        centred = (pixels / 255 - self.model.image_mean) / self.model.image_std
        pixels = torch.where(pictured[..., None, None, None], centred, pixels)
        lengths = torch.tensor([[len(one) for one in row] for row in texts], dtype=torch.long).view(len(given), -1)
        target = None if targets is None else Tokens.of(targets, self.vocabularies.target.pad)
        count = 0 if targets is None else sum(len(row) - 1 for row in targets)
        found = SourcedTexts(ids, lengths, pixels, pictured, target, count, self.model.places)
        return replace(found, **self._heard(given)) if self.sounds else found

    def _heard(self, given: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """What a batch has of sounds: their frames, padded to the longest, and how many there are of each."""
        rows = [[None if row[place] is None else self.frames(row[place]) for place in self.sounds] for row in given]
        lengths = torch.tensor([[0 if one is None else len(one) for one in row] for row in rows])
        frames = torch.zeros(*lengths.shape, max(1, int(lengths.max())), self.mel.bands)
        for b, row in enumerate(rows):
            for a, one in enumerate(row):
                if one is not None:
                    frames[b, a, : len(one)] = torch.from_numpy(one.astype(np.float32))
        return {"frames": frames, "frame_lengths": lengths, "reduction": self.model.subsampling}


def _at_size(image: object, model: Any) -> bool:
    return isinstance(image, np.ndarray) and image.shape == (model.image_size, model.image_size, model.channels)


def alike(lengths: np.ndarray) -> np.ndarray:
    """Lengths up to the next multiple of `ALIKE`, or to the longest, as batches are made by."""
    return np.minimum(-(-lengths // ALIKE) * ALIKE, lengths.max()).astype(np.int32)


class SourcesLayout:
    """Batches of rows whose sources together have like lengths."""

    def __init__(self, prepared: "SourcesRun", budget: int) -> None:
        self.prepared, self.budget = prepared, budget

    def order(self, seed: int, epoch: int) -> list[np.ndarray]:
        """Of each batch the rows and, beside each, the epoch, by which its sounds will be changed."""
        one = self.prepared
        sizes, lengths = alike(one.sizes), alike(one.target.lengths)
        found = epoch_order(sizes, lengths, budget=self.budget, seed=seed, epoch=epoch)
        return [np.stack((chosen, np.full_like(chosen, epoch)), axis=1) for chosen in found]

    def batch(self, rows: np.ndarray) -> SourcedTexts:
        chosen, epoch = rows[:, 0], int(rows[0, 1])
        given = [self.prepared.given[row] for row in chosen]
        if self.prepared.augment.changes:
            given = self._changed(given, chosen, epoch)
        return self.prepared.reader.batch(given, [self.prepared.target[row].tolist() for row in chosen])

    def _changed(self, given: list[tuple[Any, ...]], chosen: np.ndarray, epoch: int) -> list[tuple[Any, ...]]:
        """Rows with their sounds changed, each sound of a row by random numbers of its own."""
        found, sounds = [list(row) for row in given], self.prepared.reader.sounds
        for number, place in enumerate(sounds):
            heard = [b for b, row in enumerate(given) if row[place] is not None]
            random = ImageRandom(self.prepared.config.train.seed, epoch, chosen[heard] * len(sounds) + number)
            frames = [given[b][place].astype(np.float32) for b in heard]
            for b, changed in zip(heard, self.prepared.augment(frames, random), strict=True):
                found[b][place] = changed
        return [tuple(row) for row in found]


class SourcesRun(WritingRun):
    """Rows to train on and, where there are any, to validate on."""

    def __init__(
        self,
        config: RunConfig,
        train: list[SourcedRow],
        valid: list[SourcedRow] | None,
        vocabularies: Vocabularies,
        directory: Path,
        report: Report,
    ) -> None:
        super().__init__(config, vocabularies, directory, report)
        self.reader, self.augment = SourceReader(vocabularies, config), config.data.augment()
        train = self._short(train, "train")
        self.given, self.sizes, self.target = self._read(train, say=True)
        if self.augment.stretch:
            self.sizes = self._stretched()
        valid = None if valid is None else self._short(valid, "valid")
        self.valid = None if valid is None else self._read(valid)
        self.valid_rows = valid or []
        beside = "" if valid is None else f", {len(valid):,} to validate on"
        missing = [
            f"{sum(row.sources[place] is None for row in train):,} without {plain_name(name)}"
            for place, name in enumerate(config.data.names)
            if any(row.sources[place] is None for row in train)
        ]
        report.say(
            f"{len(self.given):,} rows of {len(config.data.names)} sources{beside}"
            + "".join(f"; {one}" for one in missing)
        )
        check_budget(config, self.bounds()[0], "the longest row")

    def _stretched(self) -> np.ndarray:
        """The lengths of the training rows where each sound is as long as it may become."""
        sizes, model = self.sizes.copy(), self.reader.model
        for place in self.reader.sounds:
            lengths = np.array([0 if row[place] is None else len(row[place]) for row in self.given], dtype=np.int32)
            most = self.augment.frames_at_most(lengths)
            if most.max() > model.max_frames:
                raise ConfigError(
                    f"a sound has {lengths.max():,} frames and with data.stretch={self.augment.stretch:g} up to "
                    f"{most.max():,}; the model reads model.max_frames={model.max_frames:,}"
                )
            sizes += -(-most // model.subsampling) - -(-lengths // model.subsampling)
        return sizes

    def _short(self, found: list[SourcedRow], part: Part) -> list[SourcedRow]:
        """The rows whose sounds are no longer than `data.max_seconds`."""
        data, kept = self.config.data, found
        for place in self.reader.sounds:
            spoken = [row for row in kept if row.sources[place] is not None]
            short = set(check_lengths(_sounds(row.sources[place] for row in spoken), data.max_seconds))
            long = {id(row) for number, row in enumerate(spoken) if number not in short}
            kept = [row for row in kept if id(row) not in long]
        if left := len(found) - len(kept):
            if data.overlong == "refuse":
                raise DataError(too_long_note(left, data.max_seconds, "too long"))
            warn(self.report, f"{part}: {too_long_note(left, data.max_seconds, 'left out, with their rows')}")
        if not kept:
            raise DataError(f"no row has a sound as short as data.max_seconds={data.max_seconds:g}")
        return kept

    def _frames(self, found: list[SourcedRow]) -> list[dict[int, np.ndarray]]:
        """Of each row the frames of its sounds, by place: prepared once, in the run's cache."""
        heard: list[dict[int, np.ndarray]] = [{} for _ in found]
        for place in self.reader.sounds:
            rows = [number for number, row in enumerate(found) if row.sources[place] is not None]
            if not rows:
                continue
            store = prepare_sounds(
                _sounds(found[number].sources[place] for number in rows),
                self.reader.mel,
                self.cache,
                progress=lambda done: self.report.progress("reading the sounds", done),
                say=self.report.say,
            )
            for start, end, number in zip(store.offsets, store.offsets[1:], rows, strict=False):
                heard[number][place] = store.frames[start:end]
        return heard

    def _read(self, found: list[SourcedRow], *, say: bool = False) -> tuple[list[tuple[Any, ...]], np.ndarray, Rows]:
        """Sources with images at the model's size, their lengths in all, and what to write of each row."""
        data, target, reader = self.config.data, self.vocabularies.target, self.reader
        given, sizes, targets, long = [], [], [], 0
        for row, heard in zip(found, self._frames(found), strict=True):
            tokens = self.vocabularies.target_row(target.encode(row.output))
            lengths = [len(reader.tokens(row.sources[place])) for place in reader.texts]
            if max([len(tokens), *lengths]) > data.max_len:
                long += 1
                if data.overlong == "refuse":
                    raise DataError(
                        f"a row has a text of more than data.max_len={data.max_len} tokens: {row.output[:60]}"
                    )
                if data.overlong == "skip":
                    continue
                tokens = [*tokens[: data.max_len - 1], target.eos] if len(tokens) > data.max_len else tokens
            sources = list(row.sources)
            for place in reader.images:
                sources[place] = None if sources[place] is None else reader.pixels(sources[place])
            for place, frames in heard.items():
                sources[place] = frames
            given.append(tuple(sources))
            sizes.append(reader.places(sources))
            targets.append(tokens)
        if long and say:
            done = "left out" if data.overlong == "skip" else "cut"
            warn(self.report, f"{long:,} rows with a text of more than data.max_len={data.max_len} tokens are {done}")
        if not given:
            raise DataError(f"no row is as short as data.max_len={data.max_len} tokens")
        return given, np.array(sizes, dtype=np.int32), Rows.of(targets, target.pad)

    def bounds(self) -> tuple[int, int]:
        both = alike(self.sizes) + alike(self.target.lengths)
        return int(both.max()), int(both.sum())

    def layout(self, budget: int, *, pack: bool = False) -> SourcesLayout:
        return SourcesLayout(self, budget)

    def validation(self) -> Iterator[SourcedTexts] | None:
        if self.valid is None:
            return None
        given, sizes, target = self.valid
        budget = max(self.config.train.batch_tokens, int((sizes + target.lengths).max()))
        order = evaluation_order(sizes, target.lengths, budget=budget)
        return (
            self.reader.batch([given[row] for row in chosen], [target[row].tolist() for row in chosen])
            for chosen in order
        )

    def writer(self, model: nn.Module) -> "Combiner":
        return Combiner(model, self.vocabularies, self.config)

    def shown(self, count: int) -> tuple[Sequence[Any], Sequence[Any]]:
        rows = even_sample(self.valid_rows, count)
        return [row.sources for row in rows], [row.output for row in rows]

    def scored(self, texts: list[str], references: Sequence[Any]) -> dict[str, float]:
        exact = float(exact_matches(texts, list(references)).mean())
        bleu, _ = corpus_bleu(texts, list(references), tokenize=bleu_tokenizer(references))
        return {"bleu": bleu, "exact_match": exact}


def _sounds(given: Iterable[Any]) -> SoundSource:
    """Sound files, or bundled utterances, as they are prepared."""
    found = tuple(given)
    if all(isinstance(one, Utterance) for one in found):
        return Utterances(found)
    return SoundFiles(tuple(map(Path, found)), ("",) * len(found))


class Combiner(Writer[WrittenText]):
    """Rows of sources in, texts out."""

    def __init__(self, model: Any, vocabularies: Vocabularies, config: RunConfig) -> None:
        super().__init__(model, vocabularies, config)
        self.names: tuple[str, ...] = config.data.names
        self.reader = SourceReader(vocabularies, config)

    def batch(self, items: Sequence[Sequence[Any]], texts: Sequence[Sequence[int]] | None = None) -> SourcedTexts:
        return self.reader.batch(items, texts).to(self.device)

    def checked(self, row: Any, number: int = 1, largest: int = LARGEST) -> tuple[Any, ...]:
        """A row of sources in their order, read: from a list, or by name; an empty text is a missing one.

        An image that was sent may hold at most `largest` pixels.
        """
        if isinstance(row, Mapping):
            names = [plain_name(name) for name in self.names]
            for name in row:
                if name not in names:
                    raise DataError(f"row {number} has '{name}'; the sources of this run are {', '.join(names)}")
            row = [row.get(name) for name in names]
        if isinstance(row, str) or len(row) != len(self.names):
            count = 1 if isinstance(row, str) else len(row)
            wanted = ", ".join(map(plain_name, self.names))
            raise DataError(f"row {number} has {count} sources; this run reads {len(self.names)}: {wanted}")
        found = tuple(None if isinstance(one, str) and not one.strip() else one for one in row)
        if all(one is None for one in found):
            raise DataError(f"row {number} has no source at all")
        for place in self.reader.texts:
            if not isinstance(found[place], str | None):
                raise DataError(f"row {number}: {self.names[place]} must be a text")
            if (length := len(self.reader.tokens(found[place]))) > self.max_len:
                raise DataError(
                    f"row {number}: {self.names[place]} has {length:,} tokens; the model reads {self.max_len}"
                )
        return tuple(self._opened(one, place, number, largest) for place, one in enumerate(found))

    def _opened(self, one: Any, place: int, number: int, largest: int) -> Any:
        kind = self.reader.kinds[place]
        if one is None or kind == "text":
            return one
        if not isinstance(one, str | Path | np.ndarray | tuple | Sound | Utterance):
            raise DataError(f"row {number}: {self.names[place]} must be the path of a file, or an array")
        try:
            return self.reader.pixels(one, largest) if kind == "image" else self.reader.frames(one)
        except DataError as error:
            raise type(error)(f"row {number}: {error}") from None

    combine = Writer.write

    @torch.inference_mode()
    def shares(self, given: Sequence[Sequence[Any]], texts: Sequence[str]) -> list[float]:
        """How much each source had to say over all steps that write these texts, by teacher forcing."""
        self.model.eval()
        total, steps = np.zeros(len(self.names)), 0
        for start in range(0, len(given), self.rows):
            rows = self.target_rows(texts[start : start + self.rows])
            rows = [row[: self.max_len + 1] for row in rows]  # a text that was cut has no end
            batch = self.batch(given[start : start + self.rows], rows)
            real = (batch.labels >= 0)[..., None]
            found = self.model.shares(batch) * real
            total, steps = total + found.sum((0, 1)).cpu().numpy(), steps + int(real.sum())
        return (total / max(steps, 1)).tolist()


def combiner_of(run: Run) -> Combiner:
    """Rows of sources in, texts out."""
    return Combiner(run.model, run.vocabularies, run.config)


def combine(run: Run, rows: Sequence[Any], **decode: Setting) -> list[str]:
    """The best text of each row of sources; a row is a list in the order of `data.sources`, or a mapping by name."""
    return [best[0].text for best in combined(run, rows, **decode)]


def combined(run: Run, rows: Sequence[Any], **decode: Setting) -> list[list[WrittenText]]:
    """For each row its best texts, with scores: `combined([["...", None]], beam=5, top_beams=5)`."""
    if isinstance(rows, str):
        raise DataError("give a list of rows, each a list of its sources")
    given = [run.combiner.checked(row, number) for number, row in enumerate(rows, 1)]
    return run.combiner.combine(given, run.decode_config(**decode))


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcesOptions:
    """How a run of several sources is measured: on the first `limit` rows."""

    limit: int | None = None


class SourcesTask(WritingTask):
    """Rows of texts, images and sounds, any of which may be missing, to a model that writes a text from them."""

    name = "sources"
    about = "a text from several sources: texts, images and sounds, any of which may be missing"
    data = SourcesData
    sources = ("train", "examples")
    evaluation = SourcesOptions
    unused: ClassVar = (*UNUSED, "images", "decode.shortlist")
    parts: ClassVar = {"combiner": combiner_of}
    methods: ClassVar = {"combine": combine, "combined": combined}
    reads_text = False
    unit = "rows"

    def objective(self, config: RunConfig) -> Objective:
        return SequenceToSequence(config.train.smoothing)

    def check(self, config: RunConfig) -> None:
        kinds, model = config.data.kinds, config.with_stand_ins().model_config()
        if kinds and kinds != model.sources:
            raise ConfigError(
                f"model.sources={list(model.sources)} must say what data.sources are: {list(kinds)} for "
                f"{', '.join(config.data.names)}"
            )
        if "sound" in model.sources and config.data.max_seconds > (longest := model.hearing().seconds):
            raise ConfigError(
                f"data.max_seconds={config.data.max_seconds:g} must be at most {longest:g}, which the model reads of a "
                f"sound: model.max_frames={model.max_frames:,}"
            )

    def check_files(self, config: RunConfig, say: Say) -> None:
        for part in PARTS:
            for file in getattr(config.data, part):
                if not Path(file).exists():
                    raise DataError(f"no such file: {file}")
                for note in Table(Path(file), config.data).notes():
                    say(note)

    def prepare(self, config: RunConfig, directory: Path, report: Report, *, new: bool) -> tuple[RunConfig, SourcesRun]:
        """The rows read; for a new run, with a tokenizer trained on all their texts."""
        if not config.data.names:
            raise ConfigError("data.sources=[] must name the columns of the sources")
        report.say("reading the rows")
        train, valid = rows_of(config, "train"), rows_of(config, "valid")
        if train is None:
            raise ConfigError(
                "no training data: give --data with a table (data.train in a configuration), or set data.examples"
            )

        def trained() -> Vocabularies:
            texts = (one for row in train for one in (*row.sources, row.output) if isinstance(one, str))
            return train_shared_tokenizer(texts, config, report)

        config, vocabularies = prepared_vocabularies(config, directory, trained, new=new)
        return config, SourcesRun(config, train, valid, vocabularies, directory, report)

    def evaluate(self, run: Run, data: Any = None, how: Measuring = MEASURING) -> JsonObject:
        """Exact match and BLEU; the former with each source left out, and alone; and whose attention did what."""
        found = self._rows(run, data)[: how.chosen(SourcesOptions).limit]
        config, combiner = run.decode_config(**how.decode), run.combiner
        references = [row.output for row in found]
        given = [combiner.checked(row.sources, number) for number, row in enumerate(found, 1)]
        names = [plain_name(name) for name in combiner.names]
        best = self.best_outputs(combiner, given, len(given), config, how)
        texts = [one.text for one in best]
        right = exact_matches(texts, references)
        shares = combiner.shares(given, texts)
        each = []
        for place, name in enumerate(names):
            without = [(*row[:place], None, *row[place + 1 :]) for row in given]
            alone = [tuple(one if other == place else None for other, one in enumerate(row)) for row in given]
            each.append(
                {
                    "source": name,
                    "missing": sum(row[place] is None for row in given),
                    "share": shares[place],
                    "left_out": self._compared(run, without, references, right, config),
                    "alone": self._compared(run, alone, references, right, config),
                }
            )
        if (tokenize := bleu_tokenizer(references)) != "13a" and how.say is not None:
            how.say(per_character(tokenize))
        bleu, signature = corpus_bleu(texts, references, tokenize=tokenize)
        return {
            "rows": len(found),
            "cut": sum(not one.finished for one in best),
            "exact_match": float(right.mean()),
            "exact_match_interval": list(mean_interval(right)),
            "bleu": bleu,
            "bleu_signature": signature,
            "combine": run.config.model_config().combine,
            "sources": each,
            "decode": search_settings(config),
        }

    def _compared(
        self, run: Run, given: list[tuple[Any, ...]], references: list[str], right: np.ndarray, config: DecodeConfig
    ) -> JsonObject | None:
        """Exact match of rows that have lost sources, and what the loss costs; of rows that have any left."""
        kept = [place for place, row in enumerate(given) if any(one is not None for one in row)]
        if not kept:
            return None
        found = run.combiner.combine([given[place] for place in kept], config)
        hits = exact_matches([best[0].text for best in found], [references[place] for place in kept])
        cost = right[kept] - hits
        return {
            "rows": len(kept),
            "exact_match": float(hits.mean()),
            "exact_match_interval": list(mean_interval(hits)),
            "cost": float(cost.mean()),
            "cost_interval": list(mean_interval(cost)),
        }

    def _rows(self, run: Run, data: Any) -> list[SourcedRow]:
        if data:
            if all(isinstance(one, SourcedRow) for one in data):
                return list(data)
            if len(data) > 1:
                raise ConfigError("rows of several sources are in one table")
            return Table(Path(data[0]), run.config.data).rows
        found = rows_of(run.config, "test") or rows_of(run.config, "valid")
        if found is None:
            raise ConfigError("nothing to evaluate on: the run names no test or validation rows; give some")
        return found

    def show(self, scores: Mapping[str, Any]) -> str:
        low, high = scores["exact_match_interval"]
        lines = [
            f"rows               {scores['rows']:,}  (beam {scores['decode']['beam']}, combine {scores['combine']})",
            f"exact match        {100 * scores['exact_match']:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]",
            f"BLEU               {scores['bleu']:.2f}  {scores['bleu_signature']}",
        ]
        meaning = {"turn": "of what was added", "concatenate": "of the attention", "gate": "of the gate"}
        for one in scores["sources"]:
            lines.append(
                f"{one['source']}: {100 * one['share']:.1f} % {meaning[scores['combine']]}; "
                f"missing in {one['missing']:,} rows"
            )
            for name, said in (("left_out", "left out"), ("alone", "alone")):
                if (found := one[name]) is None:
                    lines.append(f"  {said:16} no row has another source")
                    continue
                low, high = found["cost_interval"]
                lines.append(
                    f"  {said:16} {100 * found['exact_match']:.2f} %  which costs {100 * found['cost']:.2f} points "
                    f"[{100 * low:.2f}, {100 * high:.2f}]"
                )
        return "\n".join(lines)

    def look(self, run: Run, inputs: Sequence[Any], wanted: LookOptions, **decode: Setting) -> Document:
        from regard.tasks.looking.source_runs import sources_document

        return sources_document(run, inputs, wanted, **decode)

    def looks(self, run: Run) -> bool:
        return bool(attentions(run.model))

    def requested(self, run: Run, given: Sequence[Any]) -> list[Any]:
        """Rows that were sent as lists of sources, images and sounds in base64."""
        from regard.tasks.verbs.combine import sent_row

        return [sent_row(run, row, number) for number, row in enumerate(given, 1)]

    def size(self, item: Sized) -> int:
        return 1  # a row, of which no source is longer than the model reads

    def inputs(self, run: Run, words: Sequence[str], file: Path | None) -> list[Any]:
        from regard.tasks.verbs.combine import row_of

        return [row_of(line) for line in super().inputs(run, words, file)]

    def example(self, config: RunConfig, length: int, rows: int = 1) -> SourcedTexts:
        model = config.model_config()
        texts, images = model.sources.count("text"), model.sources.count("image")
        ids = torch.full((rows, texts, length), FIRST_TOKEN)
        target = full_rows(torch.full((rows, length + 1), FIRST_TOKEN))
        pixels = torch.zeros(rows, images, model.channels, model.image_size, model.image_size)
        there = torch.ones(rows, images, dtype=torch.bool)
        lengths = torch.full((rows, texts), length)
        found = SourcedTexts(ids, lengths, pixels, there, target, rows * length, model.places)
        if not (sounds := model.sources.count("sound")):
            return found
        count = min(model.max_frames, round(config.data.max_seconds * model.rate / model.hop))
        frames = torch.zeros(rows, sounds, count, model.bands)
        return replace(
            found, frames=frames, frame_lengths=torch.full((rows, sounds), count), reduction=model.subsampling
        )

    def random_batches(self, config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[SourcedTexts]]:
        config = config.with_stand_ins()
        model = config.model_config()
        length = min(config.data.max_len, model.max_len, 32) - 1
        rows = max(1, config.train.batch_tokens // self.example(config, length).tokens)
        return config, self.objective(config), [self.example(config, length, rows)] * count


TASK = SourcesTask()
