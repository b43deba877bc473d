"""A run directory, loaded: the same one trains on, is used, is evaluated and is looked into."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard import config as settings
from regard.config import JsonObject, Setting
from regard.decode.config import WITHOUT_BEAM, DecodeConfig
from regard.digests import verifying
from regard.errors import ConfigError, DataError, RunError, memory_errors, nearest, warn
from regard.models.protocols import capabilities
from regard.models.size_limits import check_sizes
from regard.nn.quantized import quantize
from regard.plugins import Registry
from regard.runs.checkpoint import check_weights, load_weights_strictly, read_model
from regard.runs.files import CONFIG, MODEL, TOKENIZER, check_config, check_tokenizer, read_json
from regard.tasks.config import RunConfig, as_begun, upgraded
from regard.tasks.fine_tuning import copy_tokenizer
from regard.tasks.spec import TASKS, Measuring, Task, corpus_files, field_names
from regard.tasks.verbs import VERBS, ask
from regard.text import TokenizerConfig, Vocabularies
from regard.text.phrases import phrase_settings

if TYPE_CHECKING:
    from regard.look.document import Document

NOT_DRAWN: dict[str, Setting] = {"temperature": None, "top_k": None, "top_p": None, "min_p": None, "samples": 1}
"""What a search has of the settings that only matter to sampling."""


ANALYSES: Registry[Callable[..., Any]] = Registry(
    "regard.analyses", "analysis", {"heads": "regard.analysis.heads_page:heads_report"}
)
"""What is asked of a run as its method and answered by a room above this one."""


class NotOffered(RunError, AttributeError):
    """What runs of other tasks offer, asked of one that does not."""


class Run:
    """A trained model with everything needed to use it. What else can be asked of it is its task's: `run.translate`."""

    def __init__(
        self,
        directory: Path,
        config: RunConfig,
        vocabularies: Vocabularies | None,
        model: nn.Module,
        precision: str = "float32",
    ) -> None:
        self.directory, self.config, self.precision = directory, config, precision
        self.model: Any = model  # what it offers beside a module is for its task to know
        self._vocabularies = vocabularies

    @property
    def task(self) -> Task:
        """What this run is for."""
        return self.config.kind

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def vocabularies(self) -> Vocabularies:
        """The tokenizers of both sides."""
        if self._vocabularies is None:
            raise RunError(f"{self.directory} is a run for {self.config.task}, which has no tokenizer")
        return self._vocabularies

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "config" not in self.__dict__:
            raise AttributeError(name)
        task = self.task
        if name in task.parts:
            self.__dict__[name] = task.parts[name](self)
            return self.__dict__[name]
        if name in task.methods:
            return partial(task.methods[name], self)
        if name in VERBS and VERBS[name].offered(self):
            return partial(self.ask, name)
        if others := [other.name for other in TASKS.values() if name in {*other.parts, *other.methods}]:
            raise NotOffered(f"{self.directory} is a run for {task.name}, not for {' or '.join(others)}")
        if name in VERBS:
            raise self._not_offered(name)
        raise AttributeError(f"a run has no '{name}'")

    def _not_offered(self, verb: str) -> NotOffered:
        needs = VERBS.named(verb).needs
        why = f"'{verb}' needs {needs}" if needs else f"which has no '{verb}'"
        return NotOffered(f"{self.directory} is a run for {self.task.name}, {'and ' if needs else ''}{why}")

    def put(self, name: str, part: object) -> None:
        """Use this `part` where the task would make its own: another engine for `translator`, say."""
        if name not in self.task.parts:
            raise NotOffered(f"{self.directory} is a run for {self.task.name}, which has no '{name}'")
        self.__dict__[name] = part

    def __repr__(self) -> str:
        parameters = sum(one.numel() for one in self.model.parameters())
        name = self.config.model.get("name")
        what = f"{self.config.task} with a {name} model of {parameters:,} parameters, {self.precision} on {self.device}"
        return f"<Run {self.directory}: {what}; it can {', '.join(self._abilities())}>"

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.task.parts, *self._abilities()})

    def _abilities(self) -> list[str]:
        """What can be asked of it by name."""
        offered = {name for name, verb in VERBS.items() if name.isidentifier() and verb.offered(self)}
        return sorted({*self.task.methods, *offered, "look", "heads"})

    def look(
        self,
        inputs: object,
        *,
        layers: str | Sequence[str] = "*",
        heads: int | Sequence[int] | None = None,
        targets: str | Sequence[str] | None = None,
        vectors: bool | None = None,
        edits: bool = False,
        training: bool = False,
        start: int | float | None = None,
        end: int | float | None = None,
        **decode: Setting,
    ) -> "Document":
        """Where the model looks on these inputs, a text or several: shown as a page in a notebook, saved with `.save`.

        `layers` are names or patterns of attentions, `heads` numbers of heads. With `targets` these are read instead of
        decoding. `vectors` are queries, keys and values, kept where there is room unless said. With `edits`, every head
        is masked in turn to see what becomes of the output; with `training`, every head is measured at every
        checkpoint. Of a sound, the part from `start` to `end` is looked at, in seconds. `decode` are settings of a
        search, such as `beam=5`.
        """
        from regard.tasks.looking import LookOptions, document

        options = LookOptions(
            names=(layers,) if isinstance(layers, str) else tuple(layers),
            heads=heads if heads is None else (heads,) if isinstance(heads, int) else tuple(heads),
            targets=targets if targets is None else (targets,) if isinstance(targets, str) else tuple(targets),
            vectors=vectors,
            edits=edits,
            history=training,
            start=start,
            end=end,
        )
        given = self.task.several(inputs)
        if not given:
            raise ConfigError("there is nothing to look at: give a text, or several")
        return document(self, given, options, **decode)

    def heads(
        self, data: object = None, *, limit: int = 400, progress: Callable[[int, int], None] | None = None
    ) -> dict[str, Any]:
        """What each head does, with the evidence: `regard heads` as a dict, shown as a table in a notebook.

        `data` are files or what the task reads them as; by default the run's own test or validation set.
        """
        return ANALYSES.named("heads")(self, _named(data), limit=limit, progress=progress)

    def ask(self, verb: str, inputs: Iterable[object], **options: object) -> list[Any]:
        """What a verb says of these inputs, as its command does: `run.ask("translate", ["I am a student."], beam=5)`.

        One result per input, as the verb declares it in `regard.tasks.verbs`. A text is one input, and so is an array
        of one image or one sound.
        """
        asked = VERBS.named(verb)
        if not asked.offered(self):
            raise self._not_offered(verb)
        for name in options:
            if name not in (known := field_names(asked.request) - {asked.items}):
                raise ConfigError(f"unknown option '{name}' of {verb}{nearest(name, known)}")
        if not isinstance(inputs, Iterable):
            raise DataError(f"give {verb} a list of inputs, not {inputs!r:.60}")
        return ask(asked, self, asked.without_inputs(**options), self.task.several(inputs))

    def decode_config(self, **decode: Setting) -> DecodeConfig:
        """The run's own way of decoding, with these settings changed.

        A `max_len` that is given is the only limit, unless `max_ratio` or `max_extra` is given with it. None, or
        "none", lifts a limit; a translation is then as long as the model can write. `prefix`, and what is among
        `require` and `forbid`, may be text.
        """
        for name in decode:
            if not self.task.applies(f"decode.{name}"):
                raise ConfigError(f"{name} does not apply to a run for {self.config.task}")
        mapping = settings.to_mapping(self.config.decode, nulls=True)
        decode = self._limits(decode)
        if any(decode.get(name) for name in ("prefix", "require", "forbid")) and self._vocabularies is not None:
            decode = phrase_settings(self._vocabularies.target, decode)
        searched = [f"{name}={decode[name]}" for name in ("beam", "top_beams") if decode.get(name, 1) != 1]
        if decode.get("mbr"):  # which may give several outputs
            searched = [one for one in searched if one.startswith("beam=")]
        sampled = [f"{name}={decode[name]}" for name in ("temperature", "mbr") if decode.get(name)]
        if searched and sampled:
            raise ConfigError(f"{sampled[0]} is for sampling, {searched[0]} is for a search: give one")
        if "beam" in decode and not sampled:  # then the run's own way is not to sample either
            mapping |= {**NOT_DRAWN, "mbr": 0}
        if decode.get("beam") == 1 or sampled:
            mapping |= WITHOUT_BEAM
        if "samples" in decode:
            mapping["mbr"] = 0
        mapping = settings.merge(mapping, decode)
        if isinstance(decode.get("beam"), int) and "top_beams" not in decode:
            mapping["top_beams"] = min(mapping.get("top_beams", 1), mapping["beam"])
        config = settings.from_mapping(DecodeConfig, mapping, "decode")
        for name, beside in (("max_ratio", "max_extra"), ("max_extra", "max_ratio")):
            if decode.get(name) not in (None, "none") and getattr(config, beside) is None:
                raise ConfigError(f"{name}={decode[name]} limits nothing while {beside} is none: give {beside} too")
        return config

    def _limits(self, decode: dict[str, Setting]) -> dict[str, Setting]:
        """The settings with what those that limit an output's length bring along."""
        if "max_len" not in decode:
            return decode
        if decode["max_len"] in (None, "none"):
            if not self.task.lifts_limits:
                raise ConfigError(f"max_len=none is for translations, not for a run for {self.config.task}")
            decode = {**decode, "max_len": self.config.model_config().max_len}
        if "max_ratio" not in decode and "max_extra" not in decode:
            decode = {**decode, "max_ratio": None}
        return decode


