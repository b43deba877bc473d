"""Train several configurations under one budget, go on where it was interrupted, and write one report."""

import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from regard import config as settings
from regard.comparison.budget import Budget, count_parameters, with_parameters, with_steps
from regard.comparison.report import comparison_charts, comparison_page
from regard.comparison.run_results import MEASURES, measure
from regard.comparison.sequence_length import growth, long_range_accuracy
from regard.config import JsonObject
from regard.errors import ConfigError, Diverged, nearest
from regard.look.charts import plot
from regard.runs.files import CONFIG, read_json, run_names, write_json, write_text
from regard.tasks.config import RunConfig, make_config, presets
from regard.tasks.run import load_config
from regard.tasks.spec import OnlyWarnings, Prepared, Report
from regard.trainer.trainer import Stopped, resume, train

PLAN, REPORT, PAGE, CHARTS = "plan.json", "report.json", "report.html", "charts"
CACHE, GROWTH = "cache", "growth.json"
OWN = (PLAN, REPORT, PAGE, CHARTS, CACHE, GROWTH)
"""What lies beside the runs of a comparison."""

TRICKS = {
    "residual": "model.residual=false",
    "norm": "model.norm=none",
    "scale": "model.scaled=false",
    "heads": "model.heads=1",  # one head as wide as all
    "feed-forward": "model.feed_forward=1",  # one neuron: as good as none
    "positions": "model.positions=none",
}
"""What a Transformer can go without, to see what each is worth, and the setting that leaves it out."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A configuration to train, and its name. An ablation says how deep it is and what it goes `without`."""

    name: str
    config: RunConfig
    depth: int | None = None
    without: str | None = None


def entry(text: str, overrides: Sequence[str] = (), last: Sequence[str] = ()) -> Entry:
    """What `[NAME=]CONFIG[:SETTING,SETTING...]` asks for; CONFIG is a preset or a TOML or JSON file.

    `overrides` come before its own settings, `last` after them.
    """
    drive = re.match(r"(?:[^=:]*=)?[A-Za-z]:[\\/]", text)  # of a file on Windows
    head, _, tail = text[drive.end() if drive else 0 :].partition(":")
    name, equals, what = f"{drive[0] if drive else ''}{head}".rpartition("=")
    own = re.split(r",(?=\w+\.\w+=)", tail) if tail else []
    path = Path(what)
    if path.suffix in (".toml", ".json"):
        config, usual = make_config(path, None, [*overrides, *own, *last]), path.stem
    elif what in presets():
        config, usual = make_config(None, what, [*overrides, *own, *last]), what
    else:
        raise ConfigError(f"'{what}' is neither a preset nor a .toml or .json file{nearest(what, presets())}")
    changes = " ".join(setting.partition(".")[2] for setting in own)
    return Entry(name if equals else " ".join(filter(None, (usual, changes))), config)


def entries(texts: Sequence[str], overrides: Sequence[str] = ()) -> list[Entry]:
    """All of them, no name and no directory twice, on any file system."""
    found = [entry(text, overrides) for text in texts]
    taken: dict[str, str] = {}
    for name in (one.name for one in found):
        folder = folder_name(name).casefold()
        if taken.get(folder) == name:
            raise ConfigError(f"two configurations are called '{name}': name them, as in first={name} second={name}")
        if folder in taken:
            raise ConfigError(f"'{taken[folder]}' and '{name}' would share a directory: choose another name for one")
        taken[folder] = name
    return found


def ablation(text: str, tricks: Sequence[str], depths: Sequence[int], overrides: Sequence[str] = ()) -> list[Entry]:
    """The configuration at each depth, whole and without each of the tricks."""
    for trick in tricks:
        if trick not in TRICKS:
            raise ConfigError(f"cannot go without '{trick}'{nearest(trick, TRICKS)}")
    if not tricks or any(depth < 1 for depth in depths) or not depths:
        raise ConfigError("an ablation needs at least one trick to go without and depths of at least 1")
    name = entry(text, overrides).config.model["name"]
    if name != "transformer":
        raise ConfigError(f"--ablate is for model 'transformer', whose tricks are settings, not for '{name}'")
    found = []
    for depth in depths:
        deep = [f"model.encoder_layers={depth}", f"model.decoder_layers={depth}"]
        for trick in (None, *tricks):
            last = [*deep, *([TRICKS[trick]] if trick else [])]
            label = f"{depth} layers" + (f" without {trick}" if trick else "")
            found.append(Entry(label, entry(text, overrides, last).config, depth, trick))
    return found


