"""`regard look`: where the model looked, as one page."""

from pathlib import Path
from typing import Annotated

import typer


def look(
    run: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")],
    text: Annotated[list[str] | None, typer.Argument(help="Sentences to look into.", metavar="TEXT")] = None,
    input: Annotated[
        Path | None, typer.Option("--input", "-i", help="A file with one sentence a line instead.", metavar="FILE")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("attention.html"),
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept at each step; 1 is greedy.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Translate sentences and show every attention on a page.

    The page is one file for any browser and needs no network.

    \b
    Examples:
      regard look runs/demo "I am a student." --out attention.html
    """
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
    html = page(load(run, device), texts, **({} if beam is None else {"beam": beam}))
    with whole_file(out) as aside:
        aside.write_text(html, encoding="utf-8")
    print(out)
