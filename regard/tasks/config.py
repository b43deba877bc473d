"""A run's settings: what data, which tokenizer, which model, how to train it and how to decode with it."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from regard import config as settings
from regard.data.formats import Header
from regard.data.images.config import ImageConfig
from regard.data.puzzles import PUZZLES, puzzle_named
from regard.data.world import Grammar
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError, nearest
from regard.models import MODELS
from regard.models.protocols import Capabilities, Carries, capabilities
from regard.models.sizes import check_sizes, check_table
from regard.tasks.concerns import concerns, refuse_strangers
from regard.tasks.starting import started_from
from regard.text import TokenizerConfig, Vocabularies
from regard.training.config import TrainConfig

ENCODER_HEADS = {
    "masking": ("pretraining", "words"),
    "classification": ("classes",),
    "tagging": ("tags",),
    "answering": ("spans",),
}
"""What a model without a decoder needs for its task."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """Where data comes from: pairs for translation, running text for language models, pictures with classes.

    Pairs are in two line-aligned files, in one `.tsv`, `.csv`, `.jsonl` or `.parquet`, or in the bundled corpus. All
    but `.parquet` may be compressed too: `.gz`, `.bz2`, `.xz`.

    `source` and `target` name the two sides: the keys of JSONL, the columns of Parquet, the languages `en` and `fr` of
    the bundled corpus, in either direction. `world` is how many bundled pairs to train on; its own held-out sentences
    then serve for validation and test. `world_grammar` is the whole grammar or the plain part of it. `overlong` says
    what becomes of pairs longer than `max_len` tokens.

    Running text is in any number of files and folders. Of it, `max_len` is the length of a window, `text` the key of
    JSONL or the column of Parquet, and `isolate` hides the documents of one window from each other. `carry` reads it in
    streams, in which a model's state at the end of a window is its state at the start of the next.

    Of labelled texts, `text`, `pair` and `label` are the keys or columns of the text, of a second one where there are
    two, and of the label. A column may also be given by its number, from 1. `header` says whether the first row of a
    TSV or CSV names its columns; `auto` takes it for that where it holds their names, and says so.

    For masked words, `mask` is the share of tokens that are hidden, and `whole_words` hides all pieces of a word or
    none.

    Pictures are in a folder with one for each class, in an `.npz`, or in two `.npy`.

    `puzzle` is what a pointing model learns: `sort`, `hull` or `tsp`. Its problems are in `.jsonl` or `.csv` files or,
    without any, drawn afresh for every batch, with as many items as `puzzle_sizes` says: the fewest and the most.
    """

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    world: int = 0
    world_seed: int = 1
    world_grammar: Grammar = "whole"
    source: str | int = "en"
    target: str | int = "fr"
    max_len: int = 256
    overlong: Literal["skip", "truncate", "refuse"] = "skip"
    text: str | int = "text"
    pair: str | int | None = None
    label: str | int = "label"
    header: Header = "auto"
    mask: float = 0.15
    whole_words: bool = False
    isolate: bool = False
    carry: bool = False
    puzzle: str | None = None
    puzzle_sizes: tuple[int, ...] = (10, 10)
    cache: str | None = None

    def __post_init__(self) -> None:
        if self.world and self.train:
            raise ConfigError("data.train and data.world are two sources of training pairs; give one")
        if self.world and {self.source, self.target} != {"en", "fr"}:
            raise ConfigError(f"the bundled corpus has en and fr, not {self.source} and {self.target}")
        for name in ("source", "target", "text", "pair", "label"):
            if isinstance(number := getattr(self, name), int) and number < 1:
                raise ConfigError(f"data.{name}={number} must be the name of a column or its number, from 1")
        if not 0.0 < self.mask < 1.0:
            raise ConfigError(f"data.mask={self.mask} must be above 0 and below 1")
        if self.max_len < 2:
            raise ConfigError(f"data.max_len={self.max_len} must be at least 2")
        if self.puzzle is not None:
            least = puzzle_named(self.puzzle).fewest
            if len(self.puzzle_sizes) != 2 or not least <= self.puzzle_sizes[0] <= self.puzzle_sizes[1]:
                raise ConfigError(
                    f"data.puzzle_sizes={list(self.puzzle_sizes)} must be the fewest and the most items of a problem, "
                    f"at least {least} for '{self.puzzle}'"
                )


SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "images": ImageConfig,
    "tokenizer": TokenizerConfig,
    "train": TrainConfig,
    "decode": DecodeConfig,
}
"""All sections but the model's, whose settings are its architecture's own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """All sections of a configuration file. `model` has the architecture's `name` and that architecture's settings."""

    model: dict[str, Any]
    task: str = "translation"
    data: DataConfig = field(default_factory=DataConfig)
    images: ImageConfig = field(default_factory=ImageConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def with_vocabularies(self, vocabularies: Vocabularies) -> "RunConfig":
        """The configuration with the model's vocabulary sizes filled in."""
        sizes = {
            "source_vocab_size": vocabularies.source.vocab_size,
            "target_vocab_size": vocabularies.target.vocab_size,
            "vocab_size": vocabularies.target.vocab_size,
        }
        return replace(self, model={**self.model, **{name: sizes[name] for name in self._sizes()}})

    def model_config(self) -> Any:
        """The architecture's own configuration, checked."""
        kind, _ = self.architecture()
        own = {key: value for key, value in self.model.items() if key != "name"}
        check_sizes(own)
        config = settings.from_mapping(kind, own, "model")
        check_table(config)
        return config

    def architecture(self) -> tuple[type, type]:
        name = self.model.get("name")
        if name not in MODELS:
            raise ConfigError(f"unknown model '{name}'{nearest(str(name), MODELS)}")
        return MODELS[name]

    def capabilities(self) -> Capabilities:
        """What the configured model offers."""
        return capabilities(self.architecture()[1])

    def check(self) -> None:
        """Refuse impossible model settings now, before any data is read, with stand-ins for the vocabulary sizes."""
        longest = self.with_stand_ins().model_config().max_len
        self._check_task()
        if self.task == "images":
            self._check_images(longest)
        refuse_strangers({name: getattr(self, name) for name in SECTIONS}, self.task)
        if self.train.pack == "always" and self.task != "translation":
            raise ConfigError(f"train.pack='always' is for task='translation', not for task='{self.task}'")
        if self.task == "images":
            return
        if self.data.max_len > longest:
            raise ConfigError(f"data.max_len={self.data.max_len} must be at most model.max_len={longest}")
        if self.train.pack == "always" and not self.capabilities().packs:
            raise ConfigError(f"train.pack='always' cannot be: a {self.model['name']} model reads one sequence a row")
        if self.train.vectors is not None and not {*self.tokenizer.kinds} <= {"word", "spaced"}:
            raise ConfigError(
                f"train.vectors={self.train.vectors} has vectors of words; it needs tokenizer.kind='word' or 'spaced', "
                f"not '{self.tokenizer.kind}'"
            )
        if self.data.carry and not issubclass(self.architecture()[1], Carries):
            raise ConfigError(
                f"data.carry=true cannot be: a {self.model['name']} model has no state to carry from window to window"
            )
        if self.train.cuda_graphs and (self.data.carry or not self._one_shape()):
            what = "carries a state from batch to batch" if self.data.carry else "has batches of many shapes"
            raise ConfigError(f"train.cuda_graphs=true cannot be: this {self.model['name']} model {what}")
        if self.data.isolate and not self.capabilities().packs:
            raise ConfigError(
                f"data.isolate=true cannot be: a {self.model['name']} model reads on from one document to the next"
            )

    def _one_shape(self) -> bool:
        """Whether batches for a GPU have one shape, or few."""
        return self.task == "language" or self.capabilities().packs

    def _check_task(self) -> None:
        fitting = self.capabilities().tasks
        if self.task not in fitting:
            needed = "' or '".join(fitting)
            raise ConfigError(f"task='{self.task}' is not for model '{self.model['name']}', which needs '{needed}'")
        if self.task == "pointing":
            self._check_puzzle()
            return
        self._check_head()
        if self.task in ("language", "masking"):
            if self.data.world:
                raise ConfigError(f"data.world={self.data.world} asks for pairs; a language model is given data.train")
            if self.train.batch_tokens < self.data.max_len:
                raise ConfigError(
                    f"train.batch_tokens={self.train.batch_tokens} must be at least data.max_len={self.data.max_len}, "
                    f"the length of one window"
                )
            return
        if self.task == "answering" and self.train.smoothing:
            raise ConfigError(f"train.smoothing={self.train.smoothing} must be 0: an answer stands in one place")
        if self.task != "translation":
            return
        if self.model.get("copy"):
            self._check_copying()
        for name in ("train", "valid", "test"):
            if len(getattr(self.data, name)) > 2:
                raise ConfigError(f"data.{name} takes one file of pairs or two line-aligned files")

    def _check_images(self, patches: int) -> None:
        if self.data.world:
            raise ConfigError(f"data.world={self.data.world} asks for pairs; a model of pictures is given data.train")
        if self.train.batch_tokens < patches:
            raise ConfigError(
                f"train.batch_tokens={self.train.batch_tokens} must be at least {patches}, the patches of one picture "
                f"and [CLS]"
            )
        channels = self.model_config().channels
        if self.images.mean and len(self.images.mean) != channels:
            raise ConfigError(f"images.mean has {len(self.images.mean)} numbers for model.channels={channels}")

    def _check_head(self) -> None:
        """Refuse an encoder's head that is not for the task."""
        wanted = ENCODER_HEADS.get(self.task)
        if not wanted:
            return
        head = self.with_stand_ins().model_config().head
        if head not in wanted:
            raise ConfigError(f"model.head='{head}' is not for task='{self.task}', which needs {' or '.join(wanted)}")

    def _check_copying(self) -> None:
        if not self.tokenizer.joint or set(self.tokenizer.kinds) != {"word"}:
            raise ConfigError("model.copy=true copies words: it needs tokenizer.kind='word' and tokenizer.joint=true")
        if self.train.r_drop:
            raise ConfigError(f"train.r_drop={self.train.r_drop} is not for models that copy")

    def _check_puzzle(self) -> None:
        data, longest = self.data, self.with_stand_ins().model_config().max_len
        if data.puzzle is None:
            raise ConfigError(f"data.puzzle says what to learn: {', '.join(PUZZLES)}")
        if self.train.epochs and not data.train:
            raise ConfigError(f"train.epochs={self.train.epochs:g} cannot be: problems drawn afresh never come again")
        if data.world:
            raise ConfigError(f"data.world={data.world} asks for pairs of sentences; a pointing model solves a puzzle")
        if data.puzzle_sizes[1] > longest:
            raise ConfigError(f"data.puzzle_sizes={list(data.puzzle_sizes)} must be at most model.max_len={longest}")
        if self.train.batch_tokens <= 2 * data.puzzle_sizes[1]:
            raise ConfigError(
                f"train.batch_tokens={self.train.batch_tokens} must hold one problem of {data.puzzle_sizes[1]} items, "
                f"its answer and the end: at least {2 * data.puzzle_sizes[1] + 1}"
            )
        if self.train.smoothing:
            raise ConfigError(f"train.smoothing={self.train.smoothing} must be 0: a puzzle has one right answer")
        for name in ("compile", "compile_blocks", "cuda_graphs"):
            if getattr(self.train, name):
                raise ConfigError(f"train.{name}=true is not for pointing models")

    def every_setting(self) -> dict[str, Any]:
        """All settings by section, defaults included, that say something to this kind of run.

        Not the model's vocabulary sizes, which follow from data.
        """
        model = {"name": self.model["name"], **asdict(self.with_stand_ins().model_config())}
        model = {name: value for name, value in model.items() if name not in self._sizes()}
        sections = {
            name: value for name, value in {**asdict(self), "model": model}.items() if concerns(name, self.task)
        }
        return {name: self._concerning(name, value) for name, value in sections.items()}

    def _concerning(self, section: str, value: Any) -> Any:
        """Of a section, the settings that say anything to this kind of run."""
        if not isinstance(value, dict):
            return value
        return {name: one for name, one in value.items() if concerns(f"{section}.{name}", self.task)}

    def with_stand_ins(self) -> "RunConfig":
        """The configuration with vocabularies as large as the tokenizer may make them."""
        return replace(self, model={**self.model, **dict.fromkeys(self._sizes(), self.tokenizer.vocab_size)})

    def _sizes(self) -> list[str]:
        return [field.name for field in fields(self.architecture()[0]) if field.name.endswith("vocab_size")]


def make_config(
    path: Path | None = None,
    preset: str | None = None,
    overrides: Sequence[str] = (),
    extra: Mapping[str, Any] | None = None,
) -> RunConfig:
    """A preset, a file over it, `extra` over that and `section.name=value` overrides over all, checked."""
    mapping: dict[str, Any] = {}
    if preset is not None:
        mapping = settings.merge(mapping, preset_mapping(preset))
    overrides = [_in_a_section(name) for name in overrides]
    for layer in ({} if path is None else settings.read(path), extra or {}):
        mapping = settings.merge(counted_once(mapping, layer), layer)
    mapping = overridden(mapping, overrides)
    mapping.pop("about", None)
    if mapping.get("train", {}).get("start_from"):
        own = settings.merge({} if path is None else settings.read(path), extra or {})
        mapping = started_from(mapping, Path(mapping["train"]["start_from"]), overrides, own)
    if "model" not in mapping:
        raise ConfigError("no model is configured: name a preset or give a configuration file with a [model] section")
    config = settings.from_mapping(RunConfig, mapping)
    config.check()
    return config


COUNTED = {"steps": "epochs", "warmup": "warmup_share"}
"""Settings of training in updates, and those that say the same by the data or as a share."""


def counted_once(below: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """What lies below a layer of settings, without its epochs where the layer counts in steps; the same for warm-up.

    A file that has both, as a run's own, counts in epochs where these are above 0.
    """
    given, own = layer.get("train"), below.get("train")
    if not isinstance(given, Mapping) or not isinstance(own, Mapping):
        return dict(below)
    gone = {other for plain, other in COUNTED.items() if plain in given}
    return {**below, "train": {name: value for name, value in own.items() if name not in gone}}


def overridden(mapping: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The mapping with `section.name=value` overrides laid over it."""
    layer = settings.override({}, overrides)
    given = layer.get("train")
    for plain, other in COUNTED.items():
        if isinstance(given, Mapping) and plain in given and given.get(other):
            raise ConfigError(f"train.{plain} and train.{other} both say how long; give one")
    return settings.override(counted_once(mapping, layer), overrides)


def _in_a_section(setting: str) -> str:
    """The override itself, unless it leaves out its section, which is then said."""
    name = setting.partition("=")[0].strip()
    sections = [section for section, kind in SECTIONS.items() if name in {field.name for field in fields(kind)}]
    sections += ["model"] if any(name in {field.name for field in fields(kind)} for kind, _ in MODELS.values()) else []
    if sections and name not in {field.name for field in fields(RunConfig)}:
        choices = " or ".join(f"{section}.{setting}" for section in sections)
        raise ConfigError(f"'{setting}' names no section; did you mean {choices}?")
    return setting


def presets() -> dict[str, str]:
    """The names of the bundled presets, each with a line about it."""
    return {name: preset_mapping(name).get("about", "") for name in _preset_names()}


def preset_mapping(name: str) -> dict[str, Any]:
    return tomllib.loads(preset_text(name))


def preset_text(name: str) -> str:
    """The preset as it is written."""
    if name not in _preset_names():
        raise ConfigError(f"unknown preset '{name}'{nearest(name, _preset_names())}")
    return (resources.files("regard") / "presets" / f"{name}.toml").read_text(encoding="utf-8")


def _preset_names() -> list[str]:
    folder = resources.files("regard") / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
