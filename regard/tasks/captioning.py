"""Captioning: images with captions, to a model that writes what it sees."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn

from regard.config import JsonObject, Setting
from regard.data.batches import random_of, shuffled
from regard.data.formats import Header
from regard.data.images import ImageStore, prepare_images
from regard.data.images.captions import CaptionLayout, CaptionSource, caption_batches, open_captioned
from regard.data.images.image_files import LARGEST, Part, decode_image
from regard.data.pair_store import Rows
from regard.data.synthetic.scenes import SIDE, DrawnScenes, Language, SceneImages, ScenePart
from regard.decode.config import DecodeConfig
from regard.decode.constraints import unwanted
from regard.decode.search import search
from regard.decode.stepper import Stepper
from regard.errors import ConfigError, DataError
from regard.look.document import Document
from regard.metrics.text import corpus_bleu, corpus_scores, exact_match
from regard.nn.batch import CaptionedImages, Tokens
from regard.tasks.config import RunConfig
from regard.tasks.corpora import FIRST_TOKEN, PreparedData, cache_directory, full_rows, train_shared_tokenizer
from regard.tasks.images import ImageReader
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.noun_attention import caption_probes, pointing_scores, probe_images
from regard.tasks.probes import HELD_OUT_BUDGET, HeldOutData, Probe
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
from regard.tasks.translation_metrics import check_tokenizer
from regard.tasks.verbs.caption import WrittenCaption, sent_images
from regard.text import Vocabularies
from regard.training.objectives import Captioning, Objective

PARTS: tuple[Part, ...] = ("train", "valid", "test")
BATCH = 64
"""Images of one batch while captions are written greedily; fewer by the width of a beam."""
SCENES_HELD_OUT = 1000
"""How many held-out scenes serve for validation, for test, and of combinations that are held out."""
HEAD_SCENES = 200
"""Validation scenes on which a head is chosen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptioningData(Files):
    """Images and captions in a table or a folder, or bundled scenes.

    A table (`.tsv`, `.csv`, `.jsonl`, `.parquet`) has an image file, named from the table's folder, in its column
    `image` and a caption in its column `caption`; several rows of one image are several captions, all equally right.
    A folder has such tables, or a `.txt` with captions beside each image. `scenes` is how many bundled scenes to train
    on, described in `language`; their own held-out ones then serve for validation and test. `overlong` says what
    becomes of captions of more than `max_len` tokens.
    """

    scenes: int = 0
    scenes_seed: int = 1
    language: Language = "en"
    image: str | int = "image"
    caption: str | int = "caption"
    header: Header = "auto"
    max_len: int = 256
    overlong: Literal["skip", "truncate", "refuse"] = "skip"

    def __post_init__(self) -> None:
        if self.scenes and self.train:
            raise ConfigError("data.train and data.scenes are two sources of training images; give one")
        if self.scenes < 0 or self.scenes_seed < 0:
            raise ConfigError(f"data.scenes={self.scenes} and data.scenes_seed={self.scenes_seed} must not be negative")
        check_length(self.max_len)
        check_columns(image=self.image, caption=self.caption)
        for name in PARTS:
            if len(getattr(self, name)) > 1:
                raise ConfigError(f"data.{name} takes one table or one folder")


def scenes_of(config: RunConfig, part: ScenePart) -> SceneImages:
    """The bundled scenes of a part, at the size that the model reads."""
    data, size = config.data, config.with_stand_ins().model_config().image_size
    if part == "train":
        return SceneImages.of(data.scenes, seed=data.scenes_seed, part=part, size=size)
    return SceneImages.of(SCENES_HELD_OUT, seed=0, part=part, size=size)


def captioned_of(config: RunConfig, part: Part) -> CaptionSource | None:
    """The images to train on, to validate on or to test on, as they are named; None where none are."""
    data = config.data
    if names := getattr(data, part):
        return open_given(names[0], data, part) or open_given(names[0], data)
    if data.scenes:
        return scenes_of(config, part).captioned(data.language)
    return open_given(data.train[0], data, part) if data.train else None


def open_given(name: str | Path, data: CaptioningData, part: Part | None = None) -> CaptionSource | None:
    return open_captioned(name, part, keys=(data.image, data.caption), header=data.header)