PRECISIONS = ("auto", "float32", "bfloat16", "int8")
"""What a run can be loaded in."""


def load(
    directory: str | Path,
    device: str = "auto",
    precision: str = "float32",
    tell: Callable[[str], object] = warn,
    *,
    verify: bool = True,
) -> Run:
    """The run in `directory`, ready to use.

    `precision` is that of its weights: `bfloat16` halves them, for a GPU or a CPU that multiplies such numbers; `int8`,
    for a CPU, has matrices of whole numbers with a scale for each row. `auto` is bfloat16 on a GPU that has it, where
    the model allows, and float32 elsewhere. Log-probabilities are float32 in any case. `tell` hears what is slow here.
    `verify` compares settings, tokenizer and weights with the digests that they were written with.
    """
    directory = Path(directory)
    with verifying(verify):
        config = load_config(directory)
    where = choose_device(device)
    precision = inference_precision(precision, where, config)
    vocabularies = load_vocabularies(directory, config.tokenizer) if config.kind.has_tokenizer else None
    with verifying(verify):
        weights = read_model(directory)
        check_tokenizer(directory)
    with torch.device("meta"):  # shapes alone: a model that its weights do not fit takes no memory
        check_weights(build_model(config), weights, directory / MODEL)
    with memory_errors(lambda: f"while loading {directory}: its weights alone take {_gigabytes(weights):.1f} GB"):
        model = build_model(config)
        load_weights_strictly(model, weights, directory / MODEL)
        if precision == "bfloat16":
            model.to(torch.bfloat16)
            if where.type == "cpu" and not _multiplies_bfloat16():
                slow = "this processor does not multiply such numbers, so float32 or int8 is faster here"
                tell(f"precision=bfloat16: {slow}")
        elif precision == "int8":
            quantize(model)
        return Run(directory, config, vocabularies, model.to(where).eval(), precision)


