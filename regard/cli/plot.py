"""`regard plot`: how one or several trainings went, as SVG and in the terminal."""

from html import escape
from pathlib import Path
from typing import Annotated

import typer


def plot(
    runs: Annotated[list[Path], typer.Argument(help="Runs, also those still in training.", metavar="RUN")],
    out: Annotated[Path | None, typer.Option(help="Write the charts to an .svg file, or to an .html page.")] = None,
    value: Annotated[
        list[str] | None,
        typer.Option(help="A value of the log, such as bleu or grad_norm; by default loss, score, rate, throughput."),
    ] = None,
) -> None:
    """Plot loss, score, learning rate and throughput of runs.

    \b
    Examples:
      regard plot runs/demo
      regard plot runs/one runs/two --out curves.svg
      regard plot runs/demo --value grad_norm --value bleu
    """
    from regard.analysis.training_curves import curves, in_the_terminal
    from regard.errors import ConfigError
    from regard.look.charts import STYLE, stacked
    from regard.look.charts import plot as svg
    from regard.runs.files import whole_file

    if out is not None and out.suffix.lower() not in (".svg", ".html", ".htm"):
        raise ConfigError(f"--out {out} must end in .svg, or in .html for a page")
    charts = curves(runs, value)
    for chart in charts:
        print(in_the_terminal(chart), end="\n\n")
    if out is not None and out.suffix.lower() == ".svg":
        with whole_file(out) as aside:
            aside.write_text(stacked(charts), encoding="utf-8", newline="\n")
        print(f"wrote {out}")
    elif out is not None:
        names = ", ".join(escape(str(run)) for run in runs)
        body = "\n".join(svg(chart) for chart in charts)
        head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{names}</title>'
        ground = "body { background: var(--ground); color: var(--ink); font: 14px system-ui, sans-serif; margin: 1em }"
        with whole_file(out) as aside:
            aside.write_text(f"{head}<style>{STYLE}{ground}</style>\n{body}\n</html>\n", encoding="utf-8", newline="\n")
        print(f"wrote {out}")