def folder_name(name: str) -> str:
    """A name fit for a directory."""
    plain = re.sub(r"[^\w.=+-]+", "-", name).strip("-.")
    if not plain:
        raise ConfigError(f"'{name}' has no letter or digit to name a directory by")
    if plain.casefold() in OWN or re.fullmatch(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", plain, re.IGNORECASE):
        raise ConfigError(f"'{name}' cannot name a directory here: it means something else; choose another name")
    return plain


def compare(
    configs: Sequence[str | Path],
    out: str | Path,
    *,
    runs: bool = False,
    updates: int | None = None,
    minutes: float | int | None = None,
    flops: float | int | None = None,
    equal: bool = False,
    parameters: int | None = None,
    overrides: Sequence[str] = (),
    ablate: Sequence[str] = (),
    depths: Sequence[int] = (2, 4, 8),
    limit: int | None = None,
    grow: bool = True,
    long_range: int = 0,
    longest: int = 2048,
    report: Report | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> JsonObject:
    """Train what `configs` name, unless that is done, and write `report.html`, `report.json` and charts into `out`.

    Each is `[NAME=]CONFIG[:SETTING,SETTING...]`, CONFIG being a preset or a configuration file; with `runs`, the
    directory of a run that is trained already. A budget of `updates`, `minutes` or `flops` holds for each of them;
    without one each has its own `train.steps`. `equal` gives each the width that makes it as large as the first,
    `parameters` the one that makes it as large as that. `ablate` takes one configuration and repeats it without each of
    the tricks named (of `TRICKS`) at the `depths`. `limit` is how many test sentences are translated.
    `grow` adds what time and memory become as a sequence grows; `long_range` adds recall and count over `longest`
    tokens, after so many updates each.

    Interrupted, the same call goes on where it was.
    """
    out, report = Path(out), report or OnlyWarnings()
    if not configs:
        raise ConfigError("nothing to compare: name presets, configuration files or, with --runs, runs")
    budget = Budget(updates=updates, minutes=minutes, flops=flops)
    if equal and parameters is not None:
        raise ConfigError("--equal takes the first one's number of parameters, --parameters a given one: not both")
    if runs:
        if ablate or equal or parameters or overrides or budget != Budget():
            raise ConfigError("runs are compared as they are: --runs goes with no budget, setting or ablation")
        folders = [Path(one) for one in configs]
        planned = [Entry(name, load_config(one)) for name, one in zip(run_names(folders), folders, strict=True)]
    else:
        planned = _entries([str(one) for one in configs], overrides, ablate, depths)
        folders = [out / folder_name(one.name) for one in planned]
    if len({one.config.task for one in planned}) > 1:
        raise ConfigError("runs of different tasks cannot be compared")
    _keep_plan(out, planned, budget, equal or parameters, runs)
    if not runs:
        _train_all(planned, folders, out, budget, equal, parameters, report)

    def told(what: str) -> Callable[[int, int], None] | None:
        hear = progress
        return None if hear is None else partial(hear, what)

    results = []
    for one, folder in zip(planned, folders, strict=True):
        found = measure(folder, limit=limit, progress=told(f"measuring {one.name}"))
        results.append({**found, "name": one.name, "depth": one.depth, "without": one.without})
    document = {
        "budget": "as they were trained" if runs else str(budget),
        "equal": equal or parameters is not None,
        "machine": machine(),
        "runs": results,
        "growth": _once(out / GROWTH, lambda: growth(progress=told("growing"))) if grow else None,
        "long_range": _once(
            out / f"long-range-{longest}-{long_range}.json",
            lambda: long_range_accuracy(longest, long_range, progress=told("reading far")),
        )
        if long_range
        else None,
    }
    write_json(out / REPORT, document)
    write_text(out / PAGE, comparison_page(document))
    (out / CHARTS).mkdir(exist_ok=True)
    for name, chart in comparison_charts(document).items():
        write_text(out / CHARTS / f"{name}.svg", plot(chart, alone=True))
    return document


def machine() -> JsonObject:
    """What the figures were taken on."""
    return {"processor": platform.machine(), "threads": torch.get_num_threads(), "torch": torch.__version__}


def _entries(
    configs: Sequence[str], overrides: Sequence[str], ablate: Sequence[str], depths: Sequence[int]
) -> list[Entry]:
    if not ablate:
        return entries(configs, overrides)
    if len(configs) != 1:
        raise ConfigError(f"an ablation repeats one configuration, not {len(configs)}")
    return ablation(configs[0], ablate, depths, overrides)


def _keep_plan(out: Path, planned: Sequence[Entry], budget: Budget, equal: bool | int | None, runs: bool) -> None:
    """Write down what is compared here, so that a second call goes on with the same and with nothing else."""
    plan = {
        "budget": settings.to_mapping(budget, nulls=True),
        "equal": equal,
        "runs": runs,
        "entries": [
            {"name": one.name, "config": settings.to_mapping(one.config, nulls=True)} for one in planned if not runs
        ],
    }
    if (out / PLAN).exists():
        kept = read_json(out / PLAN)
        if kept != plan and not (runs and kept.get("runs")):
            raise ConfigError(f"{out} holds another comparison: choose another directory for this one")
        return
    if not runs and out.is_dir() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty and holds no comparison: choose another directory")
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / PLAN, plan)


def _train_all(
    planned: Sequence[Entry],
    folders: Sequence[Path],
    out: Path,
    budget: Budget,
    equal: bool,
    wanted: int | None,
    report: Report,
) -> None:
    for number, (one, folder) in enumerate(zip(planned, folders, strict=True), 1):
        if not (folder / MEASURES).exists():
            report.say(f"{one.name} ({number} of {len(planned)}): {budget}")
            config = one.config
            if config.data.cache is None:  # equal data is tokenised once
                config = replace(config, data=replace(config.data, cache=str((out / CACHE).resolve())))
            try:
                if (folder / CONFIG).exists():
                    resume(folder, (), report)
                else:
                    train(config, folder, report, adjust=_adjusted(budget, wanted))
            except Stopped:
                raise Stopped(f"stopped while training {one.name}, and saved; the same command goes on") from None
            except Diverged as error:
                report.say(str(error))
                write_json(folder / MEASURES, {"key": None, "diverged": str(error)})
        if equal and wanted is None:
            wanted = count_parameters(load_config(folder))


def _adjusted(budget: Budget, parameters: int | None) -> Callable[[RunConfig, Prepared], RunConfig]:
    def adjust(config: RunConfig, prepared: Prepared) -> RunConfig:
        if parameters is not None:
            config = with_parameters(config, parameters)
        return with_steps(config, budget.steps(config, prepared))

    return adjust


def _once(path: Path, make: Callable[[], JsonObject]) -> JsonObject:
    """What the file holds, made first if it is not there."""
    if not path.exists():
        write_json(path, make())
    return read_json(path)
