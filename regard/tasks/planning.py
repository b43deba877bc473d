"""A run planned from a look at its data and its machine: what was decided, why, and what may be wrong with the data.

Each task recognises its own data and plans its own runs (`Task.recognise`, `Task.statistics`, `Task.plan`). Here is
what they share: the machine, decisions with reasons, recipes and what lies between them, and the plan as a page.
"""

import math
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from numbers import Real
from pathlib import Path
from typing import Any

from regard import config as settings
from regard.config import JsonObject
from regard.data.file_names import is_there, matching_all
from regard.data.inspection import Finding
from regard.data.inspection.findings import counted
from regard.errors import ConfigError, DataError
from regard.models import MODELS
from regard.tasks.config import RunConfig, check_data_names, make_config
from regard.tasks.plans.folders import Parts, listed, parts_in, tables_in
from regard.tasks.plans.refused import described, refuse_foreign
from regard.tasks.spec import TASKS, Report, field_names, warn

CPU_MINUTES, GPU_MINUTES = 10.0, 5.0
"""What a training may take where nothing is said."""

MEASURED_CORES, MEASURED_GPUS = (2, 3, 4), ("H100", "H200", "B100", "B200")
"""Machines about as fast as those that recipes were measured on."""

PLAN = "plan.md"

COLUMNS = {
    "source": "translation",
    "target": "translation",
    "label": "classification",
    "pair": "classification",
    "text": "language",
}
"""Settings of `[data]` that name columns, and the task that they are for where no task takes the data for its own."""

_TARGETS = "raised to what the longest training targets need"
_UPDATES = "goes with the number of updates"
FOUND = {
    **{"decode.max_len": _TARGETS, "decode.max_extra": _TARGETS},
    "train.steps": "see Updates below",
    **dict.fromkeys(("data.train", "data.valid", "data.test"), "as given, with the whole path"),
    **{"train.validate_every": _UPDATES, "train.save_every": _UPDATES, "train.log_every": _UPDATES},
}
"""Why settings are as they are that are known only when the data was read, or updates were timed."""

LONG = 100
"""Characters of a value, such as a list of labels, that the page of a plan shows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What a run is trained on, and for how long."""

    gpu: str | None = None
    cores: int = 2
    compiles: bool = False
    """Whether blocks can be compiled for the GPU."""
    bfloat16: bool = False
    """Whether the CPU has instructions for products of bfloat16; without them they are slower than in float32."""
    budget: float | None = None
    """The minutes that a run may take here, where that was said; 0 where updates or epochs were given instead."""

    @property
    def minutes(self) -> float:
        """What a run may take here."""
        return self.usual_minutes if self.budget is None else self.budget

    @property
    def usual_minutes(self) -> float:
        """What a run may take where nothing is said, which is also what the recipes were measured with."""
        return CPU_MINUTES if self.gpu is None else GPU_MINUTES

    def __str__(self) -> str:
        return self.gpu or f"{self.cores} CPU core" + "s" * (self.cores != 1)

    @property
    def unlike(self) -> str:
        """In brackets, what recipes were measured on, where this machine is much slower or faster."""
        if self.gpu is None:
            return "" if self.cores in MEASURED_CORES else " (recipes were measured on 2)"
        return "" if any(name in self.gpu for name in MEASURED_GPUS) else " (recipes were measured on one H200)"


def this_machine(device: str = "auto") -> Machine:
    """The machine that this process runs on, with its GPU unless another device is asked for."""
    import torch

    from regard.tasks.run import choose_device

    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    chosen = choose_device(device)
    if chosen.type != "cuda":
        narrow = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        bfloat16 = torch.backends.mkldnn.is_available() and any(getattr(torch.cpu, name, bool)() for name in narrow)
        return Machine(cores=min(cores, torch.get_num_threads()), bfloat16=bfloat16)
    compiles = find_spec("triton") is not None and any(map(shutil.which, ("cc", "gcc", "clang")))
    return Machine(gpu=torch.cuda.get_device_name(chosen), cores=cores, compiles=compiles)


