"""Captioning: images with captions, to a model that writes what it sees."""

from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import JsonObject, Setting
from regard.data.formats import Header
from regard.data.images import ImageStore, prepare_images
from regard.data.images.captions import CaptionLayout, CaptionSource, caption_batches, open_captioned
from regard.data.images.image_files import LARGEST, Part, decode_image
from regard.data.mixing import even_places
from regard.data.pair_store import Rows
from regard.data.synthetic.scenes import SIDE, DrawnScenes, Language, SceneImages, ScenePart
from regard.errors import ConfigError, DataError
from regard.look.document import Document
from regard.metrics.text import bleu_tokenizer, corpus_bleu, corpus_scores, exact_match
from regard.nn.batch import CaptionedImages
from regard.tasks.config import RunConfig
from regard.tasks.corpora import FIRST_TOKEN, full_rows
from regard.tasks.images import ImageReader, NamedImage, is_one, several_images
from regard.tasks.looking.look_options import LookOptions
from regard.tasks.noun_attention import caption_probes, pointing_scores, probe_images
from regard.tasks.probes import HeldOutData, Probe
from regard.tasks.run import Run
from regard.tasks.spec import (
    MEASURING,
    Files,
    Measuring,
    Report,
    check_columns,
    check_length,
    warn,
)
from regard.tasks.translation_metrics import check_tokenizer, tokenizer_for
from regard.tasks.verbs.caption import WrittenCaption, sent_images
from regard.tasks.writing import (
    UNUSED,
    HeldOutTexts,
    TableTask,
    Writer,
    WritingRun,
    check_budget,
    check_bundled,
    check_single,
    search_settings,
    text_rows,
)
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
        check_bundled(self, "scenes", "images")
        check_length(self.max_len)
        check_columns(image=self.image, caption=self.caption)
        check_single(self)


def scenes_of(config: RunConfig, part: ScenePart) -> SceneImages:
    """The bundled scenes of a part, at the size that the model reads."""
    data, size = config.data, config.with_stand_ins().model_config().image_size
    if part == "train":
        return SceneImages.of(data.scenes, seed=data.scenes_seed, part=part, size=size)
    return SceneImages.of(SCENES_HELD_OUT, seed=0, part=part, size=size)


class CaptioningRun(WritingRun):
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
        super().__init__(config, vocabularies, directory, report)
        self.patches: int = config.model_config().places
        report.say("reading the images")
        self.train = self._store(train, "reading the training images")
        self.rows, self.of = self._captions(train)
        self.valid = valid
        if valid is not None:
            self.valid_store = self._store(valid, "reading the validation images")
            self.valid_rows, self.valid_of = self._captions(valid)
        check_budget(config, self.bounds()[0], "one image and the longest caption")
        beside = "" if valid is None else f", {len(valid.captions):,} images to validate on"
        report.say(f"{len(self.train):,} images with {len(self.of):,} captions{beside}; {self.patches} places each")
        if not config.images.mean:  # the training images' own
            mean, std = self.train.mean_and_std()
            self.config = replace(config, images=replace(config.images, mean=mean, std=std))

    def validation(self) -> Iterator[CaptionedImages] | None:
        if self.valid is None:
            return None
        budget, images = self.config.train.batch_tokens, self.config.images
        return caption_batches(
            pixels_of(self.valid_store), self.valid_rows, self.valid_of, images, budget=budget, patches=self.patches
        )

    def writer(self, model: nn.Module) -> "Captioner":
        return Captioner(model, self.vocabularies, self.config)

    def shown(self, count: int) -> tuple[Sequence[Any], Sequence[Any]]:
        if self.valid is None:
            return (), ()
        places = even_places(len(self.valid.captions), count)
        arrays = [image.transpose(1, 2, 0) for image in pixels_of(self.valid_store)[np.array(places, dtype=int)]]
        return arrays, [list(self.valid.captions[place]) for place in places]

    def scored(self, texts: list[str], references: Sequence[Any]) -> dict[str, float]:
        bleu, _ = corpus_bleu(texts, references, tokenize=bleu_tokenizer(references))
        return {"bleu": bleu, "exact_match": exact_match(texts, references)}

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
        data = self.config.data
        texts = (
            (image, caption)
            for image, captions in enumerate(given.captions)
            for caption in (captions[:1] if data.scenes else captions)
        )
        return text_rows(texts, self.vocabularies, data, partial(warn, self.report), "caption")


