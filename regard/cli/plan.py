"""`regard plan`: what a training takes of GPUs that are not here."""

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import preset_names

RATE = "instead of what its data sheet says"


def plan(
    config: Annotated[
        Path | None, typer.Argument(help="A TOML or JSON file, as for `regard train`.", metavar="CONFIG")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Start from this bundled configuration; see `regard presets`.",
            metavar="NAME",
            autocompletion=preset_names,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a setting, e.g. --set train.accumulate=1; may be repeated.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    gpus: Annotated[int, typer.Option(help="How many GPUs.", min=1)] = 1,
    gpu: Annotated[
        str, typer.Option(help="Of which kind: p100, a100-40gb, a100-80gb, h100, h200, l4 or l40s.", metavar="NAME")
    ] = "h100",
    efficiency: Annotated[
        float, typer.Option(help="The share of a GPU's operations per second that training reaches.")
    ] = 0.3,
    memory: Annotated[float | None, typer.Option(help=f"Memory of a GPU in GB, {RATE}.", metavar="GB")] = None,
    tflops: Annotated[
        float | None, typer.Option(help=f"Operations of a GPU in TFLOP/s, {RATE}.", metavar="NUMBER")
    ] = None,
    bandwidth: Annotated[
        float | None, typer.Option(help=f"Speed of a GPU's memory in GB/s, {RATE}.", metavar="NUMBER")
    ] = None,
    interconnect: Annotated[
        float | None,
        typer.Option(help=f"Speed between GPUs in GB/s, in one direction, {RATE}.", metavar="NUMBER"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Estimate memory per GPU and time per update of a training, for DDP and FSDP2.

    Nothing is trained and no GPU is needed: an update is traced without values, and timed by the rates that are stated
    of a GPU. (How a model would be trained on your own data is shown by `regard train --data mine.tsv --dry-run` and,
    in Python, by `regard.plan`.)

    \b
    Examples:
      regard plan --preset transformer-big --gpus 8
      regard plan --preset gpt2-xl --gpus 8 --gpu a100-80gb --set train.ema=0.999
      regard plan my.toml --gpus 16 --gpu h100 --interconnect 50 --efficiency 0.4 --json
    """
    from regard import make_config
    from regard.analysis.capacity import plan_capacity, show_plan

    def units(value: float | None, unit: float) -> float | None:
        return None if value is None else value * unit

    made = plan_capacity(
        make_config(config, preset, tuple(settings or ())),
        gpu,
        gpus,
        efficiency,
        memory=units(memory, 1e9),
        flops=units(tflops, 1e12),
        bandwidth=units(bandwidth, 1e9),
        interconnect=units(interconnect, 1e9),
    )
    print(json.dumps(made.to_mapping(), indent=2) if as_json else show_plan(made))
