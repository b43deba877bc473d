"""`regard draw`: figures that need no run: positions, masks, softmax, schedules and the variance of dot products."""

from pathlib import Path
from typing import Annotated

import typer

draw_app = typer.Typer(no_args_is_help=True, help="Plot what needs no run: positions, masks, softmax, schedules.")

OUT = Annotated[Path | None, typer.Option("--out", "-o", help="The SVG to write; by its name unless given.")]
LENGTH = Annotated[int, typer.Option(help="How many positions.", min=1, max=512)]


@draw_app.callback()
def _draw() -> None: ...


@draw_app.command("positions", short_help="Positional encodings as a heat map.")
def positions(
    kind: Annotated[str, typer.Option(help="sinusoidal, linear, linear-unscaled or alibi.")] = "sinusoidal",
    width: Annotated[int, typer.Option(help="Features of a position; with alibi, heads.", min=1, max=1024)] = 64,
    length: LENGTH = 32,
    layout: Annotated[str, typer.Option(help="Of sinusoids: interleaved or halves.")] = "interleaved",
    out: OUT = None,
) -> None:
    """Plot a table of positional encodings: a row per position, a column per feature.

    \b
    Examples:
      regard draw positions --width 512 --length 20 --layout halves
    """
    from regard.look.textbook import positions_figure

    _write(positions_figure(kind, width=width, length=length, layout=layout), out or Path("positions.svg"))


@draw_app.command("masks", short_help="Who may see whom.")
def masks(
    length: LENGTH = 12,
    window: Annotated[int, typer.Option(help="Of the window: places that are seen.", min=1)] = 4,
    padding: Annotated[int, typer.Option(help="Of the padded: places at the end that are none.", min=0)] = 3,
    out: OUT = None,
) -> None:
    """Plot four masks side by side: everything, causal, a window, padding.

    \b
    Examples:
      regard draw masks --length 10 --window 3 --out masks.svg
    """
    from regard.look.textbook import masks_figure

    _write(masks_figure(length=length, window=window, padding=padding), out or Path("masks.svg"))


@draw_app.command("softmax", short_help="How a softmax saturates as scores grow.")
def softmax(
    scores: Annotated[str, typer.Option(help="Scores with commas between them.")] = "2,1,0,-1",
    out: OUT = None,
) -> None:
    """Plot the softmax of scores times a growing factor, and the largest entry of its Jacobian, which dies away.

    \b
    Examples:
      regard draw softmax --scores 2,1,0,-1 --out softmax.svg
    """
    from regard.errors import ConfigError
    from regard.look.textbook import softmax_figure

    try:
        given = [float(one) for one in scores.split(",")]
    except ValueError:
        raise ConfigError(f"--scores={scores} must be numbers with commas between them, such as 2,1,0") from None
    _write(softmax_figure(given), out or Path("softmax.svg"))


@draw_app.command("schedules", short_help="Learning rates by step.")
def schedules(
    steps: Annotated[int, typer.Option(help="Updates.", min=2, max=10_000_000)] = 10_000,
    warmup: Annotated[int, typer.Option(help="Updates of the warm-up.", min=1)] = 1000,
    width: Annotated[int, typer.Option(help="The paper's: the model's width.", min=1)] = 512,
    out: OUT = None,
) -> None:
    """Plot every schedule of the learning rate, each as a share of its peak.

    \b
    Examples:
      regard draw schedules --steps 100000 --warmup 4000 --width 512
    """
    from functools import partial
    from typing import get_args

    from regard.look.textbook import schedules_figure
    from regard.training.schedule import ScheduleKind, learning_rate

    rates = {
        kind: partial(learning_rate, kind=kind, peak=1.0, warmup=warmup, total=steps, width=width)
        for kind in get_args(ScheduleKind)
    }
    _write(schedules_figure(rates, steps), out or Path("schedules.svg"))


@draw_app.command("variance", short_help="The variance of dot products, before and after scaling.")
def variance(
    widths: Annotated[str, typer.Option(help="Widths of a head with commas between them.")] = "4,16,64,256",
    samples: Annotated[int, typer.Option(help="Pairs of vectors for each width.", min=2, max=100_000)] = 4000,
    seed: Annotated[int, typer.Option(help="Of the random vectors.")] = 0,
    out: OUT = None,
) -> None:
    """Plot the variance of q.k for random q and k, before and after division by sqrt(d_k).

    \b
    Examples:
      regard draw variance --widths 4,16,64,256,1024 --out variance.svg
    """
    from regard.errors import ConfigError
    from regard.look.textbook import variance_figure

    parts = [part.strip() for part in widths.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= 4096 for part in parts):
        raise ConfigError(f"--widths={widths} must be whole numbers from 1 to 4096 with commas between them")
    _write(variance_figure([int(part) for part in parts], samples=samples, seed=seed), out or Path("variance.svg"))


@draw_app.command("calculator", short_help="A page to step through attention with your own numbers.")
def calculator(
    scores: Annotated[
        str | None, typer.Option(help="Raw scores, a row per query, as in '6 4; 3 8'; then --d-k is needed.")
    ] = None,
    q: Annotated[str | None, typer.Option("--q", help="Queries, a row each, as in '0 1; 1 1'.")] = None,
    k: Annotated[str | None, typer.Option("--k", help="Keys, a row each.")] = None,
    v: Annotated[str | None, typer.Option("--v", help="Values, a row per key.")] = None,
    d_k: Annotated[float | None, typer.Option("--d-k", help="What scores are scaled by the root of.")] = None,
    causal: Annotated[bool, typer.Option("--causal", help="Hide keys after the query's place.")] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("calculator.html"),
) -> None:
    """Write a page that steps through score, scale, mask, softmax and sum, with numbers that can be typed on it.

    It opens with your numbers, or with the worked examples of the lectures.

    \b
    Examples:
      regard draw calculator
      regard draw calculator --scores "6 4; 3 8" --d-k 16
      regard draw calculator --q "0 1; 1 1" --k "1 1; 0 -1" --v "1 0; -1 1" --causal
    """
    from regard.look.calculator import WorkedExample, matrix_of
    from regard.look.calculator import calculator as made
    from regard.look.page import render

    given = {"scores": scores, "q": q, "k": k, "v": v}
    rows = {name: matrix_of(f"--{name}", text) for name, text in given.items() if text is not None}
    typed = rows or d_k is not None or causal
    own = WorkedExample(title="Your own numbers", tokens=(), **rows, d_k=d_k, causal=causal) if typed else None
    _write(render(made(own)), out, ".html")


def _write(content: str, path: Path, kind: str = ".svg") -> None:
    from regard.runs.files import check_output, whole_file

    check_output(path, kind=kind)
    with whole_file(path) as aside:
        aside.write_text(content, encoding="utf-8", newline="\n")
    print(path)
