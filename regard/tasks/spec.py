"""The contract of a task: everything that is particular to one kind of work, so that nothing else has to know it.

Trainer, decoder, viewer, server, command line and exporters ask a run's task and never compare its name. A new kind of
work is one file with a `Task` in it, here or in a package of its own that names it as an entry point `regard.tasks`.
"""

import glob
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

from regard import errors
from regard.config import JsonObject, Setting
from regard.errors import ConfigError, RunError
from regard.plugins import Registry

if TYPE_CHECKING:
    from torch import nn

    from regard.data import Position
    from regard.data.mixing import Mix
    from regard.look.document import Document
    from regard.tasks.config import RunConfig
    from regard.tasks.looking.look_options import LookOptions
    from regard.tasks.planning import Choices, Machine, Recognised
    from regard.tasks.probes import HeldOutData, Probe
    from regard.tasks.run import Run
    from regard.training.objectives import Objective

Progress = Callable[[int, int], None]
"""Is told how many are done, and of how many."""

Say = Callable[[str], None]
Options = TypeVar("Options")

UNKNOWN_SHOWN = 12
"""How many unknown words are named."""

WordIds = Callable[[Sequence[str]], list[int]]
"""Gives each word an id of its own."""

GradientSide = tuple[str, list[int], list[str]]
"""A side of an input: its name, its ids (one more than read where the last is only predicted), its pieces as read."""

OF_PAIRS = (
    "tokenizer.joint",
    "tokenizer.source_kind",
    "tokenizer.target_kind",
    "tokenizer.dropout",
    "tokenizer.variants",
    "tokenizer.taken_from",
    "tokenizer.retrain",
)
"""Settings of tokenizers that apply to two sides alone."""


def check_length(length: int) -> None:
    if length < 2:
        raise ConfigError(f"data.max_len={length} must be at least 2")


def check_held_out(share: float) -> None:
    if not 0.0 <= share < 1.0:
        raise ConfigError(f"data.held_out={share} must be at least 0 and below 1")