def pixels_of(store: "ImageStore | DrawnScenes") -> Any:
    return store.pixels if isinstance(store, ImageStore) else store


class Captioner(Writer[WrittenCaption]):
    """Images in, captions out."""

    rows, outputs, written = BATCH, "captions", WrittenCaption

    def __init__(self, model: Any, vocabularies: Vocabularies, config: RunConfig) -> None:
        super().__init__(model, vocabularies, config)
        self.places: int = self.shape.places
        self.reader = ImageReader(config)

    def read(self, items: Sequence[Any], largest: int = LARGEST) -> list[tuple[str, np.ndarray]]:
        """The name and the pixels of each image: a path, an array, a Pillow image, a `NamedImage`, or a file's bytes,
        perhaps with a name. Such bytes may hold at most `largest` pixels.
        """
        found: list[tuple[str, np.ndarray]] = []
        for number, item in enumerate(items, 1):
            name = self.reader.shown(item) if isinstance(item, str | Path | NamedImage) else f"image {number}"
            named = (name, item) if isinstance(item, bytes) else item
            if isinstance(named, tuple) and len(named) == 2 and isinstance(named[1], bytes):
                name, data = named
                pixels = self.reader.fit(decode_image(data, name, self.reader.channels, largest))
            else:
                pixels = self.reader.pixels([item], number)[0]
            found.append((name, pixels))
        return found

    def batch(self, items: Sequence[np.ndarray], texts: Sequence[Sequence[int]] | None = None) -> CaptionedImages:
        """Images of the model's size, with rows of tokens where these are known, as the model reads them."""
        return CaptionedImages(self.reader.normalised(items), *self.target(texts), self.places).to(self.device)

    caption = Writer.write


def captioner_of(run: Run) -> Captioner:
    """Images in, captions out."""
    return Captioner(run.model, run.vocabularies, run.config)


def caption(run: Run, images: Sequence[Any] | np.ndarray | Tensor, **decode: Setting) -> list[str]:
    """The best caption of each image, a path or an array; `decode` are settings of `DecodeConfig`, such as `beam=5`.

    An array of rows and columns, and perhaps of channels after them, is one image; one of four dimensions is several.
    """
    return [best[0].text for best in captions(run, images, **decode)]


def captions(run: Run, images: Sequence[Any] | np.ndarray | Tensor, **decode: Setting) -> list[list[WrittenCaption]]:
    """For each image its best captions, with scores: `captions(["photo.png"], beam=5, top_beams=5)`."""
    if is_one(images):
        raise DataError("give a list of images, not one: [image]")
    read = [pixels for _, pixels in run.captioner.read(several_images(images))]
    return run.captioner.caption(read, run.decode_config(**decode))


class HeldOutCaptions(HeldOutTexts):
    """Held-out images: exact match of greedy captions."""

    name = "exact match"

    def __init__(self, run: Run, given: CaptionSource, limit: int) -> None:
        self.given, reader = given.select(range(min(limit, len(given.captions)))), run.captioner.reader
        arrays = list(self.given.images.read(reader.channels, reader.fit))
        super().__init__(run, run.captioner, Captioning(), arrays, [one[0] for one in self.given.captions])

    def places(self, writer: Captioner, config: RunConfig) -> int:
        return writer.places

    def score(self, run: Run) -> float:
        return 100 * exact_match(self.best(run.captioner, run.config), [list(one) for one in self.given.captions])


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptioningOptions:
    """How captions are measured: on the first `limit` images, against all captions of each."""

    limit: int | None = None
    lowercase: bool = False
    tokenize: str | None = None

    def __post_init__(self) -> None:
        check_tokenizer(self.tokenize)


