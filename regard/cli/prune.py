"""`regard prune`: a smaller run without the heads that it can do without."""

import re
from pathlib import Path
from typing import Annotated, get_args

import typer


def prune(
    run: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory to make the smaller run in.")],
    heads: Annotated[
        str | None, typer.Option(help="How many heads to remove: 5, or 40% of them.", metavar="HEADS")
    ] = None,
    keep_score: Annotated[
        float | None, typer.Option(help="Remove as many as cost at most so much BLEU on the pairs judged by.", min=0)
    ] = None,
    by: Annotated[str, typer.Option(help="How heads are ranked: masking, gradient or gates.")] = "masking",
    among: Annotated[str, typer.Option(help="Remove heads of these attentions only, such as 'encoder.*'.")] = "*",
    data: Annotated[
        list[str] | None,
        typer.Option(help="Pairs to judge heads by; by default the run's validation or test set.", metavar="FILE"),
    ] = None,
    limit: Annotated[int, typer.Option(help="Judge by the first so many pairs.", min=1)] = 200,
    curve: Annotated[
        Path | None, typer.Option(help="Write score, size and speed against heads kept, as JSON.", metavar="FILE")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Remove attention heads for good: a new run with smaller matrices, to use and train on like any other.

    \b
    Examples:
      regard prune runs/demo --heads 40% --out runs/smaller
      regard prune runs/demo --keep-score 0.3 --among "encoder.*" --out runs/smaller --curve curve.json
    """
    from regard.cli.progress import counting
    from regard.errors import ConfigError, RunError, nearest
    from regard.runs import load, pruning
    from regard.runs.corpora import files_corpus
    from regard.runs.files import write_json
    from regard.runs.run import CONFIG

    if (heads is None) == (keep_score is None):
        raise ConfigError("give --heads or --keep-score")
    if by not in get_args(pruning.By):
        raise ConfigError(
            f"--by={by} must be one of {', '.join(get_args(pruning.By))}{nearest(by, get_args(pruning.By))}"
        )
    if (out / CONFIG).exists():
        raise RunError(f"{out} already holds a run: choose another directory")
    loaded = load(run, device)
    pairing = pruning.Pairing(loaded, files_corpus(tuple(data), loaded.config.data) if data else None, limit)
    ranked = pruning.importance(loaded, pairing, by, among)  # type: ignore[arg-type]
    order = sorted(ranked, key=lambda head: ranked[head])
    count = None if heads is None else counted(heads, len(order))
    points = []
    if curve is not None or keep_score is not None:
        with counting("measuring", "models") as progress:
            points = list(pruning.curve(loaded, pairing, order, progress=progress))
    if count is None:
        count = max(point["removed"] for point in points if point["bleu"] >= points[0]["bleu"] - (keep_score or 0.0))
    smaller = pruning.prune(loaded, order[:count], out)
    pruning.save(smaller, run, out)
    if curve is not None:
        importance = [{"attention": name, "head": head, "importance": ranked[name, head]} for name, head in order]
        write_json(curve, {"by": by, "sentences": len(pairing.pairs), "heads": importance, "curve": points})
    print(out)


def counted(heads: str, total: int) -> int:
    """How many of `total` heads "5" or "40%" are."""
    from regard.errors import ConfigError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", heads.strip())
    count = -1 if match is None else float(match[1]) * (total / 100 if match[2] else 1)
    if not 0 <= count <= total or (match is not None and not match[2] and count % 1):
        raise ConfigError(f"--heads={heads} must be a number up to {total}, or a share such as 40%")
    return round(count)