def check_columns(**columns: str | int | None) -> None:
    """Refuse a number that no column has."""
    for name, column in columns.items():
        if isinstance(column, int) and column < 1:
            raise ConfigError(f"data.{name}={column} must be the name of a column or its number, from 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """What every task's `[data]` has: files to train, validate and test on, and where prepared data is kept."""

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    cache: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MixedFiles(Files):
    """Files to train on, or several corpora of them by name, mixed.

    `corpora` has for each name what `train` has without: a file, or a list of files, folders and patterns. `mix` are
    their weights: the shares of an epoch. Without weights a corpus's share is its size to the power of 1 /
    `temperature`. `workers` processes tokenise; 0 tokenises in this process, on all cores.
    """

    corpora: Mapping[str, Any] = field(default_factory=dict)
    mix: Mapping[str, Any] = field(default_factory=dict)
    temperature: float = 1.0
    workers: int = 0


@runtime_checkable
class Mixes(Protocol):
    """A `[data]` section that may name several corpora."""

    @property
    def train(self) -> tuple[str, ...]: ...

    @property
    def corpora(self) -> Mapping[str, Any]: ...

    @property
    def mix(self) -> Mapping[str, Any]: ...

    @property
    def temperature(self) -> float: ...

    @property
    def workers(self) -> int: ...


def check_mixed(data: Mixes) -> None:
    """Refuse corpora that cannot be mixed."""
    if data.workers < 0:
        raise ConfigError(f"data.workers={data.workers} must not be negative; 0 tokenises in this process")
    if data.corpora and data.train:
        raise ConfigError("data.train and data.corpora both say what to train on; give one")
    for name, files in data.corpora.items():
        listed = [files] if isinstance(files, str) else files
        if not isinstance(listed, (list, tuple)) or not all(isinstance(one, str) for one in listed):
            raise ConfigError(f"data.corpora.{name}={files!r} must be the name of a file, or a list of names")
        if not listed:
            raise ConfigError(f"data.corpora.{name} names no files")
    if (data.mix or data.temperature != 1) and len(data.corpora) < 2:
        setting = f"data.mix={dict(data.mix)}" if data.mix else f"data.temperature={data.temperature}"
        raise ConfigError(f"{setting} mixes the corpora of data.corpora, which has {len(data.corpora)}; it takes two")
    mix_of(data)


def corpus_files(data: object) -> dict[str, tuple[str, ...]]:
    """The names of the files of each corpus that a `[data]` section names."""
    corpora = data.corpora if isinstance(data, Mixes) else {}
    return {name: (given,) if isinstance(given, str) else tuple(given) for name, given in corpora.items()}


def mix_of(data: object) -> "Mix | None":
    """How the corpora of a `[data]` section are mixed, where there are several."""
    if not isinstance(data, Mixes) or len(data.corpora) < 2:
        return None
    from regard.data.mixing import Mix

    return Mix(tuple(data.corpora), data.mix, data.temperature)


@dataclass(frozen=True, kw_only=True, slots=True)
class NoOptions:
    """How a run is measured, where there is nothing to choose."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measuring:
    """How a run is measured: the task's own options, settings of a search where one is made, and who hears of it.

    `out` is given each output as it is found, `progress` how far it has come, `say` what has to be said of the data.
    """

    options: Any = None
    decode: Mapping[str, Any] = field(default_factory=dict)
    out: Callable[[str], object] | None = None
    progress: Progress | None = None
    say: Say | None = None

    def chosen(self, kind: type[Options]) -> Options:
        """The options, or those by default."""
        return kind() if self.options is None else self.options


MEASURING = Measuring()


@runtime_checkable
class Stream(Protocol):
    """Batches without end; `position` is where the next one lies, and a stream started there goes on from it."""

    position: "Position"

    def __next__(self) -> Any: ...

    def batches(self, epoch: int = 0) -> int:
        """How many batches an epoch has."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Prepared(Protocol):
    """A run's data, ready to train on. The trainer knows no more of a task than this."""

    config: "RunConfig"

    @property
    def objective(self) -> "Objective":
        """What turns a batch into a loss."""
        ...

    def stream(self, position: "Position", *, pin: bool, pack: bool) -> Stream:
        """Training batches from `position` on. Each says its `count` of predictions and its real `tokens`."""
        ...

    def validation(self) -> Iterable[Any] | None:
        """Validation batches, each once; None where there is nothing to validate on."""
        ...

    def scores(self, model: "nn.Module") -> dict[str, float]:
        """What a validation shows beside the loss."""
        ...


class Task:
    """One kind of work. Most of it has a default, so that a small task is a small file.

    `data` is the dataclass of its own `[data]` section; `unused` names settings of shared sections, or whole sections,
    that do not apply to it. `parts` are what a loaded run works with, each made when it is first asked for, and
    `methods` are what a user calls on a run: both become attributes of a `Run` of this task.
    """

    name: ClassVar[str]
    about: ClassVar[str] = ""
    data: ClassVar[type[Any]] = Files
    unused: ClassVar[tuple[str, ...]] = ()
    sources: ClassVar[tuple[str, ...]] = ("train",)
    """Settings of `[data]` that each say what to train on: a layer of settings that has one replaces those below."""
    row_columns: ClassVar[tuple[str, ...]] = ()
    """Settings of `[data]` that name the columns of a row, in the order of a row without names; none where no rows are
    read."""
    evaluation: ClassVar[type[Any]] = NoOptions
    """The options of measuring a run, as a dataclass whose fields are the command's options."""
    parts: ClassVar[Mapping[str, Callable[["Run"], Any]]] = {}
    methods: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    trains: ClassVar[bool] = True
    has_tokenizer: ClassVar[bool] = True
    hears: ClassVar[bool] = False
    """Whether its inputs are sounds, of which a part can be looked at."""
    reads_text: ClassVar[bool] = True
    """Whether its inputs are texts; of other ones `requested` reads a request's, and `size` says how large they are."""
    one_shape: ClassVar[bool] = False
    """Whether its batches have one shape, packed or not."""
    has_lengths: ClassVar[bool] = False
    """Whether its batches are pairs of given lengths, which `regard bench train` times beside a peer."""
    searches: ClassVar[bool] = False
    """Whether its outputs are searched for: looking into a run then takes settings of a search, and targets."""
    takes_targets: ClassVar[bool] = False
    """Whether looking into a run takes targets though nothing is searched for."""
    keeps_decoding: ClassVar[bool] = False
    """Whether a run that starts from another of this task decodes as that does."""
    lifts_limits: ClassVar[bool] = False
    """Whether an output may grow as long as its model can write (`max_len=none`)."""
    sides: ClassVar[int] = 1
    """How many sequences an input has, as counted by `regard describe`."""
    unit: ClassVar[str] = "texts"
    """What is counted while a run is measured."""
    loss_unit: ClassVar[str] = "nats"
    """What the loss of one prediction is counted in; empty where it has no unit."""

    def applies(self, name: str) -> bool:
        """Whether a setting of a shared section, such as `train.r_drop`, or a whole section, applies to this task."""
        return name not in self.unused and name.partition(".")[0] not in self.unused

    def recognise(self, files: Sequence[Path]) -> "Recognised | None":
        """How sure it is that these files are for this task, and how they are then read; None where they are not."""
        return None

    def statistics(self, data: Any) -> Any:
        """A look at the files that a `[data]` section names: what `plan` decides by, with `findings` of what is odd."""
        raise ConfigError(f"a run for {self.name} is not planned from its data: name a preset, see `regard presets`")

    def plan(self, statistics: Any, machine: "Machine", base: JsonObject | None) -> "Choices":
        """What to train on data like this on that machine, from nothing or from the run with the settings `base`."""
        raise NotImplementedError

    def check(self, config: "RunConfig") -> None:
        """Refuse settings that cannot go together, before any data is read."""

    def check_files(self, config: "RunConfig", say: Say) -> None:
        """Refuse, before any work is done, files that cannot be used."""
        for part in ("train", "valid", "test"):
            for file in getattr(config.data, part):
                if not (Path(file).exists() or any(glob.iglob(file, recursive=True))):
                    raise ConfigError(f"no such file or folder: {file}")

    def prepare(
        self, config: "RunConfig", directory: Path, report: "Report", *, new: bool
    ) -> "tuple[RunConfig, Prepared]":
        """The data ready to train on. For a new run this also writes what must lie in its directory, such as the
        tokenizer, and returns the configuration with what only the data could tell, such as a vocabulary's size."""
        raise ConfigError(f"a run for {self.name} is not trained: name a preset for what to do with it")

    def evaluate(self, run: "Run", data: Any = None, how: "Measuring" = MEASURING) -> JsonObject:
        """Scores as one JSON-ready object, on `data`: names of files, or what this task reads files as.

        By default it is the run's own test or validation set.
        """
        raise ConfigError(f"a run for {self.name} has nothing to be scored on")

    def show(self, scores: Mapping[str, Any]) -> str:
        """Scores for a person, every one with its setting."""
        return "\n".join(f"{name.replace('_', ' '):18} {value}" for name, value in scores.items())

    def compared(self, run: "Run", limit: int | None, progress: Progress | None) -> JsonObject:
        """What `regard compare` measures of a run."""
        return self.evaluate(run, how=Measuring(progress=progress))

    def headline(self, scores: Mapping[str, Any]) -> dict[str, str]:
        """What of those a comparison's table shows, by the names of its columns; none leaves the usual ones of text."""
        return {}

    def look(self, run: "Run", inputs: Sequence[Any], wanted: "LookOptions", **decode: Setting) -> "Document":
        """What the viewer shows of these inputs."""
        raise RunError(f"{run.directory} is a run for {self.name}, which cannot be looked into")

    def looks(self, run: "Run") -> bool:
        """Whether a run can be looked into by requests that hold texts or numbers."""
        return False

    def inputs(self, run: "Run", words: Sequence[str], file: Path | None) -> list[Any]:
        """What a command line, or a file that it names, gives to look at: by default texts, one per line."""
        from regard.tasks.corpora import lines_of

        return lines_of(words, file)

    def several(self, inputs: Any) -> list[Any]:
        """What Python gives, one input or several, as a list."""
        if isinstance(inputs, str | Path | Mapping) or not isinstance(inputs, Iterable):
            return [inputs]
        return list(inputs)

    def requested(self, run: "Run", given: Sequence[Any]) -> list[Any]:
        """The same of a request over HTTP."""
        return list(given)

    def size(self, item: Sized) -> int:
        """How many items such an input has, where it is no text."""
        return len(item)

    def unknown_words(self, run: "Run", text: str) -> tuple[str, ...]:
        """The words of an input, or its characters, that the run does not know and so reads as one and the same."""
        return ()

    def unknown_note(self, run: "Run", words: Sequence[str]) -> str:
        """What is said of words that were unknown, with what to do about it."""
        shown = ", ".join(words[:UNKNOWN_SHOWN]) + (
            f" and {len(words) - UNKNOWN_SHOWN} more" if len(words) > UNKNOWN_SHOWN else ""
        )
        unit = "character" if run.config.tokenizer.kinds[0] == "character" else "word"
        return f"unknown to this run, and all read as one {unit}: {shown}"

    def reads_english(self, run: "Run") -> bool:
        """Whether a run writes a translation of English, whose pronouns can then be asked about."""
        return False

    def has_gold(self, run: "Run", data: object) -> bool:
        """Whether the bundled corpus's pronouns are known of this data, or of the run's own where none is given."""
        return False

    def probes(self, run: "Run", data: Any, limit: int) -> "list[Probe]":
        """Inputs that heads are asked about, each with the right places to look: see `regard.analysis.head_roles`."""
        raise ConfigError(f"heads are given roles where a run reads text with attention, not in one for {self.name}")

    def probe_batch(self, run: "Run", items: "Sequence[Probe]") -> Any:
        """Those inputs as a batch."""
        raise NotImplementedError

    def held_out_data(self, run: "Run", files: Sequence[str] | None, limit: int) -> "HeldOutData":
        """Held-out data to score heads by."""
        raise ConfigError(f"heads of a run for {self.name} cannot be scored")

    def length(self, config: "RunConfig", length: int | None) -> int:
        """How many tokens of a side are counted by `regard describe`: by default 32, or as many as the model reads."""
        return min(32, config.model_config().max_len) if length is None else length

    def example(self, config: "RunConfig", length: int, rows: int = 1) -> Any:
        """A batch of full rows, labels included: what counting operations needs. Its content means nothing."""
        raise ConfigError(f"the work of a run for {self.name} cannot be counted")

    def rows(self, batch: Any) -> int:
        """How many rows a batch has."""
        return len(batch.labels)

    def random_batches(self, config: "RunConfig", count: int) -> "tuple[RunConfig, Objective, list[Any]]":
        """The configuration with what only data could tell, the objective, and batches of random content."""
        raise ConfigError(f"training is not timed for {self.name}")

    def gradient_sides(self, run: "Run", text: str, target: str | None) -> "list[GradientSide]":
        """A text as the run's own tokens, for `regard look --gradients`."""
        raise ConfigError(f"gradients by step are for translation and language models, not for task='{self.name}'")

    def gradient_words(self, words: Sequence[str], target: Sequence[str] | None, ids: WordIds) -> "list[GradientSide]":
        """The same for fresh weights, each word an id of its own by `ids`."""
        raise ConfigError(f"gradients by step are for translation and language models, not for task='{self.name}'")


TASKS: Registry[Task] = Registry(
    "regard.tasks",
    "task",
    {
        "translation": "regard.tasks.translation:TASK",
        "language": "regard.tasks.language:TASK",
        "masking": "regard.tasks.masking:TASK",
        "classification": "regard.tasks.classification:TASK",
        "tagging": "regard.tasks.tagging:TASK",
        "answering": "regard.tasks.answering:TASK",
        "embedding": "regard.tasks.embedding:TASK",
        "images": "regard.tasks.images:TASK",
        "pointing": "regard.tasks.pointing:TASK",
        "captioning": "regard.tasks.captioning:TASK",
        "summarization": "regard.tasks.summarization:TASK",
        "sources": "regard.tasks.several_sources:TASK",
        "whisper": "regard.tasks.whisper:TASK",
        "transcribing": "regard.tasks.transcribing:TASK",
        "parsing": "regard.tasks.parsing:TASK",
    },
)


def field_names(kind: type[Any]) -> set[str]:
    """The fields of a dataclass."""
    return {field.name for field in fields(kind)}


@runtime_checkable
class Report(Protocol):
    """Is told what is being done, how far it has come, and how each logged step and each validation went."""

    def say(self, text: str) -> None: ...

    def progress(self, what: str, pairs: int) -> None: ...

    def step(self, values: Mapping[str, Any], total: int) -> None: ...

    def validation(self, values: Mapping[str, Any]) -> None: ...


@runtime_checkable
class TellsOutputs(Protocol):
    """Prepared data that tells a report what its validations write."""

    report: Report


@runtime_checkable
class FollowsUpdates(Protocol):
    """A report that also wants to hear of every update: how many are made, first those that were there at the start.

    What an update's loss was is not said, for that would keep a GPU waiting.
    """

    def updated(self, number: int, total: int) -> None: ...


@runtime_checkable
class FollowsCounts(Protocol):
    """A report that also wants to hear of how many of all of them something is done, where that is known."""

    def counted(self, what: str, done: int, total: int) -> None: ...


@runtime_checkable
class FollowsWarnings(Protocol):
    """A report that wants to hear apart from the rest what is not as it was asked for or as it should be: rows that are
    left out, settings that change nothing, a training that goes badly. Others are told it by `say`."""

    def warn(self, text: str) -> None: ...


def warn(report: Report, text: str) -> None:
    """Tell a report of something that is not as it was asked for or as it should be."""
    (report.warn if isinstance(report, FollowsWarnings) else report.say)(text)


class Silence:
    """Hears everything and shows nothing."""

    def say(self, text: str) -> None: ...

    def progress(self, what: str, pairs: int) -> None: ...

    def step(self, values: Mapping[str, Any], total: int) -> None: ...

    def validation(self, values: Mapping[str, Any]) -> None: ...


class OnlyWarnings:
    """Who is told where no report is given: warnings become `regard.RegardWarning`, and the rest is not shown."""

    def warn(self, text: str) -> None:
        errors.warn(text)

    def say(self, text: str) -> None: ...

    def progress(self, what: str, pairs: int) -> None: ...

    def step(self, values: Mapping[str, Any], total: int) -> None: ...

    def validation(self, values: Mapping[str, Any]) -> None: ...