MOST_TOKENS = 1024
"""Of a text, by plan: attention to longer ones would take most of the time; `data.max_len` asks for them."""


def room_for(longest: Iterable[int]) -> int:
    """The limit that leaves room for texts of so many tokens, with a beginning and an end."""
    return min(MOST_TOKENS, max(64, 2 ** math.ceil(math.log2(max(longest) + 2))))


@dataclass(frozen=True, slots=True)
class Decision:
    """A setting, what it is to be, and why."""

    name: str
    value: Any
    why: str


class Decisions:
    """Settings that are decided one after the other: called with a name, a value and a reason."""

    def __init__(self) -> None:
        self.made: list[Decision] = []

    def __call__(self, name: str, value: Any, why: str) -> None:
        self.made.append(Decision(name, value, why))

    def usual(self, **values: Any) -> None:
        """Settings of training that are the same in all recipes of a kind of data."""
        for name, value in values.items():
            self(f"train.{name}", value, "as in the recipes")

    def keep_best(self) -> None:
        """Which weights and checkpoints are kept."""
        self("train.choose", "best", "the weights of the best validation are kept, not the last")
        self("train.keep", 1, "one checkpoint to resume from, beside the best")

    def compile(self, machine: Machine, *, graphs: bool = True, blocks: bool = True, narrow: bool = True) -> None:
        """How a GPU is kept busy, with `narrow` numbers where it has them."""
        if machine.gpu is None:
            return
        precision = ("auto", "bfloat16 where the GPU has it") if narrow else ("float32", "as the recipe was measured")
        self("train.precision", *precision)
        if graphs:
            self("train.cuda_graphs", True, "launching small kernels one by one would take most of the time")
        if blocks and machine.compiles:
            self("train.compile_blocks", True, "compiles in seconds and is faster afterwards")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recognised:
    """Data that a task takes for its own: how sure that is, why, and what `[data]` has to say so that it is read."""

    certainty: float
    why: str
    data: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What a task decided for its data: settings with reasons, facts about the data, and how often it may be read.

    `most_epochs` is how often at the most: more would only overfit. With `more_epochs` it is twice as often as long as
    the validation loss has not risen. `unused_parts` of the files are of no use to a run, as those to test on that have
    no labels.
    """

    decisions: tuple[Decision, ...]
    facts: tuple[str, ...] = ()
    most_epochs: float | int = math.inf
    more_epochs: bool = False
    unused_parts: tuple[str, ...] = ()
    none_held_out: str = ""
    """Why nothing of the data can be held out to validate on, where something is to be."""
    longest: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Of pairs, the tokens of the longest source and target at the most, about, by the kind of tokenizer."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Settings for data of a certain size, `measured` on it or chosen for it."""

    name: str
    size: float | int
    settings: Mapping[str, Any]
    measured: bool = True

    @property
    def origin(self) -> str:
        return f"measured on {self.name}" if self.measured else f"chosen for data such as {self.name}, not measured"


_EVEN: dict[str, int] = {"model.width": 64, "model.feed_forward": 64, "train.batch_tokens": 1024}
_LINEAR = ("model.dropout", "model.attention_dropout", "train.r_drop", "train.warmup_share", "train.weight_decay")


def between(recipes: Sequence[Recipe], size: float | int, unit: str) -> tuple[JsonObject, str]:
    """Settings for data of this size, and where they come from: a recipe, or what lies between two."""
    size, ordered = max(1, size), sorted(recipes, key=lambda recipe: recipe.size)
    below = [recipe for recipe in ordered if recipe.size <= size]
    above = [recipe for recipe in ordered if recipe.size > size]
    nearest = min(ordered, key=lambda recipe: abs(math.log(recipe.size / size)))
    if 0.67 < nearest.size / size < 1.5:
        return dict(nearest.settings), f"{nearest.origin}, which has about as many {unit}"
    if not below or not above:
        far = "fewer" if not below else "more"
        return dict(nearest.settings), f"{nearest.origin}; there is no recipe for {far} {unit}"
    low, high = below[-1], above[0]
    part = math.log(size / low.size) / math.log(high.size / low.size)
    found = {
        name: _between(name, low.settings[name], high.settings[name], part)
        if name in low.settings and name in high.settings
        else nearest.settings.get(name)
        for name in {**low.settings, **high.settings}
    }
    why = f"between what was {low.origin} and what was {high.origin}; not measured itself"
    return {name: value for name, value in found.items() if value is not None}, why


