"""`regard look`: where the model looked, as one page."""

from pathlib import Path
from typing import Annotated, Any

import typer


def look(
    run: Annotated[Path, typer.Argument(help="A run directory; with --gradients several, or presets.", metavar="RUN")],
    text: Annotated[list[str] | None, typer.Argument(help="Sentences to look into.", metavar="TEXT")] = None,
    input: Annotated[
        Path | None, typer.Option("--input", "-i", help="A file with one sentence a line instead.", metavar="FILE")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The page to write: attention.html or gradients.html unless given."),
    ] = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept at each step; 1 is greedy.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    gradients: Annotated[
        bool,
        typer.Option(
            "--gradients",
            help="Instead, how far back the loss reaches: RUN or PRESET, as many as wanted, then one TEXT.",
        ),
    ] = False,
    target: Annotated[
        str | None, typer.Option(help="With --gradients: the target to predict the end of.", metavar="TEXT")
    ] = None,
    spectral_radius: Annotated[
        float | None,
        typer.Option(help="With --gradients: scale every matrix over a recurrent state to this.", metavar="RADIUS"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="With --gradients: a setting of the presets; may be repeated.", metavar="NAME=VALUE"
        ),
    ] = None,
) -> None:
    """Translate sentences and show every attention on a page.

    The page is one file for any browser and needs no network. With --gradients it shows, for several models together,
    how strongly the last prediction depends on each step before it; figures and picture go beside it as .json and .svg.

    \b
    Examples:
      regard look runs/demo "I am a student." --out attention.html
      regard look --gradients lstm-tiny gpt-tiny "one two three four five six seven eight" --out gradients.html
    """
    if gradients:
        if input or beam is not None:
            raise typer.BadParameter("--gradients takes one text, and neither --input nor --beam")
        _gradients([str(run), *(text or [])], out or Path("gradients.html"), target, spectral_radius, settings or [])
        return
    if target or spectral_radius is not None or settings:
        raise typer.BadParameter("--target, --spectral-radius and --set go with --gradients")
    _attention(run, text, input, out or Path("attention.html"), beam, device)


def _attention(run: Path, text: list[str] | None, input: Path | None, out: Path, beam: int | None, device: str) -> None:
    from regard.data import TextFiles
    from regard.errors import ConfigError, DataError
    from regard.runs import load
    from regard.runs.files import whole_file
    from regard.runs.looking import page

    if bool(text) == bool(input):
        raise ConfigError("give sentences, or --input with a file of them")
    given = text or list(TextFiles((input,), format="lines"))  # type: ignore[arg-type]
    texts = [one for one in given if one.strip()]
    if not texts:
        raise DataError("nothing to look at: every sentence is blank")
    decode: dict[str, Any] = {} if beam is None else {"beam": beam}
    html = page(load(run, device), texts, **decode)
    with whole_file(out) as aside:
        aside.write_text(html, encoding="utf-8")
    print(out)


def _gradients(given: list[str], out: Path, target: str | None, radius: float | None, settings: list[str]) -> None:
    from regard.errors import ConfigError
    from regard.runs.files import whole_file, write_json
    from regard.runs.gradients import gradients, gradients_chart, gradients_page

    *models, text = given
    if not models:
        raise ConfigError("--gradients needs runs or presets, then the text")
    document = gradients(models, text, target=target, spectral_radius=radius, overrides=settings)
    write_json(out.with_suffix(".json"), document)
    for path, content in (
        (out.with_suffix(".svg"), gradients_chart(document, alone=True)),
        (out, gradients_page(document)),
    ):
        with whole_file(path) as aside:
            aside.write_text(content, encoding="utf-8")
    for one in document["models"]:
        print(f"{one['name']}: each step back multiplies the gradient by {one['factor_per_step']:.3f}")
    print(out)
