"""`regard train`: a configuration and data to a run directory."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import NO_VERIFY, preset_names


def train(
    config: Annotated[
        Path | None,
        typer.Argument(
            help="A TOML or JSON file with [data], [tokenizer], [model], [train], [decode].", metavar="CONFIG"
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The directory to make the run in.", metavar="DIRECTORY")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Start from this bundled configuration; see `regard presets`.",
            metavar="NAME",
            autocompletion=preset_names,
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Training pairs: .tsv, .csv, .jsonl or .parquet files, or two line-aligned files (give it twice). "
            "A folder or a quoted pattern names many.",
            metavar="FILE",
        ),
    ] = None,
    valid: Annotated[list[str] | None, typer.Option(help="Validation pairs, likewise.", metavar="FILE")] = None,
    test: Annotated[
        list[str] | None,
        typer.Option(help="Test pairs, likewise: what `regard evaluate` will use.", metavar="FILE"),
    ] = None,
    world: Annotated[
        int | None,
        typer.Option(help="Train on this many pairs of the bundled corpus instead.", metavar="PAIRS", min=1),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change a setting, e.g. --set model.width=512; may be repeated.", metavar="NAME=VALUE"
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Start from this run's model and tokenizer instead of from random weights.", metavar="RUN"
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Without a preset: how long it may take in all; by default 10 on a CPU, 5 on a GPU.", metavar="N"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Without a preset: print the plan and its reasons, and train nothing.")
    ] = False,
    fit: Annotated[
        bool, typer.Option("--fit", help="First find the largest train.batch_tokens that the GPU's memory holds.")
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Continue this run from its last checkpoint, exactly as if it had not stopped.", metavar="RUN"
        ),
    ] = None,
    report: Annotated[
        list[str] | None,
        typer.Option(
            help="Also tell trackers how it goes: tensorboard, wandb, or one that a package adds; commas between.",
            metavar="NAMES",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(help="Train in so many processes on this machine, a GPU each.", metavar="NUMBER", min=1),
    ] = None,
    no_verify: NO_VERIFY = False,
) -> None:
    """Train a model on your own data: pairs of sentences, running or labelled text, images.

    Without a preset or a configuration it looks at the data and the machine first, and decides how: the decisions and
    their reasons are in plan.md in the run, and each can be changed with --set.

    Ctrl-C saves and stops; --resume goes on. Every setting and its value is shown by `regard presets NAME --all`.

    \b
    Examples:
      regard train --data mine.tsv --out runs/mine
      regard train --data mine.tsv --dry-run
      regard train --data train.en --data train.de --minutes 20 --out runs/mine
      regard train --preset demo --out runs/demo
      regard train --preset tiny --data train.en --data train.fr --out runs/mine
      regard train my.toml --valid valid.tsv --out runs/mine --set train.steps=20000
      regard train --preset bert-classify --from runs/bert --data train.tsv --valid dev.tsv --out runs/films
      regard train --resume runs/mine
      regard train --preset transformer-base --data train.tsv --out runs/base --processes 8
    """
    if processes is not None and not dry_run:  # which is refused below
        given = {"--preset": preset, "--out": out, "--from": start, "--resume": resume, "--world": world}
        given["--minutes"] = minutes
        several = {"--data": data, "--valid": valid, "--test": test, "--set": settings, "--report": report}
        arguments = ["train", *([str(config)] if config else [])]
        arguments += [part for name, value in given.items() if value is not None for part in (name, str(value))]
        arguments += [part for name, values in several.items() for value in values or () for part in (name, value)]
        arguments += ["--fit"] * fit + ["--no-verify"] * no_verify
        _launch(processes, arguments, resume or out)
        return
    from regard import make_config
    from regard import plan as make_plan
    from regard import resume as resume_run
    from regard import train as train_run
    from regard.cli.progress import TrainingProgress
    from regard.errors import ConfigError
    from regard.trainer.trainer import check_free
    from regard.training.processes import own_rank, said_once

    with said_once(), TrainingProgress() as progress:
        reports = [progress, *(report or ())]
        if resume is not None:
            if config or out or preset or data or valid or test or world or fit or start or minutes or dry_run:
                raise ConfigError(
                    "--resume goes on in the run's own directory with its own configuration and data; "
                    "only --set train.* and --set decode.* may be given with it"
                )
            resume_run(resume, tuple(settings or ()), reports, verify=not no_verify)
        else:
            plans = config is None and preset is None and bool(data)
            if dry_run and not plans:
                raise ConfigError(
                    "--dry-run shows what is planned for --data without a preset; what a preset says is shown by "
                    "`regard presets NAME --all`"
                )
            for name, asked in (("--fit", fit), ("--report", report), ("--processes", processes)):
                if dry_run and asked:
                    raise ConfigError(f"{name} is for training, and --dry-run trains nothing: leave one of them out")
            if minutes is not None and not plans:
                raise ConfigError(
                    "--minutes is for training without a preset: elsewhere set train.steps or train.epochs"
                )
            nothing = config is None and preset is None and not (data or world or start)
            if nothing and not any(one.startswith(("data.", "model.")) for one in settings or ()):
                raise ConfigError("nothing to train on: give --data FILES, or --preset NAME")
            if out is None and not dry_run:
                raise ConfigError("--out is missing: the directory to make the run in")
            changed = tuple(settings or ())
            if plans:
                if out is not None and not dry_run:
                    check_free(out)  # before a long look at the data
                made = make_plan(
                    data or (), valid=valid or (), test=test or (), minutes=minutes, start=start, overrides=changed
                )
                if dry_run:
                    if own_rank() == 0:
                        print(made.page())
                    return
            else:
                given = {"train": data, "valid": valid, "test": test, "world": world}
                chosen = {name: value for name, value in given.items() if value}
                extra = {"data": chosen} | ({"train": {"start_from": str(start)}} if start else {})
                made = make_config(config, preset, changed, extra)
            assert out is not None  # only a dry run has none
            train_run(made, out, reports, fit_memory=fit, verify=not no_verify)
    if own_rank() == 0:
        print(resume or out)


def _launch(processes: int, arguments: list[str], directory: Path | None) -> None:
    from regard.errors import ConfigError, ProcessLost
    from regard.trainer.launch import launch

    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise ConfigError("torchrun has started this process: how many there are is its --nproc-per-node")
    try:
        code = launch(processes, arguments)
    except ProcessLost as error:
        if directory is None or not (directory / "config.json").exists():
            raise ProcessLost(f"{error}; no run had begun: give the same command again") from None
        again = f"continue with: regard train --resume {shlex.quote(str(directory))}"
        raise ProcessLost(f"{error}; {again}") from None
    if code:
        raise typer.Exit(code)
