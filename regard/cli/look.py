"""`regard look`: where the model looked, as one page."""

from pathlib import Path
from typing import Annotated

import typer


def look(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    text: Annotated[list[str], typer.Argument(help="Sentences to translate and look into.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("attention.html"),
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept at each step; 1 is greedy.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Translate sentences and write a page that shows every attention on the way. It needs no network."""
    from regard.runs import load
    from regard.runs.looking import page

    html = page(load(run, device), text, **({} if beam is None else {"beam": beam}))
    out.write_text(html, encoding="utf-8")
    print(out)