def training_images(config: RunConfig) -> tuple[CaptionSource, CaptionSource | None]:
    """What to train on and to validate on: if no validation images are named, a share of the former is set aside."""
    train = captioned_of(config, "train")
    if train is None:
        raise ConfigError(
            "no training data: give --data with a table or a folder (data.train in a configuration), "
            "or set data.scenes to a number of bundled scenes"
        )
    valid = captioned_of(config, "valid")
    if valid is not None or not config.images.held_out:
        return train, valid
    order = shuffled(len(train.captions), random_of(config.images.split_seed, 0))
    aside = min(len(order) - 1, max(1, round(config.images.held_out * len(order))))
    if aside < 1:
        return train, None
    return train.select(sorted(order[aside:].tolist())), train.select(sorted(order[:aside].tolist()))


class CaptioningRun(PreparedData):
    """Images with captions to train on and, where there are any, to validate on."""

    def __init__(
        self,
        config: RunConfig,
        train: CaptionSource,
        valid: CaptionSource | None,
        vocabularies: Vocabularies,
        directory: Path,
        report: Report,
    ) -> None:
        self.config, self.vocabularies, self.report = config, vocabularies, report
        self.cache = cache_directory(config, directory)
        model = config.model_config()
        self.objective: Objective = Captioning(config.train.smoothing, model.place_penalty)
        self.patches: int = model.places
        report.say("reading the images")
        self.train = self._store(train, "reading the training images")
        self.rows, self.of = self._captions(train)
        self.valid = valid
        if valid is not None:
            self.valid_store = self._store(valid, "reading the validation images")
            self.valid_rows, self.valid_of = self._captions(valid)
        self._check_budget()
        beside = "" if valid is None else f", {len(valid.captions):,} images to validate on"
        report.say(f"{len(self.train):,} images with {len(self.of):,} captions{beside}; {self.patches} places each")

    def with_image_statistics(self) -> RunConfig:
        """The configuration with the mean colour of the training images, where it names none."""
        if self.config.images.mean:
            return self.config
        mean, std = self.train.mean_and_std()
        return replace(self.config, images=replace(self.config.images, mean=mean, std=std))

    def validation(self) -> Iterator[CaptionedImages] | None:
        if self.valid is None:
            return None
        budget, images = self.config.train.batch_tokens, self.config.images
        return caption_batches(
            pixels_of(self.valid_store), self.valid_rows, self.valid_of, images, budget=budget, patches=self.patches
        )

    def scores(self, model: nn.Module) -> dict[str, float]:
        if self.valid is None:
            return {}
        count = min(self.config.train.validate_sentences, len(self.valid.captions))
        if not count:
            return {}
        captioner = Captioner(model, self.vocabularies, self.config)
        arrays = [image.transpose(1, 2, 0) for image in pixels_of(self.valid_store)[:count]]
        found = [best[0] for best in captioner.caption(arrays, self.config.decode.greedy())]
        cut = sum(not one.finished for one in found)
        texts, references = [one.text for one in found], [list(one) for one in self.valid.captions[:count]]
        return {
            "bleu": corpus_bleu(texts, references)[0],
            "exact_match": exact_match(texts, references),
            "cut": float(cut),
        }

    def bounds(self) -> tuple[int, int]:
        longest = self.patches + int(self.rows.lengths.max())
        return longest, self.patches * len(self.of) + int(self.rows.lengths.sum())

    def layout(self, budget: int, *, pack: bool = False) -> CaptionLayout:
        """Captions of like length go together; an image has one size, so that there is nothing to pack."""
        config = self.config
        return CaptionLayout(
            pixels_of(self.train),
            self.rows,
            self.of,
            config.images,
            budget=budget,
            seed=config.train.seed,
            patches=self.patches,
        )

    def _store(self, given: CaptionSource, what: str) -> "ImageStore | DrawnScenes":
        model = self.config.model_config()
        if isinstance(given.images, SceneImages):
            return DrawnScenes(given.images, model.channels)
        return prepare_images(
            given.images,
            (),
            self.config.images,
            self.cache,
            size=model.image_size,
            channels=model.channels,
            progress=lambda done: self.report.progress(what, done),
        )

    def _captions(self, given: CaptionSource) -> tuple[Rows, np.ndarray]:
        """The captions as rows of tokens, and the image of each. Of a bundled scene, the first caption alone."""
        data, target = self.config.data, self.vocabularies.target
        kept, of, long = [], [], 0
        for image, captions in enumerate(given.captions):
            for caption in captions[:1] if data.scenes else captions:
                row = self.vocabularies.target_row(target.encode(caption))
                if len(row) > data.max_len:
                    long += 1
                    if data.overlong == "refuse":
                        raise DataError(
                            f"a caption has {len(row)} tokens, more than data.max_len={data.max_len}: {caption[:60]}"
                        )
                    if data.overlong == "skip":
                        continue
                    row = [*row[: data.max_len - 1], target.eos]
                kept.append(row)
                of.append(image)
        if long:
            done = "left out" if data.overlong == "skip" else "cut"
            self.report.say(f"{long:,} captions of more than data.max_len={data.max_len} tokens are {done}")
        if not kept:
            raise DataError(f"no caption is as short as data.max_len={data.max_len} tokens")
        return Rows.of(kept, target.pad), np.array(of, dtype=np.int64)

    def _check_budget(self) -> None:
        budget, longest = self.config.train.batch_tokens, self.bounds()[0]
        if budget < longest:
            raise ConfigError(
                f"train.batch_tokens={budget} must hold one image and the longest caption: {longest} tokens at least"
            )