def _multiplies_bfloat16() -> bool:
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def _gigabytes(weights: Mapping[str, Tensor]) -> float:
    return sum(weight.nbytes for weight in weights.values()) / 1e9


def load_config(directory: Path) -> RunConfig:
    if not directory.is_dir():
        raise RunError(f"no such run: {directory}")
    try:
        found = read_json(directory / CONFIG)
        config = RunConfig.of(as_begun(upgraded(found, directory / CONFIG)))
        check_sizes(config.model)
        check_config(directory, found)
        return config
    except ConfigError as error:
        raise RunError(f"{directory / CONFIG}: {error}") from None


def load_vocabularies(directory: Path, config: TokenizerConfig) -> Vocabularies:
    if not (directory / TOKENIZER).exists():
        raise RunError(f"{directory} is missing its {TOKENIZER}")
    return Vocabularies.load(directory / TOKENIZER, config.eos, config.bos)


def prepared_vocabularies(
    config: RunConfig, directory: Path, trained: Callable[[], Vocabularies], *, new: bool
) -> tuple[RunConfig, Vocabularies]:
    """The run's tokenizers, and its settings.

    Those of a new run are taken from the run it starts from, or from one named for its tokenizer, or newly `trained`.
    """
    if new and config.train.start_from and not config.tokenizer.retrain:
        copy_tokenizer(Path(config.train.start_from), directory / TOKENIZER)
        config = absolute(config)
    elif new:
        taken = config.tokenizer.taken_from
        vocabularies = trained() if taken is None else load_vocabularies(Path(taken), config.tokenizer)
        config = absolute(config.with_vocabularies(vocabularies))
        vocabularies.save(directory / TOKENIZER)
        return config, vocabularies
    return config, load_vocabularies(directory, config.tokenizer)


