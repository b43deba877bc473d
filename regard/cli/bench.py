"""`regard bench`: how fast it is here, beside a peer."""

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import preset_names

app = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure speed on this machine."""


@app.command("train", short_help="Time training steps on random tokens or images.")
def train(
    config: Annotated[Path | None, typer.Argument(help="A configuration file.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="A bundled configuration; see `regard presets`.", autocompletion=preset_names)
    ] = None,
    lengths: Annotated[
        list[Path] | None, typer.Option(help="Two line-aligned files to take sentence lengths from (give it twice).")
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            help="random, or bucketed: sentences of like length together. By default as `regard train` would."
        ),
    ] = None,
    batches: Annotated[int, typer.Option(help="How many different batches to go round.", min=1)] = 8,
    seconds: Annotated[float, typer.Option(help="How long to measure each way.", min=0.01)] = 5.0,
    peer: Annotated[
        bool, typer.Option(help="Also time Hugging Face's Marian, where transformers is installed.")
    ] = True,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Change a setting, as in `regard train`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Time training steps on random tokens or images: tokens per second, TFLOP/s, share of the machine's matrix peak.

    \b
    Examples:
      regard bench train --preset small
      regard bench train --preset vit-mnist
      regard bench train runs/smaller/config.json
      regard bench train --preset transformer-base --lengths train.en --lengths train.de
    """
    from regard import make_config
    from regard.bench.training_speed import bench_train, file_lengths
    from regard.errors import ConfigError

    if order not in (None, "random", "bucketed"):
        raise ConfigError(f"--order={order}: must be random or bucketed")
    if lengths and len(lengths) != 2:
        raise ConfigError("--lengths takes two files: the source's and the target's")
    found = bench_train(
        make_config(config, preset, tuple(settings or ())),
        lengths=file_lengths(*lengths) if lengths else None,
        order=order,
        batches=batches,
        seconds=seconds,
        peer=peer,
    )
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['device']}, {found['precision']}, torch {found['torch']}: ", end="")
    print(f"{found['matmul_peak_tflops']:.2f} TFLOP/s in a large product")
    ordered = "" if found["order"] is None else f", {found['order']} order"
    print(f"{found['parameters']:,} parameters, {found['rows_per_batch']} rows per batch{ordered}")
    for one in found["results"]:
        memory = "" if one["memory_bytes"] is None else f"{one['memory_bytes'] / 2**30:6.2f} GiB  "
        print(
            f"{one['name']:40} {one['tokens_per_second']:>12,.0f} tokens/s  {one['tflops']:8.3f} TFLOP/s  "
            f"{100 * one['peak_share']:5.1f} % of peak  {100 * one['padding']:4.1f} % padding  "
            f"{memory}first step {one['first_step_seconds']:.1f} s  "
            f"{1000 * one['step_seconds']:.2f} ms per step, {1000 * one['launch_seconds']:.2f} ms of it on the host"
        )
    if peer and not found["ratios"]:
        print(f"Hugging Face is not timed beside it: {found['alone']}")
    for name, ratio in found["ratios"].items():
        best = ", the peer at its best" if name == found["best_peer"] and len(found["ratios"]) > 1 else ""
        print(f"regard is {ratio:.2f}x {name}{best}")