def pixels_of(store: "ImageStore | DrawnScenes") -> Any:
    return store.pixels if isinstance(store, ImageStore) else store


class Captioner:
    """Images in, captions out: `Stepper` is all it knows of its model."""

    def __init__(self, model: Any, vocabularies: Vocabularies, config: RunConfig) -> None:
        self.model, self.vocabularies, self.config = model, vocabularies, config.decode
        shape: Any = config.model_config()
        self.max_len, self.places = shape.max_len, shape.places
        self.reader = ImageReader(config)
        self._stepper: Stepper[Any] = model

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def read(self, items: Sequence[Any], largest: int = LARGEST) -> list[tuple[str, np.ndarray]]:
        """The name and the pixels of each image: a path, an array, a `NamedImage`, or a name with a file's bytes.

        Such bytes may hold at most `largest` pixels.
        """
        found: list[tuple[str, np.ndarray]] = []
        for number, item in enumerate(items, 1):
            if isinstance(item, tuple):
                where, data = item
                pixels = self.reader.fit(decode_image(data, where, self.reader.channels, largest))
                found.append((where, pixels))
                continue
            name = f"image {number}" if isinstance(item, np.ndarray) else self.reader.shown(item)
            found.append((name, self.reader.pixels([item])[0]))
        return found

    def batch(self, arrays: Sequence[np.ndarray], captions: Sequence[Sequence[int]] | None = None) -> CaptionedImages:
        """Images of the model's size, with rows of tokens where these are known, as the model reads them."""
        target = None if captions is None else Tokens.of(captions, self.vocabularies.target.pad)
        count = 0 if captions is None else sum(len(row) - 1 for row in captions)
        return CaptionedImages(self.reader.normalised(arrays), target, count, self.places).to(self.device)

    def caption(
        self,
        arrays: Sequence[np.ndarray],
        config: DecodeConfig | None = None,
        *,
        numbers: Sequence[int] | None = None,
        gone: Callable[[int], bool] | None = None,
        progress: Progress | None = None,
    ) -> list[list[WrittenCaption]]:
        """The `top_beams` best captions (or `samples`) of each image, best first.

        What is sampled goes by an image's number: its place here, or that in `numbers`. An image that is `gone` is
        dropped between two steps; what comes back for it means nothing.
        """
        config = config or self.config
        size, found = max(1, BATCH // config.rows), []
        for start in range(0, len(arrays), size):
            part = range(start, min(len(arrays), start + size))
            names = [place if numbers is None else numbers[place] for place in part]
            found += self._decode([arrays[place] for place in part], names, config, start, gone)
            if progress is not None:
                progress(len(found), len(arrays))
        return found

    @torch.inference_mode()
    def _decode(
        self,
        arrays: Sequence[np.ndarray],
        names: Sequence[int],
        config: DecodeConfig,
        before: int,
        gone: Callable[[int], bool] | None,
    ) -> list[list[WrittenCaption]]:
        self.model.eval()
        target = self.vocabularies.target
        state = self._stepper.start(self.batch(arrays))
        first = torch.full((len(arrays),), target.bos, device=self.device)
        limit = min(config.max_len, self.max_len)
        constraints = []
        if gone is not None:
            constraints.append(unwanted(target.eos, lambda row: gone(before + row), len(arrays)))
        found = search(
            self._stepper,
            state,
            first,
            eos=target.eos,
            config=config,
            max_len=limit,
            ids=names,
            constraints=constraints,
        )
        return [[WrittenCaption.of(one, target, limit if config.force_end else None) for one in best] for best in found]

    def cut_note(self, cut: int, total: int, config: DecodeConfig) -> str:
        """What to say of captions that are not finished; nothing where there are none."""
        if not cut:
            return ""
        limit = min(config.max_len, self.max_len)
        return f"{cut:,} of {total:,} captions were cut at {limit} tokens (max_len; the model's own is {self.max_len})"


def captioner_of(run: Run) -> Captioner:
    """Images in, captions out."""
    return Captioner(run.model, run.vocabularies, run.config)


def caption(run: Run, images: Sequence[Any], **decode: Setting) -> list[str]:
    """The best caption of each image, a path or an array; `decode` are settings of `DecodeConfig`, such as `beam=5`."""
    return [best[0].text for best in captions(run, images, **decode)]


def captions(run: Run, images: Sequence[Any], **decode: Setting) -> list[list[WrittenCaption]]:
    """For each image its best captions, with scores: `captions(["photo.png"], beam=5, top_beams=5)`."""
    if isinstance(images, str | Path):
        raise DataError("give a list of images, not one: [image]")
    read = [pixels for _, pixels in run.captioner.read(list(images))]
    return run.captioner.caption(read, run.decode_config(**decode))


class HeldOutCaptions(HeldOutData):
    """Held-out images: exact match of greedy captions."""

    name = "exact match"

    def __init__(self, run: Run, given: CaptionSource, limit: int) -> None:
        self.given = given.select(range(min(limit, len(given.captions))))
        captioner = run.captioner
        self.arrays = list(self.given.images.read(captioner.reader.channels, captioner.reader.fit))
        encode, row = captioner.vocabularies.target.encode, captioner.vocabularies.target_row
        rows = [row(encode(one[0])) for one in self.given.captions]
        size = max(1, HELD_OUT_BUDGET // captioner.places)
        batches = [
            captioner.batch(self.arrays[start : start + size], rows[start : start + size])
            for start in range(0, len(rows), size)
        ]
        super().__init__(run, Captioning(), batches, len(rows))

    def score(self, run: Run) -> float:
        found = run.captioner.caption(self.arrays, run.config.decode.greedy())
        return 100 * exact_match([best[0].text for best in found], [list(one) for one in self.given.captions])


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptioningOptions:
    """How captions are measured: on the first `limit` images, against all captions of each."""

    limit: int | None = None
    lowercase: bool = False
    tokenize: str = "13a"

    def __post_init__(self) -> None:
        check_tokenizer(self.tokenize)


class CaptioningTask(Task):
    """Images with captions to a model that writes what it sees."""

    name = "captioning"
    about = "a caption of each image"
    data = CaptioningData
    sources = ("train", "scenes")
    evaluation = CaptioningOptions
    unused: ClassVar = (
        *(*OF_PAIRS, "images.mixup", "images.cutmix"),
        *("train.vectors", "train.compile_loss", "train.r_drop", "train.pack"),
        *("decode.max_ratio", "decode.max_extra"),  # an image has no length that a caption's could go by
        *("decode.coverage_penalty", "decode.mbr", "decode.shortlist"),
    )
    parts: ClassVar = {"captioner": captioner_of}
    methods: ClassVar = {"caption": caption, "captions": captions}
    searches = True
    lifts_limits = True
    keeps_decoding = True
    reads_text = False
    sides = 2
    unit = "images"

    def check(self, config: RunConfig) -> None:
        model = config.with_stand_ins().model_config()
        if config.images.mean and len(config.images.mean) != model.channels:
            raise ConfigError(f"images.mean has {len(config.images.mean)} numbers for model.channels={model.channels}")
        if config.data.scenes and (model.image_size % SIDE or SIDE % model.grid):
            raise ConfigError(
                f"bundled scenes are rendered with {SIDE} pixels on a side or a multiple, in a grid that divides "
                f"{SIDE}: not model.image_size={model.image_size} with model.patch_size={model.patch_size}"
            )

    def check_files(self, config: RunConfig, say: Say) -> None:
        for part in PARTS:
            if getattr(config.data, part) and (found := captioned_of(config, part)):
                for note in found.notes:
                    say(note)

    def prepare(
        self, config: RunConfig, directory: Path, report: Report, *, new: bool
    ) -> tuple[RunConfig, CaptioningRun]:
        """The images at one size and the captions as tokens; for a new run, with a tokenizer trained on them."""
        train, valid = training_images(config)

        def trained() -> Vocabularies:
            return train_shared_tokenizer((text for several in train.captions for text in several), config, report)

        config, vocabularies = prepared_vocabularies(config, directory, trained, new=new)
        prepared = CaptioningRun(config, train, valid, vocabularies, directory, report)
        prepared.config = prepared.with_image_statistics()
        return prepared.config, prepared

    def evaluate(self, run: Run, data: Any = None, how: Measuring = MEASURING) -> JsonObject:
        """Scores of captions against all references of each image, and where heads looked.

        `data` is a table or a folder. Of bundled scenes, `combinations` has the scores on scenes with colours and
        shapes that training never had together. Where boxes of nouns are known, `pointing` has the scores of the head
        that points best at nouns on validation images, with chance beside them.
        """
        options, config = how.chosen(CaptioningOptions), run.config
        given = self._given(run, data, how.say)
        result = self._scored(run, given, options, how)
        if not data and config.data.scenes and not config.data.test:
            found = scenes_of(config, "combinations").captioned(config.data.language)
            result["combinations"] = self._scored(run, found, options, replace(how, out=None, say=None))
        if any(given.gold):
            limited = given.select(range(min(options.limit or len(given.captions), len(given.captions))))
            result["pointing"] = pointing_scores(run, limited.with_gold(), self._choosing(run))
        return result

    def _choosing(self, run: Run) -> CaptionSource | None:
        """Validation images whose nouns have boxes, on which a head is chosen; None where there are none."""
        valid = captioned_of(run.config, "valid")
        found = None if valid is None else valid.select(range(min(HEAD_SCENES, len(valid.captions)))).with_gold()
        return found if found is not None and found.captions else None

    def _given(self, run: Run, data: Any, say: Say | None) -> CaptionSource:
        if isinstance(data, CaptionSource):
            return data
        if data:
            if len(data) > 1:
                raise ConfigError("images with captions are in one table or one folder")
            given = open_given(data[0], run.config.data, "test") or open_given(data[0], run.config.data)
            assert given is not None
            if say is not None:
                for note in given.notes:
                    say(note)
            return given
        given = captioned_of(run.config, "test") or training_images(run.config)[1]
        if given is None:
            raise ConfigError("nothing to evaluate on: the run names no test or validation images; give some")
        return given

    def _scored(self, run: Run, given: CaptionSource, options: CaptioningOptions, how: Measuring) -> JsonObject:
        count = len(given.captions) if options.limit is None else min(options.limit, len(given.captions))
        given, config = given.select(range(count)), run.decode_config(**how.decode)
        captioner, found = run.captioner, []
        read = given.images.read(captioner.reader.channels, captioner.reader.fit)
        while part := list(islice(read, 4 * BATCH)):
            numbers = range(len(found), len(found) + len(part))
            found += [best[0] for best in captioner.caption(part, config, numbers=numbers)]
            if how.progress is not None:
                how.progress(len(found), count)
        texts, references = [one.text for one in found], [list(one) for one in given.captions]
        if how.out is not None:
            for text in texts:
                how.out(text)
        cut = sum(not one.finished for one in found)
        if how.say is not None and (note := captioner.cut_note(cut, count, config)):
            how.say(note)
        scores = corpus_scores(texts, references, lowercase=options.lowercase, tokenize=options.tokenize)
        return {
            "images": count,
            "references": sum(map(len, references)),
            "cut": cut,
            **scores.to_mapping(),
            "decode": {"beam": config.beam, "length_penalty": config.length_penalty, "length_form": config.length_form},
        }

    def show(self, scores: Mapping[str, Any]) -> str:
        lines = [*_shown(scores)]
        if held := scores.get("combinations"):
            lines += ["colours and shapes that training never had together:", *(f"  {one}" for one in _shown(held))]
        if pointing := scores.get("pointing"):
            low, high = pointing["hits_interval"]
            head = f"head {pointing['head']} of {pointing['attention']}"
            lines += [
                f"where {head} (chosen on {pointing['chosen_on']}) looked when it wrote {pointing['nouns']:,} nouns:",
                f"  pointing game    {100 * pointing['hits']:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]  "
                f"(chance {100 * pointing['chance_hits']:.2f} %)",
                f"  weight in boxes  {100 * pointing['share']:.2f} %  (chance {100 * pointing['chance_share']:.2f} %)",
            ]
        return "\n".join(lines)

    def compared(self, run: Run, limit: int | None, progress: Progress | None) -> JsonObject:
        how = Measuring(options=CaptioningOptions(limit=limit), decode={"beam": 1}, progress=progress)
        return self.evaluate(run, how=how)

    def look(self, run: Run, inputs: Sequence[Any], wanted: LookOptions, **decode: Setting) -> Document:
        from regard.tasks.looking.caption_runs import caption_document

        return caption_document(run, inputs, wanted, **decode)

    def looks(self, run: Run) -> bool:
        return True

    def requested(self, run: Run, given: Sequence[Any]) -> list[Any]:
        return [pixels for _, pixels in sent_images(run, given)]

    def size(self, item: Sized) -> int:
        return 1  # an image, brought to the one size that the model reads

    def probes(self, run: Run, data: Any, limit: int) -> list[Probe]:
        given = self._given(run, data, None)
        return caption_probes(run, given.select(range(min(limit, len(given.captions)))))

    def probe_batch(self, run: Run, items: Sequence[Probe]) -> CaptionedImages:
        return probe_images(run, items)

    def held_out_data(self, run: Run, files: Sequence[str] | None, limit: int) -> HeldOutData:
        given = open_given(files[0], run.config.data) if files else captioned_of(run.config, "valid")
        given = given or training_images(run.config)[1] or captioned_of(run.config, "test")
        if given is None:
            raise ConfigError("nothing to score heads by: the run names no validation or test images; give some")
        return HeldOutCaptions(run, given, limit)

    def example(self, config: RunConfig, length: int, rows: int = 1) -> CaptionedImages:
        model = config.model_config()
        pixels = torch.zeros(rows, model.channels, model.image_size, model.image_size)
        target = full_rows(torch.full((rows, length + 1), FIRST_TOKEN))
        return CaptionedImages(pixels, target, rows * length, model.places)

    def random_batches(self, config: RunConfig, count: int) -> tuple[RunConfig, Objective, list[CaptionedImages]]:
        generator, config = torch.Generator().manual_seed(0), config.with_stand_ins()
        model = config.model_config()
        length = min(config.data.max_len, model.max_len)
        rows = max(1, config.train.batch_tokens // (model.places + length))

        def batch() -> CaptionedImages:
            pixels = torch.randn(rows, model.channels, model.image_size, model.image_size, generator=generator)
            ids = torch.randint(FIRST_TOKEN, model.vocab_size, (rows, length), generator=generator)
            return CaptionedImages(pixels, full_rows(ids), rows * (length - 1), model.places)

        objective = Captioning(config.train.smoothing, model.place_penalty)
        return config, objective, [batch() for _ in range(count)]


def _shown(scores: Mapping[str, Any]) -> list[str]:
    low, high = scores["exact_match_interval"]
    least, most = scores["bleu_interval"]
    return [
        f"images           {scores['images']:,}  against {scores['references']:,} captions, "
        f"beam {scores['decode']['beam']}",
        f"exact match      {100 * scores['exact_match']:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]",
        f"BLEU             {scores['bleu']:.2f}  [{least:.2f}, {most:.2f}]  {scores['bleu_signature']}",
    ]


TASK = CaptioningTask()