def build_model(config: RunConfig) -> nn.Module:
    """The configured model with fresh weights, a function of the seed."""
    torch.manual_seed(config.train.seed)
    _, kind = config.architecture()
    return kind(config.model_config())


def choose_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"unknown device '{name}'; use auto, cpu, cuda or mps") from None
    if device.type not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"device '{name}' is not one that regard knows; use auto, cpu, cuda or mps")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"device '{name}' was asked for, but torch finds no GPU of Apple's here: use cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device '{name}' was asked for, but torch finds no GPU")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device '{name}' was asked for, but torch finds {torch.cuda.device_count()} GPUs")
    return device


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the GPU has it."""
    if name == "auto":
        name = "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def inference_precision(name: str, device: torch.device, config: RunConfig) -> str:
    """The precision to load a run in: `auto` chosen by device and model, what cannot be refused."""
    if name not in PRECISIONS:
        raise ConfigError(f"precision={name} must be one of {', '.join(PRECISIONS)}{nearest(name, PRECISIONS)}")
    halves = config.capabilities().halves
    native = device.type == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "auto":
        return "bfloat16" if device.type == "cuda" and native and halves else "float32"
    if name == "int8" and device.type != "cpu":
        raise ConfigError(f"precision=int8 is for a CPU, not for {device}: use device=cpu, or bfloat16 or float32")
    if name == "bfloat16" and not halves:
        raise ConfigError(f"precision=bfloat16 does not apply to a {config.model.get('name')} model; use float32")
    if name == "bfloat16" and not native:
        raise ConfigError(f"precision=bfloat16: {device} does not have it; use float32")
    return name


def packs(model: type[nn.Module], pack: str, device: torch.device) -> bool:
    """Whether several sequences share a row: `auto` is where a GPU trains a model that can tell them apart."""
    return pack == "always" or (pack == "auto" and device.type == "cuda" and capabilities(model).packs)


def absolute(config: RunConfig) -> RunConfig:
    """The configuration with its files named from the root, so that the run can be taken up from anywhere."""
    names = ("train", "valid", "test")
    files: JsonObject = {
        name: tuple(str(Path(file).resolve()) for file in getattr(config.data, name)) for name in names
    }
    cache = None if config.data.cache is None else str(Path(config.data.cache).resolve())
    if named := corpus_files(config.data):
        resolved = {name: [str(Path(file).resolve()) for file in found] for name, found in named.items()}
        files = {**files, "corpora": resolved}
    at = {name: getattr(config.train, name) for name in ("start_from", "vectors")}
    train = replace(
        config.train, **{name: None if path is None else str(Path(path).resolve()) for name, path in at.items()}
    )
    taken = config.tokenizer.taken_from
    tokenizer = replace(config.tokenizer, taken_from=None if taken is None else str(Path(taken).resolve()))
    return replace(config, data=replace(config.data, **files, cache=cache), train=train, tokenizer=tokenizer)


def evaluate(
    run: Run,
    data: object = None,
    *,
    out: Callable[[str], object] | None = None,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = warn,
    **options: object,
) -> JsonObject:
    """Scores of the run on `data`, by default the test set that its configuration names, as one JSON-ready object.

    `data` are names of files, or what the run's task reads them as: pairs, documents, images, problems. `options` are
    the task's own (`limit`, `stride`, `lowercase`, ...) and, where outputs are searched for, settings of the search,
    such as `beam`. `out` is given each output as it is found; `say` hears what has to be said of the data and of
    outputs that were cut, which by default is a `regard.RegardWarning`.
    """
    if not isinstance(run, Run):
        raise ConfigError(f"only a loaded run can be evaluated, regard.load(...), not {run!r:.60}")
    task = run.task
    own = {name: value for name, value in options.items() if name in field_names(task.evaluation)}
    decode = {name: value for name, value in options.items() if name not in own}
    known = {name for name in field_names(DecodeConfig) if task.searches and task.applies(f"decode.{name}")}
    for name in decode:
        if name not in known:
            takes = ", ".join(sorted({*field_names(task.evaluation), *known})) or "none"
            raise ConfigError(f"{name} does not apply to a run for {task.name}; its options: {takes}")
    chosen = settings.from_mapping(task.evaluation, own)
    how = Measuring(options=chosen, decode=decode, out=out, progress=progress, say=say)
    return task.evaluate(run, _named(data), how)


def _named(data: object) -> object:
    """Names of files, also where there is only one; all else as it was given."""
    return [str(data)] if isinstance(data, (str, PathLike)) else data
