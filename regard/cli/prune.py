"""`regard prune`: a smaller run without the heads that it can do without."""

import re
import sys
from pathlib import Path
from typing import Annotated, get_args

import typer

from regard.cli.options import NO_VERIFY
from regard.config import JsonObject

TITLES = {"bleu": "BLEU", "perplexity": "perplexity", "accuracy": "per cent right", "cosine": "cosine, hundredths"}


def prune(
    run: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory to make the smaller run in.")],
    heads: Annotated[
        str | None, typer.Option("--heads", help="How many heads to remove: 5, or 40% of them.", metavar="HEADS")
    ] = None,
    keep_score: Annotated[
        float | None,
        typer.Option(help="Remove as many as cost at most so much of the score: BLEU, per cent, perplexity.", min=0),
    ] = None,
    by: Annotated[str, typer.Option(help="How heads are ranked: masking, gradient or gates.")] = "masking",
    among: Annotated[str, typer.Option(help="Remove heads of these attentions only, such as 'encoder.*'.")] = "*",
    data: Annotated[
        list[str] | None,
        typer.Option(help="What to score heads on; by default the run's validation or test set.", metavar="FILE"),
    ] = None,
    limit: Annotated[int, typer.Option(help="Score on so many pairs, windows, texts or images.", min=1)] = 200,
    steps: Annotated[
        int,
        typer.Option(help="With --by gates: train gates and weights together for so many updates, then prune.", min=0),
    ] = 0,
    learning_rate: Annotated[float, typer.Option(help="The learning rate of those updates, falling to 0.")] = 3e-4,
    curve: Annotated[
        Path | None, typer.Option(help="Write score, size and speed against heads kept, as JSON.", metavar="FILE")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Plot that curve, as .png, .svg or .pdf.", metavar="FILE")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    no_verify: NO_VERIFY = False,
) -> None:
    """Remove attention heads for good: a new run with smaller matrices, to use and train on like any other.

    \b
    Examples:
      regard prune runs/demo --heads 40% --out runs/smaller
      regard prune runs/demo --keep-score 0.3 --among "encoder.*" --out runs/smaller --curve curve.json
      regard prune runs/demo --heads 60% --among "encoder.*" --by gates --steps 2000 --out runs/smaller
      regard prune runs/flowers --heads 30% --by gradient --out runs/smaller
      regard prune runs/minilm --heads 20% --data texts.txt --out runs/smaller
    """
    from regard import load
    from regard.analysis import pruning
    from regard.analysis.pruning import learn_to_prune
    from regard.cli.progress import counting
    from regard.errors import ConfigError, RunError, nearest
    from regard.look.figures import need_matplotlib
    from regard.runs.files import CONFIG, check_output, check_output_directory, whole_file, write_json
    from regard.tasks.probes import held_out_data

    if (heads is None) == (keep_score is None):
        raise ConfigError("give --heads or --keep-score")
    if by not in get_args(pruning.By):
        raise ConfigError(
            f"--by={by} must be one of {', '.join(get_args(pruning.By))}{nearest(by, get_args(pruning.By))}"
        )
    if picture is not None and picture.suffix not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"--picture {picture} must end in .png, .svg or .pdf")
    if picture is not None:
        need_matplotlib("give --curve for the figures as JSON")
    if steps and (by != "gates" or heads is None):
        raise ConfigError("--steps trains gates for a number of heads: give --by gates and --heads with it")
    if (out / CONFIG).exists():
        raise RunError(f"{out} already holds a run: choose another directory")
    check_output_directory(out)
    for path in (curve, picture):
        if path is not None:
            check_output(path, makes=out)
    loaded = load(run, device, verify=not no_verify)
    pruning.check_kind(loaded)
    judge = held_out_data(loaded, data, limit)
    smaller = None
    if steps and heads is not None:
        count = counted(heads, len(pruning.every_head(loaded.model, among)))
        with counting("learning", "updates") as progress:
            smaller, ranked = learn_to_prune(
                loaded, count, steps=steps, among=among, learning_rate=learning_rate, progress=progress
            )
    else:
        ranked = pruning.importance(loaded, judge, by, among)  # type: ignore[arg-type]
    order = sorted(ranked, key=lambda head: ranked[head])
    count = None if heads is None else counted(heads, len(order))
    points = []
    if curve is not None or picture is not None or keep_score is not None:
        with counting("measuring", "models") as progress:
            points = list(pruning.curve(loaded, judge, order, progress=progress))
    if count is None:
        cost = {point["removed"]: judge.sign * (points[0][judge.name] - point[judge.name]) for point in points}
        count = max(removed for removed, lost in cost.items() if lost <= (keep_score or 0.0))
    learnt = smaller is not None
    smaller = smaller or pruning.prune(loaded, order[:count], out)
    pruning.save(smaller, run, out)
    result = {"learnt": learnt, **pruning.point(smaller, judge, count, len(order) - count)} if points else None
    if curve is not None:
        importance = [{"attention": name, "head": head, "importance": ranked[name, head]} for name, head in order]
        write_json(
            curve,
            {
                "by": by,
                "score": judge.name,
                "judged": judge.count,
                "heads": importance,
                "curve": points,
                "result": result,
            },
        )
    if picture is not None:
        with whole_file(picture) as aside:
            draw_curve(points, result if learnt else None, judge.name, aside, picture.suffix)
    kept = sum(parameter.numel() for parameter in smaller.model.parameters())
    before = sum(parameter.numel() for parameter in loaded.model.parameters())
    gone = ", ".join(f"{name} {head}" for name, head in sorted(order[:count])) or "none"
    print(f"{count} of {len(order)} heads removed: {gone}; {before:,} to {kept:,} parameters", file=sys.stderr)
    print(out)


def draw_curve(points: list[JsonObject], result: JsonObject | None, score: str, path: Path, suffix: str) -> None:
    """Score, parameters and milliseconds against heads kept; beside them `result`, a run that was trained on."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    kept = [point["kept"] for point in points]
    for axis, (name, title) in zip(
        figure.subplots(1, 3),
        ((score, TITLES[score]), ("parameters", "parameters"), ("milliseconds", "milliseconds per batch")),
        strict=True,
    ):
        axis.plot(kept, [point[name] for point in points], marker="o", color="#0072b2", label="removed")
        if result is not None:
            axis.plot([result["kept"]], [result[name]], marker="D", color="#d55e00", linestyle="none", label="learnt")
            axis.legend()
        axis.set(xlabel="heads kept", ylabel=title, ylim=(0, None) if name != score else None)
        axis.invert_xaxis()
        axis.grid(alpha=0.3)
    figure.savefig(path, format=suffix.removeprefix("."), dpi=150)


def counted(heads: str, total: int) -> int:
    """How many of `total` heads "5" or "40%" are."""
    from regard.errors import ConfigError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", heads.strip())
    count = -1 if match is None else float(match[1]) * (total / 100 if match[2] else 1)
    if not 0 <= count <= total or (match is not None and not match[2] and count % 1):
        raise ConfigError(f"--heads={heads} must be a number up to {total}, or a share such as 40%")
    return round(count)