def r_drop_why(weight: object) -> str:
    """Why two passes over a batch must agree, or why there is only one."""
    agree = "two passes with different dropout must agree (R-Drop), which helps where data could be memorised"
    return agree if weight else "no R-Drop, whose second pass would make an update take about twice as long"


def _between(name: str, low: Any, high: Any, part: float) -> Any:
    if low == high:
        return low
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (low, high))
    if not numbers:
        return low if part < 0.5 else high
    if name in _LINEAR or min(low, high) <= 0:
        value = low + part * (high - low)
        return round(value * 2) / 2 if name == "train.r_drop" else round(value, 2)
    value = math.exp(math.log(low) + part * (math.log(high) - math.log(low)))
    if isinstance(low, float):
        return float(f"{value:.2g}")
    even = _EVEN.get(name, 1000 if name == "tokenizer.vocab_size" else 1)
    return max(even, even * round(value / even))


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A run as it was planned: its settings, and why. `minutes` is None where the number of updates was given."""

    config: RunConfig
    machine: Machine
    recognised: str
    facts: tuple[str, ...]
    findings: tuple[Finding, ...]
    decisions: tuple[Decision, ...]
    minutes: float | int | None
    most_epochs: float | int = math.inf
    more_epochs: bool = False
    seconds: float = 0.0
    """What the look at the data took."""
    asked: tuple[str, ...] = ()
    """Settings that were given, by name: not the planner's decisions."""

    @property
    def validates_every(self) -> int | None:
        """The updates between validations, where that was given."""
        return self.config.train.validate_every if "train.validate_every" in self.asked else None

    def lines(self) -> list[str]:
        """The plan in a few lines."""
        config, model = self.config, self.config.model
        shape = f"{model['name']}, {model.get('width')} wide" if "width" in model else model["name"]
        said = [f"data: {self.recognised}; {'; '.join(self.facts)}"]
        said += [f"note: {finding.line}" for finding in self.findings]
        tokenizer = config.tokenizer
        kinds = f", {tokenizer.kinds[0]} to {tokenizer.kinds[1]} tokens" if config.kind.sides == 2 else ""
        kinds = kinds or (f", {tokenizer.kind} tokens" if config.kind.has_tokenizer else "")
        said.append(
            f"plan: {config.task}{kinds}; {shape}; on {self.machine}{self.machine.unlike}, {self.budget()}; "
            f"the reasons are in {PLAN}"
        )
        return said

    def tell(self, report: Report) -> None:
        """Tell a report the plan in a few lines, and warn it of what may be wrong with the data."""
        data, *notes, plan = self.lines()
        report.say(data)
        for note in notes:
            warn(report, note)
        report.say(plan)

    def budget(self) -> str:
        if self.minutes is None:
            train = self.config.train
            epochs = f"{train.epochs:g} epoch" + "s" * (train.epochs != 1)
            often = epochs if train.epochs else updates_in_words(train.steps)
            return f"{often} as asked"
        return f"{self.minutes:g} minute" + "s" * (self.minutes != 1) + " in all"

    def page(self, updates: str = "") -> str:
        """The plan as Markdown; `updates` says what the budget came to, which is known once updates were timed."""
        timed = "As many as the budget pays for: updates are timed when training begins."
        updates = updates or (f"{self.budget()}." if self.minutes is None else timed)
        rows = "\n".join(
            f"| `{one.name}` | `{_shown(one.value)}` | {'as asked' if one.name in self.asked else one.why} |"
            for one in self._final()
        )
        notes = "\n".join(f"- **{finding.kind}**: {finding.line}" for finding in self.findings) or "Nothing was found."
        facts = "\n".join(f"- {fact}" for fact in self.facts)
        machine = f"{self.machine}{self.machine.unlike}"
        head = f"{self.recognised[0].upper()}{self.recognised[1:]}. Machine: {machine}. Budget: {self.budget()}."
        return (
            f"# How this run was planned\n\n{head}\n\n## The data\n\n{facts}\n\n## What may be wrong with it\n\n{notes}"
            f"\n\n## Decisions\n\nEach can be given otherwise with `--set NAME=VALUE`.\n\n| setting | value | why |\n"
            f"| --- | --- | --- |\n{rows}\n\n## Updates\n\n{updates}\n"
        )

    def _final(self) -> list[Decision]:
        """The decisions with the values that the run has."""
        whole = self.config.to_mapping()
        final = []
        for one in self.decisions:
            section, _, name = one.name.partition(".")
            value = whole.get(section, {}).get(name, one.value) if name else whole.get(section, one.value)
            final.append(replace(one, value=value))
        known = {one.name for one in final}
        for name in self.asked:
            section, _, key = name.partition(".")
            if name not in known and key and key in whole.get(section, {}):
                final.append(Decision(name, whole[section][key], "as asked"))
        return final

    def carried_out(self, config: RunConfig, decided: Sequence[Decision] = ()) -> "Plan":
        """The plan with the settings that its run has, and a reason for each that it had not, or `decided` anew."""
        anew = {one.name for one in decided}
        kept = [one for one in self.decisions if one.name not in anew]
        known = {one.name for one in kept} | anew | {*self.asked}
        before, after = (settings.by_name(one.to_mapping()) for one in (self.config, config))
        found = [
            Decision(name, value, FOUND.get(name, "follows from the data"))
            for name, value in after.items()
            if name not in known and value != before.get(name)
        ]
        return replace(self, config=config, decisions=(*kept, *decided, *found))


