"""`regard compare`: several configurations under one budget, and one report."""

from pathlib import Path
from typing import Annotated

import typer


def compare(
    configs: Annotated[
        list[str],
        typer.Argument(
            help="[NAME=]CONFIG[:SETTING,...]: presets or TOML files, or with --runs run directories.", metavar="CONFIG"
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory for runs and report.")] = Path("comparison"),
    runs: Annotated[bool, typer.Option("--runs", help="Compare runs that are trained already.")] = False,
    updates: Annotated[int | None, typer.Option(help="Budget of each: so many updates.", min=1)] = None,
    minutes: Annotated[float | None, typer.Option(help="Budget of each: so many minutes of training.")] = None,
    flops: Annotated[float | None, typer.Option(help="Budget of each: so many floating-point operations.")] = None,
    equal: Annotated[
        bool, typer.Option("--equal", help="Give each the width that makes it as large as the first.")
    ] = False,
    parameters: Annotated[
        int | None, typer.Option(help="Give each the width that comes nearest to so many parameters.", min=1)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting of all of them; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    ablate: Annotated[
        str | None,
        typer.Option(
            help="Repeat one Transformer without each of these: residual, norm, scale, heads, feed-forward, positions.",
            metavar="TRICKS",
        ),
    ] = None,
    depths: Annotated[str, typer.Option(help="With --ablate: layers on each side.", metavar="NUMBERS")] = "2,4,8",
    limit: Annotated[int | None, typer.Option(help="Translate only the first so many test sentences.", min=1)] = None,
    growth: Annotated[
        bool, typer.Option("--growth/--no-growth", help="Time and memory as a sequence grows from 16 to 4,096.")
    ] = True,
    long_range: Annotated[
        int, typer.Option(help="Recall and count over a distance, after so many updates of each way.", min=0)
    ] = 0,
    longest: Annotated[int, typer.Option(help="With --long-range: tokens of the longest sequence.", min=16)] = 2048,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Train several configurations under one budget and write one report.

    Interrupted, the same command goes on where it was. The report is report.html, one file that needs no network,
    report.json, and each chart as SVG.

    \b
    Examples:
      regard compare sutskever-2014 bahdanau-2015 demo --minutes 10 --out comparison
      regard compare bahdanau-2015 none=bahdanau-2015:model.attention=none --updates 2000 --equal
      regard compare --runs runs/demo runs/bahdanau --out comparison
      regard compare demo --ablate residual,norm,scale --depths 2,4,8 --updates 600 --out ablation
    """
    import json

    from regard.cli.progress import TrainingProgress, counting
    from regard.comparison import compare as compare_all
    from regard.errors import ConfigError

    try:
        layers = [int(one) for one in depths.split(",")]
    except ValueError:
        raise ConfigError(f"depths={depths!r} must be whole numbers with commas between them") from None
    with TrainingProgress() as training, counting("measuring", "done") as shown:
        report = compare_all(
            configs,
            out,
            runs=runs,
            updates=updates,
            minutes=minutes,
            flops=flops,
            equal=equal,
            parameters=parameters,
            overrides=settings or (),
            ablate=ablate.split(",") if ablate else (),
            depths=layers,
            limit=limit,
            grow=growth,
            long_range=long_range,
            longest=longest,
            report=training,
            progress=lambda what, done, total: shown(done, total),
        )
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    for run in report["runs"]:
        print(_line(run))
    print(out / "report.html")


def _line(run: dict) -> str:
    test = run.get("test") or {}
    if "diverged" in run:
        return f"{run['name']}: diverged"
    parts = [f"{run['parameters']:,} parameters", f"{run['updates']:,} updates", f"{run['seconds']:,.0f} s"]
    if headline := run.get("headline"):
        parts += [f"{name} {value}" for name, value in headline.items()]
    elif "exact_match" in test:
        parts.append(f"exact match {100 * test['exact_match']:.1f} %")
        parts += [
            f"{name} {100 * test[key]['exact_match']:.1f} %"
            for key, name in (("short", "under 12 words"), ("long", "30 and more"))
            if test[key]["exact_match"] is not None
        ]
    elif "perplexity" in test:
        parts.append(f"perplexity {test['perplexity']:.2f}")
    if "alignment_error_rate" in test:
        parts.append(f"alignment error rate {test['alignment_error_rate']:.3f}")
    return f"{run['name']}: {', '.join(parts)}"
