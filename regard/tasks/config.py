"""A run's settings: what data, which tokenizer, which model, how to train it and how to decode with it."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from regard import config as settings
from regard.config import JsonObject
from regard.data.images.config import ImageConfig
from regard.decode.config import DecodeConfig
from regard.digests import ALGORITHM
from regard.errors import ConfigError, nearest
from regard.models import MODELS
from regard.models.protocols import Capabilities, capabilities
from regard.models.size_limits import check_sizes, check_table
from regard.runs.files import IDENTITY
from regard.tasks.fine_tuning import settings_from_base, settings_with_tokenizer
from regard.tasks.spec import TASKS, Task, field_names
from regard.text import TokenizerConfig, Vocabularies
from regard.training.config import TrainConfig

FORMAT = 2
"""Of the configuration that is written into a run directory. 0.1.0 wrote none, and all fields for every task."""

STAND_IN_LABELS = 10
"""How many classes or tags there are, where a configuration does not name them yet."""

SECTIONS: dict[str, type] = {
    "images": ImageConfig,
    "tokenizer": TokenizerConfig,
    "train": TrainConfig,
    "decode": DecodeConfig,
}
"""The sections that tasks share. `[data]` is each task's own, `[model]` its architecture's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """All sections of a configuration file. `model` has the architecture's `name` and that architecture's settings.

    `data` is the task's own section: an instance of its `data` class.
    """

    model: JsonObject
    task: str = "translation"
    data: Any = None
    images: ImageConfig = field(default_factory=ImageConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        if self.data is None:
            object.__setattr__(self, "data", self.kind.data())
        assert isinstance(self.data, self.kind.data), f"{type(self.data).__name__} is not the [data] of {self.task}"

    @property
    def kind(self) -> Task:
        """The task that `task` names."""
        return TASKS.named(self.task)

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> "RunConfig":
        """The configuration that a mapping of sections holds; what does not apply to its task is refused by name."""
        mapping = dict(mapping)
        for own in (ALGORITHM, IDENTITY):  # a run's own, which are no settings: see regard.runs.files.write_config
            mapping.pop(own, None)
        form = mapping.pop("format", FORMAT)
        if form != FORMAT:
            raise ConfigError(f"format={form!r} is not {FORMAT}, the one that this version of regard reads")
        task = TASKS.named(mapping.get("task", "translation"))
        data = mapping.pop("data", None) or {}
        if not isinstance(data, Mapping):
            raise ConfigError(f"data={data!r} must be a table of settings")
        check_data_names(task, data)
        config = settings.from_mapping(cls, mapping)
        return replace(config, data=settings.from_mapping(task.data, data, "data"))

    def to_mapping(self) -> JsonObject:
        """The settings that apply, as plain values: what is written into a run directory."""
        whole = settings.to_mapping(self, nulls=True)
        return {
            "format": FORMAT,
            **{name: self._applying(name, value) for name, value in whole.items() if self._has(name)},
        }

    def _has(self, section: str) -> bool:
        return section not in SECTIONS or self.kind.applies(section)

    def _applying(self, section: str, value: Any) -> Any:
        """Of a shared section, the settings that apply to this task."""
        if section not in SECTIONS:
            return value
        return {name: one for name, one in value.items() if self.kind.applies(f"{section}.{name}")}

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
        self._refuse_of_other_models(kind, own)
        config = settings.from_mapping(kind, own, "model")
        check_table(config)
        return config

    def _refuse_of_other_models(self, kind: type, own: Mapping[str, Any]) -> None:
        """Refuse a setting that this model has not and others have."""
        known = field_names(kind)
        for name in own:
            if name not in known and any(name in field_names(other) for other, _ in MODELS.values()):
                model = self.model.get("name")
                raise ConfigError(f"model.{name} does not apply to model '{model}'{nearest(name, known, 'model.')}")

    def architecture(self) -> tuple[type, type]:
        return MODELS.named(self.model.get("name"))

    def capabilities(self) -> Capabilities:
        """What the configured model offers."""
        return capabilities(self.architecture()[1])

    def check(self) -> None:
        """Refuse impossible settings now, before any data is read, with stand-ins for the vocabulary sizes."""
        task, model = self.kind, self.model.get("name")
        longest = self.with_stand_ins().model_config().max_len
        if self.task not in (fitting := self.capabilities().tasks):
            needed = "' or '".join(fitting)
            raise ConfigError(f"task='{self.task}' is not for model '{model}', which needs '{needed}'")
        task.check(self)
        self._refuse_unused()
        if "max_len" in field_names(task.data) and self.data.max_len > longest:
            raise ConfigError(f"data.max_len={self.data.max_len} must be at most model.max_len={longest}")
        if self.train.pack == "always" and not self.capabilities().packs:
            raise ConfigError(f"train.pack='always' is not possible: a {model} model reads one sequence per row")
        if self.train.vectors is not None and not {*self.tokenizer.kinds} <= {"word", "spaced"}:
            raise ConfigError(
                f"train.vectors={self.train.vectors} has vectors of words; it needs tokenizer.kind='word' or 'spaced', "
                f"not '{self.tokenizer.kind}'"
            )
        if self.train.cuda_graphs and not (task.one_shape or self.capabilities().packs):
            raise ConfigError(f"train.cuda_graphs=true is not possible: this {model} model has batches of many shapes")

    def check_head(self, *heads: str) -> None:
        """Refuse an encoder's head that is none of those that its task needs."""
        head = self.with_stand_ins().model_config().head
        if head not in heads:
            raise ConfigError(f"model.head='{head}' is not for task='{self.task}', which needs {' or '.join(heads)}")

    def _refuse_unused(self) -> None:
        """Refuse a setting that is not as it is by default and does not apply to this task."""
        for section, kind in SECTIONS.items():
            usual = kind()
            for name in field_names(kind):
                value = getattr(getattr(self, section), name)
                if value != getattr(usual, name) and not self.kind.applies(f"{section}.{name}"):
                    raise ConfigError(f"{section}.{name}={value!r} does not apply to task='{self.task}'")

    def every_setting(self) -> JsonObject:
        """All settings by section, defaults included, that apply to this task.

        Not the model's vocabulary sizes, which follow from data.
        """
        model = {"name": self.model["name"], **asdict(self.with_stand_ins().model_config())}
        model = {name: value for name, value in model.items() if name not in self._sizes()}
        sections = {**asdict(self), "model": model}
        return {name: self._applying(name, value) for name, value in sections.items() if self._has(name)}

    def with_stand_ins(self) -> "RunConfig":
        """The configuration with vocabularies as large as the tokenizer may make them."""
        return replace(self, model={**self.model, **dict.fromkeys(self._sizes(), self.tokenizer.vocab_size)})

    def with_stand_in_labels(self) -> "RunConfig":
        """The configuration with labels, where it names none yet."""
        if self.model.get("labels"):
            return self
        return replace(self, model={**self.model, "labels": [str(number) for number in range(STAND_IN_LABELS)]})

    def _sizes(self) -> list[str]:
        return [field.name for field in fields(self.architecture()[0]) if field.name.endswith("vocab_size")]


def make_config(
    path: str | Path | None = None,
    preset: str | None = None,
    overrides: str | Sequence[str] = (),
    extra: Mapping[str, Any] | None = None,
    *,
    task: str | None = None,
    data: Mapping[str, Any] | None = None,
    images: Mapping[str, Any] | None = None,
    tokenizer: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
    decode: Mapping[str, Any] | None = None,
) -> RunConfig:
    """A preset, a file over it and settings over both, checked: `make_config("tiny", train={"steps": 100})`.

    `path` is a file of settings or, as text, the name of a preset too. Sections of settings are given by keyword, each
    as a dict; `extra` holds several at once. `overrides` are settings as with `--set`, `section.name=value`, over all.
    """
    if isinstance(path, str):
        if preset is None and path in _preset_names():
            path, preset = None, path
        else:
            path = _settings_file(path)
    elif path is not None:
        path = settings.path_of(path, "the first of make_config")
    mapping: JsonObject = {}
    if preset is not None:
        mapping = settings.merge(mapping, preset_mapping(preset))
    overrides = [_in_a_section(name) for name in settings.listed(overrides)]
    given = {} if path is None else upgraded(settings.read(path), path)
    sections = settings.sections(
        **{"task": task, "data": data, "images": images, "tokenizer": tokenizer},
        **{"model": model, "train": train, "decode": decode},
    )
    extra = settings.merge(extra or {}, sections)
    for layer in (given, extra):
        mapping = settings.merge(sourced_once(counted_once(mapping, layer), layer), layer)
    mapping = overridden(mapping, overrides)
    mapping.pop("about", None)
    if mapping.get("train", {}).get("start_from"):
        own = settings.merge(given, extra)
        mapping = settings_from_base(mapping, Path(mapping["train"]["start_from"]), overrides, own)
    elif mapping.get("tokenizer", {}).get("taken_from"):
        own = settings.merge(given, extra)
        mapping = settings_with_tokenizer(mapping, Path(mapping["tokenizer"]["taken_from"]), overrides, own)
    if "model" not in mapping:
        raise ConfigError("no model is configured: name a preset or give a configuration file with a [model] section")
    config = RunConfig.of(mapping)
    config.check()
    return config


def _settings_file(name: str) -> Path:
    """The file of settings that a text names, which is no preset's name."""
    path = Path(name)
    if path.suffix not in (".toml", ".json") and not path.exists():
        known = _preset_names()
        if name in known:
            raise ConfigError(
                f"two presets are given: '{name}' and that of preset=; settings go into sections or overrides="
            )
        raise ConfigError(f"'{name}' is neither a preset nor a .toml or .json file{nearest(name, known)}")
    return path


COUNTED = {"steps": "epochs", "warmup": "warmup_share"}
"""Settings of training in updates, and those that say the same by the data or as a share."""


def counted_once(below: Mapping[str, Any], layer: Mapping[str, Any]) -> JsonObject:
    """What lies below a layer of settings, without its epochs where the layer counts in steps; the same for warm-up.

    A file that has both, as a run's own, counts in epochs where these are above 0.
    """
    given, own = layer.get("train"), below.get("train")
    if not isinstance(given, Mapping) or not isinstance(own, Mapping):
        return dict(below)
    gone = {other for plain, other in COUNTED.items() if plain in given}
    return {**below, "train": {name: value for name, value in own.items() if name not in gone}}


def sourced_once(below: Mapping[str, Any], layer: Mapping[str, Any]) -> JsonObject:
    """What lies below a layer of settings, without other data to train on where the layer says what to train on."""
    given, own = layer.get("data"), below.get("data")
    if not isinstance(given, Mapping) or not isinstance(own, Mapping):
        return dict(below)
    sources = TASKS.named(layer.get("task", below.get("task", "translation"))).sources
    gone = sources if any(given.get(name) for name in sources) else ()
    return {**below, "data": {name: value for name, value in own.items() if name not in gone}}


def overridden(mapping: Mapping[str, Any], overrides: Sequence[str] | Mapping[str, Any]) -> JsonObject:
    """The mapping with overrides laid over it: `section.name=value`, or sections of settings."""
    layer = dict(overrides) if isinstance(overrides, Mapping) else settings.override({}, overrides)
    given = layer.get("train")
    for plain, other in COUNTED.items():
        if isinstance(given, Mapping) and plain in given and given.get(other):
            raise ConfigError(f"train.{plain} and train.{other} both say how long; give one")
    below = counted_once(mapping, layer)
    return settings.merge(below, layer) if isinstance(overrides, Mapping) else settings.override(below, overrides)


def _in_a_section(setting: str) -> str:
    """The override itself, unless it leaves out its section, which is then said."""
    name = setting.partition("=")[0].strip()
    sections = [section for section, kind in SECTIONS.items() if name in field_names(kind)]
    sections += ["data"] if _with_setting(name) else []
    sections += ["model"] if any(name in field_names(kind) for kind, _ in MODELS.values()) else []
    if sections and name not in field_names(RunConfig):
        choices = " or ".join(f"{section}.{setting}" for section in sections)
        raise ConfigError(f"'{setting}' names no section; did you mean {choices}?")
    return setting


def check_data_names(task: Task, names: Iterable[str]) -> None:
    """Refuse settings of `[data]` that this task has not and others have."""
    for name in names:
        if name not in field_names(task.data) and (others := [one.name for one in _with_setting(name)]):
            raise ConfigError(f"data.{name} does not apply to task='{task.name}': it is for {', '.join(others)}")


def _with_setting(name: str) -> list[Task]:
    """The tasks whose `[data]` has this setting."""
    return [task for task in TASKS.values() if name in field_names(task.data)]


OLD_DATA: JsonObject = {
    **{"train": [], "valid": [], "test": [], "cache": None, "max_len": 256, "overlong": "skip"},
    **{"world": 0, "world_seed": 1, "world_grammar": "whole", "source": "en", "target": "fr"},
    **{"text": "text", "pair": None, "label": "label", "mask": 0.15, "whole_words": False},
    **{"isolate": False, "carry": False, "puzzle": None, "puzzle_sizes": [10, 10]},
}
"""What `[data]` had in 0.1.0, for every task, and its defaults."""


def upgraded(mapping: Mapping[str, Any], path: Path) -> JsonObject:
    """A configuration as this version has it, where 0.1.0 wrote it: without fields that do not apply and say nothing.

    One that does not apply and is not as it is by default stays, and is refused by name.
    """
    if "format" in mapping or path.suffix != ".json" or not isinstance(data := mapping.get("data"), Mapping):
        return {**mapping}
    task = mapping.get("task", "translation")
    if task not in TASKS:
        return {**mapping}
    own = field_names(TASKS[task].data)
    kept = {name: value for name, value in data.items() if name in own or value != OLD_DATA.get(name, _NOTHING)}
    return {**mapping, "data": kept}


_NOTHING = object()


def as_begun(mapping: Mapping[str, Any]) -> JsonObject:
    """A run's configuration, where a version wrote it that lacked a setting with what was so then, if it is not so now:
    the run goes on as it began."""
    task, data = mapping.get("task"), mapping.get("data")
    if not isinstance(task, str) or task not in TASKS or not isinstance(data, Mapping):
        return {**mapping}
    if "lone_labels" not in field_names(TASKS[task].data):
        return {**mapping}
    return {**mapping, "data": {"lone_labels": "valid", **data}}


def presets() -> dict[str, str]:
    """The names of the bundled presets, each with a line about it."""
    return {name: preset_mapping(name).get("about", "") for name in _preset_names()}


def preset_mapping(name: str) -> JsonObject:
    return tomllib.loads(preset_text(name))


def preset_text(name: str) -> str:
    """The preset as it is written."""
    if name not in _preset_names():
        raise ConfigError(f"unknown preset '{name}'{nearest(name, _preset_names())}")
    return (resources.files("regard") / "presets" / f"{name}.toml").read_text(encoding="utf-8")


def _preset_names() -> list[str]:
    folder = resources.files("regard") / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