def _shown(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return (text if len(text) <= LONG else f"{text[: LONG - 3]}...").replace("|", "\\|")


def plan(
    data: str | Path | Sequence[str | Path],
    *,
    valid: str | Path | Sequence[str | Path] = (),
    test: str | Path | Sequence[str | Path] = (),
    minutes: float | int | None = None,
    start: str | Path | None = None,
    overrides: str | Sequence[str] = (),
    machine: Machine | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Plan:
    """Look at data and at this machine, and decide how to train a model on it: `regard.train(plan, "runs/mine")`.

    `minutes` is what the whole training may take, by default 10 on a CPU and 5 on a GPU. `start` is a run to start
    from. `overrides` are settings as with `--set`, `extra` the same by section, `{"train": {"seed": 2}}`; no decision
    changes them.
    """
    from regard.tasks.plans.asked import following

    began = time.monotonic()
    files = {"train": _names(data), "valid": _names(valid), "test": _names(test)}
    _check_minutes(minutes)
    overrides, extra = settings.listed(overrides), settings.sections(**(extra or {}))
    given = settings.override(extra, overrides)
    section: JsonObject = dict(given.get("data") or {})
    machine = machine or this_machine(str(given.get("train", {}).get("device", "auto")))
    train = given.get("train", {})
    timed = not ({"steps", "epochs"} & {*train})
    if minutes is not None and not timed:
        raise ConfigError("--minutes and train.steps or train.epochs both say how long; give one")
    if minutes is not None or not timed:
        machine = replace(machine, budget=float(minutes or 0))
    parts = _parts(files, section)
    if parts is not None:
        files["train"] = parts.names("train")
    name, found = _recognised(files["train"], given.get("task"), section)
    if parts is not None:
        parts = parts.with_columns(found.data)
        files |= {part: parts.names(part) for part in ("valid", "test") if parts.names(part)}
    held_back = [one for part in ("valid", "test") for one in files[part] if is_there(one)]
    refuse_foreign(matching_all(held_back), as_text="task" in given)
    task = TASKS.named(name)
    own: JsonObject = {**found.data, **section, **{part: list(names) for part, names in files.items() if names}}
    base = _base(start)
    check_data_names(task, own)
    statistics = task.statistics(settings.from_mapping(task.data, own, "data"))
    chosen = _of_model(task.plan(statistics, machine, base), given.get("model", {}).get("name"))
    if chosen.none_held_out and section.get("held_out") != 0:
        raise DataError(f"{chosen.none_held_out}; give more, or data to validate on with --valid")
    chosen = following(_of_machine(chosen, machine, given.get("train", {}).get("optimizer")), settings.by_name(given))
    own = {key: value for key, value in own.items() if key not in chosen.unused_parts}
    mapping: JsonObject = {"task": name, "data": own, **({"train": {"start_from": str(start)}} if start else {})}
    for one in chosen.decisions:
        section_name, _, key = one.name.partition(".")
        if key and not (section_name == "data" and key in own):
            mapping.setdefault(section_name, {})[key] = one.value
    asked = tuple(settings.by_name(given))
    config = make_config(None, None, overrides, settings.merge(mapping, extra))
    return Plan(
        config=config,
        machine=machine,
        recognised=f"task {name}: {found.why}",
        facts=(*_files_read(files["train"], parts), *chosen.facts),
        findings=(*_of_parts(parts), *_shorter(chosen, section), *statistics.findings),
        decisions=(Decision("task", name, found.why), *chosen.decisions),
        minutes=machine.minutes if timed else None,
        most_epochs=chosen.most_epochs,
        more_epochs=chosen.more_epochs,
        seconds=time.monotonic() - began,
        asked=asked,
    )


def _parts(files: Mapping[str, Sequence[str]], section: Mapping[str, Any]) -> Parts | None:
    """The parts of a folder of data, but those that were given otherwise."""
    if len(files["train"]) != 1 or not is_there(files["train"][0]) or not (folder := Path(files["train"][0])).is_dir():
        return None
    found = parts_in(folder)
    named = {part: settings.listed(section.get(part) or ()) for part in ("valid", "test")}
    given = {part: (*files[part], *named[part]) for part in named if files[part] or named[part]}
    return None if found is None else found.without(given)


def _files_read(train: Sequence[str], parts: Parts | None) -> tuple[str, ...]:
    """Which files of a folder are read for what."""
    if parts is not None:
        return (parts.line,)
    inside = [file for name in train if Path(name).is_dir() for file in tables_in(Path(name))]
    return (f"{listed(inside)} to train on",) if inside else ()


def _of_parts(parts: Parts | None) -> Iterator[Finding]:
    """What should be known of a folder whose files were told by their names."""
    if parts is None:
        return
    if parts.aligned:
        one, other = (file.name for file in parts.files["train"])
        yield Finding(
            "direction",
            f"the files of a pair are taken in the order of their names: {one} is read and {other} is written; to turn "
            f"it round give --data {other} --data {one}, and --valid and --test likewise",
        )
    if parts.passed_over:
        yield Finding(
            "files passed over",
            f"of {parts.folder} these are not read: {', '.join(parts.passed_over)}; to read them name them with "
            f"--data, --valid or --test",
        )


def _shorter(chosen: Choices, section: Mapping[str, Any]) -> Iterator[Finding]:
    """What is left out by a limit that was given, where the plan would have read more."""
    asked, room = section.get("data.max_len", section.get("max_len")), "room for the longest text"
    planned = next((one for one in chosen.decisions if one.name == "data.max_len" and one.why.startswith(room)), None)
    if planned is not None and isinstance(asked, int) and asked < planned.value:
        longest = planned.why.removeprefix("room for ").replace(", which has", " has")
        line = f"data.max_len={asked}, as asked, may leave out many texts: {longest}"
        yield Finding("texts left out", line)


def _of_model(chosen: Choices, asked: str | None) -> Choices:
    """The same with another model than the planned one, where that is asked for: what this has no setting for is left
    out, and said."""
    planned = next((one.value for one in chosen.decisions if one.name == "model.name"), None)
    if asked in (None, planned) or asked not in MODELS:
        return chosen
    known = {f"model.{name}" for name in field_names(MODELS[asked][0])} | {"model.name"}
    kept = tuple(one for one in chosen.decisions if not one.name.startswith("model.") or one.name in known)
    left = [one.name for one in chosen.decisions if one not in kept]
    facts = (f"{asked} as asked, not {planned}: its own defaults where it has no {', '.join(left)}",) if left else ()
    return replace(chosen, decisions=kept, facts=(*chosen.facts, *facts))


def _of_machine(chosen: Choices, machine: Machine, asked: str | None) -> Choices:
    """The same with what makes the optimiser, planned or asked for, faster on this machine."""
    optimizer = asked or next((one.value for one in chosen.decisions if one.name == "train.optimizer"), None)
    if optimizer != "muon" or machine.gpu is not None or not machine.bfloat16:
        return chosen
    why = "this CPU multiplies bfloat16 five times as fast as float32, and an update needs no more precision"
    return replace(chosen, decisions=(*chosen.decisions, Decision("train.muon_precision", "bfloat16", why)))


def _check_minutes(minutes: float | int | None) -> None:
    if minutes is None:
        return
    if isinstance(minutes, bool) or not isinstance(minutes, Real):
        raise ConfigError(f"minutes={minutes!r} must be a number")
    if not 0 < minutes < sys.float_info.max / 60:  # nor what is not a number
        raise ConfigError(f"minutes={minutes} must be above 0 and finite")


def _names(given: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    if isinstance(given, str | Path):
        return (str(given),)
    if not isinstance(given, Sequence) or not all(isinstance(one, str | Path) for one in given):
        raise DataError(
            f"data to plan for must be names of files or folders, not {given!r:.60}; for rows, "
            f"regard.train(data=rows, out=...) plans a run and trains it"
        )
    names = tuple(map(str, given))
    if (text := next(filter(_like_text, names), None)) and not any(map(is_there, names)):
        raise DataError(f"no such file or folder: {text!r:.60}; names of files or folders are wanted, not texts")
    return names


def _like_text(name: str) -> bool:
    """Whether what should be a name is rather a sentence."""
    return len(name.split()) > 3 or "\n" in name


def _base(start: str | Path | None) -> JsonObject | None:
    """The settings of the run to start from."""
    if start is None:
        return None
    from regard.tasks.run import load_config

    return load_config(Path(start)).to_mapping()


def _recognised(files: Sequence[str], wanted: str | None, data: Mapping[str, Any]) -> tuple[str, Recognised]:
    """The task that data is for, and how it is to be read: the surest, or the one that was asked for."""
    if not files:
        raise ConfigError(
            "no training data: name your files or folders, after --data or as the first argument of regard.plan"
        )
    paths = [file for path in matching_all(files) for file in ((path.is_dir() and tables_in(path)) or [path])]
    refuse_foreign(paths, as_text=wanted is not None)
    if wanted is not None:
        found = TASKS.named(wanted).recognise(paths)
        return wanted, found or Recognised(certainty=1.0, why="as asked")
    named = [name for name in COLUMNS if name in data]
    known = {
        name: found
        for name, task in TASKS.items()
        if {*named} <= {*field_names(task.data)} and (found := task.recognise(paths)) is not None
    }
    if not known and named and (told := next((task for name, task in COLUMNS.items() if name in data), None)):
        return told, Recognised(certainty=1.0, why=f"columns as asked: {_columns(data)}")
    if not known:
        raise DataError(f"cannot tell what {paths[0]} is for: {described(paths[0])}")
    name = max(known, key=lambda one: known[one].certainty)
    found = known[name]
    if {"text", "label"} <= {*named}:  # one text, and its label, where no other is named
        own = {key: value for key, value in found.data.items() if key != "pair"}
        found = replace(found, why=f"columns as asked: {_columns(data)}", data=own)
    return name, found


def _columns(data: Mapping[str, Any]) -> str:
    return ", ".join(f"data.{name}={data[name]}" for name in COLUMNS if name in data)


def updates_in_words(count: int) -> str:
    return counted(count, "update")