class CaptioningTask(TableTask):
    """Images with captions to a model that writes what it sees."""

    name = "captioning"
    about = "a caption of each image"
    data = CaptioningData
    sources = ("train", "scenes")
    evaluation = CaptioningOptions
    unused: ClassVar = (*UNUSED, "images.mixup", "images.cutmix", "decode.shortlist")
    parts: ClassVar = {"captioner": captioner_of}
    methods: ClassVar = {"caption": caption, "captions": captions}
    reads_text = False
    unit = inputs_named = "images"
    rows_named = "images with captions"
    prepared = CaptioningRun
    otherwise = "data.scenes to a number of bundled scenes"

    def opened(self, name: str | Path, data: CaptioningData, part: Part | None = None) -> CaptionSource | None:
        return open_captioned(name, part, keys=(data.image, data.caption), header=data.header)

    def bundled(self, config: RunConfig, part: Part) -> CaptionSource | None:
        return scenes_of(config, part).captioned(config.data.language) if config.data.scenes else None

    def held_out(self, config: RunConfig) -> tuple[float, int]:
        return config.images.held_out, config.images.split_seed

    def count(self, given: CaptionSource) -> int:
        return len(given.captions)

    def texts(self, given: CaptionSource) -> Iterator[str]:
        return (text for several in given.captions for text in several)

    def objective(self, config: RunConfig) -> Objective:
        return Captioning(config.train.smoothing, config.model_config().place_penalty)

    def check(self, config: RunConfig) -> None:
        model = config.with_stand_ins().model_config()
        if config.images.mean and len(config.images.mean) != model.channels:
            raise ConfigError(f"images.mean has {len(config.images.mean)} numbers for model.channels={model.channels}")
        if config.data.scenes and (model.image_size % SIDE or SIDE % model.grid):
            raise ConfigError(
                f"bundled scenes are rendered with {SIDE} pixels on a side or a multiple, in a grid that divides "
                f"{SIDE}: not model.image_size={model.image_size} with model.patch_size={model.patch_size}"
            )

    def evaluate(self, run: Run, data: Any = None, how: Measuring = MEASURING) -> JsonObject:
        """Scores of captions against all references of each image, and where heads looked.

        `data` is a table or a folder. Of bundled scenes, `combinations` has the scores on scenes with colours and
        shapes that training never had together. Where boxes of nouns are known, `pointing` has the scores of the head
        that points best at nouns on validation images, with chance beside them.
        """
        options, config = how.chosen(CaptioningOptions), run.config
        given = self.measured_on(run, data, how.say)
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
        valid = self.part_of(run.config, "valid")
        found = None if valid is None else valid.select(range(min(HEAD_SCENES, len(valid.captions)))).with_gold()
        return found if found is not None and found.captions else None

    def _scored(self, run: Run, given: CaptionSource, options: CaptioningOptions, how: Measuring) -> JsonObject:
        count = len(given.captions) if options.limit is None else min(options.limit, len(given.captions))
        given, config = given.select(range(count)), run.decode_config(**how.decode)
        captioner = run.captioner
        read = given.images.read(captioner.reader.channels, captioner.reader.fit)
        found = self.best_outputs(captioner, read, count, config, how)
        texts, references = [one.text for one in found], [list(one) for one in given.captions]
        tokenize = tokenizer_for(options.tokenize, references, how.say)
        scores = corpus_scores(texts, references, lowercase=options.lowercase, tokenize=tokenize)
        return {
            "images": count,
            "references": sum(map(len, references)),
            "cut": sum(not one.finished for one in found),
            **scores.to_mapping(),
            "decode": search_settings(config),
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

    def look(self, run: Run, inputs: Sequence[Any], wanted: LookOptions, **decode: Setting) -> Document:
        from regard.tasks.looking.caption_runs import caption_document

        return caption_document(run, inputs, wanted, **decode)

    def several(self, inputs: Any) -> list[Any]:
        return several_images(inputs)

    def requested(self, run: Run, given: Sequence[Any]) -> list[Any]:
        return [pixels for _, pixels in sent_images(run, given)]

    def size(self, item: Sized) -> int:
        return 1  # an image, brought to the one size that the model reads

    def probes(self, run: Run, data: Any, limit: int) -> list[Probe]:
        given = self.measured_on(run, data, None)
        return caption_probes(run, given.select(range(min(limit, len(given.captions)))))

    def probe_batch(self, run: Run, items: Sequence[Probe]) -> CaptionedImages:
        return probe_images(run, items)

    def held_out_data(self, run: Run, files: Sequence[str] | None, limit: int) -> HeldOutData:
        return HeldOutCaptions(run, self.held_out_rows(run, files), limit)

    def example(self, config: RunConfig, length: int, rows: int = 1) -> CaptionedImages:
        model = config.model_config()
        pixels = torch.zeros(rows, model.channels, model.image_size, model.image_size)
        target = full_rows(torch.full((rows, length + 1), FIRST_TOKEN))
        return CaptionedImages(pixels, target, rows * length, model.places)


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
